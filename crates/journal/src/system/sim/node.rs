//! What lives on the simulated machine beside its files: units, a kubelet, one API server, its etcd and its store.
//!
//! The kubelet starts an API server from the manifest in its folder and stops it when the manifest goes or changes.
//! The API server serves from the side that its manifest names, and clients write to it. Every acknowledged write is
//! remembered: to serve from a side that lacks one is the violation that all this is about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use crate::plan::{Pid, Process};
use crate::system::{Entry, UnitState};

/// Where units are, and where the kubelet looks.
const UNITS: &str = "/etc/systemd/system";
const MANIFESTS: &str = "/etc/kubernetes/manifests";
const STOPS_IN: Duration = Duration::from_millis(1500);
/// How long the group of a pod outlives its process.
const GROUP_GOES_IN: Duration = Duration::from_millis(700);
const LISTENS_IN: Duration = Duration::from_millis(1000);
const READY_IN: Duration = Duration::from_millis(2500);
/// Clients write once in this time.
const WRITES_EVERY: Duration = Duration::from_secs(3);

/// What a store or an etcd holds.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Data {
    /// Its revision.
    pub revision: u64,
    /// The writes in it, by their numbers.
    pub writes: BTreeSet<u64>,
    /// The revision at which it was copied from the other side.
    pub copied: Option<u64>,
}

/// What the clients of the API server do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Writes {
    /// Nothing.
    #[default]
    None,
    /// They write as soon as it is ready.
    WhenReady,
    /// They write, and the server itself does, before it is ready.
    WhenListening,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    enabled: bool,
    enabled_durable: bool,
    active: bool,
    loaded: bool,
}

#[derive(Clone, Debug)]
struct ApiServer {
    pid: Pid,
    manifest: Vec<u8>,
    args: Vec<String>,
    started: Duration,
    stopping: Option<Duration>,
}

/// The living part of the machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// The etcd that was there first; durable.
    pub etcd: Data,
    /// Where the store's unit has its file.
    pub store_file: PathBuf,
    /// The unit of the store.
    pub store_unit: String,
    /// What clients do.
    pub writes: Writes,
    /// Whether an API server on the store ever gets ready.
    pub ready_on_store: bool,
    /// Whether the kubelet runs: until the machine has started so far, it does not.
    pub kubelet_runs: bool,
    /// Whether the kubelet stops what has no manifest.
    pub kubelet_stops: bool,
    /// Whether a manifest must not come back while the group of its pod is there.
    pub groups_count: bool,
    /// Units whose start fails.
    pub broken_units: BTreeSet<String>,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    acknowledged: BTreeSet<u64>,
    seen_revision: u64,
    last_write: Option<(Pid, Duration)>,
    units: BTreeMap<String, Unit>,
    api_server: Option<ApiServer>,
    /// The group of the last API server's pod: its process's number, its manifest, and when it goes.
    ended: Option<(u32, Vec<u8>, Duration)>,
    boot: u32,
    next_pid: u32,
}

impl Default for Node {
    fn default() -> Node {
        Node {
            etcd: Data {
                revision: 100,
                writes: BTreeSet::from([0]),
                copied: None,
            },
            store_file: PathBuf::from("/var/lib/quantykube/store/store.qks"),
            store_unit: "quantykube-store.service".into(),
            writes: Writes::None,
            ready_on_store: true,
            kubelet_runs: true,
            kubelet_stops: true,
            groups_count: false,
            broken_units: BTreeSet::new(),
            violations: Vec::new(),
            acknowledged: BTreeSet::from([0]),
            seen_revision: 0,
            last_write: None,
            units: BTreeMap::new(),
            api_server: None,
            ended: None,
            boot: 1,
            next_pid: 1000,
        }
    }
}

impl Node {
    /// What the kubelet and the clients do at this moment. Called after every effect and while time passes.
    pub fn tick(&mut self, tree: &mut Tree, now: Duration) {
        if self
            .api_server
            .as_ref()
            .is_some_and(|s| s.stopping.is_some_and(|end| now >= end))
        {
            let ended = self
                .api_server
                .take()
                .map(|server| (server.pid.pid, server.manifest, now + GROUP_GOES_IN));
            self.ended = ended;
        }
        self.ended.take_if(|(_, _, end)| now >= *end);
        let wanted = self.manifest(tree);
        let ending = self.api_server.as_ref().filter(|server| server.stopping.is_some());
        let ended = self.ended.as_ref().filter(|_| self.groups_count);
        let ending = ending
            .map(|server| &server.manifest)
            .or(ended.map(|(_, manifest, _)| manifest));
        if wanted.is_some() && wanted.as_ref() == ending && self.kubelet_stops {
            self.violation("the manifest has come back while its pod was ending".into());
        }
        match (&mut self.api_server, wanted) {
            (Some(server), wanted)
                if wanted.as_ref() != Some(&server.manifest) && self.kubelet_stops && server.stopping.is_none() =>
            {
                server.stopping = Some(now + STOPS_IN);
            }
            (None, Some(manifest)) if self.kubelet_runs && self.ended.is_none() => {
                self.next_pid += 1;
                let pid = Pid {
                    pid: self.next_pid,
                    start: now.as_millis() as u64,
                };
                let args = arguments(&manifest);
                self.api_server = Some(ApiServer {
                    pid,
                    manifest,
                    args,
                    started: now,
                    stopping: None,
                });
            }
            _ => {}
        }
        if self.listens(tree, now) {
            self.serve(tree, now);
        }
    }

