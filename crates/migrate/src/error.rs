//! What can go wrong, each with its exit code and what to do about it.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use quantykube_base::{Exit, Failure, human_bytes};
use quantykube_store_file as store_file;

use crate::version::{NEWEST, OLDEST};

/// Why a copy ended. After any of these no store file was left behind, and no step of the copy is half done in a way
/// that calling again would not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No endpoint was given.
    #[error("no etcd endpoint was given")]
    NoEndpoint,
    /// An endpoint that cannot be used.
    #[error("etcd endpoint {endpoint}: {why}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// A certificate or key that cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store file to write exists.
    #[error("{} exists already", path.display())]
    TargetExists {
        /// The file.
        path: PathBuf,
    },
    /// The folder of the store file to write does not exist, or it is no folder.
    #[error("{} is not a folder", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of the store file to write takes no file.
    #[error("no file can be made in {}", path.display())]
    TargetRefused {
        /// The folder.
        path: PathBuf,
        /// As the system says it.
        #[source]
        source: io::Error,
    },
    /// Nothing answers.
    #[error("etcd at {endpoint} cannot be reached")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The two sides do not accept each other's certificates.
    #[error("etcd at {endpoint} and this program do not accept each other's certificates")]
    Certificate {
        /// The endpoint.
        endpoint: String,
        /// What TLS said.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// etcd asks for a user name.
    #[error("etcd at {endpoint} has authentication switched on")]
    Authentication {
        /// The endpoint.
        endpoint: String,
        /// What it answered.
        #[source]
        source: Box<tonic::Status>,
    },
    /// A version of etcd that was never tried.
    #[error("etcd at {endpoint} is version {found}, which is not one of {}.{} to {}.{}", OLDEST.0, OLDEST.1, NEWEST.0, NEWEST.1)]
    Version {
        /// The endpoint.
        endpoint: String,
        /// What its Status said.
        found: String,
        /// Newer than what is known, not older.
        newer: bool,
    },
    /// The connection broke in the middle.
    #[error("the connection to etcd at {endpoint} was lost while {doing}")]
    Lost {
        /// The endpoint.
        endpoint: String,
        /// What was being done.
        doing: &'static str,
        /// What the client saw.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// etcd was compacted past the revision that is being read.
    #[error("etcd was compacted past revision {revision} while it was read")]
    Compacted {
        /// The revision that was read.
        revision: i64,
    },
    /// etcd has reached its quota.
    #[error("etcd at {endpoint} has no space left under its quota")]
    EtcdFull {
        /// The endpoint.
        endpoint: String,
        /// What it answered.
        #[source]
        source: Box<tonic::Status>,
    },
    /// etcd's quota is used up, and not by the filler of the way back.
    #[error(
        "etcd at {endpoint} has no room: its database has {}, {} of it in use, and its quota is {}",
        human_bytes(*file), human_bytes(*used), human_bytes(*quota)
    )]
    NoRoom {
        /// The endpoint.
        endpoint: String,
        /// Size of its database, in bytes.
        file: u64,
        /// What of it is in use, in bytes.
        used: u64,
        /// Its quota, in bytes.
        quota: u64,
    },
    /// etcd said no.
    #[error("etcd at {endpoint} answered with an error while {doing}")]
    Answer {
        /// The endpoint.
        endpoint: String,
        /// What was being done.
        doing: &'static str,
        /// What it answered.
        #[source]
        source: Box<tonic::Status>,
    },
    /// An answer that etcd never gives.
    #[error("etcd at {endpoint} gave an answer that cannot be: {what}")]
    Impossible {
        /// The endpoint.
        endpoint: String,
        /// What was found and expected.
        what: String,
    },
    /// The store file.
    #[error("store file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: store_file::Error,
    },
    /// What was read back from the finished file is not what was read from etcd.
    #[error("the finished store file does not hold what was read from etcd: {what}")]
    Differs {
        /// Found and expected.
        what: String,
    },
    /// Another client wrote to etcd while it was copied, and the caller does not accept that.
    #[error("etcd was written to while it was copied: {what}")]
    WrittenTo {
        /// How far, and by how many changes.
        what: String,
    },
    /// The store file belongs to another cluster.
    #[error("the store file belongs to cluster {file:x}, etcd at {endpoint} is cluster {etcd:x}")]
    OtherCluster {
        /// The endpoint.
        endpoint: String,
        /// The file's cluster id.
        file: u64,
        /// The etcd's cluster id.
        etcd: u64,
    },
    /// etcd still differs from the store file after several passes.
    #[error("etcd at {endpoint} still differs from the store file after {passes} passes: {what}")]
    StillDiffers {
        /// The endpoint.
        endpoint: String,
        /// Passes made.
        passes: u32,
        /// The last pass's findings.
        what: String,
    },
}

