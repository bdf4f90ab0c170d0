//! What is true of a node now. The only reader of a node before a plan is made.
//!
//! Every path goes through a [`Root`], so that tests look at a temporary tree. Facts judge nothing: a fact that cannot be
//! found out carries the reason as text, and the checks decide what it means.

pub mod api_server;
pub mod around;
pub mod attributes;
pub mod certificates;
pub mod etcd;
pub mod host;
pub mod kubeadm;
pub mod kubelet;
pub mod manifest;
pub mod mounts;
pub mod pods;
pub mod process;
pub mod schedules;
pub mod sync;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use quantykube_journal::{Journals, System};

use crate::facts::api_server::Endpoint;
use crate::facts::around::Around;
use crate::facts::certificates::{Files, Good, Use};
use crate::facts::manifest::{Flags, Manifest};
use crate::moves::etcd_servers::{self, Edit};
use crate::moves::places;
use crate::moves::undo_store::Installed;

/// The folder that stands for `/`.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// The node itself, or a temporary tree.
    pub fn new(path: impl Into<PathBuf>) -> Root {
        Root(path.into())
    }

    /// Where an absolute path of the node is to be found.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The journals of this node.
    pub fn journals(&self) -> Journals {
        Journals::at(self.at(places::JOURNALS))
    }
}

/// A fact that may be unknown, with the reason why.
pub type Known<T> = Result<T, String>;

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// The machine and its kubelet.
#[derive(Clone, Debug)]
pub struct Node {
    /// The effective user id.
    pub uid: u32,
    /// As OCI names it.
    pub architecture: &'static str,
    /// The text of `/etc/machine-id`.
    pub machine_id: Option<String>,
    /// The node's name: that of kubeadm's etcd member, else the host's.
    pub name: Option<String>,
    /// The kubelet's folder of static pods.
    pub static_pods: Known<PathBuf>,
    /// Whether systemd runs the kubelet.
    pub kubelet_active: Known<bool>,
    /// A move that is neither done nor put back: its id.
    pub open_move: Known<Option<String>>,
    /// The install of the store that is in force.
    pub installed: Known<Option<Installed>>,
    /// The number of the next journal.
    pub next_number: Known<u32>,
}

/// The API server as its manifest describes it, and as it runs.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// The manifest.
    pub manifest: Manifest,
    /// The one etcd it names.
    pub etcd: Result<String, etcd_servers::Error>,
    /// Below which keys it writes.
    pub prefix: String,
    /// Its side of the connection to etcd; else the flag that is missing.
    pub client: Known<Files>,
    /// Whether those files are good, and until when.
    pub client_good: Known<Good>,
    /// Where it answers.
    pub endpoint: Known<Endpoint>,
    /// Whether it answers and is ready.
    pub ready: Known<()>,
    /// The processes started from this manifest.
    pub processes: Vec<process::Process>,
}

