//! A client of the API server: HTTPS, HTTP/2, a bearer token. It shows bytes as they came.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;

/// How long one call may take before it counts as silence.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);

/// One connection to one API server; clones share it.
#[derive(Clone)]
pub struct Api {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    token: String,
}

/// What the server answered.
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body as it came.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// `200 OK`, or `409 Conflict`: status and the reason that Kubernetes gives.
    pub fn class(&self) -> String {
        let body = self.json();
        let reason = match body["kind"].as_str() {
            Some("Status") => body["reason"].as_str().unwrap_or(""),
            _ => self.status.canonical_reason().unwrap_or(""),
        };
        format!("{} {reason}", self.status.as_u16())
    }

    /// The answer itself when it is a success, else an error that shows it.
    pub fn success(self, what: &str) -> Result<Answer> {
        if self.status.is_success() {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body);
        bail!(
            "{what}: the API server answered {}: {}",
            self.status,
            text.chars().take(400).collect::<String>()
        )
    }
}

impl Api {
    /// Connects to `127.0.0.1:port` and trusts the authority in `ca_pem` alone.
    pub async fn connect(port: u16, ca_pem: &str, token: &str) -> Result<Api> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|e| anyhow!("CA certificate: {e:?}"))?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
        tcp.set_nodelay(true)?;
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from("127.0.0.1")?, tcp)
            .await?;
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(8 << 20)
            .initial_connection_window_size(64 << 20)
            .handshake(TokioIo::new(tls))
            .await?;
        tokio::spawn(connection);
        Ok(Api {
            sender,
            authority: format!("127.0.0.1:{port}"),
            token: token.to_string(),
        })
    }

    /// GET, with the status left to the caller.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path, "", Bytes::new()).await
    }

    /// POST of a JSON object.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::POST, path, "application/json", serde_json::to_vec(body)?.into())
            .await
    }

    /// PUT of a JSON object.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::PUT, path, "application/json", serde_json::to_vec(body)?.into())
            .await
    }

    /// PATCH with a JSON merge patch, which names no resourceVersion of its own accord.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Answer> {
        let body = serde_json::to_vec(patch)?.into();
        self.call(Method::PATCH, path, "application/merge-patch+json", body)
            .await
    }

    /// DELETE at once, with a precondition on the resourceVersion where one is given.
    pub async fn delete(&self, path: &str, resource_version: Option<&str>) -> Result<Answer> {
        let mut options = serde_json::json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background",
        });
        if let Some(version) = resource_version {
            options["preconditions"] = serde_json::json!({ "resourceVersion": version });
        }
        let body = serde_json::to_vec(&options)?.into();
        self.call(Method::DELETE, path, "application/json", body).await
    }

    /// A watch: the server's answer where it is no success, else its stream of events.
    pub async fn watch(&self, path: &str) -> Result<std::result::Result<Watch, Answer>> {
        let response = self.send(Method::GET, path, "", Bytes::new()).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(Ok(Watch {
                body: response.into_body(),
                buffer: BytesMut::new(),
            }));
        }
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Err(Answer { status, body }))
    }

    async fn call(&self, method: Method, path: &str, kind: &str, body: Bytes) -> Result<Answer> {
        let what = format!("{method} {path}");
        let whole = async {
            let response = self.send(method, path, kind, body).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            Ok(Answer { status, body })
        };
        tokio::time::timeout(CALL_TIMEOUT, whole)
            .await
            .map_err(|_| anyhow!("no answer within {CALL_TIMEOUT:?}"))
            .and_then(|answer| answer)
            .with_context(|| what)
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: Bytes) -> Result<hyper::Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header("authorization", format!("Bearer {}", self.token))
            .header("accept", "application/json");
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request.body(Full::new(body))?).await?)
    }
}

/// The events of one watch: one JSON object a line.
pub struct Watch {
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    /// The next event; `None` when the server has ended the watch.
    pub async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
