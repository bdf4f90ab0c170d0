//! Images out of registries: a small one here that can misbehave, and Debian's docker-registry as the real one.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::small_registry::{Fixture, Manner, OCI, Small, digest, head, spec};
use crate::workbench::{OWN, Workbench};

const FOLDER: &str = "quantykube-0.1.0-linux-amd64";

/// What is packed of the one image: its manifest's digest and its layer.
fn packed(bench: &Workbench) -> (String, Vec<u8>) {
    bench.run(&["verify", "out/b.tar.gz"]).ok();
    bench.run(&["extract", "out/b.tar.gz", "out"]).ok();
    let images = bench.path(&format!("out/{FOLDER}/images"));
    let read = |digest: &str| fs::read(images.join("blobs").join(digest.replace(':', "/"))).unwrap();
    let index: Value = serde_json::from_slice(&fs::read(images.join("index.json")).unwrap()).unwrap();
    let [image] = &index["manifests"].as_array().unwrap()[..] else {
        panic!("{index}")
    };
    assert_eq!(image["annotations"]["io.containerd.image.name"], "example.org/web:1");
    let manifest: Value = serde_json::from_slice(&read(image["digest"].as_str().unwrap())).unwrap();
    assert_eq!(fs::read_dir(images.join("blobs/sha256")).unwrap().count(), 3);
    let layer = read(manifest["layers"][0]["digest"].as_str().unwrap());
    fs::remove_dir_all(bench.path(&format!("out/{FOLDER}"))).unwrap();
    (image["digest"].as_str().unwrap().into(), layer)
}

#[test]
fn of_an_index_one_platform_is_pulled() {
    let bench = Workbench::new();
    let (by_index, by_manifest) = (Fixture::new(), Fixture::new());
    let (index, manifest, layer) = (
        by_index.index.clone(),
        by_manifest.manifest.clone(),
        by_index.layer.clone(),
    );
    let expected = by_index.blobs[&layer].clone();
    let small = Small::start(
        by_index,
        Manner {
            busy: 2,
            ..Manner::default()
        },
    );
    bench.build(&spec(&small.address, &index)).ok();
    assert_eq!(
        small.asked(""),
        6,
        "two that were told to wait, an index, a manifest, a config and a layer: {:?}",
        small.seen
    );
    assert_eq!(small.asked(&layer), 1);
    assert!(packed(&bench) == (manifest.clone(), expected));
    let first = fs::read(bench.path("out/b.tar.gz")).unwrap();
    // The manifest itself gives the same bytes, and so does what a cache holds.
    let other = Small::start(by_manifest, Manner::default());
    let text = format!("architecture: amd64\n{}", spec(&other.address, &manifest));
    bench.put("again.yaml", text.as_bytes());
    let build = ["build", "again.yaml", "-o", "out/a.tar.gz", "--cache", "cache"];
    for requests in [3, 3] {
        bench.run(&build).ok();
        assert!(fs::read(bench.path("out/a.tar.gz")).unwrap() == first);
        assert_eq!(other.asked(""), requests, "what is in the cache is not fetched");
    }
    // What is damaged in a cache is fetched anew.
    let blob = bench.path(&format!("cache/blobs/{}", layer.replace(':', "/")));
    let mut damaged = fs::read(&blob).unwrap();
    damaged[5000] ^= 1;
    fs::write(&blob, damaged).unwrap();
    bench.run(&build).ok();
    assert!(fs::read(bench.path("out/a.tar.gz")).unwrap() == first);
    assert_eq!((other.asked(""), other.asked(&layer)), (4, 2));
}

#[test]
fn tokens_passwords_and_redirects() {
    let bench = Workbench::new();
    const USER: &str = "robot:pass-word";
    for manner in [
        Manner {
            token_for: Some(USER),
            ..Manner::default()
        },
        Manner {
            basic_for: Some(USER),
            ..Manner::default()
        },
    ] {
        // Blobs come from a second server, which must not see who we are.
        let storage = Small::start(Fixture::new(), Manner::default());
        let (fixture, redirect) = (Fixture::new(), Some(format!("http://{}", storage.address)));
        let (index, manifest) = (fixture.index.clone(), fixture.manifest.clone());
        let small = Small::start(fixture, Manner { redirect, ..manner });
        let text = format!("architecture: amd64\n{}", spec(&small.address, &index));
        bench.put("spec.yaml", text.as_bytes());
        let build = |extra: &[&str]| bench.run(&[&["build", "spec.yaml", "-o", "out/b.tar.gz"], extra].concat());
        build(&[]).failed(1, &["example.org/web:1", &index, "401", "--credentials"]);
        let config = |password: &str| {
            use base64::Engine;
            let auth = base64::engine::general_purpose::STANDARD.encode(format!("robot:{password}"));
            let config = json!({"auths": {&small.address: {"auth": auth}}}).to_string();
            bench.put("config.json", config.as_bytes());
        };
        config("wrong-word");
        let ran = build(&["--credentials", "config.json"]);
        ran.failed(1, &["example.org/web:1", "401", "robot", "config.json"]);
        assert!(!bench.path("out/b.tar.gz").exists());
        config("pass-word");
        let right = build(&["--credentials", "config.json", "--json"]).ok();
        assert_eq!(packed(&bench).0, manifest);
        let said = format!("{}{}{}{}", ran.out, ran.err, right.out, right.err);
        let bundle = fs::read(bench.path("out/b.tar.gz")).unwrap();
        for secret in [
            "wrong-word",
            "pass-word",
            "the-secret-token",
            "secret-of-a-url",
            "cm9ib3Q6",
        ] {
            assert!(!said.contains(secret), "{secret}: {said}");
            assert!(!bundle.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()));
        }
        let seen = storage.seen.lock().unwrap();
        assert_eq!(seen.len(), 2, "a config and a layer: {seen:?}");
        assert!(
            seen.iter().all(|(_, authorization)| authorization.is_empty()),
            "{seen:?}"
        );
        fs::remove_file(bench.path("out/b.tar.gz")).unwrap();
    }
}

