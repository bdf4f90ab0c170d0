//! Starts the real etcd, the store under test and the real API server, each on free loopback ports with mutual TLS.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::api::Api;
use crate::etcd::Etcd;
use crate::pki::Pki;
use crate::process::{Process, free_port, wait_ready};

/// How long a server may take until it serves; other work may share the machine.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a server may take to end after TERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// What every start needs to know.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder with the peers' programs.
    pub peers: PathBuf,
    /// The run's own folder.
    pub work: PathBuf,
    /// The certificates.
    pub pki: Pki,
    /// The bearer token of a cluster administrator.
    pub token: String,
    /// The TTL of the API server's events, in seconds.
    pub event_ttl: u64,
}

/// Which program holds the data, and where.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The real etcd on a data folder.
    Etcd {
        /// Its data folder.
        data: PathBuf,
    },
    /// The store under test.
    Store {
        /// The program.
        program: PathBuf,
        /// Its file.
        file: PathBuf,
    },
}

impl Backend {
    /// The name used in logs and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Backend::Etcd { .. } => "etcd",
            Backend::Store { .. } => "store",
        }
    }
}

/// A running server of the etcd API with a client on it.
pub struct Server {
    process: Process,
    /// Its client port on loopback.
    pub port: u16,
    /// A client with the run's client certificate.
    pub etcd: Etcd,
}

impl Server {
    /// Starts it and waits until it answers.
    pub async fn start(place: &Place, backend: &Backend) -> Result<Server> {
        let port = free_port()?;
        let url = format!("https://127.0.0.1:{port}");
        let (server_crt, server_key) = (place.pki.path("server.crt"), place.pki.path("server.key"));
        let ca = place.pki.path("ca.crt");
        let (program, args) = match backend {
            Backend::Etcd { data } => {
                let peer = format!("https://127.0.0.1:{}", free_port()?);
                let args = vec![
                    "--name=node".to_string(),
                    format!("--data-dir={}", data.display()),
                    format!("--listen-client-urls={url}"),
                    format!("--advertise-client-urls={url}"),
                    format!("--listen-peer-urls={peer}"),
                    format!("--initial-advertise-peer-urls={peer}"),
                    format!("--initial-cluster=node={peer}"),
                    format!("--cert-file={server_crt}"),
                    format!("--key-file={server_key}"),
                    format!("--trusted-ca-file={ca}"),
                    "--client-cert-auth=true".to_string(),
                    format!("--peer-cert-file={server_crt}"),
                    format!("--peer-key-file={server_key}"),
                    format!("--peer-trusted-ca-file={ca}"),
                    "--peer-client-cert-auth=true".to_string(),
                    "--watch-progress-notify-interval=5s".to_string(),
                    "--snapshot-count=10000".to_string(),
                    "--log-level=warn".to_string(),
                ];
                (place.peers.join("etcd"), args)
            }
            Backend::Store { program, file } => {
                let args = vec![
                    format!("--data={}", file.display()),
                    format!("--listen=127.0.0.1:{port}"),
                    format!("--cert-file={server_crt}"),
                    format!("--key-file={server_key}"),
                    format!("--trusted-ca-file={ca}"),
                    "--client-cert-auth".to_string(),
                    format!("--listen-metrics=127.0.0.1:{}", free_port()?),
                    "--watch-progress-notify-interval=5s".to_string(),
                ];
                (program.clone(), args)
            }
        };
        let mut process = Process::start(backend.name(), &program, &args, &place.work)?;
        let etcd = Etcd::connect(port, &place.pki).await?;
        wait_ready(&mut process, START_TIMEOUT, async || {
            matches!(
                tokio::time::timeout(Duration::from_secs(2), etcd.revision()).await,
                Ok(Ok(_))
            )
        })
        .await?;
        Ok(Server { process, port, etcd })
    }

    /// Stops it with TERM. etcd ends by the signal itself, so its exit status says nothing.
    pub async fn stop(self) -> Result<()> {
        self.process.stop(STOP_TIMEOUT).await?;
        Ok(())
    }
}

/// A running API server with a client on it.
pub struct ApiServer {
    process: Process,
    port: u16,
    /// A client with the administrator's token.
    pub api: Api,
}

impl ApiServer {
    /// Starts it on the server at `etcd_port` and waits until it says it is ready.
    pub async fn start(place: &Place, name: &str, etcd_port: u16) -> Result<ApiServer> {
        let port = free_port()?;
        let folder = place.work.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let tokens = place.work.join("tokens.csv");
        let pki = &place.pki;
        let args = vec![
            format!("--etcd-servers=https://127.0.0.1:{etcd_port}"),
            format!("--etcd-cafile={}", pki.path("ca.crt")),
            format!("--etcd-certfile={}", pki.path("client.crt")),
            format!("--etcd-keyfile={}", pki.path("client.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_string(),
            format!("--service-account-key-file={}", pki.path("sa.pub")),
            format!("--service-account-signing-key-file={}", pki.path("sa.key")),
            "--service-cluster-ip-range=10.96.0.0/16".to_string(),
            // An address of documentation (RFC 5737): it is only written into the endpoints of the API itself.
            "--advertise-address=192.0.2.1".to_string(),
            format!("--cert-dir={}", folder.display()),
            format!("--tls-cert-file={}", pki.path("server.crt")),
            format!("--tls-private-key-file={}", pki.path("server.key")),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_string(),
            "--authorization-mode=Node,RBAC".to_string(),
            format!("--token-auth-file={}", tokens.display()),
            format!("--event-ttl={}s", place.event_ttl),
        ];
        let mut process = Process::start(name, &place.peers.join("kube-apiserver"), &args, &place.work)?;
        let ca = pki.pem("ca.crt")?;
        let mut api = None;
        wait_ready(&mut process, START_TIMEOUT, async || {
            api = ready(port, &ca, &place.token).await;
            api.is_some()
        })
        .await?;
        let api = api.context("the API server was ready a moment ago")?;
        Ok(ApiServer { process, port, api })
    }

    /// One more connection, so that watches and calls do not share one.
    pub async fn connect(&self, place: &Place) -> Result<Api> {
        Api::connect(self.port, &place.pki.pem("ca.crt")?, &place.token).await
    }

    /// Stops it with TERM and waits for its end.
    pub async fn stop(self) -> Result<()> {
        drop(self.api);
        self.process.stop(STOP_TIMEOUT).await?;
        Ok(())
    }
}

async fn ready(port: u16, ca: &str, token: &str) -> Option<Api> {
    let check = async {
        let api = Api::connect(port, ca, token).await.ok()?;
        let answer = api.get("/readyz").await.ok()?;
        answer.status.is_success().then_some(api)
    };
    tokio::time::timeout(Duration::from_secs(5), check).await.ok()?
}

/// Writes the file that makes `token` a cluster administrator.
pub fn write_tokens(work: &Path, token: &str) -> Result<()> {
    crate::pki::write_private(
        &work.join("tokens.csv"),
        &format!("{token},admin,admin,system:masters\n"),
    )
}
