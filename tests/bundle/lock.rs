//! `lock`: digests written down, builds from them alone, and what changed since.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::small_registry::{Fixture, Manner, Small, digest, spec};
use crate::workbench::{AMD64, Ran, Workbench, elf, tree, unshared};

/// Serves what `body` holds at the time, to everybody; a body that is a status, as `404 Not Found`, is one.
fn serve(body: &Arc<Mutex<Vec<u8>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/tool", listener.local_addr().unwrap());
    let body = Arc::clone(body);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            let body = body.lock().unwrap().clone();
            let status = match body.starts_with(b"4") {
                true => String::from_utf8(body.clone()).unwrap(),
                false => "200 OK".into(),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let mut stream = reader.into_inner();
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    url
}

/// A workbench, servers, and a spec that names a tag and a URL without digests.
struct Site {
    bench: Workbench,
    small: Small,
    tool: Arc<Mutex<Vec<u8>>>,
    url: String,
    /// Of the layer of the tag 1 at first.
    layer: String,
    index: String,
    /// The index to which the tag can be moved.
    other: String,
    open: String,
}

fn site() -> Site {
    let bench = Workbench::new();
    let mut fixture = Fixture::new();
    let moved = Fixture::with(b"another layer");
    let (index, layer, other) = (fixture.index.clone(), fixture.layer.clone(), moved.index.clone());
    fixture.manifests.extend(moved.manifests);
    fixture.blobs.extend(moved.blobs);
    let small = Small::start(fixture, Manner::default());
    let tool = Arc::new(Mutex::new(elf(AMD64, true, 60_000, 5)));
    let url = serve(&tool);
    let open = spec(&small.address, "").replace(", digest: ''", "");
    let open = format!("architecture: amd64\n{open}binaries: [{{name: tool, url: '{url}'}}]\n");
    bench.put("spec.yaml", open.as_bytes());
    Site {
        bench,
        small,
        tool,
        url,
        layer,
        index,
        other,
        open,
    }
}

impl Site {
    fn lock(&self, extra: &[&str]) -> Ran {
        self.bench.run(&[&["lock", "spec.yaml"], extra].concat())
    }

    fn write(&self) -> Vec<u8> {
        self.lock(&["--cache", "cache"]).ok();
        fs::read(self.bench.path("quantykube.lock")).unwrap()
    }

    fn locked(&self) -> Ran {
        self.locked_with(&[])
    }

    fn locked_with(&self, extra: &[&str]) -> Ran {
        let args = [
            "build",
            "spec.yaml",
            "-o",
            "out/b.tar.gz",
            "--locked",
            "--cache",
            "cache",
        ];
        self.bench.run(&[&args[..], extra].concat())
    }

    /// The bytes of a locked build, which goes again.
    fn built(&self) -> Vec<u8> {
        self.locked().ok();
        let path = self.bench.path("out/b.tar.gz");
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    }

    /// A locked build is refused, and leaves nothing.
    #[track_caller]
    fn refused(&self, code: i32, names: &[&str]) {
        self.locked().failed(code, names);
        assert!(tree(&self.bench.path("out")).is_empty());
    }

    /// The spec with the digest of its image.
    fn pinned_image(&self) -> String {
        let pinned = format!("/team/web', digest: '{}'", self.index);
        self.open.replace("/team/web'", &pinned)
    }

    /// The spec with all digests.
    fn pinned(&self) -> String {
        let sha256 = digest(&self.tool.lock().unwrap());
        let sha256 = sha256.trim_start_matches("sha256:");
        self.pinned_image().replace(
            &format!("'{}'", self.url),
            &format!("'{}', sha256: '{sha256}'", self.url),
        )
    }
}

#[test]
fn locked_and_unlocked_are_the_same_bytes() {
    let site = site();
    let first = site.write();
    let lock: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(lock["images"][0]["pulled"], site.index.as_str());
    assert_eq!(lock["urls"][0]["url"], site.url.as_str());
    assert!(site.write() == first, "the lock is the same each time");
    let asked = site.small.asked("");
    let locked = site.built();
    assert_eq!(site.small.asked(""), asked, "a locked build asks nobody");
    site.bench.put("pinned.yaml", site.pinned().as_bytes());
    site.bench.run(&["build", "pinned.yaml", "-o", "out/p.tar.gz"]).ok();
    assert!(site.small.asked("") > asked);
    assert!(fs::read(site.bench.path("out/p.tar.gz")).unwrap() == locked);
}

#[test]
fn without_a_network_only_the_locked_build_is_done() {
    let site = site();
    site.write();
    let expected = site.built();
    site.bench.put("pinned.yaml", site.pinned().as_bytes());
    let script = "./quantykube-bundle build pinned.yaml -o out/p.tar.gz 2> failed; test $? = 1 && test ! -e out/p.tar.gz || \
                  { cat failed >&2; exit 50; }\n\
                  ./quantykube-bundle build spec.yaml -o out/b.tar.gz --locked --cache cache";
    let test = "without_a_network_only_the_locked_build_is_done";
    let Some(ran) = unshared(&site.bench, test, &["--net"], script) else {
        return;
    };
    ran.ok();
    let failed = fs::read_to_string(site.bench.path("failed")).unwrap();
    assert!(
        failed.contains(&site.url) || failed.contains(&site.small.address),
        "{failed}"
    );
    assert!(fs::read(site.bench.path("out/b.tar.gz")).unwrap() == expected);
}

#[test]
fn what_changed_is_said_and_not_taken() {
    let site = site();
    let lock = site.write();
    let bundle = site.built();
    let before = tree(&site.bench.path("cache"));
    site.lock(&["--check"]).ok();
    site.small.tags.lock().unwrap().insert("1".into(), site.other.clone());
    let said = [
        "example.org/web:1",
        "the tag 1 was",
        &site.index,
        &site.other,
        "1 thing changed",
    ];
    site.lock(&["--check"]).failed(1, &said);
    *site.tool.lock().unwrap() = elf(AMD64, true, 70_000, 6);
    let now = digest(&site.tool.lock().unwrap());
    let now = now.trim_start_matches("sha256:");
    let said = [&site.url, "60120 bytes", "70120 with", now, "2 things changed"];
    site.lock(&["--check"]).failed(1, &said);
    assert!(fs::read(site.bench.path("quantykube.lock")).unwrap() == lock);
    assert!(tree(&site.bench.path("cache")) == before, "a check writes nothing");
    assert!(site.built() == bundle, "the locked build is the old one");
    assert!(site.write() != lock);
    site.lock(&["--check"]).ok();
    assert!(site.built() != bundle);
}

#[test]
fn a_cache_that_is_not_whole_is_refused() {
    let site = site();
    site.refused(4, &["there is no quantykube.lock", "quantykube-bundle lock SPEC"]);
    site.write();
    let bundle = site.built();
    let tool = digest(&site.tool.lock().unwrap());
    let of_image = |digest: &str| (digest.to_owned(), "example.org/web:1".to_owned());
    let blobs = BTreeMap::from([of_image(&site.index), of_image(&site.layer), (tool, site.url.clone())]);
    for (digest, name) in blobs {
        let path = site.bench.path(&format!("cache/blobs/{}", digest.replace(':', "/")));
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[20] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let says = [digest.as_str(), &name, "quantykube-bundle lock SPEC"];
        site.refused(3, &[&says[..], &["damaged"]].concat());
        assert!(fs::read(&path).unwrap() == damaged, "a locked build changes no cache");
        fs::remove_file(&path).unwrap();
        site.refused(4, &[&says[..], &["lacks"]].concat());
        site.write();
        assert!(fs::read(&path).unwrap() == whole);
    }
    assert!(site.built() == bundle);
}

#[test]
fn a_spec_that_is_not_the_locked_one_is_refused() {
    let site = site();
    site.write();
    let put = |text: &str| site.bench.put("spec.yaml", text.as_bytes());
    put(&site.open.replace(
        "binaries: [",
        "binaries: [{name: more, url: 'http://127.0.0.1:1/more'}, ",
    ));
    site.refused(
        4,
        &["http://127.0.0.1:1/more", "not in the lock", "quantykube-bundle lock"],
    );
    put(&site
        .open
        .replace("images: [", "images: [{name: 'example.org/more:2'}, "));
    site.refused(4, &["example.org/more:2", "not in the lock"]);
    put(&site.pinned().replace(&site.index, &site.other));
    site.refused(4, &["example.org/web:1", &site.index, &site.other]);
    put(&site.open.replace("amd64", "arm64"));
    site.refused(4, &["the lock is for amd64", "arm64"]);
    put(&site.open.replace("binaries: [{name: tool", "binaries: [{name: renamed"));
    site.locked().ok();
    put(&site
        .open
        .lines()
        .filter(|line| !line.starts_with("binaries"))
        .collect::<Vec<_>>()
        .join("\n"));
    site.lock(&["--check"])
        .failed(1, &[&site.url, "not in the spec any more"]);
}

#[test]
fn what_is_gone_upstream_is_said() {
    let site = site();
    let lock = site.write();
    let bundle = site.built();
    for status in ["404 Not Found", "410 Gone"] {
        *site.tool.lock().unwrap() = status.into();
        let said = [&site.url, "is not there any more", "1 thing changed"];
        site.lock(&["--check"]).failed(1, &said);
        // Another lock cannot be written, and the old one stays.
        site.lock(&["--cache", "cache"]).failed(1, &[&site.url, &status[..3]]);
    }
    site.small.tags.lock().unwrap().clear();
    let said = [
        "example.org/web:1",
        "its tag is not in",
        "/team/web any more",
        "2 things changed",
    ];
    site.lock(&["--check"]).failed(1, &said);
    // A digest that is pinned, in a repository that is gone.
    let pinned = site.pinned_image().replace("/team/web'", "/team/gone'");
    site.bench.put("gone.yaml", pinned.as_bytes());
    let gone = String::from_utf8(lock.clone())
        .unwrap()
        .replace("/team/web\"", "/team/gone\"");
    site.bench.put("gone.lock", gone.as_bytes());
    let args = ["lock", "gone.yaml", "--check", "--lock-file", "gone.lock"];
    let said = ["example.org/web:1", &site.index, "/team/gone any more"];
    site.bench.run(&args).failed(1, &said);
    // A server that is ill says nothing about what is there.
    *site.tool.lock().unwrap() = "403 Forbidden".into();
    let ran = site.lock(&["--check"]);
    ran.failed(1, &[&site.url, "403"]);
    assert!(!ran.err.contains("changed"), "{}", ran.err);
    assert!(fs::read(site.bench.path("quantykube.lock")).unwrap() == lock);
    assert!(site.built() == bundle, "what is gone is still in the cache");
}

#[test]
fn a_tag_needs_a_lock() {
    let site = site();
    let names = [site.url.as_str(), "no sha256", "--locked"];
    let build = ["build", "spec.yaml", "-o", "out/b.tar.gz"];
    site.bench.run(&build).failed(2, &names);
    let tag = site.open.replace("binaries:", "#");
    site.bench.put("tag.yaml", tag.as_bytes());
    let names = [
        "example.org/web:1",
        "no digest",
        "a tag may be another image tomorrow",
        "--locked",
    ];
    site.bench
        .run(&["build", "tag.yaml", "-o", "out/b.tar.gz"])
        .failed(2, &names);
    assert!(tree(&site.bench.path("out")).is_empty());
    assert_eq!(site.small.asked(""), 0, "a tag without a lock is not asked for");
    site.write();
    site.built();
}

#[test]
fn what_is_new_in_the_spec_is_said() {
    let site = site();
    let lock = site.write();
    let more = site.open.replace(
        "binaries: [",
        "binaries: [{name: more, url: 'http://127.0.0.1:1/more'}, ",
    );
    let more = more.replace("images: [", "images: [{name: 'example.org/more:2'}, ");
    let pinned = format!("'{}', sha256: '{}'", site.url, "0".repeat(64));
    let more = more.replace(&format!("'{}'", site.url), &pinned);
    let more = more.replace("/team/web'", &format!("/team/web', digest: '{}'", site.other));
    site.bench.put("spec.yaml", more.as_bytes());
    let said = [
        "url http://127.0.0.1:1/more is new in the spec",
        "image example.org/more:2 from example.org/more is new in the spec",
        &format!(
            "image example.org/web:1: the spec has {}, the lock {}",
            site.other, site.index
        ),
        &format!("url {}: the spec has sha256 {}", site.url, "0".repeat(64)),
        "4 things changed",
    ];
    site.lock(&["--check"]).failed(1, &said);
    let json = site.lock(&["--check", "--json"]);
    assert_eq!(json.code, Some(1));
    let events: Vec<Value> = json
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let changed = events.iter().filter(|event| event["name"] == "changed");
    assert_eq!(changed.count(), 5, "4 and the end: {}", json.out);
    assert!(fs::read(site.bench.path("quantykube.lock")).unwrap() == lock);
}

/// Runs `lock` where the kernel ends it at the first write beyond `kib` KiB of a file: a crash in the middle of a write.
fn crashes(site: &Site, spec: &str, kib: u32) {
    use std::os::unix::process::ExitStatusExt;
    let script = format!("ulimit -c 0; ulimit -f {kib}; exec ./quantykube-bundle lock {spec} --cache cache");
    let ran = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(site.bench.path(""))
        .output()
        .unwrap();
    assert_eq!(
        ran.status.signal(),
        Some(25),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn a_crash_at_a_write_leaves_the_old_lock_and_cache() {
    let site = site();
    let lock = site.write();
    let bundle = site.built();
    let before = tree(&site.bench.path("cache"));
    let whole = |name: &std::path::Path| !name.file_name().unwrap().as_encoded_bytes().starts_with(b".");
    // In the middle of a blob: 60 KB into 16 KiB.
    *site.tool.lock().unwrap() = elf(AMD64, true, 60_001, 7);
    crashes(&site, "spec.yaml", 16);
    let mut after = tree(&site.bench.path("cache"));
    let entries = after.len();
    after.retain(|path, _| whole(path));
    assert!(entries > after.len() && after == before, "a half blob has no name");
    assert!(fs::read(site.bench.path("quantykube.lock")).unwrap() == lock);
    assert!(site.built() == bundle);
    // In the middle of the lock: more than 1 KiB of it, and all blobs are there.
    let mut pinned = site.pinned();
    let sha256 = digest(&site.tool.lock().unwrap());
    for number in 0..12 {
        let (url, sha256) = (&site.url, sha256.trim_start_matches("sha256:"));
        let more = format!("binaries: [{{name: tool{number}, url: '{url}?{number}', sha256: '{sha256}'}}, ");
        pinned = pinned.replace("binaries: [", &more);
    }
    site.bench.put("pinned.yaml", pinned.as_bytes());
    let other = ["lock", "pinned.yaml", "--cache", "cache", "--lock-file", "other.lock"];
    site.bench.run(&other).ok();
    assert!(
        tree(&site.bench.path("cache")).keys().all(|path| whole(path)),
        "what the killed run left is gone"
    );
    crashes(&site, "pinned.yaml", 1);
    assert!(
        site.bench.path(".quantykube.lock.quantykube-new").exists(),
        "it ended at the lock"
    );
    assert!(fs::read(site.bench.path("quantykube.lock")).unwrap() == lock);
    assert!(site.built() == bundle);
    let new = fs::read(site.bench.path("other.lock")).unwrap();
    site.bench.run(&["lock", "pinned.yaml", "--cache", "cache"]).ok();
    assert!(fs::read(site.bench.path("quantykube.lock")).unwrap() == new && new != lock);
    assert!(!site.bench.path(".quantykube.lock.quantykube-new").exists());
}

#[test]
fn a_lock_has_what_is_optional_and_a_build_asks_for_what_it_takes() {
    let site = site();
    let part = site.open.replace("binaries: ", "parts: [{name: tools, binaries: ");
    site.bench
        .put("spec.yaml", format!("{}}}]\n", part.trim_end()).as_bytes());
    site.write();
    let built = |extra: &[&str]| {
        let ran = site.locked_with(extra);
        let _ = fs::remove_file(site.bench.path("out/b.tar.gz"));
        ran
    };
    built(&["--with", "tools"]).ok();
    // Without the part its blob is not missed.
    let sha256 = digest(&site.tool.lock().unwrap());
    fs::remove_file(site.bench.path(&format!("cache/blobs/{}", sha256.replace(':', "/")))).unwrap();
    built(&[]).ok();
    built(&["--with", "tools"]).failed(4, &[&site.url, "lacks"]);
}
