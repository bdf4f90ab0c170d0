//! Checks of what stands around the control plane: files of the kubelet's folder, file systems, memory, schedules.

use std::time::Duration;

use quantykube_base::human_bytes;

use crate::checks::Check;
use crate::facts::Known;
use crate::facts::around::{Around, Place, PlaceKind};
use crate::facts::attributes::{Fast, Why};
use crate::facts::etcd::Etcd;
use crate::facts::host::Selinux;
use crate::facts::mounts::Mount;
use crate::facts::pods::Pod;
use crate::moves::places;

/// The kubelet reads every file that does not begin with a dot: another file with the same pod is another API server, or
/// none, and one that names the same etcd goes on writing to it.
pub fn static_pods(around: &Around) -> Check {
    const NAME: &str = "static-pods";
    let files = match &around.pods {
        Ok(files) => files,
        Err(why) => return Check::unknown(NAME, why),
    };
    let pod = |name: &str| {
        let file = files.iter().find(|file| file.name == name)?;
        file.pod.as_ref().ok()
    };
    let own = [places::API_SERVER_MANIFEST, places::ETCD_MANIFEST];
    let (api_server, etcd) = (pod(own[0]), pod(own[1]));
    let doubles: Vec<String> = files
        .iter()
        .filter(|file| !own.contains(&file.name.as_str()))
        .filter_map(|file| Some((file, file.pod.as_ref().ok()?)))
        .filter_map(|(file, pod)| Some(format!("{} is {}", file.name, double(pod, api_server?, etcd)?)))
        .collect();
    if !doubles.is_empty() {
        return Check::fail(
            NAME,
            doubles.join(", "),
            "move it out of the kubelet's folder: the kubelet reads every file that does not begin with a dot, whatever its ending",
        );
    }
    let unread: Vec<String> = files
        .iter()
        .filter(|file| !own.contains(&file.name.as_str()))
        .filter_map(|file| Some(format!("{} ({})", file.name, file.pod.as_ref().err()?)))
        .collect();
    match unread.is_empty() {
        true => Check::pass(NAME, format!("{} files, each another pod", files.len())),
        false => Check::warn(
            NAME,
            format!("files that are no pods: {}", unread.join(", ")),
            "move them out of the kubelet's folder, for it reads them every time",
        ),
    }
}

/// What makes a pod a second one of ours.
fn double(pod: &Pod, api_server: &Pod, etcd: Option<&Pod>) -> Option<&'static str> {
    let same = |other: &Pod| pod.name == other.name && pod.namespace == other.namespace;
    let servers = |pod: &Pod| -> Vec<String> {
        let containers = pod
            .containers
            .iter()
            .filter(|container| container.program == "kube-apiserver");
        containers
            .flat_map(|container| container.etcd_servers.clone())
            .collect()
    };
    if same(api_server) {
        Some("the API server's pod a second time")
    } else if etcd.is_some_and(same) {
        Some("etcd's pod a second time")
    } else if servers(pod).iter().any(|server| servers(api_server).contains(server)) {
        Some("a second API server on the same etcd")
    } else {
        None
    }
}

/// Whether the manifest can be taken out, edited and put back.
pub fn manifest(around: &Around) -> Check {
    const NAME: &str = "manifest";
    match around.fast.first() {
        None => Check::pass(NAME, "the API server's manifest can be moved"),
        Some(fast) => Check::fail(NAME, found(fast), cure(fast)),
    }
}

fn found(fast: &Fast) -> String {
    let path = fast.path.display();
    match fast.why {
        Why::Immutable => format!("{path} is immutable"),
        Why::AppendOnly => format!("{path} is append-only"),
        Why::Link => format!("{path} is a symbolic link"),
        Why::OtherFileSystem => format!("{path} is not on the file system of the kubelet's folder"),
    }
}

fn cure(fast: &Fast) -> String {
    let path = fast.path.display();
    match fast.why {
        Why::Immutable => format!("chattr -i {path}, and again chattr +i after the move if that is wanted"),
        Why::AppendOnly => format!("chattr -a {path}"),
        Why::Link => "put the file itself there, as kubeadm does".to_owned(),
        Why::OtherFileSystem => {
            "the manifest waits beside the kubelet's folder and is moved by renaming: both must be on one file system"
                .to_owned()
        }
    }
}

