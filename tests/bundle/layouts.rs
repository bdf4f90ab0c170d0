//! Bundles whose every byte is as bundle.json says, and whose layout of images is not what it says of itself.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::raw;
use crate::workbench::{Ran, Workbench, tree};

const OCI: &str = "application/vnd.oci.image";
const NAME: &str = "example.org/web:1";

fn hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The files of a layout, and the images that bundle.json names.
struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    index: Vec<Value>,
    images: Vec<Value>,
}

impl Layout {
    fn blob(&mut self, kind: &str, bytes: &[u8]) -> Value {
        self.files
            .insert(format!("blobs/sha256/{}", hex(bytes)), bytes.to_vec());
        json!({"mediaType": format!("{OCI}.{kind}"), "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len()})
    }

    fn document(&mut self, kind: &str, value: &Value) -> Value {
        self.blob(kind, value.to_string().as_bytes())
    }

    fn manifest(&mut self, layers: &[Value]) -> Value {
        let config = self.blob("config.v1+json", br#"{"architecture":"amd64","os":"linux"}"#);
        self.document(
            "manifest.v1+json",
            &json!({"schemaVersion": 2, "config": config, "layers": layers}),
        )
    }

    fn index(&mut self, manifests: &[Value]) -> Value {
        self.document("index.v1+json", &json!({"schemaVersion": 2, "manifests": manifests}))
    }

    fn name(&mut self, name: &str, mut descriptor: Value) {
        self.images.push(json!({"digest": descriptor["digest"], "name": name}));
        descriptor["annotations"] = json!({"io.containerd.image.name": name});
        self.index.push(descriptor);
    }

    /// A layout with one right image, changed by `change`, which gets the layer's descriptor before a manifest names it.
    fn with(change: impl FnOnce(&mut Layout, &mut Value)) -> Layout {
        let mut layout = Layout {
            files: BTreeMap::from([("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec())]),
            index: Vec::new(),
            images: Vec::new(),
        };
        let mut layer = layout.blob("layer.v1.tar", b"a layer");
        change(&mut layout, &mut layer);
        let manifest = layout.manifest(&[layer]);
        layout.name(NAME, manifest);
        layout
    }

    fn archive(mut self) -> Vec<u8> {
        let index = json!({"schemaVersion": 2, "manifests": self.index}).to_string();
        self.files.entry("index.json".into()).or_insert(index.into_bytes());
        let mut files = vec![raw::named("run", b"a program")];
        files.extend(
            self.files
                .iter()
                .map(|(path, data)| raw::named(&format!("images/{path}"), data)),
        );
        self.images
            .sort_by_key(|image| image["name"].as_str().unwrap().to_owned());
        raw::archive(&raw::entries_of(&files, &json!(self.images)))
    }
}

/// Has both programs verify the archive, and the node's the folder that tar makes of it.
fn verify(bench: &Workbench, archive: &[u8]) -> [Ran; 3] {
    bench.put("b.tar.gz", archive);
    let folder = bench.path("folder");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    let tar = Command::new("tar")
        .args(["xzf", "b.tar.gz", "-C", "folder"])
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    Ran::from(tar).ok();
    let runner = |what: &str| {
        let mut command = Command::new(quantykube_tests::program("quantykube"));
        Ran::from(
            command
                .args(["verify", what])
                .current_dir(bench.path(""))
                .output()
                .unwrap(),
        )
    };
    [
        bench.run(&["verify", "b.tar.gz"]),
        runner("b.tar.gz"),
        runner(&format!("folder/{}", raw::TOP)),
    ]
}

#[track_caller]
fn refused(layout: Layout, names: &[&str]) {
    let bench = Workbench::bare();
    for ran in verify(&bench, &layout.archive()) {
        ran.failed(3, names);
    }
    bench.run(&["extract", "b.tar.gz", "out"]).failed(3, names);
    assert!(tree(&bench.path("out")).is_empty());
}

fn accepted(layout: Layout) {
    let bench = Workbench::bare();
    for ran in verify(&bench, &layout.archive()) {
        ran.ok();
    }
    bench.run(&["extract", "b.tar.gz", "out"]).ok();
}

#[test]
fn every_descriptor_is_walked() {
    accepted(Layout::with(|_, _| {}));
    let at = format!("blobs/sha256/{}", hex(b"a layer"));
    let blob = format!("sha256:{}", hex(b"a layer"));
    let other = format!("sha256:{}", hex(b"no layer"));
    refused(
        Layout::with(|layout, _| drop(layout.files.remove(&at))),
        &[&blob, "is missing"],
    );
    refused(
        Layout::with(|_, layer| layer["digest"] = other.clone().into()),
        &[&other, "is missing"],
    );
    refused(
        Layout::with(|_, layer| layer["size"] = 6.into()),
        &[&blob, "has 7 bytes, expected 6"],
    );
    refused(Layout::with(|_, layer| layer["size"] = json!(-7)), &["cannot be read"]);
    refused(
        Layout::with(|_, layer| layer["digest"] = "sha256:../../run".into()),
        &["no digest"],
    );
    // The config, the manifest, and what only an index names.
    let config = format!("sha256:{}", hex(br#"{"architecture":"amd64","os":"linux"}"#));
    let mut layout = Layout::with(|_, _| {});
    layout.files.remove(&config.replace("sha256:", "blobs/sha256/"));
    refused(layout, &[&config, "is missing"]);
    let mut layout = Layout::with(|_, _| {});
    let manifest = layout.index[0]["digest"].as_str().unwrap().to_owned();
    layout.files.remove(&manifest.replace("sha256:", "blobs/sha256/"));
    refused(layout, &[&manifest, "is missing"]);
    let mut layout = Layout::with(|_, _| {});
    let lost = json!({"mediaType": format!("{OCI}.layer.v1.tar"), "digest": other, "size": 8});
    let broken = layout.manifest(&[lost]);
    let index = layout.index(&[layout.index[0].clone(), broken]);
    layout.name("example.org/several:1", index);
    refused(layout, &[&other, "is missing"]);
}

#[test]
fn images_of_the_layout_and_of_bundle_json_are_the_same() {
    let change = |change: &dyn Fn(&mut Layout), names: &[&str]| {
        let mut layout = Layout::with(|_, _| {});
        change(&mut layout);
        refused(layout, names);
    };
    change(&|layout| layout.images.clear(), &[NAME, "which nothing else does"]);
    change(
        &|layout| {
            layout
                .images
                .push(json!({"digest": layout.images[0]["digest"], "name": "example.org/none:1"}))
        },
        &["does not name the image example.org/none:1"],
    );
    let digest = format!("sha256:{}", "0".repeat(64));
    change(
        &|layout| layout.images[0]["digest"] = digest.clone().into(),
        &[NAME, &digest],
    );
    change(&|layout| layout.index.clear(), &["does not name the image", NAME]);
    change(
        &|layout| layout.index.push(layout.index[0].clone()),
        &["two images", NAME],
    );
    change(
        &|layout| layout.index[0]["annotations"] = json!({"org.opencontainers.image.ref.name": NAME}),
        &["without the annotation"],
    );
    change(
        &|layout| drop(layout.files.remove("oci-layout")),
        &["oci-layout is missing"],
    );
    change(
        &|layout| {
            drop(
                layout
                    .files
                    .insert("oci-layout".into(), br#"{"imageLayoutVersion":"2.0.0"}"#.to_vec()),
            )
        },
        &["expected 1.0.0"],
    );
    for (bytes, said) in [
        (&b"{}"[..], "cannot be read"),
        (b"", "cannot be read"),
        (b"{\"manifests\":", "cannot be read"),
    ] {
        change(
            &|layout| drop(layout.files.insert("index.json".into(), bytes.to_vec())),
            &[said, "index.json"],
        );
    }
}

#[test]
fn depth_cycles_and_numbers_are_bounded() {
    // As deep as it may be, and one deeper.
    let nested = |levels: usize| {
        let mut layout = Layout::with(|_, _| {});
        let mut deep = layout.index[0].clone();
        for _ in 0..levels {
            deep = layout.index(&[deep]);
        }
        layout.name("example.org/deep:1", deep);
        layout
    };
    accepted(nested(4));
    refused(nested(5), &["is an index in 4 others"]);
    refused(nested(500), &["is an index in 4 others"]);
    // A cycle cannot be written with digests that are right; one that claims to be a cycle is not there.
    let own = format!("sha256:{}", "a".repeat(64));
    let mut layout = Layout::with(|_, _| {});
    let ring = json!({"mediaType": format!("{OCI}.index.v1+json"), "digest": own, "size": 100});
    let ring = layout.index(&[ring]);
    layout.name("example.org/ring:1", ring);
    refused(layout, &[&own, "is missing"]);
    // Each level names the one below 300 times, 8,100,000,000 ways in all: each document is walked once.
    let mut layout = Layout::with(|_, _| {});
    let mut wide = layout.index[0].clone();
    for _ in 0..4 {
        wide = layout.index(&vec![wide; 300]);
    }
    layout.name("example.org/wide:1", wide.clone());
    accepted(layout);
    // Many descriptors that mean many others.
    let mut layout = Layout::with(|_, _| {});
    let wide = layout.index(&vec![layout.index[0].clone(); 15_000]);
    for number in 0..8 {
        layout.name(&format!("example.org/wide:{number}"), wide.clone());
    }
    refused(layout, &["more than 100000 descriptors"]);
    // A document longer than any that is read, and one that nests JSON.
    let mut layout = Layout::with(|_, _| {});
    let long = layout.blob("manifest.v1+json", &vec![b' '; (4 << 20) + 1]);
    layout.name("example.org/long:1", long);
    refused(layout, &["is longer than"]);
    let mut layout = Layout::with(|_, _| {});
    let nest = layout.blob("manifest.v1+json", &vec![b'['; 1 << 20]);
    layout.name("example.org/nest:1", nest);
    refused(layout, &["cannot be read"]);
    // Something that is neither a manifest nor an index.
    let mut layout = Layout::with(|_, _| {});
    let other = layout.blob("layer.v1.tar", b"a layer");
    layout.name("example.org/other:1", other);
    refused(layout, &["media type"]);
}
