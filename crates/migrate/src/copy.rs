//! etcd -> store file.
//!
//! Pages come over the wire while the page before is written by a thread of its own, which also takes the digest. The
//! file is read back once it is synced; only if it holds exactly what was read does it get its name.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use etcd_client::KeyValue;
use quantykube_base::{Reporter, Unit, human_bytes};
use quantykube_store_file::{Digest, Finished, Identity, Import, Lease, Record, Summary};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connect::{Connection, Source};
use crate::error::Error;
use crate::movement::{self, Movement};
use crate::pages::{Page, Pager};
use crate::version::Version;
use crate::{error, leases};

/// What a caller wants beyond the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// End with [`Error::WrittenTo`], without a file, where another client wrote to etcd during the copy.
    pub refuse_writes: bool,
}

/// What was copied.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The endpoint that was read.
    pub endpoint: String,
    /// The version of etcd.
    pub version: Version,
    /// The cluster id, kept by the store.
    pub cluster_id: u64,
    /// The revision that was read: the store's head.
    pub head: i64,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Number of leases.
    pub leases: u64,
    /// How many of those had ended by the time they were asked for; they end within a second.
    pub leases_ended: u64,
    /// The digest over everything, equal on both sides.
    pub digest: [u8; 32],
    /// What happened in etcd meanwhile.
    pub movement: Movement,
    /// How long it took, comparison included.
    pub took: Duration,
}

/// Copies every key of an etcd at one revision into a new store file. etcd is not changed.
///
/// After an error nothing is left behind, the temporary file included. Dropped in the middle, it lets go of the file;
/// the temporary file is gone once the runtime's blocking threads have ended.
pub async fn copy(source: &Source, to: &Path, reporter: &Reporter) -> Result<Outcome, Error> {
    copy_with(source, to, reporter, Options::default()).await
}

/// [`copy`] with options.
pub async fn copy_with(source: &Source, to: &Path, reporter: &Reporter, options: Options) -> Result<Outcome, Error> {
    let begun = Instant::now();
    check_target(to)?;
    let connection = Connection::open_known(source).await?;
    let opened = connection.opened;
    let version = opened.version.expect("a known version was parsed");
    reporter.step(
        "connected",
        &format!(
            "etcd {version} at {}, revision {}",
            connection.endpoint, opened.revision
        ),
    );

    let mut pager = Pager::at_head(&connection);
    let first = pager.next().await?;
    let head = pager.revision();
    let identity = Identity {
        cluster_id: opened.cluster_id,
        member_id: opened.member_id,
        raft_term: opened.raft_term.max(1),
    };
    let written = read_and_write(&mut pager, first, to, identity, reporter).await?;
    if written.count != pager.total() {
        return Err(Error::Differs {
            what: format!("{} keys were written, etcd counted {}", written.count, pager.total()),
        });
    }

    let held = held_leases(&connection, &written.leases).await?;
    let read = Summary {
        keys: written.count,
        bytes: written.bytes,
        head,
        digest: written.digest,
    };
    reporter.step(
        "compare",
        &format!("syncing {} keys and reading them back from {}", read.keys, to.display()),
    );
    let leases_ended = held.iter().filter(|lease| lease.ended).count() as u64;
    let leases = held.len() as u64;
    let finished = finish(written.import, held, to).await?;
    compare(&read, finished.summary())?;

    let movement = movement::since(&connection, head).await?;
    if options.refuse_writes && movement.written_to() {
        return Err(Error::WrittenTo {
            what: told(head, &movement),
        });
    }
    // Not on another thread: who drops this future has a file under its final name either before or not at all.
    finished.publish().map_err(|source| file_error(to, source))?;
    Ok(Outcome {
        endpoint: connection.endpoint,
        version,
        cluster_id: opened.cluster_id,
        head,
        keys: read.keys,
        bytes: read.bytes,
        leases,
        leases_ended,
        digest: read.digest,
        movement,
        took: begun.elapsed(),
    })
}

/// One sentence on what happened after the revision that was read.
pub(crate) fn told(head: i64, movement: &Movement) -> String {
    let revisions = movement.head_after - head;
    match movement.unknown {
        true => format!("{revisions} revisions after {head}, of changes that cannot be told any more"),
        false => format!(
            "{revisions} revisions after {head}: {} changes by clients, {} keys whose lease ended",
            movement.writes, movement.lease_ends
        ),
    }
}

/// What can be refused before anything is connected to.
fn check_target(to: &Path) -> Result<(), Error> {
    let folder = match to.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() || to.file_name().is_none() {
        return Err(Error::NoFolder {
            path: folder.to_owned(),
        });
    }
    // A link that leads nowhere is in the way too.
    match to.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => takes_files(folder, to),
        Ok(_) => Err(Error::TargetExists { path: to.to_owned() }),
        Err(source) => Err(Error::Unreadable {
            path: to.to_owned(),
            source,
        }),
    }
}

/// Whether a file can be made in the folder: neither modes nor the kind of file system tell it for certain.
fn takes_files(folder: &Path, to: &Path) -> Result<(), Error> {
    let refused = |source| Error::TargetRefused {
        path: folder.to_owned(),
        source,
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name().unwrap_or_default());
    name.push(".quantykube-try");
    let probe = folder.join(name);
    match std::fs::OpenOptions::new().write(true).create_new(true).open(&probe) {
        Ok(_) => {}
        // Left by a run that was killed just there.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(refused(source)),
    }
    match std::fs::remove_file(&probe) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused(error)),
        _ => Ok(()),
    }
}

