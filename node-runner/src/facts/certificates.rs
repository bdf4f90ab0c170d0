//! Certificates as a TLS peer would judge them: readable, matching their key, signed by their CA, valid now, good for the
//! address.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use serde::Serialize;

use crate::facts::{Root, host};

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

/// Until when a set of files is good, in seconds since the Unix epoch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Good {
    /// The end of the certificate.
    pub ends: u64,
    /// The authority's file.
    pub ca: PathBuf,
    /// The end of the authority: the last of those in its file.
    pub ca_ends: u64,
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
    /// The certificate's time is over, or has not come yet.
    #[error("{} is valid from {} to {}, and now is {}", path.display(), day(*from), day(*to), day(*now))]
    Time {
        #[doc = "The certificate, or the authority's file."]
        path: PathBuf,
        #[doc = "Its begin, in seconds since the Unix epoch."]
        from: u64,
        #[doc = "Its end."]
        to: u64,
        #[doc = "The time of the check."]
        now: u64,
    },
    /// The certificate does not name the address.
    #[error("{} is not for {address}: its subject alternative names lack it", cert.display())]
    Address {
        #[doc = "The certificate."]
        cert: PathBuf,
        #[doc = "The address that it must name."]
        address: std::net::IpAddr,
    },
    /// A certificate that is no X.509.
    #[error("{} holds a certificate without a readable time of validity", path.display())]
    Validity {
        #[doc = "The file."]
        path: PathBuf,
    },
    /// The certificate is not signed by the CA, or not for this use.
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
pub fn check(root: &Root, files: &Files, used_as: Use, now: u64) -> Result<Good, Error> {
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
    // The verifier below asks nothing about the time of an authority; the programs in Go do.
    let ca_ends = in_time(&files.ca, &read_certificates(&files.ca, &root.at(&files.ca))?, now)?;
    let ends = in_time(&files.cert, &chain[..1], now)?;
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
            .map_err(refused)?,
        Use::Server(address) => WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(other)?
            .verify_server_cert(leaf, rest, &ServerName::from(address), &[], now)
            .map(|_| ())
            .map_err(|error| match error {
                rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                ) => Error::Address {
                    cert: files.cert.clone(),
                    address,
                },
                error => refused(error),
            })?,
    }
    Ok(Good {
        ends,
        ca: files.ca.clone(),
        ca_ends,
    })
}

/// The latest end of those certificates that are valid at `now`; an error where none is.
fn in_time(path: &Path, certificates: &[CertificateDer<'_>], now: u64) -> Result<u64, Error> {
    let mut good = None;
    let mut last = None;
    for certificate in certificates {
        let (from, to) = validity(certificate).ok_or_else(|| Error::Validity { path: path.to_owned() })?;
        if (from..=to).contains(&now) {
            good = good.max(Some(to));
        }
        last = Some((from, to));
    }
    let (from, to) = last.ok_or_else(|| Error::Validity { path: path.to_owned() })?;
    good.ok_or_else(|| Error::Time {
        path: path.to_owned(),
        from,
        to,
        now,
    })
}

/// Begin and end of an X.509 certificate (RFC 5280, 4.1), in seconds since the Unix epoch.
fn validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let (_, certificate, _) = der(certificate)?;
    let (_, mut rest, _) = der(certificate)?;
    // The version may be left out; then serial number, algorithm and issuer.
    if rest.first() == Some(&0xa0) {
        rest = der(rest)?.2;
    }
    for _ in 0..3 {
        rest = der(rest)?.2;
    }
    let (_, validity, _) = der(rest)?;
    let (kind, from, rest) = der(validity)?;
    let from = seconds(kind, from)?;
    let (kind, to, _) = der(rest)?;
    Some((from, seconds(kind, to)?))
}

