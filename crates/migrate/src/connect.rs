//! One connection to one member of etcd.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{Certificate, Channel, Client, Identity, TlsOptions};
use tonic::transport::Endpoint;

use crate::error::{Error, call_failed, connect_failed};
use crate::version::Version;

/// Where an etcd is and how to be let in.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `https://127.0.0.1:2379` and the like; literal addresses, or localhost. The first that answers is used for all.
    pub endpoints: Vec<String>,
    /// The client certificate (PEM).
    pub cert: Option<PathBuf>,
    /// Its key (PEM).
    pub key: Option<PathBuf>,
    /// The authority of etcd's server certificate (PEM).
    pub cacert: Option<PathBuf>,
}

/// How long one endpoint may take to accept a connection.
const CONNECT_AT_MOST: Duration = Duration::from_secs(5);
/// A peer that does not even answer pings for this long is gone. etcd allows a ping each 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
/// How often a connection that was closed right after its handshake is tried again.
const CLOSED_AT_ONCE_MAX: u32 = 3;
/// Flow control must not be what a page of 8 MiB waits for.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// An open connection whose peer has answered.
pub(crate) struct Connection {
    pub endpoint: String,
    pub client: Client,
    /// What Status said when the connection was opened.
    pub opened: Opened,
}

/// The peer as it was when the connection was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub version: Option<Version>,
    pub cluster_id: u64,
    pub member_id: u64,
    pub raft_term: u64,
    pub revision: i64,
}

impl Connection {
    /// Connects to the first endpoint that answers. Any version of etcd.
    pub async fn open(source: &Source) -> Result<Connection, Error> {
        let tls = Tls::read(source)?;
        let mut last = Error::NoEndpoint;
        // Every endpoint is looked at before the first is tried: a typing error is no matter of luck.
        let addresses = source
            .endpoints
            .iter()
            .map(|given| Address::parse(given, tls.is_some()))
            .collect::<Result<Vec<_>, _>>()?;
        for address in addresses {
            match Self::open_patiently(&address, tls.as_ref()).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects and refuses a version that was never tried.
    pub async fn open_known(source: &Source) -> Result<Connection, Error> {
        let connection = Self::open(source).await?;
        match connection.opened.version {
            Some(version) if version.supported() => Ok(connection),
            Some(version) => Err(Error::Version {
                endpoint: connection.endpoint,
                found: version.to_string(),
                newer: version.too_new(),
            }),
            None => Err(Error::Version {
                endpoint: connection.endpoint,
                found: "unknown".to_owned(),
                newer: false,
            }),
        }
    }

    /// With TLS 1.3 a server refuses a client's certificate after the client's side of the handshake is done. Its alert
    /// may get lost between the end of the connection and our first request: then only the end is seen, each time.
    async fn open_patiently(address: &Address, tls: Option<&Tls>) -> Result<Connection, Error> {
        let mut ends = 0;
        loop {
            match Self::open_one(address, tls).await {
                Err(Error::Lost { .. }) if address.secure && ends < CLOSED_AT_ONCE_MAX => ends += 1,
                Err(Error::Lost { endpoint, source, .. }) => {
                    return Err(match address.secure {
                        true => Error::Certificate { endpoint, source },
                        false => Error::Unreachable { endpoint, source },
                    });
                }
                other => return other,
            }
        }
    }

    async fn open_one(address: &Address, tls: Option<&Tls>) -> Result<Connection, Error> {
        let endpoint = Endpoint::from_shared(address.uri.clone()).map_err(|error| Error::Endpoint {
            endpoint: address.given.clone(),
            why: error.to_string(),
        })?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_AT_MOST)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let endpoint = match (address.secure, tls) {
            (true, Some(tls)) => {
                let options = tls.options(&address.server_name);
                endpoint
                    .tls_config(options)
                    .map_err(|error| connect_failed(&address.given, &error))?
            }
            (false, None) => endpoint,
            // Address::parse lets no other pair through.
            (true, None) | (false, Some(_)) => unreachable!("an endpoint's scheme and the certificates agree"),
        };
        let channel = tokio::time::timeout(CONNECT_AT_MOST, endpoint.connect())
            .await
            .map_err(|_| connect_failed(&address.given, &std::io::Error::from(std::io::ErrorKind::TimedOut)))?
            .map_err(|error| connect_failed(&address.given, &error))?;
        let mut client = Client::from_channel(Channel::Tonic(channel), None)
            .await
            .map_err(|error| call_failed(&address.given, "opening a connection", 0, error))?;
        let status = tokio::time::timeout(CONNECT_AT_MOST, client.status())
            .await
            .map_err(|_| connect_failed(&address.given, &std::io::Error::from(std::io::ErrorKind::TimedOut)))?
            .map_err(|error| call_failed(&address.given, "asking for its status", 0, error))?;
        let header = status.header().ok_or_else(|| Error::Impossible {
            endpoint: address.given.clone(),
            what: "a status without a header".to_owned(),
        })?;
        let opened = Opened {
            version: Version::parse(status.version()),
            cluster_id: header.cluster_id(),
            member_id: header.member_id(),
            raft_term: header.raft_term(),
            revision: header.revision(),
        };
        Ok(Connection {
            endpoint: address.given.clone(),
            client,
            opened,
        })
    }

    /// Sorts an error of a call made on this connection.
    pub fn failed(&self, doing: &'static str, error: etcd_client::Error) -> Error {
        call_failed(&self.endpoint, doing, 0, error)
    }

    /// The revision now, as a linearizable read tells it.
    pub async fn revision(&self) -> Result<i64, Error> {
        let options = etcd_client::GetOptions::new().with_limit(1).with_keys_only();
        let answer = self
            .client
            .kv_client()
            .get(crate::COMPACT_KEY, Some(options))
            .await
            .map_err(|error| self.failed("asking for its revision", error))?;
        answer
            .header()
            .map(etcd_client::ResponseHeader::revision)
            .ok_or_else(|| self.impossible("an answer without a header"))
    }

    /// An answer that etcd never gives.
    pub fn impossible(&self, what: impl Into<String>) -> Error {
        Error::Impossible {
            endpoint: self.endpoint.clone(),
            what: what.into(),
        }
    }
}

/// The certificates, read.
struct Tls {
    authority: Certificate,
    identity: Option<Identity>,
}

impl Tls {
    fn read(source: &Source) -> Result<Option<Tls>, Error> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| Error::Unreadable {
                path: path.clone(),
                source,
            })
        };
        let identity = match (&source.cert, &source.key) {
            (Some(cert), Some(key)) => Some(Identity::from_pem(read(cert)?, read(key)?)),
            (None, None) => None,
            _ => {
                return Err(Error::Endpoint {
                    endpoint: source.endpoints.join(","),
                    why: "a certificate and its key are given together or not at all".to_owned(),
                });
            }
        };
        match &source.cacert {
            Some(path) => Ok(Some(Tls {
                authority: Certificate::from_pem(read(path)?),
                identity,
            })),
            None if identity.is_some() => Err(Error::Endpoint {
                endpoint: source.endpoints.join(","),
                why: "with a certificate goes the authority of etcd's own".to_owned(),
            }),
            None => Ok(None),
        }
    }

    fn options(&self, server_name: &str) -> TlsOptions {
        let options = TlsOptions::new()
            .ca_certificate(self.authority.clone())
            .domain_name(server_name)
            .timeout(CONNECT_AT_MOST);
        match &self.identity {
            Some(identity) => options.identity(identity.clone()),
            None => options,
        }
    }
}