#[test]
fn what_a_registry_gives_in_its_place_is_refused() {
    let bench = Workbench::new();
    let refuses = |instead: &str, bytes: &[u8], manner: Manner, code: i32, names: &[&str]| {
        let fixture = Fixture::new();
        let index = fixture.index.clone();
        let instead = BTreeMap::from([(instead.to_owned(), bytes.to_vec())]);
        let small = Small::start(fixture, Manner { instead, ..manner });
        let names = [names, &["example.org/web:1", &small.address]].concat();
        bench.refuses(
            &spec(&small.address, &index),
            code,
            &names[..names.len() - usize::from(code == 3)],
        );
        small
    };
    let good = Fixture::new();
    let layer = &good.blobs[&good.layer];
    let mut flipped = layer.clone();
    flipped[77] ^= 1;
    let none = Manner::default;
    refuses(
        &good.layer,
        &flipped,
        none(),
        3,
        &[&good.layer, &digest(&flipped), "another blob"],
    );
    refuses(
        &good.index,
        b"{}",
        none(),
        3,
        &[&good.index, &digest(b"{}"), "another manifest"],
    );
    refuses(&good.manifest, b"{}", none(), 3, &[&good.manifest, "another manifest"]);
    let short = format!("it has 1000 bytes, expected {}", layer.len());
    refuses(&good.layer, &layer[..1000], none(), 1, &[&good.layer, &short]);
    // It ends too early, four times, and no rest is given.
    let cut = Manner {
        cut_at: Some(10_000),
        ..none()
    };
    let small = refuses("", b"", cut, 1, &[&good.layer, "broke off after 10000 of", "4 tries"]);
    assert_eq!(small.asked(&good.layer), 4);
    // Gone, and never there.
    let small = Small::start(Fixture::new(), none());
    let gone = digest(b"gone");
    bench.refuses(
        &spec(&small.address, &gone),
        1,
        &["example.org/web:1", &gone, "404", "MANIFEST_UNKNOWN gone"],
    );
    assert_eq!(small.asked(""), 1, "what is not there is not asked for again");
    let other = spec(&small.address, &gone).replace("team/web", "team/other");
    bench.refuses(&other, 1, &["404", "NAME_UNKNOWN"]);
    // An index without our platform.
    let mut fixture = Fixture::new();
    let mut index: Value = serde_json::from_slice(&fixture.manifests[&fixture.index]).unwrap();
    index["manifests"].as_array_mut().unwrap().remove(1);
    let index = index.to_string().into_bytes();
    let key = digest(&index);
    fixture.manifests.insert(key.clone(), index);
    let small = Small::start(fixture, none());
    bench.refuses(
        &spec(&small.address, &key),
        4,
        &["example.org/web:1", "linux/arm64", "linux/amd64", &key],
    );
    // Without the request for plain http nothing is sent in the clear.
    let text = spec(&small.address, &key).replace("true", "false");
    let before = small.asked("");
    bench.refuses(&text, 1, &["example.org/web:1", "https://"]);
    assert_eq!(small.asked(""), before);
    bench.refuses(
        &format!("{OWN}images: [{{name: 'example.org/web:1'}}]"),
        2,
        &["example.org/web:1", "no digest"],
    );
}

#[test]
fn what_broke_off_goes_on_where_it_ended() {
    let bench = Workbench::new();
    let fixture = Fixture::new();
    let (index, layer) = (fixture.index.clone(), fixture.layer.clone());
    let expected = fixture.blobs[&layer].clone();
    let cut = 200_000;
    let manner = Manner {
        cut_at: Some(cut),
        ranges: true,
        ..Manner::default()
    };
    let small = Small::start(fixture, manner);
    bench.build(&spec(&small.address, &index)).ok();
    assert!(packed(&bench).1 == expected);
    assert_eq!(small.asked(&layer), expected.len().div_ceil(cut), "each byte came once");
}

