//! `restore`: makes a store file from a snapshot, ours or etcd's.
//!
//! The snapshot may be anybody's: its sum is compared, all its pages are checked, and only then is it read. What is made
//! is the live set at the snapshot's head; older revisions are compacted. Nothing stands under the name before it is
//! synced and was read back.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use quantykube_base::{Exit, Failure, Reporter, Unit, human_bytes};
use quantykube_etcd_files::ReadError;
use quantykube_etcd_files::etcd::{AlarmKind, Database};
use quantykube_store_file::{self as store_file, Digest, Finished, Identity, Import, Lease, Record};
use serde_json::json;

use crate::clock;
use crate::mvcc::{TTL_MAX_S, TTL_MIN_S};

/// Make a store file from a snapshot: one of `etcdctl snapshot save`, from quantykube-store or from etcd
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// The store file to make; never one that exists
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Raise the revision by this much, so that no client that saw revisions after the snapshot sees them again
    #[arg(long, value_name = "N", default_value_t = 0)]
    bump_revision: u64,

    /// Take a file without a SHA-256 at its end, or with a wrong one, such as a copy of etcd's own database
    #[arg(long)]
    skip_hash_check: bool,

    /// One JSON event a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// What a snapshot is, once it was checked.
struct Checked {
    database: Database<File>,
    revision: i64,
    /// The head of the store to make.
    head: i64,
}

/// Restores.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Failure> {
    // Told before anything is read: reading may take long.
    if args.to.symlink_metadata().is_ok() {
        return Err(exists(&args.to));
    }
    let checked = check(args, reporter)?;
    // As `etcdutl snapshot restore`: what comes of a snapshot is a cluster of its own.
    let identity = Identity {
        cluster_id: rand::random_range(1..=u64::MAX),
        member_id: rand::random_range(1..=u64::MAX),
        raft_term: 2,
    };
    let mut import = Import::create(&args.to, identity, checked.head).map_err(|error| file_failure(&args.to, error))?;
    let leases = import_leases(&checked, &mut import, args)?;
    let digest = import_keys(&checked, &mut import, &leases, args, reporter)?;
    let finished = import.finish().map_err(|error| file_failure(&args.to, error))?;
    if finished.summary().digest != digest {
        let message = format!("{} does not hold what was written", args.to.display());
        return Err(Failure::new(Exit::Failed, "differs", message).hint("look at the disk; nothing was kept"));
    }
    publish(finished, &checked, identity, leases.len(), args, reporter)
}

/// Opens the snapshot and trusts nothing in it.
fn check(args: &Args, reporter: &Reporter) -> Result<Checked, Failure> {
    let path = &args.snapshot;
    let file = File::open(path).map_err(|error| {
        Failure::new(Exit::Refused, "unreadable", format!("cannot read {}", path.display())).because(error)
    })?;
    let wrong = |error| unreadable(path, error);
    let database = Database::open(file).map_err(wrong)?;
    reporter.step("check", &format!("checking {}", path.display()));
    if !args.skip_hash_check && !database.verify_sum().map_err(wrong)? {
        let found = format!("{} has no SHA-256 at its end", path.display());
        return Err(Failure::new(Exit::NotVerified, "no-sum", found).hint(
            "it was not made by `etcdctl snapshot save`, or was cut off; --skip-hash-check takes a copy of etcd's own \
             database, which must have been made while etcd was stopped",
        ));
    }
    let report = database.check().map_err(wrong)?;
    if let Some(problem) = report.problems.first() {
        let count = report.problems.len() as u64 + report.more_problems;
        let message = format!("{} is damaged in {count} places, first: {problem}", path.display());
        return Err(Failure::new(Exit::NotVerified, "damaged", message).hint("take another snapshot"));
    }
    if database.auth().map_err(wrong)?.enabled {
        let message = format!("{} is of an etcd with authentication switched on", path.display());
        return Err(Failure::new(Exit::Refused, "authentication", message).hint(
            "the store knows no users: run `etcdctl auth disable` there and take the snapshot again, or restore it with \
             etcdutl",
        ));
    }
    let alarms = database.alarms().map_err(wrong)?;
    if alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt) {
        reporter.warning(
            "corrupt",
            "the CORRUPT alarm was raised when the snapshot was taken; it is not kept",
        );
    }
    let revision = database.revision().map_err(wrong)?;
    let head = i64::try_from(args.bump_revision)
        .ok()
        .and_then(|bump| revision.checked_add(bump))
        .ok_or_else(|| {
            let message = format!("--bump-revision {} leads beyond the last revision", args.bump_revision);
            Failure::new(Exit::Usage, "usage", message)
        })?;
    Ok(Checked {
        database,
        revision,
        head,
    })
}

