//! Helpers of this program's tests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::facts::manifest::Manifest;
use crate::facts::{Root, certificates};

/// Writes a file below a temporary root.
pub fn put(root: &Root, path: &str, text: &str) {
    let path = root.at(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A process as `/proc` of a temporary root shows it.
pub fn fake_process(root: &Root, pid: u32, argv: &[&str], start: u64) {
    let mut line = argv.join("\0");
    line.push('\0');
    put(root, &format!("/proc/{pid}/cmdline"), &line);
    let stat = format!("{pid} (p q) S 1 1 1 0 -1 4 1 1 0 0 0 0 0 0 20 0 1 0 {start} 1 1");
    put(root, &format!("/proc/{pid}/stat"), &stat);
}

/// A certificate authority for tests.
pub struct Authority {
    params: rcgen::CertificateParams,
    key: rcgen::KeyPair,
}

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Authority {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Authority {
            params,
            key: rcgen::KeyPair::generate().unwrap(),
        }
    }

    /// A new one that is valid for a time only (seconds since the Unix epoch).
    pub fn until(name: &str, from: u64, to: u64) -> Authority {
        let mut authority = Authority::new(name);
        authority.params.not_before = time_of(from);
        authority.params.not_after = time_of(to);
        authority
    }

    /// Writes its certificate.
    pub fn write_ca(&self, path: &Path) {
        fs::write(path, self.params.clone().self_signed(&self.key).unwrap().pem()).unwrap();
    }

    /// Writes `NAME.crt` and `NAME.key`: a server's pair where a name or address is given, else a client's.
    pub fn write_pair(&self, folder: &Path, name: &str, server: Option<&str>, from: u64, to: u64) {
        let time = |seconds: u64| time_of(seconds);
        let mut params =
            rcgen::CertificateParams::new(server.map(str::to_owned).into_iter().collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_before = time(from);
        params.not_after = time(to);
        params.extended_key_usages = vec![match server {
            Some(_) => rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            None => rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        let cert = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{name}.crt")), cert.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn time_of(seconds: u64) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap()).unwrap()
}

/// A program of the tests' peers.
pub fn peer(name: &str) -> PathBuf {
    let cache = std::env::var_os("QUANTYKUBE_CACHE")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/quantykube"));
    let path = cache.join("peers/bin").join(name);
    assert!(path.is_file(), "{} is missing: run scripts/peers", path.display());
    path
}

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A control-plane node in a temporary tree: manifests and certificates rendered by the real kubeadm, a real etcd behind
/// them, and a small TLS server in place of the API server.
pub struct TestNode {
    folder: tempfile::TempDir,
    /// Its tree.
    pub root: Root,
    /// The etcd's URL, as the API server's manifest names it.
    pub etcd_url: String,
    etcd: Child,
    /// Whether the API server says that it is ready.
    pub api_ready: Arc<AtomicBool>,
}

/// kubeadm's configuration. `127.0.0.1` is added to the API server's certificate, for the test's server listens there.
const KUBEADM: &str = "\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.0.0.10, bindPort: 6443}
nodeRegistration: {name: node1, criSocket: 'unix:///run/containerd/containerd.sock'}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
apiServer: {certSANs: [127.0.0.1]}
";

/// The mounts of a plain node.
pub const MOUNTS: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
/// The number of the kubelet's process in the tree.
pub const KUBELET_PID: u32 = 800;
/// The number of the API server's process in the tree.
pub const API_SERVER_PID: u32 = 4242;
/// The API server's manifest.
pub const API_SERVER: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
/// etcd's manifest.
pub const ETCD: &str = "/etc/kubernetes/manifests/etcd.yaml";

/// The family of the addresses of a rendered node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// IPv4.
    Four,
    /// IPv6.
    Six,
}

/// Renders a node with the real kubeadm, which changes its root to the tree: only root can.
pub fn render(root: &Root) {
    render_with(root, KUBEADM);
}

/// Renders the node of the fixtures.
pub fn render_as(root: &Root, family: Family) {
    let (address, services) = match family {
        Family::Four => ("192.0.2.10", "10.96.0.0/12"),
        Family::Six => ("2001:db8::10", "fd00:10:96::/112"),
    };
    let config = KUBEADM
        .replace("advertiseAddress: 10.0.0.10", &format!("advertiseAddress: {address:?}"))
        .replace(
            "apiServer: {certSANs: [127.0.0.1]}",
            &format!("imageRepository: registry.example\nnetworking: {{serviceSubnet: {services:?}}}"),
        );
    render_with(root, &config);
}

fn render_with(root: &Root, config: &str) {
    assert!(
        rustix::process::geteuid().is_root(),
        "kubeadm renders into another root: run this test as root"
    );
    put(root, "/kubeadm.yaml", config);
    let kubeadm = peer("kubeadm");
    for phase in ["certs all", "control-plane apiserver", "etcd local"] {
        let output = Command::new(&kubeadm)
            .args(["init", "phase"])
            .args(phase.split(' '))
            .args(["--config", "/kubeadm.yaml", "--rootfs"])
            .arg(root.at("/"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{phase}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl TestNode {
    /// A node on which every check of `install store` says yes.
    pub fn start() -> TestNode {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        render(&root);
        let (etcd_port, peer_port, api_port) = (free_port(), free_port(), free_port());
        let etcd_url = format!("https://127.0.0.1:{etcd_port}");
        replace(
            &root,
            API_SERVER,
            &[
                ("https://127.0.0.1:2379", &etcd_url),
                ("--advertise-address=10.0.0.10", "--advertise-address=127.0.0.1"),
                ("--secure-port=6443", &format!("--secure-port={api_port}")),
            ],
        );
        replace(&root, ETCD, &[("https://127.0.0.1:2379", &etcd_url)]);
        put(&root, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        put(&root, "/proc/sys/kernel/hostname", "host1\n");
        put(
            &root,
            "/var/lib/kubelet/config.yaml",
            "staticPodPath: /etc/kubernetes/manifests\n",
        );
        put(&root, "/proc/meminfo", "MemAvailable: 4194304 kB\n");
        put(&root, "/proc/uptime", "5000.00 9000.00\n");
        put(&root, "/proc/self/mountinfo", MOUNTS);
        fake_process(&root, KUBELET_PID, &["/usr/bin/kubelet"], 50);
        let manifest = Manifest::read(&root, Path::new(API_SERVER)).unwrap().unwrap();
        let argv: Vec<&str> = manifest.argv.iter().map(String::as_str).collect();
        fake_process(&root, API_SERVER_PID, &argv, 100);
        let etcd = start_etcd(&root, &etcd_url, peer_port);
        let api_ready = Arc::new(AtomicBool::new(true));
        serve_ready(&root, api_port, api_ready.clone());
        let node = TestNode {
            folder,
            root,
            etcd_url,
            etcd,
            api_ready,
        };
        node.wait_for_etcd();
        node
    }

    /// Runs etcdctl with the API server's certificate.
    pub fn etcdctl(&self, args: &[&str]) -> std::process::Output {
        let pki = self.root.at("/etc/kubernetes/pki");
        Command::new(peer("etcdctl"))
            .arg(format!("--endpoints={}", self.etcd_url))
            // Long enough for a busy machine; nothing here fails by being slow.
            .args(["--command-timeout=60s", "--dial-timeout=60s"])
            .arg(format!("--cacert={}", pki.join("etcd/ca.crt").display()))
            .arg(format!("--cert={}", pki.join("apiserver-etcd-client.crt").display()))
            .arg(format!("--key={}", pki.join("apiserver-etcd-client.key").display()))
            .args(args)
            .output()
            .unwrap()
    }

    fn wait_for_etcd(&self) {
        for _ in 0..200 {
            if self.etcdctl(&["endpoint", "health"]).status.success() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("etcd does not answer at {}", self.etcd_url);
    }

    /// Every file of the tree but etcd's own: all that can be seen of it.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Seen> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path == self.root.at("/etcd-data") || path == self.root.at("/etcd-log") {
                    continue;
                }
                if path.symlink_metadata().unwrap().is_dir() {
                    folders.push(path.clone());
                }
                files.insert(path.clone(), Seen::of(&path));
            }
        }
        files
    }
}

/// What can be seen of a file: mode, owner, group, times of change, extended attributes, bytes.
#[derive(Debug, Eq, PartialEq)]
pub struct Seen {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    changed: (i64, i64),
    attributes: Vec<(String, Vec<u8>)>,
    bytes: Vec<u8>,
}

impl Seen {
    /// Looks.
    pub fn of(path: &Path) -> Seen {
        let meta = path.symlink_metadata().unwrap();
        Seen {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            attributes: attributes(path),
            bytes: if meta.is_file() {
                fs::read(path).unwrap()
            } else {
                Vec::new()
            },
        }
    }
}

fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    names
        .split_terminator('\0')
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(length);
            (name.to_owned(), value)
        })
        .collect()
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// Replaces strings in a file of the tree; each must be there.
pub fn replace(root: &Root, path: &str, pairs: &[(&str, &str)]) {
    let mut text = fs::read_to_string(root.at(path)).unwrap();
    for (from, to) in pairs {
        assert!(text.contains(from), "{path} does not contain {from}");
        text = text.replace(from, to);
    }
    fs::write(root.at(path), text).unwrap();
}

fn start_etcd(root: &Root, url: &str, peer_port: u16) -> Child {
    let pki = root.at("/etc/kubernetes/pki/etcd");
    let peers = format!("http://127.0.0.1:{peer_port}");
    let log = fs::File::create(root.at("/etcd-log")).unwrap();
    let data = root.at("/etcd-data");
    Command::new(peer("etcd"))
        .arg("--name=node1")
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls={url}"))
        .arg(format!("--advertise-client-urls={url}"))
        .arg(format!("--listen-peer-urls={peers}"))
        .arg(format!("--initial-advertise-peer-urls={peers}"))
        .arg(format!("--initial-cluster=node1={peers}"))
        .arg(format!("--cert-file={}", pki.join("server.crt").display()))
        .arg(format!("--key-file={}", pki.join("server.key").display()))
        .arg(format!("--trusted-ca-file={}", pki.join("ca.crt").display()))
        .arg("--client-cert-auth=true")
        .arg("--unsafe-no-fsync")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Answers `/readyz` over TLS with the API server's own certificate until the process ends.
fn serve_ready(root: &Root, port: u16, ready: Arc<AtomicBool>) {
    let pki = Path::new("/etc/kubernetes/pki");
    let file = |name: &str| (pki.join(name), root.at(pki.join(name)));
    let ((cert, cert_at), (key, key_at)) = (file("apiserver.crt"), file("apiserver.key"));
    let config = rustls::ServerConfig::builder_with_provider(certificates::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            certificates::read_certificates(&cert, &cert_at).unwrap(),
            certificates::read_key(&key, &key_at).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, socket);
            let mut request = [0; 4096];
            let Ok(length) = stream.read(&mut request) else {
                continue;
            };
            let asked = String::from_utf8_lossy(&request[..length]).starts_with("GET /readyz HTTP/1.1\r\n");
            let status = match asked && ready.load(Ordering::SeqCst) {
                true => "200 OK",
                false => "500 Internal Server Error",
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
}
