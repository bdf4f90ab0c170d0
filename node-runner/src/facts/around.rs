//! What stands around the control plane and decides whether a move may begin: other files of the kubelet's folder, file
//! systems, memory, schedules, a kubeadm at work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::facts::attributes::{self, Fast};
use crate::facts::host::{self, Selinux};
use crate::facts::kubeadm::{self, Kubeadm};
use crate::facts::mounts::{self, Mount};
use crate::facts::pods::{self, PodFile};
use crate::facts::{Known, Root, process, schedules, sync};
use crate::moves::places;

/// All of it.
#[derive(Clone, Debug)]
pub struct Around {
    /// The time, in seconds since the Unix epoch.
    pub now: u64,
    /// The files that the kubelet reads as pods.
    pub pods: Known<Vec<PodFile>>,
    /// What keeps the API server's manifest from being moved.
    pub fast: Vec<Fast>,
    /// A kubeadm at work.
    pub kubeadm: Kubeadm,
    /// How long the younger one of kubelet and API server has run. `None` where that cannot be told.
    pub since: Option<Duration>,
    /// Each folder that a move writes to.
    pub places: Known<Vec<Place>>,
    /// How long synced writes take where the store's file will be, shortest first.
    pub sync: Known<Vec<Duration>>,
    /// Bytes of memory that are free for programs.
    pub memory_bytes: Option<u64>,
    /// What SELinux does.
    pub selinux: Selinux,
    /// Schedules that mean etcd.
    pub schedules: Vec<PathBuf>,
}

/// A folder that a move writes to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The folder; it need not exist yet.
    pub path: &'static str,
    /// What is to be in it.
    pub kind: PlaceKind,
    /// The mount behind it.
    pub mount: Option<Mount>,
    /// Why nothing can be put there, by the attributes of the nearest folder that exists.
    pub fast: Option<Fast>,
}

/// What is put into a folder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlaceKind {
    /// Programs.
    Programs,
    /// Units, links and settings.
    Settings,
    /// The store's file and the journals.
    Data,
}

/// Where a move writes, but for the manifests.
const PLACES: [(&str, PlaceKind); 5] = [
    (places::PROGRAMS, PlaceKind::Programs),
    ("/usr/local/bin", PlaceKind::Settings),
    (places::SETTINGS, PlaceKind::Settings),
    (places::UNITS, PlaceKind::Settings),
    (places::DATA, PlaceKind::Data),
];

/// Reads all of it. `static_pods` is the kubelet's folder, `api_server` the API server as it runs.
pub fn read(root: &Root, static_pods: &Known<PathBuf>, api_server: Option<&process::Process>, now: u64) -> Around {
    let pods = static_pods.clone().and_then(|folder| pods::read(root, &folder));
    let fast = static_pods.as_ref().map_or_else(
        |_| Vec::new(),
        |folder| {
            let waiting = places::retired_folder(folder);
            attributes::of_manifest(root, folder, places::API_SERVER_MANIFEST, &waiting)
        },
    );
    Around {
        now,
        kubeadm: kubeadm::read(root, pods.as_deref().unwrap_or_default()),
        pods,
        fast,
        since: since(root, api_server),
        places: mounts::all(root).map(|mounts| PLACES.map(|(path, kind)| place(root, &mounts, path, kind)).into()),
        sync: sync::times(root, Path::new(places::STORE_FOLDER)),
        memory_bytes: host::available_memory(root),
        selinux: host::selinux(root),
        schedules: schedules::of_etcd(root),
    }
}

fn place(root: &Root, mounts: &[Mount], path: &'static str, kind: PlaceKind) -> Place {
    let nearest = attributes::nearest(root, Path::new(path));
    Place {
        path,
        kind,
        mount: mounts::behind(root, mounts, Path::new(path)).cloned(),
        fast: attributes::of(root, &nearest).map(|why| Fast { path: nearest, why }),
    }
}

fn since(root: &Root, api_server: Option<&process::Process>) -> Option<Duration> {
    let kubelet = process::of_program(root, "kubelet").into_iter().next()?;
    let youngest = kubelet.start.max(api_server?.start);
    let started = Duration::from_secs_f64(youngest as f64 / rustix::param::clock_ticks_per_second() as f64);
    Some(host::uptime(root)?.saturating_sub(started))
}
