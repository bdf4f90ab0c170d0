//! The guard: an API server manifest that names the other side than the journal must never serve stale data in silence.
//!
//! What it did last is in [`FILE`], so that `status` can say why the API server is down and what cures it.

mod look;
mod watch;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::facts::Root;

#[cfg(test)]
pub use look::Standing;
pub use watch::{release, watch};

/// Where the guard writes what it did last: JSON, an [`Incident`], 0644, replaced as a whole.
pub const FILE: &str = "/var/lib/quantykube/guard.json";
/// What brings the API server back, as a person types it.
pub const CURE: &str = "quantykube guard release";

/// A manifest that was taken out of the kubelet's folder. The file stays until it is released: while [`last`] returns one,
/// the API server is down on purpose.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Incident {
    /// Wall clock, seconds since 1970.
    pub at: u64,
    /// The manifest's place in the kubelet's folder.
    pub manifest: PathBuf,
    /// Where it waits now; `guard release` edits it and gives it back.
    pub retired: PathBuf,
    /// The etcd that it names, as its flag says.
    pub names: String,
    /// The one that has the cluster's data.
    pub expected: String,
    /// `store` or `etcd`: where the cluster's data lives.
    pub data: String,
    /// The API servers started from it that were sent TERM.
    #[serde(default)]
    pub terminated: Vec<u32>,
    /// One sentence for people: what was found and why it was taken out.
    pub why: String,
    /// The command that cures it.
    pub cure: String,
}

/// What the guard has taken out and nobody has released yet. `None` where there is nothing, also where the retired
/// manifest is gone: somebody has dealt with it by hand.
///
/// # Errors
/// If the file is there and cannot be read or understood.
pub fn last(root: &Root) -> io::Result<Option<Incident>> {
    let text = match fs::read(root.at(Path::new(FILE))) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let incident: Incident = serde_json::from_slice(&text).map_err(io::Error::other)?;
    Ok(root.at(&incident.retired).exists().then_some(incident))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn an_incident_counts_while_its_manifest_waits() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!(last(&root).unwrap(), None);
        let incident = Incident {
            at: 1,
            manifest: "/etc/kubernetes/manifests/kube-apiserver.yaml".into(),
            retired: "/etc/kubernetes/quantykube/kube-apiserver.yaml.guarded-1".into(),
            names: "https://127.0.0.1:2379".into(),
            expected: "https://127.0.0.1:2479".into(),
            data: "store".into(),
            terminated: vec![7],
            why: "why".into(),
            cure: CURE.into(),
        };
        put(&root, FILE, &serde_json::to_string(&incident).unwrap());
        assert_eq!(last(&root).unwrap(), None, "the manifest is gone");
        put(&root, incident.retired.to_str().unwrap(), "kind: Pod\n");
        assert_eq!(last(&root).unwrap(), Some(incident));
        put(&root, FILE, "{");
        assert!(last(&root).is_err());
    }
}
