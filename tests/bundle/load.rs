//! `images load`: the images of an extracted bundle into a containerd, a real one and one that fails on demand.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::workbench::{AMD64, OWN, Ran, Workbench, bytes, elf, tree, unshared};

const TOP: &str = "quantykube-0.1.0-linux-amd64";
const OCI: &str = "application/vnd.oci.image";
const NAMES: [&str; 3] = ["example.org/a:1", "example.org/b:1", "example.org/c:1"];

/// A layer that a runtime can unpack.
fn layer(name: &str, length: usize) -> (Vec<u8>, String) {
    let mut archive = Vec::new();
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    header[124..135].copy_from_slice(format!("{length:011o}").as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend(header);
    archive.extend(bytes(length, length as u64));
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    let mut zipped = GzEncoder::new(Vec::new(), Compression::fast());
    zipped.write_all(&archive).unwrap();
    (zipped.finish().unwrap(), digest(&archive))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// A workbench with a bundle of three images, which share a layer, and `ctr` as the given script; extracted.
fn bench(ctr: &str) -> Workbench {
    let bench = Workbench::new();
    // A small one: nobody runs it here.
    bench.put("quantykube", &elf(AMD64, false, 100_000, 1));
    let shared = layer("shared", 300_000);
    let mut index = Vec::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let layers = [shared.clone(), layer("own", 1000 * (number + 1))];
        let put = |bytes: &[u8]| bench.put(&format!("layout/blobs/{}", digest(bytes).replace(':', "/")), bytes);
        let part = |kind: &str, bytes: &[u8]| {
            put(bytes);
            json!({"mediaType": format!("{OCI}.{kind}"), "digest": digest(bytes), "size": bytes.len()})
        };
        let ids: Vec<&String> = layers.iter().map(|(_, id)| id).collect();
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}});
        let layers: Vec<Value> = layers
            .iter()
            .map(|(bytes, _)| part("layer.v1.tar+gzip", bytes))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": format!("{OCI}.manifest.v1+json"),
            "config": part("config.v1+json", config.to_string().as_bytes()),
            "layers": layers,
        });
        let mut descriptor = part("manifest.v1+json", manifest.to_string().as_bytes());
        descriptor["annotations"] = json!({"io.containerd.image.name": name});
        index.push(descriptor);
    }
    bench.put("layout/oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    bench.put(
        "layout/index.json",
        json!({"schemaVersion": 2, "manifests": index}).to_string().as_bytes(),
    );
    bench.put(
        "ctr",
        ctr.replace("STATE", bench.path("state").to_str().unwrap()).as_bytes(),
    );
    fs::create_dir(bench.path("state")).unwrap();
    let images: Vec<String> = NAMES
        .iter()
        .map(|name| format!("{{name: '{name}', ociLayout: layout}}"))
        .collect();
    let spec = format!(
        "{OWN}binaries: [{{name: ctr, path: ctr}}]\nimages: [{}]\n",
        images.join(", ")
    );
    bench.build(&spec).ok();
    bench.run(&["extract", "out/b.tar.gz", "out"]).ok();
    fs::hard_link(quantykube_tests::program("quantykube"), bench.path("runner"))
        .or_else(|_| fs::copy(quantykube_tests::program("quantykube"), bench.path("runner")).map(drop))
        .unwrap();
    bench
}

fn load(bench: &Workbench, extra: &[&str]) -> Ran {
    let mut command = Command::new(bench.path("runner"));
    command
        .args(["images", "load"])
        .arg(format!("out/{TOP}"))
        .args(["--address", "c.sock"])
        .args(extra);
    // What a node may have set for everybody; none of it is ctr's business.
    command
        .env("HTTPS_PROXY", "http://192.0.2.1:9")
        .env("CONTAINERD_NAMESPACE", "other");
    command.current_dir(bench.path("")).output().unwrap().into()
}

/// What was said of images: the event and the name.
fn told(ran: &Ran) -> Vec<(String, String)> {
    let events = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = events.filter(|event| event["event"] == "step");
    let pairs = events.map(|event| {
        let message = event["message"].as_str().unwrap();
        let name = message
            .split_whitespace()
            .find(|word| word.starts_with("example.org"))
            .unwrap();
        (event["name"].as_str().unwrap().to_owned(), name.to_owned())
    });
    pairs.collect()
}

