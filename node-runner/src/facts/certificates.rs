//! Certificates as a TLS peer would judge them: readable, matching their key, signed by their CA, valid now, good for the
//! address.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use serde::Serialize;

use crate::facts::Root;

/// The files of one side of a TLS connection.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Files {
    /// The certificate, leaf first.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The CA that signed it, and that signs the other side.
    pub ca: PathBuf,
}

/// What the certificate is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// The client's side.
    Client,
    /// The server's side, at this address.
    Server(std::net::IpAddr),
}

/// Why files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        #[doc = "The file."]
        path: PathBuf,
        #[doc = "Why."]
        #[source]
        source: io::Error,
    },
    /// A file holds no PEM of the kind that is needed.
    #[error("{} holds no {expected}", path.display())]
    Pem {
        #[doc = "The file."]
        path: PathBuf,
        #[doc = "`certificate` or `private key`."]
        expected: &'static str,
    },
    /// The certificate and the key are not a pair.
    #[error("{} does not belong to the key {}", cert.display(), key.display())]
    Pair {
        #[doc = "The certificate."]
        cert: PathBuf,
        #[doc = "The key."]
        key: PathBuf,
        #[doc = "As the TLS library says it."]
        #[source]
        source: rustls::Error,
    },
    /// The certificate is expired, not signed by the CA, or not good for the address.
    #[error("{} is not accepted with the CA {}", cert.display(), ca.display())]
    Refused {
        #[doc = "The certificate."]
        cert: PathBuf,
        #[doc = "The CA."]
        ca: PathBuf,
        #[doc = "As the TLS library says it."]
        #[source]
        source: rustls::Error,
    },
}

/// The cryptography of every TLS connection of this program.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads certificates in PEM form.
pub fn read_certificates(path: &Path, real: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = fs::read(real).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        _ => Err(Error::Pem {
            path: path.to_owned(),
            expected: "certificate",
        }),
    }
}

/// Reads a private key in PEM form.
pub fn read_key(path: &Path, real: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let bytes = fs::read(real).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| Error::Pem {
        path: path.to_owned(),
        expected: "private key",
    })
}

/// Reads a CA file.
pub fn read_roots(path: &Path, real: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(read_certificates(path, real)?);
    if added == 0 {
        return Err(Error::Pem {
            path: path.to_owned(),
            expected: "certificate",
        });
    }
    Ok(roots)
}

/// Judges a set of files at the time `now` (seconds since the Unix epoch).
pub fn check(root: &Root, files: &Files, used_as: Use, now: u64) -> Result<(), Error> {
    let chain = read_certificates(&files.cert, &root.at(&files.cert))?;
    let key = read_key(&files.key, &root.at(&files.key))?;
    let roots = read_roots(&files.ca, &root.at(&files.ca))?;
    let pair = |source| Error::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        source,
    };
    let certified = CertifiedKey::from_der(chain.clone(), key, &provider()).map_err(pair)?;
    certified.keys_match().map_err(pair)?;
    let refused = |source| Error::Refused {
        cert: files.cert.clone(),
        ca: files.ca.clone(),
        source,
    };
    let other = |error: rustls::client::VerifierBuilderError| refused(rustls::Error::General(error.to_string()));
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    let (leaf, rest) = chain.split_first().expect("read_certificates gives at least one");
    match used_as {
        Use::Client => WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(other)?
            .verify_client_cert(leaf, rest, now)
            .map(|_| ())
            .map_err(refused),
        Use::Server(address) => WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(other)?
            .verify_server_cert(leaf, rest, &ServerName::from(address), &[], now)
            .map(|_| ())
            .map_err(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn each_fault_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let good = Authority::new("good");
        let stranger = Authority::new("stranger");
        let day = 86_400;
        let files = |name: &str| Files {
            cert: format!("/{name}.crt").into(),
            key: format!("/{name}.key").into(),
            ca: "/ca.crt".into(),
        };
        good.write_ca(&folder.path().join("ca.crt"));
        good.write_pair(folder.path(), "server", Some("127.0.0.1"), NOW - day, NOW + day);
        good.write_pair(folder.path(), "client", None, NOW - day, NOW + day);
        good.write_pair(folder.path(), "old", None, NOW - 2 * day, NOW - day);
        stranger.write_pair(folder.path(), "alien", None, NOW - day, NOW + day);
        let local = Use::Server("127.0.0.1".parse().unwrap());
        check(&root, &files("server"), local, NOW).unwrap();
        check(&root, &files("client"), Use::Client, NOW).unwrap();
        let six = Use::Server("::1".parse().unwrap());
        for (name, used_as) in [("server", six), ("old", Use::Client), ("alien", Use::Client)] {
            let error = check(&root, &files(name), used_as, NOW).unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{name}: {error:?}");
        }
        let mixed = Files {
            key: "/client.key".into(),
            ..files("server")
        };
        assert!(matches!(check(&root, &mixed, local, NOW), Err(Error::Pair { .. })));
        assert!(matches!(
            check(&root, &files("none"), local, NOW),
            Err(Error::Read { .. })
        ));
        fs::write(folder.path().join("client.key"), "no key").unwrap();
        assert!(matches!(
            check(&root, &files("client"), Use::Client, NOW),
            Err(Error::Pem { .. })
        ));
    }
}
