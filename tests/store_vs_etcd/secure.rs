//! Mutual TLS: who is let in, what is said when files are wrong, and certificates renewed while the server runs.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use quantykube_tests::{Server, free_port, peer, program};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// An authority with its own folder.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = folder.join(name);
        std::fs::create_dir(&folder).expect("a new folder");
        std::fs::write(folder.join("ca.crt"), issuer.pem()).expect("a file");
        Authority { issuer, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    /// Certificate and key, as text.
    fn issue(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn write(&self, name: &str) {
        let (certificate, key) = self.issue(name);
        std::fs::write(self.path(&format!("{name}.crt")), certificate).expect("a file");
        std::fs::write(self.path(&format!("{name}.key")), key).expect("a file");
    }
}

fn command(folder: &Path, port: u16, tls: &[&str]) -> Command {
    let mut command = Command::new(program("quantykube-store"));
    command.arg("--data").arg(folder.join("store.qks"));
    command.args(["--listen", &format!("127.0.0.1:{port}")]).args(tls);
    command
}

fn put(port: u16, ca: &str, client: Option<(&str, &str)>) -> Result<(), String> {
    let mut command = Command::new(peer("etcdctl"));
    command.args(["put", "a", "1", "--dial-timeout", "3s", "--command-timeout", "3s"]);
    command.args(["--endpoints", &format!("https://127.0.0.1:{port}"), "--cacert", ca]);
    if let Some((cert, key)) = client {
        command.args(["--cert", cert, "--key", key]);
    }
    let output = command.output().expect("etcdctl runs");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn only_clients_of_the_authority_are_let_in_and_renewed_certificates_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Authority::new(folder.path(), "ours");
    let other = Authority::new(folder.path(), "other");
    for name in ["server", "client"] {
        ours.write(name);
        other.write(name);
    }
    let port = free_port();
    let (ca, cert, key) = (ours.path("ca.crt"), ours.path("server.crt"), ours.path("server.key"));
    let tls = [
        "--cert-file",
        &cert,
        "--key-file",
        &key,
        "--trusted-ca-file",
        &ca,
        "--client-cert-auth",
    ];
    let mut server = Server::start(&mut command(folder.path(), port, &tls), &folder.path().join("log"));
    server.wait_for_port(port, Duration::from_secs(10));

    let client = (ours.path("client.crt"), ours.path("client.key"));
    let client = (client.0.as_str(), client.1.as_str());
    put(port, &ca, Some(client)).expect("a client of the authority is let in");
    put(port, &ca, None).expect_err("a client without a certificate is not");
    let foreign = (other.path("client.crt"), other.path("client.key"));
    put(port, &ca, Some((&foreign.0, &foreign.1))).expect_err("nor one of another authority");
    let plain = Command::new(peer("etcdctl"))
        .args([
            "put",
            "a",
            "1",
            "--command-timeout",
            "2s",
            "--endpoints",
            &format!("http://127.0.0.1:{port}"),
        ])
        .output()
        .expect("etcdctl runs");
    assert!(!plain.status.success(), "nor one in plain text");

    // Renewal by another authority: first only the certificate, which does not fit the key yet.
    let (certificate, new_key) = other.issue("server");
    std::fs::write(ours.path("server.crt"), certificate).expect("a file");
    std::thread::sleep(Duration::from_millis(1500));
    put(port, &ca, Some(client)).expect("the old pair stays in use while the new one does not fit");
    std::fs::write(ours.path("server.key"), new_key).expect("a file");
    let begun = Instant::now();
    let renewed = other.path("ca.crt");
    while put(port, &renewed, Some(client)).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "the new pair is not used:\n{}",
            server.log_end()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    put(port, &ca, Some(client)).expect_err("the old certificate is no longer shown");
    // A new authority of clients is taken as well.
    std::fs::copy(other.path("ca.crt"), ours.path("ca.crt")).expect("a copy");
    std::thread::sleep(Duration::from_millis(1500));
    put(port, &renewed, Some((&foreign.0, &foreign.1))).expect("a client of the new authority");
    put(port, &renewed, Some(client)).expect_err("not one of the old");
    let log = server.log_end();
    assert!(log.contains("do not fit together"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "no secret in the log");
    assert_eq!(server.stop(Duration::from_secs(5)).code(), Some(0));
}

#[test]
fn what_is_wrong_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Authority::new(folder.path(), "ours");
    let other = Authority::new(folder.path(), "other");
    ours.write("server");
    other.write("server");
    std::fs::write(ours.path("empty"), "").expect("a file");
    let (cert, key) = (ours.path("server.crt"), ours.path("server.key"));
    let (foreign, empty, missing) = (other.path("server.key"), ours.path("empty"), ours.path("missing"));
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--cert-file", &missing, "--key-file", &key], 1, &missing),
        (&["--cert-file", &cert, "--key-file", &missing], 1, &missing),
        (&["--cert-file", &empty, "--key-file", &key], 1, &empty),
        (&["--cert-file", &cert, "--key-file", &foreign], 1, &foreign),
        (
            &["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &missing],
            1,
            &missing,
        ),
        (&["--cert-file", &cert], 2, "--key-file"),
        (&["--listen", "0.0.0.0:2479"], 2, "0.0.0.0:2479"),
        (&["--listen", "node.example:2479"], 2, "node.example"),
        (&["--nonsense"], 2, "--nonsense"),
    ];
    for (args, code, named) in cases {
        let mut command = Command::new(program("quantykube-store"));
        command.arg("--data").arg(folder.path().join("store.qks")).args(*args);
        let output = command.output().expect("the store runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {text}");
        assert!(text.contains(named), "{args:?} names {named}: {text}");
    }
    assert!(!folder.path().join("store.qks").exists(), "nothing was made");

    let port = free_port();
    let mut first = Server::start(&mut command(folder.path(), port, &[]), &folder.path().join("log"));
    first.wait_for_port(port, Duration::from_secs(10));
    let second = command(folder.path(), free_port(), &[])
        .output()
        .expect("the store runs");
    assert_eq!(
        second.status.code(),
        Some(4),
        "a file that is served: {}",
        String::from_utf8_lossy(&second.stderr)
    );
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(text.contains("store.qks") && text.contains("hint:"), "{text}");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let third = command(elsewhere.path(), port, &[]).output().expect("the store runs");
    assert_eq!(
        third.status.code(),
        Some(4),
        "a port that is taken: {}",
        String::from_utf8_lossy(&third.stderr)
    );
    assert!(!elsewhere.path().join("store.qks").exists(), "nothing was made");
    assert!(
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok(),
        "the first serves on"
    );
}
