//! A small registry that can misbehave, and an image for it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::workbench::{OWN, bytes};

pub const OCI: &str = "application/vnd.oci.image";

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

pub fn head(stream: &mut impl Read) -> std::io::Result<String> {
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
pub fn spec(address: &str, digest: &str) -> String {
    format!(
        "{OWN}images: [{{name: 'example.org/web:1', from: '{address}/team/web', digest: '{digest}'}}]\nregistries: \
         [{{host: '{address}', plainHttp: true}}]\n"
    )
}
