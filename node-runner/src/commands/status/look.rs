//! What status looks at: the journals, the API server's manifest, both servers, the guard, the certificates.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use quantykube_base::Failure;
use quantykube_journal::{Direction, Journals, Status, Summary, System};
use serde::Serialize;

use crate::facts::certificates::{self, Files, Use};
use crate::facts::etcd::{runtime, source};
use crate::facts::manifest::{Flags, Manifest};
use crate::facts::{Known, Root, chain, kubelet};
use crate::first_boot::{Outcome, OutcomeFile};
use crate::guard::{self, Incident};
use crate::moves::store::NAME;
use crate::moves::undo_store::Installed;
use crate::moves::{etcd_servers, places};
use crate::unit;

/// Where the cluster's data lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// In etcd.
    Etcd,
    /// In the store.
    Store,
}

impl Side {
    /// As people and programs read it.
    pub fn name(self) -> &'static str {
        match self {
            Side::Etcd => "etcd",
            Side::Store => "store",
        }
    }
}

/// A node as status finds it.
#[derive(Clone, Debug)]
pub struct State {
    /// Where the data lives, as the journals say.
    pub data: Side,
    /// Since when, in seconds since 1970; `None` where no move was finished on this node.
    pub since: Option<u64>,
    /// Every journal, the oldest first.
    pub journals: Vec<Summary>,
    /// The one that is neither done nor put back.
    pub open: Option<Summary>,
    /// Whether the unit of a move runs now, so that the open one goes on by itself.
    pub under_way: Known<bool>,
    /// The etcd that the API server's manifest names; `None` where there is no manifest.
    pub manifest: Known<Option<String>>,
    /// etcd.
    pub etcd: Option<Server>,
    /// The store, where one was installed.
    pub store: Option<Server>,
    /// Whether the store's unit runs.
    pub store_runs: Known<bool>,
    /// What the guard has taken out.
    pub guard: Known<Option<Incident>>,
    /// How a first boot ended, where there was one.
    pub first_boot: Known<Option<Outcome>>,
    /// The certificates between the API server and its etcd.
    pub certificates: Vec<Certificate>,
    /// Now, in seconds since 1970.
    pub now: u64,
}

/// An etcd, or the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Its URL.
    pub url: String,
    /// Its revision, or why it does not tell.
    pub revision: Known<i64>,
}

/// A pair of files, and when it ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// What for.
    pub name: &'static str,
    /// The certificate.
    pub file: PathBuf,
    /// Seconds since 1970 of the first end: its own or its authority's. Else why it is not good.
    pub ends: Known<u64>,
}

impl Certificate {
    /// Whole days that are left; negative ones are over.
    pub fn days(&self, now: u64) -> Option<i64> {
        let ends = i64::try_from(*self.ends.as_ref().ok()?).ok()?;
        Some((ends - i64::try_from(now).ok()?).div_euclid(86_400))
    }
}

impl State {
    /// The URL that the manifest has to name.
    pub fn expected(&self) -> Option<&str> {
        let server = match self.data {
            Side::Store => &self.store,
            Side::Etcd => &self.etcd,
        };
        server.as_ref().map(|server| server.url.as_str())
    }

    /// The side that the manifest names, where it is one of ours.
    pub fn manifest_side(&self) -> Option<Side> {
        let named = self.manifest.as_ref().ok()?.as_deref()?;
        let is = |server: &Option<Server>| server.as_ref().is_some_and(|server| server.url == named);
        match (is(&self.store), is(&self.etcd)) {
            (true, _) => Some(Side::Store),
            (_, true) => Some(Side::Etcd),
            _ => None,
        }
    }
}

