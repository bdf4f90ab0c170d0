//! `compact`: compacts a closed file and gives back the space.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_store_file::{FileDisk, Identity, Options, Store, Tuning};
use serde_json::json;

use super::failure;

/// One slice of the work.
const SLICE: Duration = Duration::from_millis(100);

/// Compact a closed store file and give back the space
///
/// Drops what no reader at or after the revision can see, and frees the space. Clients that ask for older revisions, or
/// watch from them, are then told that they were compacted, as after `etcdctl compaction`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The store file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Compact up to this revision; 0 for the last
    #[arg(long, value_name = "N", default_value_t = 0)]
    rev: i64,

    /// One JSON event a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// Compacts.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Failure> {
    let path = &args.file;
    let wrong = |error| failure(path, error);
    let disk = FileDisk::open(path).map_err(wrong)?;
    let tuning = Tuning {
        // Nobody else reads what is moved.
        grace: Duration::ZERO,
        ..Tuning::default()
    };
    let options = Options {
        quota: 0,
        identity: Identity {
            cluster_id: 0,
            member_id: 0,
            raft_term: 1,
        },
    };
    let mut store = Store::open_on(Arc::new(disk), options, tuning).map_err(wrong)?;
    let before = store.sizes();
    let head = store.revision();
    let revision = if args.rev == 0 { head } else { args.rev };
    if revision < 0 || revision > head {
        let message = format!("there is no revision {revision}: the last is {head}");
        return Err(Failure::new(Exit::Usage, "usage", message).hint("give --rev 0 for the last"));
    }
    let changed = revision > store.compacted();
    if changed {
        reporter.step("compact", &format!("compacting {} up to {revision}", path.display()));
        store.compact(revision).map_err(wrong)?;
    }
    while store.maintain(SLICE).map_err(wrong)? {
        store.sync().map_err(wrong)?;
    }
    let after = store.sizes();
    let compacted = store.compacted();
    store.close().map_err(wrong)?;
    let text = format!(
        "{}: compacted {compacted} of {head}; {} on disk before, {} now",
        path.display(),
        human_bytes(before.allocated),
        human_bytes(after.allocated)
    );
    reporter.result(
        &text,
        json!({
            "path": path.display().to_string(),
            "changed": changed,
            "revision": head,
            "compactRevision": compacted,
            "allocatedBytesBefore": before.allocated,
            "allocatedBytes": after.allocated,
        }),
    );
    Ok(())
}
