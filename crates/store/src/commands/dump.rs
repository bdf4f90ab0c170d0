//! `dump`: everything a closed file holds, as JSON lines.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use quantykube_base::Failure;
use quantykube_store_file::{ChangeKind, Error, KeyRange, RangeEnd, Revision, Store, Version};
use serde_json::{Value, json};

use super::{failure, look, printed};

/// Print everything a closed store file holds, one JSON object a line
///
/// First the store, then leases, then every version that is still kept: what lived at the compacted revision in key order,
/// then each later change in the order of revisions. Keys are text; one that is no UTF-8 is `keyBase64` instead. Values
/// are base64. With secrets in the store they are in the output, too.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The store file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Only what lives at the last revision
    #[arg(long)]
    live: bool,

    /// Without values; their lengths are there
    #[arg(long)]
    keys_only: bool,
}

/// Prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let store = look(&args.file)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut lines = Lines {
        store: &store,
        keys_only: args.keys_only,
        out: &mut out,
        failed: None,
        ended: None,
    };
    lines.all(&args.file, args.live)?;
    let Lines { failed, ended, .. } = lines;
    if let Some(error) = failed {
        return Err(failure(&args.file, error));
    }
    printed(ended.map_or_else(|| out.flush(), Err))
}

struct Lines<'a> {
    store: &'a Store,
    keys_only: bool,
    out: &'a mut dyn Write,
    /// The file failed.
    failed: Option<Error>,
    /// The output failed.
    ended: Option<std::io::Error>,
}

impl Lines<'_> {
    fn all(&mut self, path: &Path, live: bool) -> Result<(), Failure> {
        let store = self.store;
        let identity = store.identity();
        let about = json!({
            "type": "store",
            "clusterId": format!("{:x}", identity.cluster_id),
            "memberId": format!("{:x}", identity.member_id),
            "raftTerm": identity.raft_term,
            "revision": store.revision(),
            "compactRevision": store.compacted(),
        });
        let mut go_on = self.line(&about);
        for lease in store.leases() {
            go_on = self.line(&json!({
                "type": "lease",
                "id": lease.id,
                "grantedTtl": lease.granted_ttl,
                "deadlineMs": lease.deadline_ms,
            }));
        }
        if go_on.is_break() {
            return Ok(());
        }
        let at = if live {
            store.revision()
        } else {
            store.compacted().max(1)
        };
        let everything = KeyRange {
            start: Bytes::new(),
            end: RangeEnd::Unbounded,
        };
        store.scan(&everything, at, &mut |key, version| self.put(key, version));
        if live || self.failed.is_some() || self.ended.is_some() {
            return Ok(());
        }
        let history = store.changes(at + 1, store.revision(), &mut |change| match &change.what {
            ChangeKind::Put(version) => self.put(&change.key, version),
            ChangeKind::Delete => {
                let line = named("delete", &change.key, change.revision);
                self.line(&line)
            }
        });
        history.map_err(|error| failure(path, error))
    }

    fn put(&mut self, key: &Bytes, version: &Version) -> ControlFlow<()> {
        let mut line = named("put", key, version.modified);
        line["create"] = json!(version.create);
        line["version"] = json!(version.version);
        line["lease"] = json!(version.lease);
        if self.keys_only {
            line["valueBytes"] = json!(version.value.len);
        } else {
            match self.store.value(version) {
                Ok(value) => line["value"] = json!(STANDARD.encode(&value)),
                Err(error) => {
                    self.failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        self.line(&line)
    }

    fn line(&mut self, value: &Value) -> ControlFlow<()> {
        match writeln!(self.out, "{value}") {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.ended = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

fn named(kind: &str, key: &[u8], revision: Revision) -> Value {
    let mut line = json!({"type": kind, "revision": revision.main, "sub": revision.sub});
    match std::str::from_utf8(key) {
        Ok(text) => line["key"] = json!(text),
        Err(_) => line["keyBase64"] = json!(STANDARD.encode(key)),
    }
    line
}
