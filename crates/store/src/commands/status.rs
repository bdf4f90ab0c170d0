//! `status`: what a closed file is.

use std::path::PathBuf;

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_etcd_api::AlarmType;
use serde_json::json;

use super::{failure, look, over};

/// Print what a closed store file is: identity, revisions, sizes
///
/// Reads what a start of the server reads and changes nothing. It does not read every value: `check` does.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The store file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// One JSON event a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// Prints.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Failure> {
    let path = &args.file;
    let store = look(path)?;
    let imported = quantykube_store_file::imported_at(path).map_err(|error| failure(path, error))?;
    let identity = store.identity();
    let untouched = store.untouched_import().is_some();
    let state = over(store);
    let sizes = state.sizes();
    let name = |kind: AlarmType| format!("{kind:?}");
    let alarms: Vec<String> = state
        .alarms()
        .iter()
        .map(|alarm| AlarmType::try_from(alarm.alarm).map_or("unknown".to_owned(), name))
        .collect();
    let origin = match imported {
        None => "made empty".to_owned(),
        Some(revision) if untouched => format!("imported at revision {revision}, not written to since"),
        Some(revision) => format!("imported at revision {revision}"),
    };
    let text = format!(
        "file        {}\norigin      {origin}\ncluster id  {:x}\nmember id   {:x}\nraft term   {}\nrevision    {}\n\
         compacted   {}\nkeys        {}\nleases      {}\nalarms      {}\nsize        {} on disk, {} in use",
        path.display(),
        identity.cluster_id,
        identity.member_id,
        identity.raft_term,
        state.visible(),
        state.compacted(),
        state.keys(),
        state.lease_count(),
        if alarms.is_empty() {
            "none".to_owned()
        } else {
            alarms.join(", ")
        },
        human_bytes(sizes.allocated),
        human_bytes(sizes.in_use),
    );
    reporter.result(
        &text,
        json!({
            "path": path.display().to_string(),
            "importRevision": imported,
            "importUntouched": untouched,
            "clusterId": format!("{:x}", identity.cluster_id),
            "memberId": format!("{:x}", identity.member_id),
            "raftTerm": identity.raft_term,
            "revision": state.visible(),
            "compactRevision": state.compacted(),
            "keys": state.keys(),
            "leases": state.lease_count(),
            "alarms": alarms,
            "allocatedBytes": sizes.allocated,
            "inUseBytes": sizes.in_use,
        }),
    );
    Ok(())
}