impl Error {
    /// The exit code of a program that ends with this error.
    pub fn exit(&self) -> Exit {
        match self {
            Error::NoEndpoint | Error::Endpoint { .. } => Exit::Usage,
            Error::Unreadable { .. }
            | Error::TargetExists { .. }
            | Error::NoFolder { .. }
            | Error::TargetRefused { .. }
            | Error::Authentication { .. }
            | Error::OtherCluster { .. } => Exit::Refused,
            Error::Version { newer, .. } => match newer {
                true => Exit::NeedsNewer,
                false => Exit::Refused,
            },
            Error::Differs { .. } | Error::StillDiffers { .. } => Exit::NotVerified,
            Error::EtcdFull { .. } | Error::NoRoom { .. } => Exit::NoSpace,
            Error::File { source, .. } => file_exit(source),
            _ => Exit::Failed,
        }
    }

    /// A stable name for `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            Error::NoEndpoint | Error::Endpoint { .. } => "etcd-endpoint",
            Error::Unreadable { .. } => "unreadable",
            Error::TargetExists { .. } => "target-exists",
            Error::NoFolder { .. } => "no-folder",
            Error::TargetRefused { .. } => "target-refused",
            Error::Unreachable { .. } => "etcd-unreachable",
            Error::Certificate { .. } => "etcd-certificate",
            Error::Authentication { .. } => "etcd-authentication",
            Error::Version { .. } => "etcd-version",
            Error::Lost { .. } => "etcd-lost",
            Error::Compacted { .. } => "etcd-compacted",
            Error::EtcdFull { .. } | Error::NoRoom { .. } => "etcd-full",
            Error::Answer { .. } => "etcd-answer",
            Error::Impossible { .. } => "etcd-impossible",
            Error::File { source, .. } if file_exit(source) == Exit::NoSpace => "no-space",
            Error::File {
                source: store_file::Error::Exists { .. },
                ..
            } => "target-exists",
            Error::File {
                source: store_file::Error::Locked { .. },
                ..
            } => "store-file-in-use",
            Error::File {
                source: store_file::Error::Import(_),
                ..
            } => "not-for-a-store",
            Error::File { .. } => "store-file",
            Error::Differs { .. } => "copy-differs",
            Error::WrittenTo { .. } => "etcd-written-to",
            Error::OtherCluster { .. } => "other-cluster",
            Error::StillDiffers { .. } => "etcd-differs",
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Error::NoEndpoint => "give --endpoints https://127.0.0.1:2379",
            Error::Endpoint { .. } => "an endpoint is http:// or https://, a literal address (or localhost) and a port",
            Error::Unreadable { .. } => {
                "kubeadm keeps the API server's pair for etcd in /etc/kubernetes/pki/apiserver-etcd-client.{crt,key}"
            }
            Error::TargetExists { .. } => {
                "a store file is never overwritten: give another name, or move it away if nothing serves from it"
            }
            Error::NoFolder { .. } => "make the folder first, on the disk that is to hold the store",
            Error::TargetRefused { .. } => "give a folder on a local disk that this user may write to",
            Error::Unreachable { .. } => {
                "see that etcd runs and listens there; with certificates the endpoint begins with https://"
            }
            Error::Certificate { .. } => {
                "--cacert must be the authority that signed etcd's certificate, --cert and --key a pair that etcd's own client authority signed, and none may have expired"
            }
            Error::Authentication { .. } => {
                "a cluster that uses etcd's own users is not supported; switch it off with etcdctl auth disable"
            }
            Error::Version { newer: true, .. } => "a newer version of this program may know it",
            Error::Version { newer: false, .. } => "upgrade etcd first, one minor version at a time",
            Error::Lost { .. } => "see etcd's own log for why it went away, then run this again",
            Error::Compacted { .. } => "stop what compacts etcd (the API server, a cron job), then run this again",
            Error::EtcdFull { .. } | Error::NoRoom { .. } => {
                "raise etcd's --quota-backend-bytes, or compact and defragment it, disarm the alarm with etcdctl alarm disarm, then run this again"
            }
            Error::File { source, .. } if file_exit(source) == Exit::NoSpace => {
                "make room on the disk, or choose another, then run this again"
            }
            Error::File {
                source: store_file::Error::Locked { .. },
                ..
            } => "stop the store first",
            Error::File {
                source: store_file::Error::Import(_),
                ..
            } => {
                "etcd holds what no store file can; etcd itself takes requests of 1.5 MiB unless it was told otherwise"
            }
            Error::Differs { .. } => {
                "nothing was left behind; if this happens again the disk or the memory of this machine is suspect"
            }
            Error::WrittenTo { .. } => "stop the API server and every other client of etcd, then run this again",
            Error::OtherCluster { .. } => "give the etcd that this store was copied from",
            Error::StillDiffers { .. } => "another client writes to etcd: stop it, then run this again",
            Error::Answer { .. } | Error::Impossible { .. } | Error::File { .. } => return None,
        };
        Some(text.to_owned())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let failure = Failure::new(error.exit(), error.name(), error.to_string());
        let failure = match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        };
        match error {
            Error::Unreadable { source, .. } | Error::TargetRefused { source, .. } => failure.because(source),
            Error::Unreachable { source, .. } | Error::Certificate { source, .. } | Error::Lost { source, .. } => {
                failure.because(source)
            }
            Error::Authentication { source, .. } | Error::EtcdFull { source, .. } | Error::Answer { source, .. } => {
                failure.because(Said(source.message().to_owned()))
            }
            Error::File { source, .. } => failure.because(source),
            _ => failure,
        }
    }
}

