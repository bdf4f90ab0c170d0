//! The certificates of one run: one authority, a server's and a client's certificate, as kubeadm makes them for etcd.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Where the PEM files of one run are.
#[derive(Clone, Debug)]
pub struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// Makes all of them in `folder`, which exists and is private to this run.
    pub fn make(folder: &Path) -> Result<Pki> {
        let pki = Pki {
            folder: folder.to_path_buf(),
        };
        let authority_key = KeyPair::generate()?;
        let mut authority = params("etcd-ca", &[])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        pki.write("ca.crt", &authority.self_signed(&authority_key)?.pem())?;
        let issuer = Issuer::new(authority, authority_key);

        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        pki.issue(&issuer, "server", "node", &["127.0.0.1", "localhost"], &both)?;
        let client = [ExtendedKeyUsagePurpose::ClientAuth];
        pki.issue(&issuer, "client", "kube-apiserver-etcd-client", &[], &client)?;
        let accounts = KeyPair::generate()?;
        pki.write("sa.key", &accounts.serialize_pem())?;
        pki.write("sa.pub", &accounts.public_key_pem())?;
        Ok(pki)
    }

    /// The path of one file: `ca.crt`, `server.crt`, `server.key`, `client.crt`, `client.key`, `sa.key` or `sa.pub`.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The text of one file.
    pub fn pem(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.folder.join(name)).with_context(|| format!("cannot read {name}"))
    }

    fn issue(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        file: &str,
        common_name: &str,
        hosts: &[&str],
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut leaf = params(common_name, hosts)?;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = usages.to_vec();
        self.write(&format!("{file}.crt"), &leaf.signed_by(&key, issuer)?.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        write_private(&self.folder.join(name), text)
    }
}

fn params(common_name: &str, hosts: &[&str]) -> Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_string()).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

/// Writes a new file that only its owner may read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