fn states(words: [&str; 3]) -> Vec<(String, String)> {
    words
        .into_iter()
        .map(String::from)
        .zip(NAMES.map(String::from))
        .collect()
}

/// Keeps a list of images in a file, as `ctr images check` prints it. The file `fail` names the import that fails.
const FAKE: &str = r#"#!/bin/sh
set -e
cd STATE
echo "$@" >> calls
env >> environment
case "$6" in
check)
    test -e silent && exec sleep 600
    cat rows 2>/dev/null || true ;;
import)
    n=$(($(cat imports 2>/dev/null || echo 0) + 1))
    echo $n > imports
    case "$(cat fail 2>/dev/null)" in
    $n) head -c 1000 >/dev/null; echo 'ctr: failed to copy: no space left on device' >&2; exit 1 ;;
    lies) cat >/dev/null; exit 0 ;;
    deaf) exec sleep 600 ;;
    esac
    cat > archive-$n
    tar -xOf archive-$n index.json | sed 's/.*"io.containerd.image.name":"\([^"]*\)".*"digest":"\([^"]*\)".*/\1 type \2 complete (2\/2)/' >> rows
    echo >> rows
    test "$(cat fail 2>/dev/null)" != late || { echo 'ctr: context deadline exceeded' >&2; exit 1; } ;;
esac
"#;

#[test]
fn what_fails_in_the_middle_leaves_whole_images_and_goes_on() {
    let bench = bench(FAKE);
    let _socket = UnixListener::bind(bench.path("c.sock")).unwrap();
    let bundle = tree(&bench.path("out"));
    // The first one fails: nothing was changed.
    bench.put("state/fail", b"1");
    load(&bench, &[]).failed(
        1,
        &[
            NAMES[0],
            "0 of 3 images are there",
            "no space left on device",
            "goes on from here",
        ],
    );
    assert!(!bench.path("state/rows").exists());
    fs::remove_file(bench.path("state/imports")).unwrap();
    // The second one fails.
    bench.put("state/fail", b"2");
    let ran = load(&bench, &["--json"]);
    assert_eq!(ran.code, Some(6), "{} {}", ran.out, ran.err);
    assert_eq!(told(&ran), states(["image-loaded", "", ""])[..1]);
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["exit"]), (&"error".into(), &6.into()), "{last}");
    let said = last["message"].as_str().unwrap();
    assert!(
        said.contains(NAMES[1]) && said.contains("1 of 3 images are there, 1 of them loaded now"),
        "{said}"
    );
    // After the cure it goes on, and what is there is not sent again.
    fs::remove_file(bench.path("state/fail")).unwrap();
    let ran = load(&bench, &["--json"]).ok();
    assert_eq!(told(&ran), states(["image-there", "image-loaded", "image-loaded"]));
    let imports = || fs::read_to_string(bench.path("state/imports")).unwrap();
    assert_eq!(imports().trim(), "4");
    let ran = load(&bench, &["--json"]).ok();
    assert_eq!(told(&ran), states(["image-there"; 3]));
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["changed"]),
        (&"result".into(), &false.into()),
        "{last}"
    );
    assert_eq!(imports().trim(), "4");
    // Each archive is one image, whole, and opens with tar.
    let list = Command::new("tar")
        .arg("-tf")
        .arg(bench.path("state/archive-4"))
        .output()
        .unwrap();
    let list = Ran::from(list).ok().out;
    assert_eq!(
        (list.lines().count(), list.matches("blobs/sha256/").count()),
        (6, 4),
        "{list}"
    );
    // A name that stands for another image is given to ours.
    let rows = fs::read_to_string(bench.path("state/rows")).unwrap();
    let digest = rows
        .split_whitespace()
        .find(|word| word.starts_with("sha256:"))
        .unwrap();
    let other = format!("sha256:{}", "0".repeat(64));
    let swapped = rows.lines().map(|line| format!("{line}\n")).collect::<String>();
    bench.put("state/rows", swapped.replace(digest, &other).as_bytes());
    let ran = load(&bench, &[]).ok();
    assert!(
        ran.err.contains(&format!("replaced       {}", NAMES[0])) && ran.err.contains(&other),
        "{}",
        ran.err
    );
    // What the caller had set is not what ctr gets, and each call names the namespace and the socket.
    let environment = fs::read_to_string(bench.path("state/environment")).unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("192.0.2.1") && !environment.contains("other"));
    let calls = fs::read_to_string(bench.path("state/calls")).unwrap();
    assert!(
        calls
            .lines()
            .all(|call| call.starts_with("--address /") && call.contains("/c.sock --namespace k8s.io images ")),
        "{calls}"
    );
    assert!(tree(&bench.path("out")) == bundle, "the bundle is as it was");
}

