//! One of the two servers: its process, its clients, its watch streams.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use quantykube_etcd_api::kv_client::KVClient;
use quantykube_etcd_api::lease_client::LeaseClient;
use quantykube_etcd_api::maintenance_client::MaintenanceClient;
use quantykube_etcd_api::watch_client::WatchClient;
use quantykube_etcd_api::{AlarmRequest, CompactionRequest, DeleteRangeRequest, LeaseRevokeRequest, RangeRequest};
use quantykube_tests::{Server, free_port, peer, program};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::answer::{Answer, Call};
use crate::watching::Stream;

/// Which server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Real etcd.
    Etcd,
    /// Ours.
    Store,
}

/// All clients of one server, on one connection.
#[derive(Clone)]
pub struct Clients {
    /// KV.
    pub kv: KVClient<Channel>,
    /// Watch.
    pub watch: WatchClient<Channel>,
    /// Lease.
    pub lease: LeaseClient<Channel>,
    /// Maintenance.
    pub maintenance: MaintenanceClient<Channel>,
}

/// A server.
pub struct Side {
    /// Which one.
    pub kind: Kind,
    /// Its clients.
    pub clients: Clients,
    /// Its watch streams by number.
    pub streams: BTreeMap<u8, Stream>,
    folder: TempDir,
    ports: [u16; 2],
    server: Server,
}

impl Side {
    /// Starts a fresh server with its files under `folder`.
    pub async fn fresh(kind: Kind, folder: &Path) -> Result<Side, String> {
        let folder = tempfile::Builder::new()
            .prefix("quantykube-fuzz-")
            .tempdir_in(folder)
            .map_err(|error| format!("no folder in {}: {error}", folder.display()))?;
        let ports = [free_port(), free_port()];
        let server = start(kind, folder.path(), ports);
        let clients = connect(ports[0]).await?;
        Ok(Side {
            kind,
            clients,
            streams: BTreeMap::new(),
            folder,
            ports,
            server,
        })
    }

    /// A new connection.
    pub async fn channel(&self) -> Result<Channel, String> {
        channel(self.ports[0]).await
    }

    /// The most memory its process has had, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.pid()));
        let status = status.expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        number.and_then(|number| number.parse().ok()).expect("VmHWM in kB")
    }

    /// An end, and a new start on the same files. Ours is killed; etcd is stopped in order, for killed it comes back with
    /// other revisions than it had told, now and then.
    pub async fn restart(&mut self) -> Result<(), String> {
        self.streams.clear();
        match self.kind {
            Kind::Etcd => drop(self.server.stop(Duration::from_secs(30))),
            Kind::Store => self.server.kill(),
        }
        self.server = start(self.kind, self.folder.path(), self.ports);
        self.clients = connect(self.ports[0]).await?;
        Ok(())
    }

    /// SIGKILL, and no new start.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.server.ended()?;
        Some(format!(
            "{:?} ended with {status}:\n{}",
            self.kind,
            self.server.log_end()
        ))
    }

    /// Its last revision.
    pub async fn head(&mut self) -> Result<i64, String> {
        let any = RangeRequest {
            key: Bytes::from_static(b"head"),
            ..Default::default()
        };
        let answer = self.clients.send(&Call::Range(any)).await;
        answer
            .revision()
            .ok_or_else(|| format!("{:?} tells no revision: {answer:?}", self.kind))
    }

    /// Takes away all that is there, so that the next stream of requests finds it nearly as a fresh one. Gives the head,
    /// which is also the compacted revision.
    pub async fn clear(&mut self) -> Result<i64, String> {
        self.streams.clear();
        let off = AlarmRequest {
            action: 2,
            member_id: 0,
            alarm: 1,
        };
        self.clients.send(&Call::Alarm(off)).await;
        if let Answer::Leases(response) = self.clients.send(&Call::Leases).await {
            for lease in response.leases {
                let revoke = LeaseRevokeRequest { id: lease.id };
                self.clients.send(&Call::Revoke(revoke)).await;
            }
        }
        let all = DeleteRangeRequest {
            key: Bytes::from_static(&[0]),
            range_end: Bytes::from_static(&[0]),
            prev_kv: false,
        };
        let answer = self.clients.send(&Call::Delete(all)).await;
        let Some(revision) = answer.revision() else {
            return Err(format!("{:?} cannot be emptied: {answer:?}", self.kind));
        };
        let compact = CompactionRequest {
            revision,
            physical: true,
        };
        self.clients.send(&Call::Compact(compact)).await;
        Ok(revision)
    }
}

async fn channel(port: u16) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a valid URL");
    let channel = endpoint.connect_timeout(Duration::from_secs(10)).connect().await;
    channel.map_err(|error| format!("cannot connect to port {port}: {error}"))
}

async fn connect(port: u16) -> Result<Clients, String> {
    let channel = channel(port).await?;
    Ok(Clients {
        kv: KVClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
        watch: WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX),
        lease: LeaseClient::new(channel.clone()),
        maintenance: MaintenanceClient::new(channel),
    })
}

fn start(kind: Kind, folder: &Path, [port, peer_port]: [u16; 2]) -> Server {
    let client = format!("http://127.0.0.1:{port}");
    let peer_url = format!("http://127.0.0.1:{peer_port}");
    let mut command = match kind {
        Kind::Etcd => {
            let mut command = Command::new(peer("etcd"));
            command.args([
                "--name",
                "default",
                "--log-level",
                "error",
                "--unsafe-no-fsync",
                "--data-dir",
            ]);
            command.arg(folder.join("etcd"));
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer_url]);
            command.args(["--initial-advertise-peer-urls", &peer_url]);
            command.args(["--initial-cluster", &format!("default={peer_url}")]);
            command
        }
        Kind::Store => {
            let mut command = Command::new(program("quantykube-store"));
            command.arg("--data").arg(folder.join("store.qks"));
            command.args(["--listen", &format!("127.0.0.1:{port}")]);
            command
        }
    };
    let mut server = Server::start(&mut command, &folder.join("log"));
    server.wait_for_port(port, Duration::from_secs(60));
    server
}