/// An endpoint that can be connected to without a resolver: the programs are static and know no name service.
#[derive(Debug, Eq, PartialEq)]
struct Address {
    given: String,
    uri: String,
    secure: bool,
    server_name: String,
}

impl Address {
    fn parse(given: &str, certificates: bool) -> Result<Address, Error> {
        let wrong = |why: &str| Error::Endpoint {
            endpoint: given.to_owned(),
            why: why.to_owned(),
        };
        let (secure, rest) = match given.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some((scheme, _)) => return Err(wrong(&format!("the scheme {scheme} is not http or https"))),
            None => (certificates, given),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority
            .rsplit_once(':')
            .filter(|(host, _)| !host.is_empty())
            .ok_or_else(|| wrong("it names no port"))?;
        let port: u16 = port.parse().map_err(|_| wrong("its port is no number"))?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let (address, server_name): (IpAddr, String) = match bare {
            "localhost" => (IpAddr::from([127, 0, 0, 1]), bare.to_owned()),
            _ => match bare.parse() {
                Ok(address) => (address, bare.to_owned()),
                Err(_) => return Err(wrong("it is a name, not an address")),
            },
        };
        let address = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) if host.starts_with('[') => format!("[{address}]"),
            IpAddr::V6(_) => return Err(wrong("an IPv6 address stands in brackets")),
        };
        match (secure, certificates) {
            (true, false) => return Err(wrong("https needs --cacert, the authority of etcd's certificate")),
            (false, true) => return Err(wrong("certificates are given, but the endpoint is plain http")),
            _ => {}
        }
        let scheme = if secure { "https" } else { "http" };
        Ok(Address {
            given: given.to_owned(),
            uri: format!("{scheme}://{address}:{port}"),
            secure,
            server_name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn an_endpoint_is_a_literal_address() {
        let uri = |given, certificates| Address::parse(given, certificates).map(|address| address.uri).ok();
        assert_eq!(uri("https://127.0.0.1:2379", true).unwrap(), "https://127.0.0.1:2379");
        assert_eq!(uri("https://[::1]:2379/", true).unwrap(), "https://[::1]:2379");
        assert_eq!(uri("127.0.0.1:2379", true).unwrap(), "https://127.0.0.1:2379");
        assert_eq!(uri("127.0.0.1:2379", false).unwrap(), "http://127.0.0.1:2379");
        let localhost = Address::parse("https://localhost:2379", true).unwrap();
        assert_eq!(localhost.uri, "https://127.0.0.1:2379");
        assert_eq!(localhost.server_name, "localhost");
        for wrong in [
            "",
            "https://127.0.0.1",
            "https://etcd.example:2379",
            "unix:///run/etcd.sock",
            "https://::1:2379",
            "https://127.0.0.1:x",
            "http://127.0.0.1:2379",
        ] {
            assert_eq!(uri(wrong, true), None, "{wrong}");
        }
        assert_eq!(uri("https://127.0.0.1:2379", false), None);
    }
}
