//! The server's side of TLS: certificates read from files, and read again when the files change.
//!
//! Renewal replaces certificate and key one after the other. While they do not fit together, or cannot be read, the
//! pair that was in use before stays in use.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quantykube_base::{Exit, Failure};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::args::TlsFiles;
use crate::log::log;

/// How often the files are looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What can be wrong with the files.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("{} holds no certificate", path.display())]
    Empty { path: PathBuf },
    #[error("{} holds a certificate that cannot be an authority", path.display())]
    Authority {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("no client certificate could be checked against {}", path.display())]
    Verifier {
        path: PathBuf,
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
    #[error("the certificate {} and the key {} do not fit together", cert.display(), key.display())]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
}

/// What tells one content of a file from another without reading it.
type Stamp = Option<(u64, i64, i64, u64)>;

/// The certificates in use.
pub struct Certificates {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    stamps: Vec<Stamp>,
    looked: Instant,
}

impl Certificates {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Certificates, Failure> {
        let stamps = stamps(files);
        let config = read(files).map_err(|error| {
            Failure::new(Exit::Failed, "certificates", "the certificates cannot be used")
                .because(error)
                .hint("check --cert-file, --key-file and --trusted-ca-file")
        })?;
        Ok(Certificates {
            files: files.clone(),
            current: Mutex::new(Current {
                config,
                stamps,
                looked: Instant::now(),
            }),
        })
    }

    /// What the next connection is accepted with.
    pub fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().expect("no code panics while it holds this lock");
        if current.looked.elapsed() >= LOOK_EVERY {
            current.looked = Instant::now();
            let found = stamps(&self.files);
            if found != current.stamps {
                match read(&self.files) {
                    Ok(config) => {
                        log!(info, "certificates changed and were read again");
                        current.config = config;
                    }
                    Err(error) => log!(
                        warning,
                        "certificates changed and cannot be used, those before stay in use: {}",
                        crate::engine::chain(&error)
                    ),
                }
                // Either way this content was judged; the next change is looked at again.
                current.stamps = found;
            }
        }
        TlsAcceptor::from(Arc::clone(&current.config))
    }
}

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    let paths = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
    let stamp = |path: &PathBuf| -> Stamp {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len()))
    };
    paths.into_iter().flatten().map(stamp).collect()
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, Error> {
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| Error::Read {
        path: files.key.clone(),
        source,
    })?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("ring has what TLS 1.2 and 1.3 need");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|source| Error::Authority {
                    path: path.clone(),
                    source,
                })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|source| Error::Verifier {
                path: path.clone(),
                source,
            })?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|source| Error::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        source,
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let found = found.map_err(failed)?;
    match found.is_empty() {
        true => Err(Error::Empty { path: path.to_owned() }),
        false => Ok(found),
    }
}
