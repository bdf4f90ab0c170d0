//! Asks an API server whether it is ready, over TLS and by its literal address.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde::Serialize;

use crate::facts::Root;
use crate::facts::certificates::{self, provider};
use crate::facts::manifest::Flags;

/// Where an API server answers and how it is recognised.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Endpoint {
    /// The literal address and port.
    pub address: SocketAddr,
    /// The CA that signed its certificate.
    pub ca: PathBuf,
    /// A client certificate and key that it knows; `/readyz` is open to everyone, unless anonymous requests are switched off.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why an API server is not ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest does not say where it answers.
    #[error("the API server's manifest has no usable {0}")]
    Flag(&'static str),
    /// The files of the connection cannot be read.
    #[error("cannot prepare the connection")]
    Files(#[from] certificates::Error),
    /// TLS cannot be set up with the files.
    #[error("cannot prepare TLS")]
    Tls(#[from] rustls::Error),
    /// The connection failed.
    #[error("no answer from {address}")]
    Io {
        #[doc = "The address asked."]
        address: SocketAddr,
        #[doc = "Why."]
        #[source]
        source: std::io::Error,
    },
    /// It answers, but is not ready.
    #[error("{address}/readyz answered {answer:?}, expected status 200")]
    NotReady {
        #[doc = "The address asked."]
        address: SocketAddr,
        #[doc = "The first line of the answer."]
        answer: String,
    },
}

/// Most bytes read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Where the API server of a manifest answers.
pub fn endpoint(flags: &Flags) -> Result<Endpoint, Error> {
    let ip: IpAddr = flags
        .last("advertise-address")
        .and_then(|ip| ip.parse().ok())
        .ok_or(Error::Flag("--advertise-address"))?;
    let port = match flags.last("secure-port") {
        Some(port) => port.parse().map_err(|_| Error::Flag("--secure-port"))?,
        None => 6443,
    };
    let ca = flags.last("client-ca-file").ok_or(Error::Flag("--client-ca-file"))?;
    let client = match (
        flags.last("kubelet-client-certificate"),
        flags.last("kubelet-client-key"),
    ) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        _ => None,
    };
    Ok(Endpoint {
        address: SocketAddr::new(ip, port),
        ca: ca.into(),
        client,
    })
}

/// Asks once. Each wait within it ends after `timeout`.
pub fn ready(root: &Root, endpoint: &Endpoint, timeout: Duration) -> Result<(), Error> {
    let address = endpoint.address;
    let roots = certificates::read_roots(&endpoint.ca, &root.at(&endpoint.ca))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match &endpoint.client {
        Some((cert, key)) => builder.with_client_auth_cert(
            certificates::read_certificates(cert, &root.at(cert))?,
            certificates::read_key(key, &root.at(key))?,
        )?,
        None => builder.with_no_client_auth(),
    };
    let connection = ClientConnection::new(Arc::new(config), ServerName::from(address.ip()))?;
    let answer = ask(connection, address, timeout).map_err(|source| Error::Io { address, source })?;
    let line = answer.lines().next().unwrap_or_default().trim().to_owned();
    match line.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(Error::NotReady { address, answer: line }),
    }
}

/// The kernel says of a wait that has ended only that one might try again.
fn silent(error: std::io::Error, timeout: Duration) -> std::io::Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => std::io::Error::new(
            ErrorKind::TimedOut,
            format!(
                "it took the connection and said nothing for {} s",
                timeout.as_secs_f32()
            ),
        ),
        _ => error,
    }
}

fn ask(connection: ClientConnection, address: SocketAddr, timeout: Duration) -> std::io::Result<String> {
    let socket = TcpStream::connect_timeout(&address, timeout)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))?;
    let mut stream = StreamOwned::new(connection, socket);
    // In one piece: a server that answers early would otherwise close under the second one.
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: */*\r\n\r\n");
    // The handshake is part of it.
    stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.flush())
        .map_err(|error| silent(error, timeout))?;
    let mut answer = Vec::new();
    let read = Read::take(&mut stream, ANSWER_BYTES_MAX).read_to_end(&mut answer);
    // A server that closes without TLS's own goodbye has still answered.
    if answer.is_empty() {
        read.map_err(|error| silent(error, timeout))?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