/// All leases, each with its whole time from now: a snapshot does not say when they end.
fn import_leases(checked: &Checked, import: &mut Import, args: &Args) -> Result<HashSet<i64>, Failure> {
    let leases = checked
        .database
        .leases()
        .map_err(|error| unreadable(&args.snapshot, error))?;
    let now = clock::now().wall;
    for lease in &leases {
        let granted_ttl = lease.ttl.clamp(TTL_MIN_S, TTL_MAX_S);
        let lease = Lease {
            id: lease.id,
            granted_ttl,
            deadline_ms: now.saturating_add(granted_ttl * 1000),
        };
        import.lease(lease).map_err(|error| push_failure(args, error))?;
    }
    Ok(leases.iter().map(|lease| lease.id).collect())
}

/// All keys in order; gives the digest of what was read.
fn import_keys(
    checked: &Checked,
    import: &mut Import,
    leases: &HashSet<i64>,
    args: &Args,
    reporter: &Reporter,
) -> Result<[u8; 32], Failure> {
    let wrong = |error| unreadable(&args.snapshot, error);
    let live = checked.database.live(None).map_err(wrong)?;
    let mut progress = reporter.progress("restoring", Unit::Keys, Some(live.len() as u64));
    let (mut digest, mut keys, mut bytes, mut lost) = (Digest::default(), 0, 0, 0);
    for record in live.records(&checked.database).map_err(wrong)? {
        let record = record.map_err(wrong)?;
        // etcd never ends such a key, and a put that keeps the lease would make it panic.
        let lease = if leases.contains(&record.lease) {
            record.lease
        } else {
            0
        };
        lost += u64::from(lease != record.lease);
        let record = Record {
            key: Bytes::copy_from_slice(&record.key),
            value: record.value,
            create: record.create_revision,
            modified: record.mod_revision,
            version: record.version,
            lease,
        };
        import.push(&record).map_err(|error| push_failure(args, error))?;
        digest.add(&record);
        keys += 1;
        bytes += (record.key.len() + record.value.len()) as u64;
        progress.set(keys, &human_bytes(bytes));
    }
    progress.finish();
    if lost > 0 {
        let message =
            format!("{lost} keys were attached to leases that are not in the snapshot: they are kept without");
        reporter.warning("unknown-leases", &message);
    }
    Ok(digest.finish())
}

fn publish(
    finished: Finished,
    checked: &Checked,
    identity: Identity,
    leases: usize,
    args: &Args,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let summary = finished.summary().clone();
    finished.publish().map_err(|error| file_failure(&args.to, error))?;
    let text = format!(
        "{}: {} keys, {}, {leases} leases at revision {} (the snapshot's is {}); older revisions are compacted, the \
         cluster id {:x} is new",
        args.to.display(),
        summary.keys,
        human_bytes(summary.bytes),
        summary.head,
        checked.revision,
        identity.cluster_id,
    );
    reporter.result(
        &text,
        json!({
            "path": args.to.display().to_string(),
            "keys": summary.keys,
            "bytes": summary.bytes,
            "leases": leases,
            "snapshotRevision": checked.revision,
            "revision": summary.head,
            "compactRevision": summary.head,
            "clusterId": format!("{:x}", identity.cluster_id),
            "memberId": format!("{:x}", identity.member_id),
        }),
    );
    Ok(())
}

fn unreadable(path: &Path, error: ReadError) -> Failure {
    // What cannot be read is the machine's matter; anything else is the snapshot's.
    let machine = matches!(&error, ReadError::Io { source, .. } if source.kind() != io::ErrorKind::UnexpectedEof);
    let failure = match machine {
        true => Failure::new(Exit::Failed, "unreadable", format!("cannot read {}", path.display())),
        false => Failure::new(
            Exit::NotVerified,
            "damaged",
            format!("{} is no sound snapshot", path.display()),
        )
        .hint("take another snapshot: etcdctl snapshot save"),
    };
    failure.because(error)
}

/// What is refused of a record is the snapshot's fault.
fn push_failure(args: &Args, error: store_file::Error) -> Failure {
    match error {
        store_file::Error::Import(_) => {
            let message = format!("{} holds what no store can", args.snapshot.display());
            Failure::new(Exit::NotVerified, "damaged", message).because(error)
        }
        error => file_failure(&args.to, error),
    }
}

fn exists(path: &Path) -> Failure {
    Failure::new(
        Exit::Refused,
        "target-exists",
        format!("{} exists already", path.display()),
    )
    .hint("a store file is never overwritten: give another name, or move it away if nothing serves from it")
}

fn file_failure(path: &Path, error: store_file::Error) -> Failure {
    let (exit, name) = match &error {
        store_file::Error::Exists { .. } => return exists(path),
        store_file::Error::NoSpace { .. } => (Exit::NoSpace, "no-space"),
        _ => (Exit::Failed, "file-failed"),
    };
    Failure::new(exit, name, format!("cannot make {}", path.display())).because(error)
}