/// The import with all keys in it, and what was put in.
struct Written {
    import: Import,
    count: u64,
    bytes: u64,
    digest: [u8; 32],
    /// Every lease that a key is attached to.
    leases: BTreeSet<i64>,
}

async fn read_and_write(
    pager: &mut Pager,
    first: Option<Page>,
    to: &Path,
    identity: Identity,
    reporter: &Reporter,
) -> Result<Written, Error> {
    // One page waits while one is written and the next one comes in.
    let (pages, received) = mpsc::channel(1);
    let writer = spawn_writer(to.to_owned(), identity, pager.revision(), received);
    let begun = Instant::now();
    let mut progress = reporter.progress("copying", Unit::Keys, Some(pager.total()));
    let (mut keys, mut bytes) = (0, 0);
    let mut page = first;
    while let Some(read) = page {
        keys += read.records.len() as u64;
        bytes += read.bytes;
        if pages.send(read).await.is_err() {
            // The writer has ended early: it says why.
            break;
        }
        let rate = (bytes as f64 / begun.elapsed().as_secs_f64().max(0.001)) as u64;
        progress.set(keys, &format!("{}, {}/s", human_bytes(bytes), human_bytes(rate)));
        page = match pager.next().await {
            Ok(page) => page,
            Err(error) => {
                drop(pages);
                // Waits until the temporary file is gone.
                drop(joined(writer).await);
                return Err(error);
            }
        };
    }
    drop(pages);
    let written = joined(writer).await.map_err(|source| file_error(to, source))?;
    progress.finish();
    Ok(written)
}

fn spawn_writer(
    to: PathBuf,
    identity: Identity,
    head: i64,
    mut pages: mpsc::Receiver<Page>,
) -> JoinHandle<Result<Written, quantykube_store_file::Error>> {
    tokio::task::spawn_blocking(move || {
        let mut import = Import::create(&to, identity, head)?;
        let mut digest = Digest::default();
        let (mut count, mut bytes) = (0, 0);
        let mut leases = BTreeSet::new();
        while let Some(page) = pages.blocking_recv() {
            for key_value in page.records {
                let record = record(key_value);
                import.push(&record)?;
                digest.add(&record);
                if record.lease != 0 {
                    leases.insert(record.lease);
                }
                count += 1;
            }
            bytes += page.bytes;
        }
        Ok(Written {
            import,
            count,
            bytes,
            digest: digest.finish(),
            leases,
        })
    })
}

/// The same key as the store keeps it.
pub(crate) fn record(KeyValue(key_value): KeyValue) -> Record {
    Record {
        key: Bytes::from(key_value.key),
        value: Bytes::from(key_value.value),
        create: key_value.create_revision,
        modified: key_value.mod_revision,
        version: key_value.version,
        lease: key_value.lease,
    }
}

/// A lease to write, and whether etcd has ended it since the keys were read.
struct Held {
    lease: Lease,
    ended: bool,
}

/// A lease that a key was attached to at the revision that was read, but that has ended since: its keys go within this
/// time, as they went in etcd.
const ENDED_TTL: i64 = 1;

/// Every lease of etcd, and every one that a key was attached to: with the TTL it was granted, in full from now.
async fn held_leases(connection: &Connection, attached: &BTreeSet<i64>) -> Result<Vec<Held>, Error> {
    let mut ids = leases::list(connection).await?;
    ids.extend(attached);
    let told = leases::ask(connection, &ids, false).await?;
    let now_ms = now_ms();
    Ok(told
        .into_iter()
        // A lease without keys that ended between the list and the question leaves nothing to end.
        .filter(|told| told.granted.is_some() || attached.contains(&told.id))
        .map(|told| {
            let granted_ttl = told.granted.unwrap_or(ENDED_TTL);
            Held {
                lease: Lease {
                    id: told.id,
                    granted_ttl,
                    deadline_ms: now_ms.saturating_add(granted_ttl.saturating_mul(1000)),
                },
                ended: told.granted.is_none(),
            }
        })
        .collect())
}

/// Milliseconds since the Unix epoch, wall clock.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

async fn finish(mut import: Import, leases: Vec<Held>, to: &Path) -> Result<Finished, Error> {
    let finishing = tokio::task::spawn_blocking(move || {
        for held in leases {
            import.lease(held.lease)?;
        }
        import.finish()
    });
    joined(finishing).await.map_err(|source| file_error(to, source))
}

fn compare(read: &Summary, file: &Summary) -> Result<(), Error> {
    let what = if read.head != file.head {
        format!("head {} instead of {}", file.head, read.head)
    } else if read.keys != file.keys {
        format!("{} keys instead of {}", file.keys, read.keys)
    } else if read.bytes != file.bytes {
        format!("{} bytes instead of {}", file.bytes, read.bytes)
    } else if read.digest != file.digest {
        "the digests differ".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Differs { what })
}

/// The result of a blocking task; its panic goes on here.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("a blocking task is never cancelled"),
        },
    }
}

pub(crate) fn file_error(path: &Path, source: quantykube_store_file::Error) -> error::Error {
    match source {
        quantykube_store_file::Error::Exists { path } => Error::TargetExists { path },
        source => Error::File {
            path: path.to_owned(),
            source,
        },
    }
}