/// The one server of a private authority: TLS in another process, as this one has no server for it.
#[test]
fn a_private_authority() {
    let bench = Workbench::new();
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&authority).unwrap();
    let issuer = rcgen::Issuer::from_params(&params, &authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    bench.put("ca.pem", ca.pem().as_bytes());
    bench.put(
        "server.pem",
        format!("{}{}", certificate.pem(), key.serialize_pem()).as_bytes(),
    );
    let fixture = Fixture::new();
    let (index, manifest) = (fixture.index.clone(), fixture.manifest.clone());
    let small = Small::start(fixture, Manner::default());
    let port = quantykube_tests::free_port();
    // TLS outside, the small registry inside.
    let script = "\
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.pem')
server = socket.create_server(('127.0.0.1', int(sys.argv[1])))
def serve(raw):
    try:
        client = context.wrap_socket(raw, server_side=True)
        head = b''
        while not head.endswith(b'\\r\\n\\r\\n'):
            head += client.recv(1)
        host, port = sys.argv[2].split(':')
        inner = socket.create_connection((host, int(port)))
        inner.sendall(head)
        while (part := inner.recv(65536)):
            client.sendall(part)
        client.unwrap()
    except OSError as error:
        print(error, flush=True)
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
";
    let mut command = Command::new("python3");
    command
        .args(["-c", script, &port.to_string(), &small.address])
        .current_dir(bench.path(""));
    let mut server = quantykube_tests::Server::start(&mut command, &bench.path("tls.log"));
    server.wait_for_port(port, Duration::from_secs(30));
    let host = format!("localhost:{port}");
    let open = spec(&host, &index).replace("plainHttp: true", "");
    bench.refuses(&open, 1, &["example.org/web:1", "TLS", "certificate"]);
    bench
        .build(&open.replace(&format!("'{host}', }}"), &format!("'{host}', ca: ca.pem}}")))
        .ok();
    assert_eq!(packed(&bench).0, manifest);
    server.kill();
}

/// Sends one request to a real registry and gives the status and the headers.
fn send(port: u16, method: &str, path: &str, media_type: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let head = head_of(&mut stream);
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, head)
}

fn head_of(stream: &mut TcpStream) -> String {
    head(stream).unwrap()
}

/// Puts a whole fixture into a real registry, as `docker push` does.
fn push(port: u16, fixture: &Fixture, tag: &str) {
    for (digest, bytes) in &fixture.blobs {
        let (status, head) = send(port, "POST", "/v2/team/web/blobs/uploads/", "", b"");
        assert_eq!(status, 202, "{head}");
        let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
        let path = location
            .split_once("//")
            .map_or(location, |(_, rest)| &rest[rest.find('/').unwrap()..]);
        let path = format!("{path}{}digest={digest}", if path.contains('?') { '&' } else { '?' });
        let (status, head) = send(port, "PUT", &path, "application/octet-stream", bytes);
        assert_eq!(status, 201, "{head}");
    }
    let mut manifests: Vec<_> = fixture.manifests.iter().collect();
    // The index last: what it names must be there.
    manifests.sort_by_key(|(digest, _)| **digest == fixture.index);
    for (digest, bytes) in manifests {
        let (kind, name) = match *digest == fixture.index {
            true => ("index", tag),
            false => ("manifest", digest.as_str()),
        };
        let media_type = format!("{OCI}.{kind}.v1+json");
        let (status, head) = send(
            port,
            "PUT",
            &format!("/v2/team/web/manifests/{name}"),
            &media_type,
            bytes,
        );
        assert_eq!(status, 201, "{head}");
    }
}

#[test]
fn the_real_registry() {
    let Some(program) = quantykube_tests::docker_registry() else {
        return quantykube_tests::skipped(
            "the_real_registry",
            "docker-registry is not there; scripts/peers debian-registry unpacks it",
        );
    };
    let bench = Workbench::new();
    let port = quantykube_tests::free_port();
    let storage = bench.path("storage");
    let config = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
        storage.display()
    );
    let config = bench.put("registry.yml", config.as_bytes());
    let mut command = Command::new(program);
    command.arg("serve").arg(config);
    let mut server = quantykube_tests::Server::start(&mut command, &bench.path("registry.log"));
    server.wait_for_port(port, Duration::from_secs(30));
    let fixture = Fixture::new();
    push(port, &fixture, "1");
    let address = format!("127.0.0.1:{port}");
    bench.build(&spec(&address, &fixture.index)).ok();
    assert!(packed(&bench) == (fixture.manifest.clone(), fixture.blobs[&fixture.layer].clone()));
    fs::remove_file(bench.path("out/b.tar.gz")).unwrap();
    let gone = digest(b"gone");
    bench.refuses(
        &spec(&address, &gone),
        1,
        &["example.org/web:1", &gone, "404", "MANIFEST_UNKNOWN"],
    );
    // The real one loses a byte of a layer on its disk.
    let hex = fixture.layer.trim_start_matches("sha256:");
    let data = storage.join(format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]));
    let mut damaged = fs::read(&data).unwrap();
    damaged[400_000] ^= 1;
    fs::write(&data, &damaged).unwrap();
    bench.refuses(&spec(&address, &fixture.index), 3, &[&fixture.layer, &digest(&damaged)]);
    server.kill();
}
