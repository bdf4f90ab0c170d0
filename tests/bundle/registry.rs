//! Images out of registries: a small one here that can misbehave, and Debian's docker-registry as the real one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::workbench::{OWN, Workbench, bytes};

const OCI: &str = "application/vnd.oci.image";
const FOLDER: &str = "quantykube-0.1.0-linux-amd64";

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// An image as a registry holds it: documents and blobs by digest.
pub struct Fixture {
    pub manifests: BTreeMap<String, Vec<u8>>,
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Of the manifest for amd64.
    pub manifest: String,
    /// Of an index with arm64, amd64 and one for no platform.
    pub index: String,
    pub layer: String,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with(&[&[0x1f, 0x8b, 8, 0][..], &bytes(900_000, 21)].concat())
    }

    /// With this layer for amd64.
    pub fn with(layer: &[u8]) -> Fixture {
        let mut fixture = Fixture {
            manifests: BTreeMap::new(),
            blobs: BTreeMap::new(),
            manifest: String::new(),
            index: String::new(),
            layer: digest(layer),
        };
        let arm = fixture.image("arm64", b"for another machine");
        let amd = fixture.image("amd64", layer);
        let mut other = fixture.image("unknown", b"no image at all");
        other["platform"] = json!({"architecture": "unknown", "os": "unknown"});
        fixture.manifest = amd["digest"].as_str().unwrap().into();
        let index =
            json!({"schemaVersion": 2, "mediaType": format!("{OCI}.index.v1+json"), "manifests": [arm, amd, other]});
        let index = index.to_string().into_bytes();
        fixture.index = digest(&index);
        fixture.manifests.insert(fixture.index.clone(), index);
        fixture
    }

    fn image(&mut self, architecture: &str, layer: &[u8]) -> Value {
        let config = json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}});
        let config = config.to_string().into_bytes();
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": format!("{OCI}.{kind}"), "digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": format!("{OCI}.manifest.v1+json"),
            "config": part("config.v1+json", &config),
            "layers": [part("layer.v1.tar+gzip", layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut descriptor = part("manifest.v1+json", &manifest);
        descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
        self.blobs.insert(digest(&config), config);
        self.blobs.insert(digest(layer), layer.to_vec());
        self.manifests.insert(digest(&manifest), manifest);
        descriptor
    }
}

/// What the small registry does besides.
#[derive(Clone, Default)]
pub struct Manner {
    /// Bearer: only with a token, which only this user gets (`user:password`).
    pub token_for: Option<&'static str>,
    /// Basic.
    pub basic_for: Option<&'static str>,
    /// Of a blob, so many bytes come each time and then the connection ends.
    pub cut_at: Option<usize>,
    /// Whether a request for the rest is understood.
    pub ranges: bool,
    /// These bytes in place of those of a digest.
    pub instead: BTreeMap<String, Vec<u8>>,
    /// Blobs come by a redirect to this origin.
    pub redirect: Option<String>,
    /// So many requests are answered with 503 first.
    pub busy: usize,
}

/// The small registry; it ends with the test process.
pub struct Small {
    pub address: String,
    /// Every request: its line, and the value of Authorization.
    pub seen: Arc<Mutex<Vec<(String, String)>>>,
    pub tags: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Small {
    pub fn start(fixture: Fixture, manner: Manner) -> Small {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let small = Small {
            address: address.clone(),
            seen: Arc::default(),
            tags: Arc::new(Mutex::new(BTreeMap::from([("1".to_owned(), fixture.index.clone())]))),
        };
        let (seen, tags) = (Arc::clone(&small.seen), Arc::clone(&small.tags));
        std::thread::spawn(move || {
            let mut manner = manner;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = answer(&mut stream, &address, &fixture, &mut manner, &seen, &tags);
            }
        });
        small
    }

    /// How often something was asked for.
    pub fn asked(&self, part: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(line, _)| line.contains(part)).count()
    }
}

fn head(stream: &mut impl Read) -> std::io::Result<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
        if text[0] == 0x16 {
            // A client that speaks TLS would wait for an answer.
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8(text).unwrap())
}

