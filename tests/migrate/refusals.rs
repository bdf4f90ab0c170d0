//! What is refused before anything is read: each with its exit code, its name, what to do, and no file.

use std::fs;

use quantykube_migrate::Source;
use quantykube_tests::free_port;

use crate::certificates::Certificates;
use crate::etcd::{Etcd, Kind, beside};
use crate::fake;
use crate::program::run;

fn plain(port: u16) -> Source {
    Source {
        endpoints: vec![format!("http://127.0.0.1:{port}")],
        ..Source::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.qks");
    for (version, code) in [("3.3.27", 4), ("2.3.8", 4), ("3.8.0", 7), ("4.0.0", 7), ("none", 4)] {
        let port = fake::serve(version).await;
        let ended = run(&plain(port), &file, &[]).await;
        ended.failed(code, "etcd-version");
        let message = ended.last["message"].as_str().unwrap();
        let named = if version == "none" { "unknown" } else { version };
        assert!(message.contains(named), "{message}");
        assert!(beside(&file).is_empty());
    }
    // The same server with a version that is known is let past this check and fails later: the check did the refusing.
    let port = fake::serve("3.5.9").await;
    let ended = run(&plain(port), &file, &[]).await;
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert_ne!(ended.last["name"], "etcd-version");
    assert!(beside(&file).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_certificates() {
    let etcd = Etcd::start(Kind::Secure);
    let strangers = Certificates::make(&etcd.folder.path().join("strangers"));
    let right = etcd.source.clone();
    let file = etcd.target("refused");
    let cases = [
        (
            "an authority that did not sign etcd's certificate",
            Source {
                cacert: Some(strangers.authority.clone()),
                ..right.clone()
            },
        ),
        (
            "a client's certificate that etcd's authority did not sign",
            Source {
                cert: Some(strangers.client.0.clone()),
                key: Some(strangers.client.1.clone()),
                ..right.clone()
            },
        ),
        (
            "no client's certificate",
            Source {
                cert: None,
                key: None,
                ..right.clone()
            },
        ),
    ];
    for (name, source) in cases {
        println!("{name}");
        let ended = run(&source, &file, &[]).await;
        ended.failed(1, "etcd-certificate");
        assert!(beside(&file).is_empty(), "{name}");
    }
    let missing = Source {
        cert: Some(etcd.folder.path().join("nowhere.crt")),
        ..right.clone()
    };
    run(&missing, &file, &[]).await.failed(4, "unreadable");
    // A pair whose halves do not belong together.
    let mixed = Source {
        key: Some(strangers.client.1.clone()),
        ..right.clone()
    };
    assert_ne!(run(&mixed, &file, &[]).await.code, Some(0));
    assert!(beside(&file).is_empty());
    // With the right ones the same etcd is copied, so that the refusals above were about the certificates.
    run(&right, &file, &[]).await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_exists() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing listens there: the target is looked at first.
    let source = plain(free_port());
    let file = folder.path().join("store.qks");
    fs::write(&file, "a store that is served from").unwrap();
    run(&source, &file, &[]).await.failed(4, "target-exists");
    assert_eq!(fs::read(&file).unwrap(), b"a store that is served from");
    assert_eq!(beside(&file), ["store.qks"]);

    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    run(&source, &link, &[]).await.failed(4, "target-exists");
    let missing = folder.path().join("no/such/folder/store.qks");
    run(&source, &missing, &[]).await.failed(4, "no-folder");
    let under_a_file = file.join("store.qks");
    run(&source, &under_a_file, &[]).await.failed(4, "no-folder");
    // Folders that take no file, whatever their modes say.
    for folder in ["/proc", "/proc/self", "/sys"] {
        let file = std::path::Path::new(folder).join("store.qks");
        run(&source, &file, &[]).await.failed(4, "target-refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.qks");
    run(&plain(free_port()), &file, &[]).await.failed(1, "etcd-unreachable");
    let name = Source {
        endpoints: vec!["http://etcd.example:2379".to_owned()],
        ..Source::default()
    };
    run(&name, &file, &[]).await.failed(2, "etcd-endpoint");
    assert!(beside(&file).is_empty());

    // The second endpoint answers.
    let etcd = Etcd::start(Kind::Current);
    let both = Source {
        endpoints: vec![
            plain(free_port()).endpoints[0].clone(),
            etcd.source.endpoints[0].clone(),
        ],
        ..Source::default()
    };
    run(&both, &file, &[]).await.done();
}