/// etcd's own words, without the transport's metadata around them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

fn file_exit(error: &store_file::Error) -> Exit {
    match error {
        store_file::Error::Exists { .. } | store_file::Error::Missing { .. } | store_file::Error::Locked { .. } => {
            Exit::Refused
        }
        store_file::Error::Damaged { .. } | store_file::Error::Foreign { .. } => Exit::NotVerified,
        store_file::Error::Newer { .. } => Exit::NeedsNewer,
        store_file::Error::NoSpace { .. } => Exit::NoSpace,
        store_file::Error::Io { source, .. }
            if matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
            ) =>
        {
            Exit::NoSpace
        }
        _ => Exit::Failed,
    }
}

/// A cause without its chain, whose texts are joined: the client's own types hide theirs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Cause(String);

/// The message of `error` and of everything behind it that adds something.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// TLS has its own words on both sides; the transport wraps them without a type.
fn speaks_of_certificates(text: &str) -> bool {
    [
        "invalid peer certificate",
        "received fatal alert",
        "peer sent no certificates",
        "CertificateError",
    ]
    .iter()
    .any(|mark| text.contains(mark))
}

/// Sorts a failed connection.
pub(crate) fn connect_failed(endpoint: &str, error: &dyn StdError) -> Error {
    let text = chain(error);
    let endpoint = endpoint.to_owned();
    let certificates = speaks_of_certificates(&text);
    let source = Box::new(Cause(text));
    match certificates {
        true => Error::Certificate { endpoint, source },
        false => Error::Unreachable { endpoint, source },
    }
}

/// Sorts a failed call at `revision` (0 for none).
pub(crate) fn call_failed(endpoint: &str, doing: &'static str, revision: i64, error: etcd_client::Error) -> Error {
    let endpoint = endpoint.to_owned();
    let status = match error {
        etcd_client::Error::GRpcStatus(status) => status,
        other => {
            return Error::Lost {
                endpoint,
                doing,
                source: Box::new(Cause(other.to_string())),
            };
        }
    };
    let message = status.message();
    if is_compacted(&status) {
        return Error::Compacted { revision };
    }
    if message.contains("database space exceeded") {
        return Error::EtcdFull {
            endpoint,
            source: Box::new(status),
        };
    }
    let wants_user = ["user name is empty", "invalid auth token", "permission denied"]
        .iter()
        .any(|mark| message.contains(mark));
    if wants_user {
        return Error::Authentication {
            endpoint,
            source: Box::new(status),
        };
    }
    if message.starts_with("etcdserver:") {
        return Error::Answer {
            endpoint,
            doing,
            source: Box::new(status),
        };
    }
    let text = match StdError::source(&status) {
        Some(source) => format!("{message}: {}", chain(source)),
        None => message.to_owned(),
    };
    let certificates = speaks_of_certificates(&text);
    let source = Box::new(Cause(text));
    match certificates {
        true => Error::Certificate { endpoint, source },
        false => Error::Lost {
            endpoint,
            doing,
            source,
        },
    }
}

/// Whether a call failed because its revision is gone.
pub(crate) fn is_compacted(status: &tonic::Status) -> bool {
    status.message().contains("required revision has been compacted")
}

/// Whether a call failed because its lease is gone.
pub(crate) fn is_lease_gone(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains("requested lease not found"))
}

/// Whether a call asked for more at once than the server was set to take.
pub(crate) fn is_too_much(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.message().contains("too many operations in txn request")
            || status.message().contains("request is too large")
            || status.message().contains("received message larger than max"))
}

/// Whether a call failed because etcd has reached its quota.
pub(crate) fn is_full(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if status.message().contains("database space exceeded"))
}

/// Whether the same call may succeed a little later. Only for calls that may be made twice.
pub(crate) fn is_passing(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.message().contains("too many requests")
            || status.message().contains("leader changed")
            || status.message().contains("request timed out"))
}
