//! OCI layouts and docker archives become one layout.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::raw;
use crate::workbench::{OWN, Workbench, bytes};

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

const OCI: &str = "application/vnd.oci.image";

/// A layout in a folder of the workbench.
struct Layout<'a> {
    bench: &'a Workbench,
    name: &'a str,
    index: Vec<Value>,
}

impl<'a> Layout<'a> {
    fn new(bench: &'a Workbench, name: &'a str) -> Layout<'a> {
        bench.put(&format!("{name}/oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#);
        Layout {
            bench,
            name,
            index: Vec::new(),
        }
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        self.bench
            .put(&format!("{}/blobs/sha256/{}", self.name, digest(bytes)), bytes);
        json!({"mediaType": media_type, "digest": format!("sha256:{}", digest(bytes)), "size": bytes.len()})
    }

    fn document(&self, media_type: &str, value: &Value) -> Value {
        self.blob(media_type, value.to_string().as_bytes())
    }

    /// An image of the given layers; its descriptor.
    fn image(&self, architecture: &str, layers: &[&[u8]]) -> Value {
        let config = json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}});
        let manifest = json!({
            "schemaVersion": 2,
            "config": self.document(&format!("{OCI}.config.v1+json"), &config),
            "layers": layers.iter().map(|l| self.blob(&format!("{OCI}.layer.v1.tar+gzip"), l)).collect::<Vec<_>>(),
        });
        let mut descriptor = self.document(&format!("{OCI}.manifest.v1+json"), &manifest);
        descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
        descriptor
    }

    fn add(&mut self, name: &str, mut descriptor: Value) {
        descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        self.index.push(descriptor);
        let index = json!({"schemaVersion": 2, "manifests": self.index});
        self.bench
            .put(&format!("{}/index.json", self.name), index.to_string().as_bytes());
    }
}

/// Layers: the first is shared, and compressed already.
fn shared() -> Vec<u8> {
    [&[0x1f, 0x8b, 8, 0][..], &bytes(6 << 20, 9)].concat()
}

fn docker_archive(architecture: &str, tag: &str, layers: &[&[u8]]) -> Vec<u8> {
    let ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", digest(layer))).collect();
    let config = json!({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}});
    let config = config.to_string();
    let name = |layer: &&[u8]| match layer.starts_with(&[0x1f, 0x8b]) {
        true => format!("blobs/sha256/{}", digest(layer)),
        false => format!("{}/layer.tar", &digest(layer)[..12]),
    };
    let names: Vec<String> = layers.iter().map(name).collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": [tag], "Layers": names}]).to_string();
    let mut entries = vec![raw::file("config.json", 0o644, config.as_bytes())];
    entries.extend(
        names
            .iter()
            .zip(layers)
            .map(|(name, layer)| raw::file(name, 0o644, layer)),
    );
    // As some programs write it, the last layer is a link to its file.
    let last = entries.pop().unwrap();
    entries.push(raw::file("layers/last.tar", 0o644, &last.data));
    entries.push(raw::special(names.last().unwrap(), b'2', "../layers/last.tar"));
    entries.push(raw::file("manifest.json", 0o644, manifest.as_bytes()));
    let mut tar = Vec::new();
    for entry in entries {
        tar.extend(entry.header);
        tar.extend(entry.data);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend([0; 1024]);
    tar
}