/// One element of DER: its tag, its content, and what follows it.
fn der(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first & 0x7f);
    if first & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(length)?;
        // No certificate is longer than three digits of length can say.
        if digits.len() > 3 {
            return None;
        }
        length = digits.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// A UTCTime (`YYMMDDHHMMSSZ`) or a GeneralizedTime (`YYYYMMDDHHMMSSZ`).
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    const UTC_TIME: u8 = 0x17;
    let text = std::str::from_utf8(text).ok()?;
    let full = match tag {
        UTC_TIME if text.get(..2)?.parse::<u8>().ok()? < 50 => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => text.to_owned(),
    };
    let part = |from: usize, to: usize| full.get(from..to)?.parse::<u64>().ok();
    let days = host::days_of_date(part(0, 4)?, part(4, 6)?, part(6, 8)?)?;
    Some(days * 86_400 + part(8, 10)? * 3_600 + part(10, 12)? * 60 + part(12, 14)?)
}

/// A time as a day, as `2027-03-01`.
pub fn day(seconds: u64) -> String {
    let (year, month, day) = host::date_of_days(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
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
        assert_eq!(check(&root, &files("server"), local, NOW).unwrap().ends, NOW + day);
        check(&root, &files("client"), Use::Client, NOW).unwrap();
        let six = Use::Server("::1".parse().unwrap());
        let no = |name: &str, used_as| check(&root, &files(name), used_as, NOW).unwrap_err();
        let error = no("server", six);
        assert!(matches!(error, Error::Address { .. }), "{error:?}");
        assert!(error.to_string().contains("is not for ::1"), "{error}");
        let error = no("old", Use::Client);
        assert!(matches!(error, Error::Time { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "/old.crt is valid from 2027-01-13 to 2027-01-14, and now is 2027-01-15"
        );
        let error = check(&root, &files("client"), Use::Client, NOW - 2 * day).unwrap_err();
        assert!(matches!(error, Error::Time { .. }), "{error:?}");
        let error = no("alien", Use::Client);
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        // A client's pair is none for a server, and the other way round.
        assert!(check(&root, &files("client"), local, NOW).is_err());
        assert!(check(&root, &files("server"), Use::Client, NOW).is_err());
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

    /// The authority's own time counts, too: programs in Go refuse what an expired one signed.
    #[test]
    fn an_expired_authority_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let day = 86_400;
        let authority = Authority::until("short", NOW - 3 * day, NOW - day);
        authority.write_ca(&folder.path().join("ca.crt"));
        authority.write_pair(folder.path(), "client", None, NOW - day, NOW + day);
        let files = Files {
            cert: "/client.crt".into(),
            key: "/client.key".into(),
            ca: "/ca.crt".into(),
        };
        let error = check(&root, &files, Use::Client, NOW).unwrap_err();
        assert!(
            matches!(&error, Error::Time { path, .. } if path == Path::new("/ca.crt")),
            "{error:?}"
        );
        let good = check(&root, &files, Use::Client, NOW - day).unwrap();
        assert_eq!((good.ends, good.ca_ends), (NOW + day, NOW - day));
    }

    #[test]
    fn times_are_read_in_both_forms_and_nonsense_is_none() {
        assert_eq!(seconds(0x17, b"270115080000Z"), Some(NOW));
        assert_eq!(seconds(0x17, b"991231235959Z"), Some(946_684_799));
        assert_eq!(seconds(0x18, b"20270115080000Z"), Some(NOW));
        assert_eq!(seconds(0x18, b"20991231235959Z"), Some(4_102_444_799));
        for nonsense in [&b""[..], b"27", b"271315080000Z", b"2701150800", b"\xff\xff01150800Z"] {
            assert_eq!(seconds(0x17, nonsense), None, "{nonsense:?}");
        }
        for nonsense in [
            &b""[..],
            &[0x30],
            &[0x30, 0x84, 0, 0, 0, 1],
            &[0x30, 5, 1],
            &[0x30, 2, 0x30, 0],
        ] {
            assert_eq!(validity(nonsense), None, "{nonsense:?}");
        }
    }
}