#[test]
fn a_containerd_that_lies_or_goes_deaf_is_found_out() {
    let bench = bench(FAKE);
    let _socket = UnixListener::bind(bench.path("c.sock")).unwrap();
    bench.put("state/fail", b"lies");
    load(&bench, &[]).failed(
        1,
        &[
            NAMES[0],
            "does not have it",
            "it does not know the name",
            "expected sha256:",
        ],
    );
    // It takes nothing: the pipe is full long before the image is through.
    bench.put("state/fail", b"deaf");
    let begun = Instant::now();
    load(&bench, &["--timeout", "5s"]).failed(1, &[NAMES[0], "ctr was silent for 5 s"]);
    assert!(begun.elapsed() >= Duration::from_secs(5));
    fs::remove_file(bench.path("state/fail")).unwrap();
    let imports = fs::read(bench.path("state/imports")).unwrap();
    bench.put("state/silent", b"");
    load(&bench, &["--timeout", "1s"]).failed(4, &["does not say which images it has", "silent for 1 s", "systemctl"]);
    assert!(
        fs::read(bench.path("state/imports")).unwrap() == imports,
        "nothing was loaded"
    );
    // It says no when the image is in: something was changed.
    fs::remove_file(bench.path("state/silent")).unwrap();
    bench.put("state/fail", b"late");
    load(&bench, &[]).failed(6, &[NAMES[0], "context deadline exceeded", "goes on from here"]);
    assert!(fs::read_to_string(bench.path("state/rows")).unwrap().contains(NAMES[0]));
}

#[test]
fn without_a_containerd_nothing_is_touched() {
    let bench = bench(FAKE);
    let says = |names: &[&str]| {
        let said = [names, &["nothing was touched", "--address"]].concat();
        load(&bench, &[]).failed(4, &said);
        assert!(tree(&bench.path("state")).is_empty(), "nobody was called");
    };
    says(&["there is no containerd at /", "/c.sock"]);
    bench.put("c.sock", b"a file");
    says(&["/c.sock is no socket"]);
    fs::remove_file(bench.path("c.sock")).unwrap();
    drop(UnixListener::bind(bench.path("c.sock")).unwrap());
    says(&["no containerd listens on /", "/c.sock"]);
    // A bundle that is not what it was comes to no containerd.
    fs::remove_file(bench.path("c.sock")).unwrap();
    let _socket = UnixListener::bind(bench.path("c.sock")).unwrap();
    // Without images there is nothing to ask; without ctr nobody who could.
    let load_of = |spec: &str| {
        bench.build(spec).ok();
        bench.run(&["extract", "out/b.tar.gz", "other"]).ok();
        let mut command = Command::new(bench.path("runner"));
        command
            .args(["images", "load"])
            .arg(bench.path(&format!("other/{TOP}")));
        let ran = Ran::from(command.arg("--address").arg(bench.path("c.sock")).output().unwrap());
        fs::remove_dir_all(bench.path("other")).unwrap();
        ran
    };
    let ran = load_of(OWN).ok();
    assert!(ran.out.contains("this bundle holds no images"), "{}", ran.out);
    let folders = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ];
    match folders.iter().any(|folder| PathBuf::from(folder).join("ctr").exists()) {
        true => quantykube_tests::skipped(
            "without_a_containerd_nothing_is_touched",
            "this machine has a ctr: a node without one is not tried",
        ),
        false => {
            let spec = format!("{OWN}images: [{{name: '{}', ociLayout: layout}}]\n", NAMES[0]);
            load_of(&spec).failed(
                4,
                &[
                    "there is no ctr in /usr/local/sbin",
                    "nothing was touched",
                    "as the binary ctr",
                ],
            );
        }
    }
    let blobs = bench.path(&format!("out/{TOP}/images/blobs/sha256"));
    let blob = fs::read_dir(blobs).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[0] ^= 1;
    fs::write(&blob, bytes).unwrap();
    load(&bench, &[]).failed(3, &["images/blobs/sha256/"]);
    assert!(tree(&bench.path("state")).is_empty(), "nobody was called");
}