#[test]
fn images_from_everywhere_share_one_layout() {
    let bench = Workbench::new();
    let (shared, plain) = (shared(), bytes(700_000, 10));
    let mut layout = Layout::new(&bench, "layout");
    let (one, two) = (
        layout.image("amd64", &[&shared]),
        layout.image("amd64", &[&shared, b"second"]),
    );
    layout.add("example.org/one:1", one);
    layout.add("example.org/two:2", two);
    let other = layout.image("arm64", &[b"for another machine"]);
    let wanted = layout.image("amd64", &[b"for this machine"]);
    let index = json!({"schemaVersion": 2, "mediaType": format!("{OCI}.index.v1+json"), "manifests": [other, wanted]});
    let many = layout.document(&format!("{OCI}.index.v1+json"), &index);
    layout.add("example.org/many:3", many);
    bench.put("saved.tar", &docker_archive("amd64", "saved:4", &[&shared, &plain]));
    bench.put("t/manifests/a.yaml", b"image: docker.io/library/saved:4\n");
    let spec = format!(
        "{OWN}templates: {{folder: t}}\nimages:\n- {{name: 'example.org/two:2', ociLayout: layout}}\n- {{name: \
         'saved:4', dockerArchive: saved.tar}}\n- {{name: 'example.org/one:1', ociLayout: layout}}\n- {{name: \
         'example.org/many:3', ociLayout: layout}}\n"
    );
    bench.build(&spec).ok();
    bench.run(&["verify", "out/b.tar.gz"]).ok();
    bench.run(&["extract", "out/b.tar.gz", "out"]).ok();
    let images = bench.path("out/quantykube-0.1.0-linux-amd64/images");
    let blob =
        |digest: &Value| fs::read(images.join("blobs").join(digest.as_str().unwrap().replace(':', "/"))).unwrap();
    let index: Value = serde_json::from_slice(&fs::read(images.join("index.json")).unwrap()).unwrap();
    let mut layers = BTreeMap::new();
    let mut reached = std::collections::BTreeSet::new();
    for image in index["manifests"].as_array().unwrap() {
        let name = image["annotations"]["io.containerd.image.name"].as_str().unwrap();
        let manifest: Value = serde_json::from_slice(&blob(&image["digest"])).unwrap();
        let of_image: Vec<Value> = manifest["layers"].as_array().unwrap().clone();
        for named in of_image.iter().chain([&manifest["config"], image]) {
            let bytes = blob(&named["digest"]);
            assert_eq!(format!("sha256:{}", digest(&bytes)), named["digest"]);
            assert_eq!(bytes.len(), named["size"]);
            reached.insert(named["digest"].to_string());
        }
        layers.insert(
            name.to_owned(),
            of_image.iter().map(|layer| blob(&layer["digest"])).collect::<Vec<_>>(),
        );
    }
    let names: Vec<&str> = layers.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "docker.io/library/saved:4",
            "example.org/many:3",
            "example.org/one:1",
            "example.org/two:2"
        ]
    );
    assert!(layers["docker.io/library/saved:4"] == [shared.clone(), plain]);
    assert!(layers["example.org/two:2"] == [shared, b"second".to_vec()]);
    assert!(layers["example.org/many:3"] == [b"for this machine".to_vec()]);
    let there = fs::read_dir(images.join("blobs/sha256")).unwrap().count();
    assert_eq!(
        there,
        reached.len(),
        "every blob is there once, and none that no image names"
    );
    let shown = bench.run(&["inspect", "out/b.tar.gz"]).ok().out;
    assert!(shown.contains("image docker.io/library/saved:4  sha256:"), "{shown}");
}

#[test]
fn what_is_compressed_already_is_stored() {
    let bench = Workbench::new();
    let mut layout = Layout::new(&bench, "layout");
    let layer = shared();
    let image = layout.image("amd64", &[&layer]);
    layout.add("example.org/one:1", image);
    bench
        .build(&format!(
            "{OWN}images: [{{name: 'example.org/one:1', ociLayout: layout}}]"
        ))
        .ok();
    let event: Value = serde_json::from_str(&bench.run(&["inspect", "out/b.tar.gz", "--json"]).ok().out).unwrap();
    let packed = event["packed"][format!("images/blobs/sha256/{}", digest(&layer))]
        .as_u64()
        .unwrap();
    assert!(packed > layer.len() as u64, "{packed} of {}", layer.len());
}

