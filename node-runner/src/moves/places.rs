//! Where our things stand on a node. Every path of a plan that is not the node's own comes from here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The folder of our programs, one folder per version in it.
pub const PROGRAMS: &str = "/usr/local/lib/quantykube";
/// The link by which a person calls the installed program.
pub const LINK: &str = "/usr/local/bin/quantykube";
/// Our settings.
pub const SETTINGS: &str = "/etc/quantykube";
/// The store's settings.
pub const STORE_ENV: &str = "/etc/quantykube/store.env";
/// The store's unit.
pub const STORE_UNIT: &str = "quantykube-store.service";
/// The unit that looks after an open move before the kubelet starts.
pub const RECOVER_UNIT: &str = "quantykube-recover.service";
/// The unit that ends it after the kubelet has started.
pub const RESUME_UNIT: &str = "quantykube-resume.service";
/// The unit that guards the API server's manifest.
pub const GUARD_UNIT: &str = "quantykube-guard.service";
/// The links of the units that every boot starts.
pub const BOOT_UNITS: &str = "/etc/systemd/system/multi-user.target.wants";
/// Where systemd reads units that an administrator put.
pub const UNITS: &str = "/etc/systemd/system";
/// Our data.
pub const DATA: &str = "/var/lib/quantykube";
/// The folder of the store's file.
pub const STORE_FOLDER: &str = "/var/lib/quantykube/store";
/// The store's file.
pub const STORE_FILE: &str = "/var/lib/quantykube/store/store.qks";
/// What a first boot leaves.
pub const FIRST_BOOT: &str = "/var/lib/quantykube/first-boot";
/// The journals of all moves.
pub const JOURNALS: &str = "/var/lib/quantykube/install";
/// Where manifests wait while they are out of the kubelet's folder: beside it, not in it.
pub const RETIRED: &str = "quantykube";
/// The API server's manifest, as kubeadm names it.
pub const API_SERVER_MANIFEST: &str = "kube-apiserver.yaml";
/// The manifest of kubeadm's local etcd.
pub const ETCD_MANIFEST: &str = "etcd.yaml";
/// The store's client port: etcd's, and a hundred.
pub const STORE_PORT: u16 = 2479;
/// Where the store tells how it is, in plain text and on loopback only.
pub const STORE_METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2481);

/// The folder of one version's programs.
pub fn programs(version: &str) -> PathBuf {
    Path::new(PROGRAMS).join(version)
}

/// The node-runner of one version.
pub fn runner(version: &str) -> PathBuf {
    programs(version).join("quantykube")
}

/// The store's address as a URL.
pub fn store_url(address: SocketAddr) -> String {
    format!("https://{address}")
}

/// Where a store file goes that the move `number` took out of use.
pub fn store_file_aside(number: u32) -> PathBuf {
    Path::new(STORE_FOLDER).join(format!("store-{number}.qks"))
}

/// Where a manifest waits while it is out of the kubelet's folder `static_pods`: on the same file system, not watched.
pub fn retired(static_pods: &Path, name: &str) -> PathBuf {
    retired_folder(static_pods).join(name)
}

/// The folder of waiting manifests.
pub fn retired_folder(static_pods: &Path) -> PathBuf {
    static_pods.with_file_name(RETIRED)
}