/// A containerd of its own in the workbench, without the part that the kubelet talks to. None, said loudly, where there is
/// none or it cannot run.
fn containerd(bench: &Workbench, test: &str) -> Option<quantykube_tests::Server> {
    let program = peer("containerd");
    if !program.is_file() || !peer("ctr").is_file() {
        quantykube_tests::skipped(test, "containerd is not there; scripts/peers containerd ctr builds it");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        quantykube_tests::skipped(test, "containerd unpacks images as root alone");
        return None;
    }
    let path = |name: &str| bench.path(name).display().to_string();
    let off = [
        "cri.v1.images",
        "cri.v1.runtime",
        "grpc.v1.cri",
        "podsandbox.controller.v1.podsandbox",
        "nri.v1.nri",
    ];
    let off: Vec<String> = off.iter().map(|name| format!("\"io.containerd.{name}\"")).collect();
    let config = format!(
        "version = 3\nroot = \"{}\"\nstate = \"{}\"\ndisabled_plugins = [{}]\n[grpc]\naddress = \"{}\"\n[ttrpc]\naddress = \"{}\"\n",
        path("root"),
        path("run"),
        off.join(", "),
        path("c.sock"),
        path("t.sock")
    );
    bench.put("containerd.toml", config.as_bytes());
    let mut command = Command::new(program);
    command
        .arg("--config")
        .arg(bench.path("containerd.toml"))
        .args(["--log-level", "warn"]);
    let mut server = quantykube_tests::Server::start(&mut command, &bench.path("containerd.log"));
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(bench.path("c.sock")).is_err() {
        assert!(server.ended().is_none(), "containerd ended: {}", server.log_end());
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", server.log_end());
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

fn peer(name: &str) -> PathBuf {
    quantykube_tests::places::cache().join("peers/bin").join(name)
}

#[test]
fn a_real_containerd_takes_them_and_needs_no_network() {
    let test = "a_real_containerd_takes_them_and_needs_no_network";
    let real = format!("#!/bin/sh\nexec {} \"$@\"\n", peer("ctr").display());
    let bench = bench(&real);
    let Some(mut server) = containerd(&bench, test) else {
        return;
    };
    let ctr = |args: &str| {
        let mut command = Command::new(peer("ctr"));
        command
            .arg("--address")
            .arg(bench.path("c.sock"))
            .args(["--namespace", "k8s.io", "images"])
            .args(args.split(' '));
        Ran::from(command.output().unwrap()).ok().out
    };
    let ran = load(&bench, &["--json"]).ok();
    assert_eq!(told(&ran), states(["image-loaded"; 3]), "{}", server.log_end());
    let checked = ctr("check");
    for name in NAMES {
        let row = checked
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{checked}"));
        assert!(
            row.contains("complete (3/3)") && row.trim_end().ends_with("true"),
            "unpacked: {row}"
        );
    }
    let ran = load(&bench, &["--json"]).ok();
    assert_eq!(told(&ran), states(["image-there"; 3]));
    // One is gone, one name stands for another image.
    ctr(&format!("rm --sync {} {}", NAMES[0], NAMES[1]));
    ctr(&format!("tag {} {}", NAMES[2], NAMES[1]));
    // As a node without any network, and seen by the kernel: no address but the socket's.
    let command = format!("./runner images load out/{TOP} --address c.sock --json");
    let script = format!("strace -f -qq -e trace=network -o trace {command}");
    let offline = unshared(&bench, test, &["--net"], &script);
    if offline.is_some() {
        let trace = fs::read_to_string(bench.path("trace")).unwrap();
        assert!(trace.contains("AF_UNIX") && !trace.contains("AF_INET"), "{trace}");
    }
    let ran = offline.unwrap_or_else(|| load(&bench, &["--json"])).ok();
    assert_eq!(told(&ran), states(["image-loaded", "image-replaced", "image-there"]));
    assert_eq!(ctr("check").matches("complete (3/3)").count(), 3);
    // It is gone: said, and nothing hangs.
    server.kill();
    load(&bench, &[]).failed(4, &["no containerd listens on /", "/c.sock"]);
}