/// A kubeadm at work writes manifests that name etcd.
pub fn kubeadm_work(around: &Around) -> Check {
    const NAME: &str = "kubeadm-work";
    let kubeadm = &around.kubeadm;
    if !kubeadm.running.is_empty() {
        return Check::fail(
            NAME,
            format!("kubeadm is at work: {}", kubeadm.running.join(", ")),
            "wait until it has ended",
        );
    }
    if !kubeadm.left.is_empty() {
        return Check::warn(
            NAME,
            format!(
                "an upgrade was stopped or has failed: {} is left",
                kubeadm.left.join(" ")
            ),
            "finish it (kubeadm upgrade apply) or move the folder away if it is old",
        );
    }
    if !kubeadm.versions.is_empty() {
        return Check::warn(
            NAME,
            format!("versions are mixed: {}", kubeadm.versions.join(", ")),
            "if an upgrade was stopped halfway, finish it first (kubeadm upgrade apply)",
        );
    }
    Check::pass(NAME, "no kubeadm is at work, none was stopped halfway")
}

/// A kubelet that was started while no API server answered does not stop static pods until it has seen one; then the move
/// asks the API server itself to end.
const SEEN_AFTER: Duration = Duration::from_secs(60);

/// Whether the kubelet has had the time to see the API server.
pub fn kubelet_since(around: &Around) -> Check {
    const NAME: &str = "kubelet-since";
    match around.since {
        Some(since) if since < SEEN_AFTER => Check::warn(
            NAME,
            format!("the kubelet or the API server was started {} s ago", since.as_secs()),
            format!(
                "wait a minute: a kubelet that has not seen the API server yet does not stop it, and the move then waits {} s before it does so itself",
                crate::moves::store::TERM_AFTER_S
            ),
        ),
        Some(_) => Check::pass(
            NAME,
            "kubelet and API server have known each other for a minute or more",
        ),
        None => Check::pass(NAME, "not known: no process of a kubelet, or no API server, is seen"),
    }
}

/// File systems that live in memory: their files are gone with the power.
const IN_MEMORY: [&str; 4] = ["tmpfs", "ramfs", "devtmpfs", "rootfs"];
/// File systems that are elsewhere: their locks and their idea of a synced file are not the local ones.
const ELSEWHERE: [&str; 12] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "ncpfs",
    "virtiofs",
    "lustre",
];
/// File systems without modes, or without writing.
const TOO_SIMPLE: [&str; 8] = [
    "vfat", "exfat", "msdos", "ntfs", "ntfs3", "iso9660", "squashfs", "erofs",
];
/// File systems whose synced files survive a power cut.
const TRIED: [&str; 6] = ["ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs"];

/// The file system under the store's file.
pub fn file_system(around: &Around) -> Check {
    const NAME: &str = "file-system";
    let places = match &around.places {
        Ok(places) => places,
        Err(why) => return Check::unknown(NAME, why),
    };
    let data = places.iter().find(|place| place.kind == PlaceKind::Data);
    let Some(mount) = data.and_then(|place| place.mount.as_ref()) else {
        return Check::unknown(NAME, format!("nothing is mounted under {}", places::DATA));
    };
    let kind = mount.kind.as_str();
    let found = format!("{} is on {kind} (mounted at {})", places::DATA, mount.at.display());
    let disk = format!("mount a local disk at {}, such as with ext4 or xfs", places::DATA);
    let no = |why: &str| Check::fail(NAME, format!("{found}: {why}"), &disk);
    if IN_MEMORY.contains(&kind) {
        return no("it is in memory, and gone with the power");
    }
    if ELSEWHERE.contains(&kind) || kind == "fuse" || kind.starts_with("fuse.") {
        return no("it is no local disk, and what it calls synced may not be");
    }
    if TOO_SIMPLE.contains(&kind) {
        return no("it keeps no owners and modes, or cannot be written");
    }
    if kind == "overlay" {
        return overlay(mount, found, &disk);
    }
    match TRIED.contains(&kind) {
        true => Check::pass(NAME, found),
        false => Check::warn(NAME, format!("{found}, which was never tried"), disk),
    }
}

/// An overlay is as durable as its upper folder. Only what its options say can be known.
fn overlay(mount: &Mount, found: String, disk: &str) -> Check {
    const NAME: &str = "file-system";
    if mount.has("volatile") {
        let why = format!("{found}: it is mounted volatile, so that nothing is synced");
        return Check::fail(NAME, why, disk);
    }
    let Some(upper) = mount.value("upperdir") else {
        return Check::fail(NAME, format!("{found}, and it has no upper folder"), disk);
    };
    Check::warn(
        NAME,
        format!("{found}: it is as durable as its upper folder {upper}"),
        format!("see that {upper} is on a local disk; or {disk}"),
    )
}

