//! What can go wrong while reading or writing etcd's files.

use std::io;

/// Why a file cannot be read. The path is the caller's to name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A read failed.
    #[error("reading {length} bytes at offset {offset} failed")]
    Io {
        /// Where.
        offset: u64,
        /// How much.
        length: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Neither meta page can be used.
    #[error("not a bbolt file, or its beginning is destroyed: meta page 0: {first}; meta page 1: {second}")]
    NoMeta {
        /// What is wrong with the first.
        first: String,
        /// What is wrong with the second.
        second: String,
    },
    /// The file ends before the last page that its meta page names.
    #[error(
        "the file has {found} bytes, but its newest meta page speaks of {expected}: it was cut off or copied while in \
         use\nhint: take it with `etcdctl snapshot save`, or copy it while etcd is stopped"
    )]
    Short {
        /// The file's length.
        found: u64,
        /// The length by the meta page.
        expected: u64,
    },
    /// A page does not hold what it must.
    #[error("page {page} at offset {offset}: {what}")]
    Damaged {
        /// The page.
        page: u64,
        /// The byte offset in the file where the damage was seen.
        offset: u64,
        /// What was found and expected.
        what: String,
    },
    /// The pages are fine, but what they hold is not etcd's.
    #[error("bucket `{bucket}`, key {key}: {what}")]
    Content {
        /// The bucket.
        bucket: &'static str,
        /// The key, in hex; empty for the bucket as a whole.
        key: String,
        /// What was found and expected.
        what: String,
    },
    /// The SHA-256 at the end of a snapshot is not that of its bytes.
    #[error("the snapshot's SHA-256 is {found}, but its last 32 bytes say {expected}: it is damaged")]
    Sum {
        /// Computed, in hex.
        found: String,
        /// Stored, in hex.
        expected: String,
    },
    /// A revision that the file does not hold.
    #[error("revision {asked} is not in the file, which holds {compacted} to {head}")]
    Revision {
        /// Asked for.
        asked: i64,
        /// The oldest revision that can be read.
        compacted: i64,
        /// The newest.
        head: i64,
    },
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Writing failed.
    #[error("writing page {page} failed")]
    Io {
        /// The page.
        page: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Keys must come in order, each once.
    #[error("key {key} comes after {last}: keys must increase")]
    Order {
        /// The key, in hex.
        key: String,
        /// The one before it, in hex.
        last: String,
    },
    /// A key or value that bbolt cannot hold.
    #[error(
        "a key of {key} bytes with a value of {value}: bbolt holds keys of 1 to {key_max} and values up to {value_max}"
    )]
    TooBig {
        /// The key's length.
        key: usize,
        /// The value's length.
        value: u64,
        /// The longest key.
        key_max: usize,
        /// The longest value.
        value_max: u64,
    },
    /// A bucket was not ended, or one too many.
    #[error("buckets do not pair: {0}")]
    Nesting(&'static str),
    /// What was written is not what was measured.
    #[error(
        "{written} pages were written with the root at {root}, but {measured} with the root at {measured_root} were measured: the records changed in between"
    )]
    Measured {
        /// Pages written.
        written: u64,
        /// The root's page.
        root: u64,
        /// Pages measured.
        measured: u64,
        /// The root's page as measured.
        measured_root: u64,
    },
    /// etcd would not come up at the intended revision.
    #[error(
        "the last record has revision {last} and the compaction {compacted}, but the head is {head}: etcd would start at another revision"
    )]
    Head {
        /// The intended head.
        head: i64,
        /// The last record's revision.
        last: i64,
        /// The compaction revision.
        compacted: i64,
    },
    /// A live key names a lease that is not there: etcd panics on such a key.
    #[error("{keys} keys name a lease that is not in the file, the first is key {key} with lease {lease}")]
    Lease {
        /// How many.
        keys: usize,
        /// The first key, in hex.
        key: String,
        /// Its lease.
        lease: i64,
    },
}

/// At most this many bytes of a key are shown.
const SHOWN_MAX: usize = 64;

/// Hex digits of the beginning of `bytes`, for messages.
pub(crate) fn shown(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len().min(SHOWN_MAX) + 2);
    for byte in bytes.iter().take(SHOWN_MAX) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN_MAX {
        text.push_str("..");
    }
    text
}
