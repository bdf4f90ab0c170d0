//! An authority, an etcd's pair and a client's pair, as kubeadm makes them.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Paths of PEM files.
pub struct Certificates {
    pub authority: PathBuf,
    pub server: (PathBuf, PathBuf),
    pub client: (PathBuf, PathBuf),
}

impl Certificates {
    /// Makes all of them in `folder`.
    pub fn make(folder: &Path) -> Certificates {
        fs::create_dir_all(folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let authority = folder.join("ca.crt");
        fs::write(&authority, certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let names = ["127.0.0.1", "::1", "localhost"].map(str::to_owned).to_vec();
        Certificates {
            authority,
            server: pair(folder, "server", names, ExtendedKeyUsagePurpose::ServerAuth, &issuer),
            client: pair(
                folder,
                "client",
                Vec::new(),
                ExtendedKeyUsagePurpose::ClientAuth,
                &issuer,
            ),
        }
    }
}

fn pair(
    folder: &Path,
    name: &str,
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
    issuer: &Issuer<'_, KeyPair>,
) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages = match usage {
        // etcd checks its own certificate for both: its gateway is a client of itself.
        ExtendedKeyUsagePurpose::ServerAuth => vec![usage, ExtendedKeyUsagePurpose::ClientAuth],
        _ => vec![usage],
    };
    let certificate = params.signed_by(&key, issuer).unwrap();
    let paths = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    fs::write(&paths.0, certificate.pem()).unwrap();
    fs::write(&paths.1, key.serialize_pem()).unwrap();
    paths
}