fn answer(
    stream: &mut (impl Read + Write),
    address: &str,
    fixture: &Fixture,
    manner: &mut Manner,
    seen: &Mutex<Vec<(String, String)>>,
    tags: &Mutex<BTreeMap<String, String>>,
) -> std::io::Result<()> {
    use base64::Engine;
    let head = head(stream)?;
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let asked = head.split_whitespace().nth(1).unwrap();
    let path = asked.split("?signature=").next().unwrap().to_owned();
    let authorization = field("authorization");
    seen.lock().unwrap().push((path.clone(), authorization.clone()));
    let basic = |user: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(user));
    let mut reply = |status: &str, headers: &str, body: &[u8], length: usize| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body))
    };
    if manner.busy > 0 {
        manner.busy -= 1;
        return reply("503 Service Unavailable", "", b"", 0);
    }
    if path.starts_with("/token?") {
        let told = "scope=repository%3Ateam%2Fweb%3Apull&service=small%20registry";
        if !path.ends_with(told) || authorization != basic(manner.token_for.unwrap()) {
            return reply("401 Unauthorized", "", b"", 0);
        }
        let body = br#"{"token": "the-secret-token"}"#;
        return reply("200 OK", "", body, body.len());
    }
    let denied = br#"{"errors": [{"code": "UNAUTHORIZED", "message": "who are you?"}]}"#;
    if manner.token_for.is_some() && authorization != "Bearer the-secret-token" {
        let ask = format!("WWW-Authenticate: Bearer realm=\"http://{address}/token\",service=\"small registry\"\r\n");
        return reply("401 Unauthorized", &ask, denied, denied.len());
    }
    if manner.basic_for.is_some_and(|user| authorization != basic(user)) {
        return reply(
            "401 Unauthorized",
            "WWW-Authenticate: Basic realm=\"small\"\r\n",
            denied,
            denied.len(),
        );
    }
    let Some(rest) = path.strip_prefix("/v2/team/web/") else {
        let body = br#"{"errors": [{"code": "NAME_UNKNOWN", "message": "no such repository"}]}"#;
        return reply("404 Not Found", "", body, body.len());
    };
    let (kind, key) = rest.split_once('/').unwrap();
    let key = tags.lock().unwrap().get(key).cloned().unwrap_or_else(|| key.to_owned());
    let of = match kind {
        "manifests" => &fixture.manifests,
        _ => &fixture.blobs,
    };
    let Some(body) = manner.instead.get(&key).or(of.get(&key)) else {
        let body = br#"{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "gone"}]}"#;
        return reply("404 Not Found", "", body, body.len());
    };
    if kind == "manifests" {
        assert!(field("accept").contains("image.index.v1+json"), "{head}");
        return reply("200 OK", "", body, body.len());
    }
    if let Some(origin) = &manner.redirect {
        let location = format!("Location: {origin}{path}?signature=secret-of-a-url\r\n");
        return reply("307 Temporary Redirect", &location, b"", 0);
    }
    let range = field("range");
    let from = range
        .strip_prefix("bytes=")
        .and_then(|range| range.trim_end_matches('-').parse().ok());
    let from: usize = from.filter(|_| manner.ranges).unwrap_or(0);
    let end = manner.cut_at.map_or(body.len(), |cut| body.len().min(from + cut));
    let (status, told) = match from {
        0 => ("200 OK", String::new()),
        _ => (
            "206 Partial Content",
            format!("Content-Range: bytes {from}-{}/{}\r\n", body.len() - 1, body.len()),
        ),
    };
    reply(status, &told, &body[from..end], body.len() - from)
}

/// A spec with one image of a plain registry.
pub(crate) fn spec(address: &str, digest: &str) -> String {
    format!(
        "{OWN}images: [{{name: 'example.org/web:1', from: '{address}/team/web', digest: '{digest}'}}]\nregistries: \
         [{{host: '{address}', plainHttp: true}}]\n"
    )
}

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