    /// Whether the API server is ready, and the name of the side it serves from.
    pub fn serving(&self, tree: &Tree, now: Duration) -> Option<&'static str> {
        let server = self.api_server.as_ref()?;
        let ready = self.listens(tree, now) && now >= server.started + READY_IN && server.stopping.is_none();
        match on_store(server) {
            true if ready && self.ready_on_store => Some("store"),
            false if ready => Some("etcd"),
            _ => None,
        }
    }

    /// The store's data, if its file is there and whole.
    pub fn store(&self, tree: &Tree) -> Option<Data> {
        serde_json::from_slice(&tree.read(&self.store_file).ok()?).ok()
    }

    /// Whether any API server lives, and would see a copy being made under it.
    pub fn api_server_lives(&self) -> bool {
        self.api_server.is_some()
    }

    /// The processes of a kind.
    pub fn processes(&self, process: &Process) -> Vec<Pid> {
        let Some(server) = &self.api_server else {
            return Vec::new();
        };
        let like = process.program == "kube-apiserver"
            && !process.args.is_empty()
            && process.args.iter().all(|arg| server.args.contains(arg));
        let now = process.boot_id.as_ref().is_none_or(|seen| *seen == self.boot_id());
        if like || now && process.pid == Some(server.pid) {
            vec![server.pid]
        } else {
            Vec::new()
        }
    }

    /// The boot, as a plan names it.
    pub fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// The group of the API server's pod, as a plan names it.
    pub fn group(pid: u32) -> PathBuf {
        PathBuf::from(format!("/sys/fs/cgroup/pod-{pid}"))
    }

    /// Whether the group of a process is there.
    pub fn group_stands(&self, process: &Process) -> bool {
        let is = |pid: u32| process.group.as_deref() == Some(&Node::group(pid));
        let now = process.boot_id.as_ref().is_none_or(|seen| *seen == self.boot_id());
        let running = self.api_server.as_ref().is_some_and(|server| is(server.pid.pid));
        now && (running || self.ended.as_ref().is_some_and(|(pid, ..)| is(*pid)))
    }

    /// TERM to a process.
    pub fn terminate(&mut self, pid: Pid, now: Duration) {
        if let Some(server) = &mut self.api_server
            && server.pid == pid
        {
            server.stopping.get_or_insert(now + STOPS_IN);
        }
    }

    /// How a unit stands.
    pub fn unit(&self, name: &str) -> UnitState {
        let unit = self.units.get(name).copied().unwrap_or_default();
        UnitState {
            known: unit.loaded,
            enabled: unit.enabled,
            active: unit.active,
            ready: unit.active,
        }
    }

    /// The link of an enabled unit, before it is synced.
    pub fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<(), String> {
        self.loaded(name)?.enabled = enabled;
        Ok(())
    }

    /// Makes the links durable.
    pub fn sync_links(&mut self, name: &str) {
        if let Some(unit) = self.units.get_mut(name) {
            unit.enabled_durable = unit.enabled;
        }
    }

    /// Starts or stops a unit.
    pub fn set_active(&mut self, name: &str, active: bool) -> Result<(), String> {
        let broken = self.broken_units.contains(name);
        let unit = self.loaded(name)?;
        unit.active = active && !broken;
        if active && broken {
            Err("its job ended with \"failed\"".into())
        } else {
            Ok(())
        }
    }

    /// Reads the unit files.
    pub fn reload(&mut self, tree: &Tree) {
        for unit in self.units.values_mut() {
            unit.loaded = false;
        }
        for name in tree.list(Path::new(UNITS)).unwrap_or_default() {
            let file = matches!(tree.look(&Path::new(UNITS).join(&name)), Ok(Some(Entry::File(..))));
            if file && name.ends_with(".service") && !name.starts_with('.') {
                self.units.entry(name).or_default().loaded = true;
            }
        }
    }

    /// The machine starts anew: no process, and only enabled units run.
    pub fn reboot(&mut self, tree: &Tree) {
        self.api_server = None;
        self.ended = None;
        self.boot += 1;
        self.reload(tree);
        for (name, unit) in &mut self.units {
            unit.enabled = unit.enabled_durable;
            unit.active = unit.enabled && unit.loaded && !self.broken_units.contains(name);
        }
    }

    /// All is written back, as an orderly stop does.
    pub fn flush(&mut self) {
        for unit in self.units.values_mut() {
            unit.enabled_durable = unit.enabled;
        }
    }

    /// Every unit that is loaded, enabled or active, with its state.
    pub fn units(&self) -> Vec<(String, UnitState)> {
        let state = |name: &String| self.unit(name);
        let seen = |(_, state): &(String, UnitState)| state.known || state.enabled || state.active;
        self.units
            .keys()
            .map(|name| (name.clone(), state(name)))
            .filter(seen)
            .collect()
    }

    /// The side that the manifest in the kubelet's folder names.
    pub fn manifest_names(&mut self, tree: &Tree) -> Option<&'static str> {
        let manifest = self.manifest(tree)?;
        Some(if names_store(&arguments(&manifest)) {
            "store"
        } else {
            "etcd"
        })
    }

    /// The manifest that the kubelet sees.
    fn manifest(&mut self, tree: &Tree) -> Option<Vec<u8>> {
        let names = tree.list(Path::new(MANIFESTS)).unwrap_or_default();
        let mut found = Vec::new();
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let text = tree.read(&Path::new(MANIFESTS).join(name)).unwrap_or_default();
            if String::from_utf8_lossy(&text).contains("kube-apiserver") {
                found.push(text);
            } else if text.is_empty() {
                self.violation(format!("the kubelet sees the half-made file {name}"));
            }
        }
        if found.len() > 1 {
            self.violation("the kubelet sees two manifests of the API server".into());
        }
        found.pop()
    }

    fn listens(&self, tree: &Tree, now: Duration) -> bool {
        let Some(server) = &self.api_server else { return false };
        let behind = !on_store(server)
            || self.units.get(&self.store_unit).is_some_and(|u| u.active) && self.store(tree).is_some();
        behind && now >= server.started + LISTENS_IN
    }

    fn serve(&mut self, tree: &mut Tree, now: Duration) {
        let Some(server) = &self.api_server else { return };
        let (on_store, pid) = (on_store(server), server.pid);
        let data = if on_store {
            self.store(tree)
        } else {
            Some(self.etcd.clone())
        };
        let Some(mut data) = data else { return };
        if let Some(lost) = self.acknowledged.difference(&data.writes).next() {
            let side = if on_store { "the store" } else { "etcd" };
            self.violation(format!(
                "the API server serves from {side}, which lacks the acknowledged write {lost}"
            ));
        }
        if data.revision < self.seen_revision {
            self.violation(format!(
                "revision {} was seen, now it is {}",
                self.seen_revision, data.revision
            ));
        }
        let writes = match self.writes {
            Writes::None => false,
            Writes::WhenReady => self.serving(tree, now).is_some(),
            Writes::WhenListening => true,
        };
        let due = self
            .last_write
            .is_none_or(|(by, at)| by != pid || now >= at + WRITES_EVERY);
        if writes && due {
            self.last_write = Some((pid, now));
            let number = self.acknowledged.last().map_or(0, |last| last + 1);
            data.revision += 1;
            data.writes.insert(number);
            self.acknowledged.insert(number);
        }
        self.seen_revision = data.revision;
        if !(writes && due) {
            return;
        }
        if on_store {
            // A store answers only when the write is durable.
            let bytes = serde_json::to_vec(&data).unwrap_or_default();
            let _ = tree.change(&self.store_file, |content| *content = bytes);
            let _ = tree.sync(&self.store_file);
        } else {
            self.etcd = data;
        }
    }

    fn loaded(&mut self, name: &str) -> Result<&mut Unit, String> {
        self.units
            .get_mut(name)
            .filter(|unit| unit.loaded)
            .ok_or_else(|| format!("unit {name} is not loaded"))
    }

    pub(super) fn violation(&mut self, text: String) {
        if !self.violations.contains(&text) {
            self.violations.push(text);
        }
    }
}

fn on_store(server: &ApiServer) -> bool {
    names_store(&server.args)
}

fn names_store(args: &[String]) -> bool {
    args.iter()
        .any(|arg| arg.starts_with("--etcd-servers=") && arg.contains(":2479"))
}

/// The flags of a manifest: one a line, as kubeadm writes them.
fn arguments(manifest: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(manifest);
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("- --").map(|flag| format!("--{flag}")))
        .collect()
}