/// Looks. Only journals that cannot be read are an error: all else that is unknown says why.
pub fn look(root: &Root, system: &dyn System, journals: &Journals) -> Result<State, Failure> {
    let all = journals.list(system).map_err(|error| error.failure())?;
    let open = journals.open_move(system).map_err(|error| error.failure())?;
    let in_force = journals.in_force(system, NAME).map_err(|error| error.failure())?;
    let of_store = |journal: &&Summary| journal.plan.name == NAME && journal.status == Status::Moved;
    let undone = all
        .iter()
        .rev()
        .find(|journal| of_store(journal) && journal.plan.direction == Direction::Undo);
    let (data, since) = match (&in_force, undone) {
        (Some(install), _) => (Side::Store, Some(install.last)),
        (None, Some(undo)) => (Side::Etcd, Some(undo.last)),
        (None, None) => (Side::Etcd, None),
    };
    // The last install, in force or not, names both sides.
    let installed = all
        .iter()
        .rev()
        .find(|journal| journal.plan.name == NAME && journal.plan.direction == Direction::Install)
        .and_then(|journal| Installed::of(&journal.id, &journal.plan).ok());
    let manifest = read_manifest(root, installed.as_ref());
    let flags = manifest.as_ref().ok().and_then(Option::as_ref).map(Manifest::flags);
    let client = flags
        .as_ref()
        .and_then(|flags| files(flags, ["etcd-certfile", "etcd-keyfile", "etcd-cafile"]))
        .unwrap_or_else(kubeadms);
    let named = manifest.and_then(|manifest| match manifest {
        Some(manifest) => etcd_servers::server(&manifest.flags())
            .map(Some)
            .map_err(|error| error.to_string()),
        None => Ok(None),
    });
    let etcd = installed
        .as_ref()
        .map(|installed| installed.etcd.clone())
        .or_else(|| named.clone().ok().flatten());
    let ask = |url: String| Server {
        revision: revision(root, &url, &client),
        url,
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    Ok(State {
        data,
        since,
        open,
        etcd: etcd.map(ask),
        store: installed
            .filter(|_| {
                data == Side::Store
                    || all
                        .last()
                        .is_some_and(|last| matches!(last.status, Status::Open { .. }))
            })
            .map(|installed| ask(installed.store)),
        under_way: unit::is_under_way().map_err(|error| chain(&error)),
        store_runs: system
            .unit(places::STORE_UNIT)
            .map(|unit| unit.active)
            .map_err(|error| error.full()),
        guard: guard::last(root).map_err(|error| format!("cannot read {}: {error}", guard::FILE)),
        first_boot: OutcomeFile::read(root),
        certificates: certificates(root, &client, now),
        manifest: named,
        journals: all,
        now,
    })
}

/// The manifest, where the install found it; else where the kubelet looks.
fn read_manifest(root: &Root, installed: Option<&Installed>) -> Known<Option<Manifest>> {
    let path = match installed {
        Some(installed) => installed.manifest.clone(),
        None => kubelet::static_pod_path(root)
            .map_err(|error| chain(&error))?
            .join(places::API_SERVER_MANIFEST),
    };
    Manifest::read(root, &path).map_err(|error| chain(&error))
}

/// The files that three flags name.
fn files(flags: &Flags, names: [&str; 3]) -> Option<Files> {
    let path = |name| flags.last(name).map(PathBuf::from);
    Some(Files {
        cert: path(names[0])?,
        key: path(names[1])?,
        ca: path(names[2])?,
    })
}

/// Where kubeadm keeps them.
fn kubeadms() -> Files {
    let pki = Path::new("/etc/kubernetes/pki");
    Files {
        cert: pki.join("apiserver-etcd-client.crt"),
        key: pki.join("apiserver-etcd-client.key"),
        ca: pki.join("etcd/ca.crt"),
    }
}

fn revision(root: &Root, url: &str, client: &Files) -> Known<i64> {
    runtime()?
        .block_on(quantykube_migrate::store_revision(&source(root, url, client)))
        .map_err(|error| chain(&error))
}

/// The client's side, and etcd's own, which the store uses too.
fn certificates(root: &Root, client: &Files, now: u64) -> Vec<Certificate> {
    let folder = client.ca.parent().unwrap_or(Path::new("/"));
    let server = Files {
        cert: folder.join("server.crt"),
        key: folder.join("server.key"),
        ca: client.ca.clone(),
    };
    let loopback = std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
    [
        ("API server to etcd", client.clone(), Use::Client),
        ("etcd and store", server, Use::Server(loopback)),
    ]
    .into_iter()
    .map(|(name, files, used_as)| Certificate {
        name,
        ends: certificates::check(root, &files, used_as, now)
            .map(|good| good.ends.min(good.ca_ends))
            .map_err(|error| chain(&error)),
        file: files.cert,
    })
    .collect()
}