#[test]
fn images_that_are_refused() {
    let bench = Workbench::new();
    let mut layout = Layout::new(&bench, "layout");
    let (arm, amd) = (
        layout.image("arm64", &[b"arm"]),
        layout.image("amd64", &[b"a layer of amd64"]),
    );
    layout.add("example.org/arm:1", arm);
    layout.add("example.org/amd:1", amd);
    let refuses =
        |image: &str, code: i32, names: &[&str]| bench.refuses(&format!("{OWN}images: [{image}]"), code, names);
    refuses(
        "{name: 'example.org/arm:1', ociLayout: layout}",
        4,
        &["example.org/arm:1", "linux/arm64", "linux/amd64"],
    );
    refuses(
        "{name: 'example.org/x:1', ociLayout: layout}",
        4,
        &["example.org/x:1", "example.org/amd:1"],
    );
    refuses(
        "{name: 'example.org/x:1', ociLayout: none}",
        4,
        &["none", "No such file"],
    );
    let other = format!(
        "{{name: 'example.org/amd:1@sha256:{}', ociLayout: layout}}",
        "a".repeat(64)
    );
    refuses(
        &other,
        4,
        &[
            "example.org/amd:1@sha256:aaa",
            "for this platform has the digest sha256:",
        ],
    );
    let path = format!("layout/blobs/sha256/{}", digest(b"a layer of amd64"));
    bench.put(&path, b"A layer of amd64");
    let name = "{name: 'example.org/amd:1', ociLayout: layout}";
    refuses(name, 3, &[&digest(b"a layer of amd64"), &digest(b"A layer of amd64")]);
    bench.put(&path, b"short");
    refuses(name, 3, &[&digest(b"a layer of amd64"), "has 5 bytes, expected 16"]);
    fs::remove_file(bench.path(&path)).unwrap();
    refuses(name, 3, &[&digest(b"a layer of amd64"), "is missing"]);

    bench.put(
        "saved.tar",
        &docker_archive("arm64", "example.org/saved:4", &[b"layer"]),
    );
    let saved = "{name: 'example.org/saved:4', dockerArchive: saved.tar}";
    refuses(saved, 4, &["example.org/saved:4", "linux/arm64"]);
    let mut tar = docker_archive("amd64", "example.org/saved:4", &[b"the layer itself"]);
    let at = tar
        .windows(16)
        .position(|window| window == b"the layer itself")
        .unwrap();
    tar[at] = b'T';
    bench.put("saved.tar", &tar);
    refuses(saved, 3, &[&digest(b"the layer itself"), &digest(b"The layer itself")]);
    let mut outside = raw::special("x/layer.tar", b'2', "../../etc/passwd").header.to_vec();
    outside.extend([0; 1024]);
    bench.put("saved.tar", &outside);
    refuses(saved, 3, &["a link in it leads out of it"]);
    bench.put("saved.tar", &[0x1f, 0x8b, 8, 0]);
    refuses(saved, 3, &["saved.tar", "gunzip"]);
    bench.put("saved.tar", b"no tar at all");
    bench.build(&format!("{OWN}images: [{saved}]"));
    assert!(!bench.path("out/b.tar.gz").exists());
}

#[test]
fn layers_of_a_docker_archive_that_are_blobs() {
    let bench = Workbench::new();
    let layer = shared();
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest(b"unpacked"))]},
    });
    let config = config.to_string();
    let names = [config.as_bytes(), &layer].map(|bytes| format!("blobs/sha256/{}", digest(bytes)));
    let manifest = json!([{"Config": names[0], "RepoTags": ["saved:4"], "Layers": [names[1]]}]).to_string();
    let tar = |layer_name: &str, manifest: &str| {
        let mut tar = Vec::new();
        let files = [
            (names[0].as_str(), config.as_bytes()),
            (layer_name, &layer),
            ("manifest.json", manifest.as_bytes()),
        ];
        for (name, bytes) in files {
            let entry = raw::file(name, 0o644, bytes);
            tar.extend(entry.header);
            tar.extend(entry.data);
            tar.resize(tar.len().next_multiple_of(512), 0);
        }
        tar.extend([0; 1024]);
        tar
    };
    let spec = format!("{OWN}images: [{{name: 'saved:4', dockerArchive: saved.tar}}]");
    bench.put(
        "saved.tar",
        &tar("layer.tar.gz", &manifest.replace(&names[1], "layer.tar.gz")),
    );
    bench.refuses(&spec, 3, &["layer.tar.gz is compressed and not named by its digest"]);
    bench.put("saved.tar", &tar(&names[1], &manifest));
    bench.build(&spec).ok();
    bench.run(&["extract", "out/b.tar.gz", "out"]).ok();
    let blobs = bench.path("out/quantykube-0.1.0-linux-amd64/images");
    assert!(fs::read(blobs.join(&names[1])).unwrap() == layer);
    let types: Vec<String> = fs::read_dir(blobs.join("blobs/sha256"))
        .unwrap()
        .filter_map(|blob| serde_json::from_slice::<Value>(&fs::read(blob.unwrap().path()).unwrap()).ok())
        .filter_map(|document| document["layers"][0]["mediaType"].as_str().map(String::from))
        .collect();
    assert_eq!(types, [format!("{OCI}.layer.v1.tar+gzip")]);
}
