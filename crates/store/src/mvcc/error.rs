//! What a request can be refused for. `rpc::error` maps each to etcd's code and text.

/// A refused request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request without a key.
    #[error("key is not provided")]
    EmptyKey,
    /// `ignore_value` or `ignore_lease` on a key that is not there, or an operation that holds nothing.
    #[error("key not found")]
    KeyNotFound,
    /// `ignore_value` together with a value.
    #[error("value is provided")]
    ValueProvided,
    /// `ignore_lease` together with a lease.
    #[error("lease is provided")]
    LeaseProvided,
    /// More operations than a transaction may hold.
    #[error("too many operations in txn request")]
    TooManyOps,
    /// A key put twice, or put and deleted, in one transaction.
    #[error("duplicate key given in txn request")]
    DuplicateKey,
    /// A sort order or target that does not exist.
    #[error("invalid sort option")]
    InvalidSort,
    /// The request is larger than one may be.
    #[error("request is too large")]
    RequestTooLarge,
    /// The revision asked for is gone.
    #[error("revision has been compacted")]
    Compacted,
    /// The revision asked for is not there yet.
    #[error("revision is a future revision")]
    FutureRevision,
    /// The quota or the disk is full.
    #[error("no space")]
    NoSpace,
    /// The CORRUPT alarm is raised.
    #[error("corrupt")]
    Corrupt,
    /// No such lease.
    #[error("lease not found")]
    LeaseNotFound,
    /// A lease of that id is there already.
    #[error("lease exists")]
    LeaseExists,
    /// A TTL of more than 9,000,000,000 s.
    #[error("too large lease TTL")]
    TtlTooLarge,
    /// As many watch streams are open as may be. etcd has no such limit.
    #[error("too many watch streams")]
    TooManyStreams,
    /// The server ends; nothing is known of the request's fate.
    #[error("server stopped")]
    Stopped,
    /// The store's file could not be read or written.
    #[error("the store's file")]
    File(#[from] quantykube_store_file::Error),
}