/// Whether the folders of programs, settings and data take files.
pub fn writable(around: &Around) -> Check {
    const NAME: &str = "writable";
    let places = match &around.places {
        Ok(places) => places,
        Err(why) => return Check::unknown(NAME, why),
    };
    for place in places {
        if let Some(fast) = &place.fast {
            return Check::fail(NAME, found(fast), cure(fast));
        }
        if let Some(why) = place.mount.as_ref().and_then(|mount| closed(place, mount)) {
            return Check::fail(NAME, why, format!("make {} a place that takes it", place.path));
        }
    }
    Check::pass(NAME, "programs, units and data have places that can be written")
}

fn closed(place: &Place, mount: &Mount) -> Option<String> {
    let at = mount.at.display();
    if mount.has("ro") {
        Some(format!("{} is on {at}, which is mounted read-only", place.path))
    } else if place.kind == PlaceKind::Programs && mount.has("noexec") {
        Some(format!("{} is on {at}, which is mounted noexec", place.path))
    } else {
        None
    }
}

/// Above this a synced write is slow: what etcd's own guide wants its disks to keep.
const SYNC_AT_MOST: Duration = Duration::from_millis(10);

/// How long the disk takes for a synced write, at the 99th of 100.
pub fn sync_time(around: &Around) -> Check {
    const NAME: &str = "sync-time";
    let times = match &around.sync {
        Ok(times) => times,
        Err(why) => return Check::pass(NAME, format!("not measured: {why}")),
    };
    let Some(p99) = times.get((times.len() * 99).div_ceil(100).saturating_sub(1)) else {
        return Check::pass(NAME, "not measured");
    };
    let found = format!(
        "{} synced writes, the 99th of 100 took {:.1} ms",
        times.len(),
        p99.as_secs_f64() * 1e3
    );
    match *p99 <= SYNC_AT_MOST {
        true => Check::pass(NAME, found),
        false => Check::warn(
            NAME,
            format!("{found}, more than {} ms", SYNC_AT_MOST.as_millis()),
            "each write of the cluster waits as long; a faster disk helps etcd and the store alike",
        ),
    }
}

/// What the store takes for itself, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;
/// What its index takes for each key, in bytes.
const KEY_BYTES: u64 = 300;

/// Whether the store's index has room, beside an etcd that goes on running.
pub fn memory(etcd: &Known<Etcd>, around: &Around) -> Check {
    const NAME: &str = "memory";
    let (Ok(etcd), Some(free)) = (etcd, around.memory_bytes) else {
        return Check::unknown(NAME, "the number of etcd's keys or the free memory is not known");
    };
    let needed = etcd.status.keys.saturating_mul(KEY_BYTES).saturating_add(MEMORY_BYTES);
    let found = format!(
        "{} of memory available, {} needed for the index of {} keys",
        human_bytes(free),
        human_bytes(needed),
        etcd.status.keys
    );
    match free >= needed {
        true => Check::pass(NAME, found),
        false => Check::fail(
            NAME,
            found,
            "free memory on this node, for etcd goes on running beside the store",
        ),
    }
}

/// Files that a move makes get the labels of their folders, which a policy may not let systemd start.
pub fn selinux(around: &Around) -> Check {
    const NAME: &str = "selinux";
    match around.selinux {
        Selinux::Off => Check::pass(NAME, "not in use"),
        Selinux::Permissive => Check::warn(
            NAME,
            "SELinux is permissive",
            "do not switch it to enforcing on a moved node: nothing is known of its policy and our programs",
        ),
        Selinux::Enforcing => Check::fail(
            NAME,
            "SELinux is enforcing, and the programs of a move are not labelled for it",
            "nodes with SELinux in enforcing mode are not supported",
        ),
    }
}

/// What goes on saving an etcd that is idle after the move.
pub fn schedules(around: &Around) -> Check {
    const NAME: &str = "schedules";
    let paths: Vec<String> = around.schedules.iter().map(|path| path.display().to_string()).collect();
    match paths.is_empty() {
        true => Check::pass(NAME, "no cron table and no timer names etcd"),
        false => Check::warn(
            NAME,
            format!("they name etcd or its port: {}", paths.join(" ")),
            "after the move they go on with the idle etcd and save what is old: point them at the store's port 2479",
        ),
    }
}

/// etcd's own users and roles have no place in the store.
pub fn etcd_users(users: &Known<bool>) -> Check {
    const NAME: &str = "etcd-users";
    match users {
        Ok(false) => Check::pass(NAME, "etcd has authentication switched off, as kubeadm leaves it"),
        Ok(true) => Check::fail(
            NAME,
            "etcd has authentication switched on",
            "a cluster that uses etcd's own users is not supported; switch it off with etcdctl auth disable",
        ),
        Err(why) => Check::unknown(NAME, why),
    }
}
