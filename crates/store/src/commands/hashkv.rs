//! `hashkv`: the hash that etcd's members compare.

use std::path::PathBuf;

use quantykube_base::{Failure, Reporter};
use serde_json::json;

use super::{look, mvcc_failure, over};

/// Print the hash of a closed store file that etcd's members compare, as etcdutl hashkv does
///
/// The same hash at the same revision and compacted revision means the same history, byte for byte. Compare it with
/// `etcdutl hashkv --rev N` of an etcd's own file or with `etcdctl endpoint hashkv`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The store file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Hash up to this revision; 0 for the last
    #[arg(long, value_name = "N", default_value_t = 0)]
    rev: i64,

    /// One JSON event a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// Hashes.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Failure> {
    let wrong = |error| mvcc_failure(&args.file, error);
    let state = over(look(&args.file)?);
    let mut hasher = state.hash_begin(args.rev).map_err(wrong)?;
    let hash = loop {
        if let Some(hash) = state.hash_step(&mut hasher).map_err(wrong)? {
            break hash;
        }
    };
    let text = format!("{hash}, {}, {}", hasher.revision, hasher.compacted);
    reporter.result(
        &text,
        json!({
            "path": args.file.display().to_string(),
            "hash": hash,
            "hashRevision": hasher.revision,
            "compactRevision": hasher.compacted,
        }),
    );
    Ok(())
}
