//! Real etcds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use quantykube_migrate::Source;
use quantykube_tests::{Server, free_port, peer, places::debian_etcd};
use tempfile::TempDir;

use crate::certificates::Certificates;

/// Which etcd.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The peers' own, 3.6.
    Current,
    /// The same, with client certificates.
    Secure,
    /// Debian's, 3.4.
    Debian,
    /// The newest one that is taken, 3.7.
    Newest,
}

/// A running etcd with an empty data folder.
pub struct Etcd {
    pub server: Server,
    pub port: u16,
    pub source: Source,
    pub folder: TempDir,
    pub certificates: Option<Certificates>,
}

impl Etcd {
    pub fn start(kind: Kind) -> Etcd {
        Self::start_with(kind, &[])
    }

    pub fn start_with(kind: Kind, extra: &[&str]) -> Etcd {
        let folder = tempfile::tempdir().unwrap();
        let program = match kind {
            Kind::Current | Kind::Secure => peer("etcd"),
            Kind::Debian => debian_etcd("etcd"),
            Kind::Newest => peer("etcd37"),
        };
        let certificates = matches!(kind, Kind::Secure).then(|| Certificates::make(&folder.path().join("pki")));
        let (client, peer) = (free_port(), free_port());
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let client_url = format!("{scheme}://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(program);
        command
            .args(["--name", "test", "--logger", "zap", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args(["--initial-cluster", &format!("test={peer_url}")])
            .args(extra);
        if let Some(made) = &certificates {
            command
                .arg("--cert-file")
                .arg(&made.server.0)
                .arg("--key-file")
                .arg(&made.server.1)
                .arg("--trusted-ca-file")
                .arg(&made.authority)
                .arg("--client-cert-auth");
        }
        let mut server = Server::start(&mut command, &folder.path().join("etcd.log"));
        server.wait_for_port(client, Duration::from_secs(30));
        let source = Source {
            endpoints: vec![client_url],
            cert: certificates.as_ref().map(|made| made.client.0.clone()),
            key: certificates.as_ref().map(|made| made.client.1.clone()),
            cacert: certificates.as_ref().map(|made| made.authority.clone()),
        };
        Etcd {
            server,
            port: client,
            source,
            folder,
            certificates,
        }
    }

    /// A client of its own making, independent of the code under test.
    pub async fn client(&self) -> Client {
        let options = self.certificates.as_ref().map(|made| {
            let read = |path: &PathBuf| fs::read(path).unwrap();
            ConnectOptions::new().with_tls(
                TlsOptions::new()
                    .ca_certificate(Certificate::from_pem(read(&made.authority)))
                    .identity(Identity::from_pem(read(&made.client.0), read(&made.client.1))),
            )
        });
        Client::connect(&self.source.endpoints, options).await.unwrap()
    }

    /// A new folder for a store file, and the file's path in it.
    pub fn target(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder.join("store.qks")
    }
}

/// The names in the folder of `file`.
pub fn beside(file: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