/// kubeadm's local etcd as its manifest describes it.
#[derive(Clone, Debug)]
pub struct LocalEtcd {
    /// Where clients reach it.
    pub listens: Vec<String>,
    /// Its side of the connection; else the flag that is missing.
    pub server: Known<Files>,
    /// The member's name.
    pub name: Option<String>,
    /// What else of its flags means the same to the store: names without dashes, and values.
    pub settings: Vec<(&'static str, String)>,
}

/// The flags of etcd that the store takes over.
const SETTINGS: [&str; 4] = [
    "name",
    "quota-backend-bytes",
    "max-request-bytes",
    "watch-progress-notify-interval",
];

/// Facts for `install store`.
#[derive(Clone, Debug)]
pub struct Store {
    /// The machine and its kubelet.
    pub node: Node,
    /// The API server; `None` where there is no manifest.
    pub api_server: Known<Option<ApiServer>>,
    /// kubeadm's etcd; `None` where there is no manifest.
    pub local_etcd: Known<Option<LocalEtcd>>,
    /// What stands around the control plane.
    pub around: Around,
    /// Whether etcd asks for users of its own.
    pub etcd_users: Known<bool>,
    /// etcd as it answers; the reason where it does not.
    pub etcd: Known<etcd::Etcd>,
    /// Where the store would listen.
    pub store: Known<SocketAddr>,
    /// The edit of the API server's manifest.
    pub edit: Known<Edit>,
    /// Whether etcd's files are good for the store, and until when.
    pub server_good: Known<Good>,
    /// Ports that are needed and taken, with what the system says.
    pub ports_taken: Vec<(SocketAddr, String)>,
    /// Whether a store file stands already.
    pub store_file: bool,
    /// What stands already where the API server's manifest would wait.
    pub waiting: Option<PathBuf>,
    /// Bytes free where the store's file will be.
    pub free_bytes: Option<u64>,
}

/// Facts for `undo store`.
#[derive(Clone, Debug)]
pub struct UndoStore {
    /// The machine and its kubelet.
    pub node: Node,
    /// The API server; `None` where there is no manifest.
    pub api_server: Known<Option<ApiServer>>,
    /// What stands around the control plane.
    pub around: Around,
    /// Whether etcd asks for users of its own.
    pub etcd_users: Known<bool>,
    /// The etcd that was left, as it answers.
    pub etcd: Known<etcd::Etcd>,
    /// The edit of today's manifest.
    pub edit: Known<Edit>,
    /// Whether the store's file stands.
    pub store_file: bool,
    /// Whether a manifest waits already where the API server's would go.
    pub waiting: bool,
}

/// How long the API server may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the facts for `install store`.
pub fn store(root: &Root, system: &dyn System) -> Store {
    let mut node = node(root, system);
    let api_server = in_folder(&node.static_pods, |folder| api_server(root, folder));
    let local_etcd = in_folder(&node.static_pods, |folder| local_etcd(root, folder));
    if let Ok(Some(LocalEtcd { name: Some(name), .. })) = &local_etcd {
        node.name = Some(name.clone());
    }
    let api = known(&api_server, "there is no API server manifest");
    let server = api
        .clone()
        .and_then(|api| api.etcd.clone().map_err(|error| error.to_string()));
    let store = server.clone().and_then(|url| store_address(&url));
    let etcd = api
        .clone()
        .and_then(|api| etcd::ask(root, server.as_ref()?, api.client.as_ref()?, &api.prefix));
    let etcd_users = api
        .clone()
        .and_then(|api| etcd::has_users(root, server.as_ref()?, api.client.as_ref()?));
    let edit = api.and_then(|api| {
        let to = places::store_url(store.clone()?);
        etcd_servers::edit(&api.manifest.text, &server.clone()?, &to).map_err(|error| error.to_string())
    });
    let server_good = known(&local_etcd, "there is no etcd manifest").and_then(|etcd| {
        let used_as = Use::Server(store.clone()?.ip());
        certificates::check(root, &etcd.server.clone()?, used_as, unix_time()).map_err(|error| chain(&error))
    });
    let around = around(root, &node.static_pods, &api_server);
    let ports = store.iter().copied().chain([places::STORE_METRICS]);
    let ports_taken = ports.filter_map(|at| Some((at, host::port_taken(at)?))).collect();
    Store {
        around,
        etcd_users,
        etcd,
        edit,
        server_good,
        ports_taken,
        store,
        store_file: root.at(places::STORE_FILE).symlink_metadata().is_ok(),
        waiting: node.static_pods.as_ref().ok().and_then(|folder| {
            let waiting = places::retired(folder, places::API_SERVER_MANIFEST);
            root.at(&waiting).symlink_metadata().is_ok().then_some(waiting)
        }),
        free_bytes: host::free_bytes(root, Path::new(places::STORE_FOLDER)),
        node,
        api_server,
        local_etcd,
    }
}

/// Reads the facts for `undo store`. `installed` goes before what the journals say, where it is given.
pub fn undo_store(root: &Root, system: &dyn System, installed: Option<Installed>) -> UndoStore {
    let mut node = node(root, system);
    if installed.is_some() {
        node.installed = Ok(installed);
    }
    let installed = known(&node.installed, "no install of the store is in force").cloned();
    // The manifest is looked for where the install found it, whatever the kubelet says today.
    let folder = installed
        .clone()
        .map(|i| i.manifest.parent().unwrap_or(Path::new("/")).to_owned());
    let api_server = in_folder(&folder, |folder| api_server(root, folder));
    let api = known(&api_server, "there is no API server manifest");
    let etcd = api
        .clone()
        .and_then(|api| etcd::ask(root, &installed.clone()?.etcd, &api.client.clone()?, &api.prefix));
    let etcd_users = api
        .clone()
        .and_then(|api| etcd::has_users(root, &installed.clone()?.etcd, &api.client.clone()?));
    let edit = api.and_then(|api| {
        let installed = installed.clone()?;
        etcd_servers::edit(&api.manifest.text, &installed.store, &installed.etcd).map_err(|error| error.to_string())
    });
    UndoStore {
        around: around(root, &folder, &api_server),
        etcd_users,
        etcd,
        edit,
        store_file: root.at(places::STORE_FILE).is_file(),
        waiting: installed.is_ok_and(|i| root.at(&i.waiting).symlink_metadata().is_ok()),
        api_server,
        node,
    }
}

fn around(root: &Root, folder: &Known<PathBuf>, api_server: &Known<Option<ApiServer>>) -> Around {
    let process = api_server.as_ref().ok().and_then(|api| api.as_ref()?.processes.first());
    around::read(root, folder, process, unix_time())
}

/// Reads what every move needs.
fn node(root: &Root, system: &dyn System) -> Node {
    let journals = root.journals();
    let failed = |error: quantykube_journal::Error| chain(&error);
    Node {
        uid: rustix::process::geteuid().as_raw(),
        architecture: architecture(),
        machine_id: host::line_of(root, "/etc/machine-id"),
        name: host::line_of(root, "/proc/sys/kernel/hostname"),
        static_pods: kubelet::static_pod_path(root).map_err(|error| chain(&error)),
        kubelet_active: system
            .unit("kubelet.service")
            .map(|unit| unit.active)
            .map_err(|error| error.full()),
        open_move: journals
            .open_move(system)
            .map(|open| open.map(|s| s.id))
            .map_err(failed),
        installed: journals
            .in_force(system, crate::moves::store::NAME)
            .map_err(failed)
            .and_then(|found| match found {
                Some(s) => Installed::of(&s.id, &s.plan)
                    .map(Some)
                    .map_err(|error| error.to_string()),
                None => Ok(None),
            }),
        next_number: journals.next_number(system).map_err(failed),
    }
}

fn api_server(root: &Root, folder: &Path) -> Known<Option<ApiServer>> {
    let path = folder.join(places::API_SERVER_MANIFEST);
    let Some(manifest) = Manifest::read(root, &path).map_err(|error| chain(&error))? else {
        return Ok(None);
    };
    let flags = manifest.flags();
    let client = files(&flags, ["etcd-certfile", "etcd-keyfile", "etcd-cafile"]);
    let client_good = client
        .clone()
        .and_then(|files| certificates::check(root, &files, Use::Client, unix_time()).map_err(|error| chain(&error)));
    let endpoint = api_server::endpoint(&flags).map_err(|error| chain(&error));
    let ready = endpoint
        .clone()
        .and_then(|endpoint| api_server::ready(root, &endpoint, ANSWER_TIMEOUT).map_err(|error| chain(&error)));
    Ok(Some(ApiServer {
        etcd: etcd_servers::server(&flags),
        prefix: flags.last("etcd-prefix").unwrap_or("/registry").to_owned(),
        client,
        client_good,
        endpoint,
        ready,
        processes: process::of_manifest(root, &flags),
        manifest,
    }))
}

fn local_etcd(root: &Root, folder: &Path) -> Known<Option<LocalEtcd>> {
    let path = folder.join(places::ETCD_MANIFEST);
    let Some(manifest) = Manifest::read(root, &path).map_err(|error| chain(&error))? else {
        return Ok(None);
    };
    let flags = manifest.flags();
    let listens = flags.last("listen-client-urls").unwrap_or_default();
    Ok(Some(LocalEtcd {
        listens: listens
            .split(',')
            .filter(|url| !url.is_empty())
            .map(str::to_owned)
            .collect(),
        server: files(&flags, ["cert-file", "key-file", "trusted-ca-file"]),
        name: flags.last("name").map(str::to_owned),
        settings: SETTINGS
            .into_iter()
            .filter_map(|name| Some((name, flags.last(name)?.to_owned())))
            .collect(),
    }))
}

/// The files that three flags name.
fn files(flags: &Flags, names: [&str; 3]) -> Known<Files> {
    let path = |name: &str| {
        flags
            .last(name)
            .map(PathBuf::from)
            .ok_or_else(|| format!("no --{name} is given"))
    };
    Ok(Files {
        cert: path(names[0])?,
        key: path(names[1])?,
        ca: path(names[2])?,
    })
}

/// Where the store listens for an API server whose etcd is at `url`: on loopback, in the same family.
fn store_address(url: &str) -> Known<SocketAddr> {
    let host = url
        .strip_prefix("https://")
        .ok_or_else(|| format!("{url} is not https, and the store is reached by TLS only"))?;
    let (host, _port) = host.rsplit_once(':').ok_or_else(|| format!("{url} names no port"))?;
    let six = match host {
        "localhost" => false,
        _ => host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .map_err(|_| format!("{host} in {url} is a name, not an address"))?
            .is_ipv6(),
    };
    let ip: IpAddr = if six {
        std::net::Ipv6Addr::LOCALHOST.into()
    } else {
        std::net::Ipv4Addr::LOCALHOST.into()
    };
    Ok(SocketAddr::new(ip, places::STORE_PORT))
}

/// A fact that is known and there; else why not.
fn known<'a, T>(fact: &'a Known<Option<T>>, missing: &str) -> Known<&'a T> {
    fact.as_ref()
        .map_err(String::clone)?
        .as_ref()
        .ok_or_else(|| missing.to_owned())
}

fn in_folder<T>(folder: &Known<PathBuf>, read: impl FnOnce(&Path) -> Known<Option<T>>) -> Known<Option<T>> {
    read(folder.as_ref().map_err(String::clone)?)
}

/// The machine's architecture, as OCI names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_listens_in_the_family_of_etcd() {
        assert_eq!(
            store_address("https://127.0.0.1:2379").unwrap().to_string(),
            "127.0.0.1:2479"
        );
        assert_eq!(store_address("https://[::1]:2379").unwrap().to_string(), "[::1]:2479");
        assert_eq!(
            store_address("https://10.0.0.10:2379").unwrap().to_string(),
            "127.0.0.1:2479"
        );
        assert_eq!(
            store_address("https://localhost:2379").unwrap().to_string(),
            "127.0.0.1:2479"
        );
        for bad in ["http://127.0.0.1:2379", "https://etcd.local:2379", "https://127.0.0.1"] {
            assert!(store_address(bad).is_err(), "{bad}");
        }
    }
}
