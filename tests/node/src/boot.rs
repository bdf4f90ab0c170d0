//! Making a node's root folder, up to the first boot.

use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::group::Group;
use crate::places;

/// What a node is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The host's and the node's name.
    pub name: String,
    /// The address that kubeadm advertises, on lo. An IPv6 address gives a node whose etcd is at `[::1]:2379`.
    pub address: IpAddr,
    /// Whether it is a kubeadm control-plane node: certificates, kubeconfigs, manifests and the kubelet's
    /// configuration, as `kubeadm init` makes them. Without, it is a bare Debian.
    pub kubeadm: bool,
    /// Whether the kubelet starts at boot.
    pub kubelet: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "node1".into(),
            address: IpAddr::from([10, 0, 0, 10]),
            kubeadm: true,
            kubelet: true,
        }
    }
}

/// Options of systemd-nspawn that the first boot and every other run share.
pub fn nspawn(root: &Path, options: &Options, group: &Group) -> Command {
    let mut command = group.command("systemd-nspawn");
    command
        .args([
            "--quiet",
            "--private-network",
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            "--capability=all",
        ])
        .arg(format!("--machine={}", group.name()))
        .arg(format!("--hostname={}", options.name))
        .arg(format!("--bind-ro={}:/opt/kubernetes", places::peers().display()))
        .arg("--directory")
        .arg(root)
        // A node of today: cgroups of version 2 only.
        .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
        // /tmp is part of the root folder, as on a Debian.
        .env("SYSTEMD_NSPAWN_TMPFS_TMP", "0")
        .stdin(Stdio::null());
    command
}

/// Makes the root folder of a new node at `root`, which must not exist.
pub fn make_root(root: &Path, options: &Options, group: &Group) {
    let template = places::template();
    run(Command::new("cp")
        .args(["--archive", "--reflink=auto"])
        .arg(&template)
        .arg(root));
    let etc = root.join("etc");
    write(&etc.join("hostname"), &format!("{}\n", options.name));
    write(
        &etc.join("hosts"),
        &format!(
            "127.0.0.1 localhost\n::1 localhost\n{} {}\n",
            options.address, options.name
        ),
    );
    write(&etc.join("machine-id"), &format!("{}\n", machine_id()));
    write(&etc.join("node-address"), &format!("{}\n", options.address));
    if !options.kubelet {
        fs::remove_file(etc.join("systemd/system/multi-user.target.wants/kubelet.service"))
            .expect("the kubelet's unit is enabled in the root folder");
    }
    if options.kubeadm {
        fs::copy(places::standin(), root.join("usr/bin/kubelet")).expect("the stand-in can be copied in");
        write(&etc.join("node-kubeadm.yaml"), &kubeadm_config(options));
        run(nspawn(root, options, group).arg("/usr/local/sbin/node-render"));
    }
}

/// kubeadm's configuration. The defaults are kubeadm's own.
fn kubeadm_config(options: &Options) -> String {
    let services = if options.address.is_ipv6() {
        "fd00:10:96::/112"
    } else {
        "10.96.0.0/12"
    };
    format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\n\
         kind: InitConfiguration\n\
         localAPIEndpoint:\n  advertiseAddress: {address:?}\n  bindPort: 6443\n\
         nodeRegistration:\n  name: {name}\n  criSocket: unix:///run/containerd/containerd.sock\n\
         ---\n\
         apiVersion: kubeadm.k8s.io/v1beta4\n\
         kind: ClusterConfiguration\n\
         kubernetesVersion: v1.36.3\n\
         networking:\n  serviceSubnet: {services:?}\n",
        address = options.address.to_string(),
        name = options.name,
    )
}

fn machine_id() -> String {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .expect("/dev/urandom can be read");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(path: &Path, content: &str) {
    fs::write(path, content).unwrap_or_else(|err| panic!("cannot write {}: {err}", path.display()));
}

/// Runs a command; shows its output only if it fails.
fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|err| panic!("cannot run {command:?}: {err}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
