//! The two servers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quantykube_etcd_api::cluster_client::ClusterClient;
use quantykube_etcd_api::kv_client::KVClient;
use quantykube_etcd_api::lease_client::LeaseClient;
use quantykube_etcd_api::maintenance_client::MaintenanceClient;
use quantykube_etcd_api::watch_client::WatchClient;
use quantykube_tests::{Server, free_port, peer, program};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// Which server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Real etcd.
    Etcd,
    /// Ours.
    Store,
}

/// A server with its folder; it can be killed and started again.
pub struct Running {
    /// Which server.
    pub kind: Kind,
    /// Its client port.
    pub port: u16,
    folder: TempDir,
    peer_port: u16,
    extra: Vec<String>,
    /// The process.
    pub server: Server,
}

/// All clients of one server.
#[derive(Clone)]
pub struct Clients {
    pub kv: KVClient<Channel>,
    pub watch: WatchClient<Channel>,
    pub lease: LeaseClient<Channel>,
    pub cluster: ClusterClient<Channel>,
    pub maintenance: MaintenanceClient<Channel>,
}

impl Running {
    /// Its page of metrics, with the head of the answer.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("the server listens");
        let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("the server reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the server answers");
        text
    }

    /// Starts a fresh server; `extra` arguments follow ours.
    pub fn fresh(kind: Kind, extra: &[&str]) -> Running {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let extra: Vec<String> = extra.iter().map(|arg| arg.to_string()).collect();
        let (port, peer_port) = (free_port(), free_port());
        let server = start(kind, folder.path(), port, peer_port, &extra);
        Running {
            kind,
            port,
            folder,
            peer_port,
            extra,
            server,
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again on the same data and port.
    pub fn restart(&mut self) {
        self.server = start(self.kind, self.folder.path(), self.port, self.peer_port, &self.extra);
    }

    /// Its endpoint.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// New clients on a new connection.
    pub async fn clients(&self) -> Clients {
        let endpoint = Endpoint::from_shared(self.url()).expect("a valid URL");
        let channel = endpoint.connect_timeout(Duration::from_secs(5)).connect().await;
        let channel = channel.unwrap_or_else(|error| panic!("cannot connect to {:?}: {error}", self.kind));
        Clients {
            kv: KVClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            watch: WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
            lease: LeaseClient::new(channel.clone()),
            cluster: ClusterClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel),
        }
    }
}

fn start(kind: Kind, folder: &Path, port: u16, peer_port: u16, extra: &[String]) -> Server {
    let client = format!("http://127.0.0.1:{port}");
    let mut command = match kind {
        Kind::Etcd => {
            let peer_url = format!("http://127.0.0.1:{peer_port}");
            let mut command = Command::new(peer("etcd"));
            command
                .args(["--name", "default", "--log-level", "error", "--data-dir"])
                .arg(folder.join("etcd"))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args([
                    "--listen-peer-urls",
                    &peer_url,
                    "--initial-advertise-peer-urls",
                    &peer_url,
                ])
                .args(["--initial-cluster", &format!("default={peer_url}")]);
            command
        }
        Kind::Store => {
            let mut command = Command::new(program("quantykube-store"));
            command.arg("--data").arg(folder.join("store.qks"));
            command.args(["--listen", &format!("127.0.0.1:{port}")]);
            command
        }
    };
    let mut server = Server::start(command.args(extra), &folder.join(format!("{kind:?}.log")));
    server.wait_for_port(port, Duration::from_secs(30));
    server
}

/// A fresh etcd and a fresh store.
pub fn pair(extra: &[&str]) -> (Running, Running) {
    (Running::fresh(Kind::Etcd, extra), Running::fresh(Kind::Store, extra))
}

/// A runtime for one test.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
