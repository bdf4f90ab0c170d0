//! User-data and seeds, judged by cloud-init itself and by what reads disks: the kernel, xorriso, blkid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workbench::{Ran, Workbench, unshared};

/// Debian's own cloud-init. `None`, said loudly, where it is not there.
fn cloud_init(test: &str, arguments: &[&str], folder: &Path) -> Option<Ran> {
    let Some(modules) = quantykube_tests::cloud_init() else {
        quantykube_tests::skipped(
            test,
            "cloud-init is not there; scripts/peers debian-cloud-init unpacks it",
        );
        return None;
    };
    // Debian's Python, whose version its packages are for.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "cloudinit.cmd.main"]).args(arguments);
    Some(
        command
            .env("PYTHONPATH", modules)
            .current_dir(folder)
            .output()
            .unwrap()
            .into(),
    )
}

fn schema(test: &str, bench: &Workbench, file: &str) -> Option<Ran> {
    cloud_init(test, &["schema", "--config-file", file], &bench.path(""))
}

const KUBEADM: &str = "apiVersion: kubeadm.k8s.io/v1beta3\nkind: InitConfiguration\n---\nkind: ClusterConfiguration\n";

/// A workbench with a signed bundle, `out/b.tar.gz`, and `site.pub`.
fn signed() -> Workbench {
    let bench = Workbench::new();
    bench.run(&["keygen", "--no-password", "-o", "site"]).ok();
    bench.build_signed("site.key", &[]).ok();
    bench.put("kubeadm.yaml", KUBEADM.as_bytes());
    bench
}

#[test]
fn cloud_init_finds_nothing_wrong() {
    let test = "cloud_init_finds_nothing_wrong";
    let bench = signed();
    for platform in ["nocloud", "ec2", "openstack", "azure", "vsphere"] {
        let file = format!("{platform}.yaml");
        let most = [
            "--public-key",
            "site.pub",
            "--kubeadm-config",
            "kubeadm.yaml",
            "--role",
            "control-plane",
        ];
        let mut arguments = vec![
            "user-data",
            "--platform",
            platform,
            "--bundle",
            "out/b.tar.gz",
            "-o",
            &file,
        ];
        arguments.extend(most);
        bench.run(&arguments).ok();
        let text = fs::read_to_string(bench.path(&file)).unwrap();
        assert!(!text.contains("/tmp"), "{text}");
        assert_eq!(text.matches("\nruncmd:\n- ").count(), 1, "{text}");
        assert!(
            text.trim_end().ends_with("begin]"),
            "one command, and nothing after it: {text}"
        );
        let Some(ran) = schema(test, &bench, &file) else { return };
        let ran = ran.ok();
        assert!(ran.out.contains("Valid cloud-config"), "{}{}", ran.out, ran.err);
    }
    // The judge does find what is wrong.
    let text = fs::read_to_string(bench.path("ec2.yaml")).unwrap();
    bench.put(
        "bad.yaml",
        text.replace("permissions: '0755'", "permissions: 493").as_bytes(),
    );
    let ran = schema(test, &bench, "bad.yaml").unwrap();
    assert!(
        ran.code != Some(0) && ran.err.contains("permissions"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn user_data_that_is_too_large_is_refused_with_the_bytes_over() {
    let bench = signed();
    bench.put("long.yaml", format!("a: {}\n", "x".repeat(20_000)).as_bytes());
    let with = |platform: &str, file: &str| {
        let key = ["--public-key", "site.pub", "--kubeadm-config", "long.yaml", "-o", file];
        bench.run(&[&["user-data", "--platform", platform][..], &key].concat())
    };
    let ran = with("ec2", "a");
    ran.failed(4, &["more than ec2 takes", "seed"]);
    assert!(!bench.path("a").exists());
    with("azure", "b").ok();
    assert_eq!(
        fs::metadata(bench.path("b")).unwrap().len(),
        fs::read(bench.path("b")).unwrap().len() as u64
    );
}

#[test]
fn what_the_node_would_run_must_be_said() {
    let bench = signed();
    let user_data = |more: &[&str]| bench.run(&[&["user-data", "--platform", "nocloud", "-o", "u"][..], more].concat());
    user_data(&[]).failed(2, &["which bundle is meant", "--public-key"]);
    user_data(&["--bundle", "out/b.tar.gz", "--bundle-path", "/tmp/b"]).failed(2, &["no boot clears"]);
    user_data(&["--bundle", "out/b.tar.gz", "--label", "a b"]).failed(2, &["the label"]);
    user_data(&["--bundle", "out/b.tar.gz", "--id", &"0".repeat(64)]).failed(3, &["has the id"]);
    // A bad bundle does not travel.
    let mut bytes = fs::read(bench.path("out/b.tar.gz")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bench.put("broken.tar.gz", &bytes);
    user_data(&["--bundle", "broken.tar.gz"]).failed(3, &[]);
    bench
        .run(&["seed", "--bundle", "broken.tar.gz", "-o", "u"])
        .failed(3, &[]);
    bench
        .run(&["seed", "--public-key", "site.pub", "-o", "u"])
        .failed(2, &["would hold no bundle"]);
    assert!(!bench.path("u").exists());
    user_data(&["--public-key", "site.pub"]).ok();
    user_data(&["--public-key", "site.pub"]).failed(4, &["there already"]);
}

/// A seed with the bundle on it.
fn seed(bench: &Workbench, file: &str) -> PathBuf {
    let of = [
        "seed",
        "--bundle",
        "out/b.tar.gz",
        "--public-key",
        "site.pub",
        "--no-network",
        "-o",
        file,
    ];
    bench.run(&of).ok();
    bench.path(file)
}

#[test]
fn the_same_inputs_give_the_same_seed_and_others_another_instance() {
    let bench = signed();
    let (one, two) = (seed(&bench, "one.iso"), seed(&bench, "two.iso"));
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap());
    let text = String::from_utf8_lossy(&fs::read(&one).unwrap()).into_owned();
    let instance = |text: &str| text.split("instance-id: ").nth(1).unwrap()[..27].to_owned();
    let other = [
        "seed",
        "--bundle",
        "out/b.tar.gz",
        "--deadline",
        "5m",
        "-o",
        "three.iso",
    ];
    bench.run(&other).ok();
    let three = String::from_utf8_lossy(&fs::read(bench.path("three.iso")).unwrap()).into_owned();
    assert_ne!(instance(&text), instance(&three));
}

#[test]
fn others_read_the_seed() {
    let test = "others_read_the_seed";
    let bench = signed();
    seed(&bench, "seed.iso");
    let bundle = fs::read(bench.path("out/b.tar.gz")).unwrap();
    let blkid = Ran::from(
        Command::new("/usr/sbin/blkid")
            .args(["-p", "seed.iso"])
            .current_dir(bench.path(""))
            .output()
            .unwrap(),
    )
    .ok();
    assert!(
        blkid.out.contains(" LABEL=\"cidata\"") && blkid.out.contains("iso9660"),
        "{}",
        blkid.out
    );
    let xorriso = Command::new("xorriso")
        .args([
            "-abort_on",
            "WARNING",
            "-read_fs",
            "norock",
            "-indev",
            "seed.iso",
            "-osirrox",
            "on",
        ])
        .args(["-extract", "/", "extracted"])
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    Ran::from(xorriso).ok();
    assert!(fs::read(bench.path("extracted/bundle.tar.gz")).unwrap() == bundle);
    let meta = fs::read_to_string(bench.path("extracted/meta-data")).unwrap();
    assert!(meta.starts_with("instance-id: quantykube-"), "{meta}");
    let user_data = bench.put("u", &fs::read(bench.path("extracted/user-data")).unwrap());
    if let Some(ran) = schema(test, &bench, &user_data.display().to_string()) {
        ran.ok();
    }
    // The kernel's own reader.
    let script = "mkdir m && mount -o loop,ro,norock seed.iso m || exit 99; ls m; cmp m/bundle.tar.gz out/b.tar.gz && cat m/network-config";
    if let Some(ran) = unshared(&bench, test, &["--mount"], script) {
        let ran = ran.ok();
        assert_eq!(
            ran.out,
            "bundle.tar.gz\nmeta-data\nnetwork-config\nuser-data\nversion: 1\nconfig: disabled\n"
        );
    }
}

/// A node: what user-data writes, below a folder; systemd and the disk are told of, not there.
fn on_a_node(test: &str, bench: &Workbench, script: &str) -> Option<Ran> {
    let node = "\
        for folder in /usr/local /var/lib /run /etc; do mount -t tmpfs none $folder || exit 99; done
        mkdir -p /usr/local/lib/quantykube/first-boot /etc/quantykube
        cp start /usr/local/lib/quantykube/first-boot/start\n";
    unshared(bench, test, &["--mount"], &format!("{node}{script}"))
}

/// Takes the script out of user-data as cloud-init's own YAML reader sees it.
fn start_of(bench: &Workbench, user_data: &str) {
    let script = "import sys, yaml\nfor f in yaml.safe_load(open(sys.argv[1]))['write_files']:\n  \
                  if f['path'].endswith('/start'): open('start', 'w').write(f['content'])";
    let python = Command::new("/usr/bin/python3")
        .args(["-c", script, user_data])
        .current_dir(bench.path(""))
        .output();
    Ran::from(python.unwrap()).ok();
}

#[test]
fn one_changed_byte_of_the_bundle_runs_nothing_and_is_an_outcome() {
    let test = "one_changed_byte_of_the_bundle_runs_nothing_and_is_an_outcome";
    let bench = signed();
    let path = bench.path("carried.tar.gz").display().to_string();
    // A temporary folder is no place for a real bundle: this one is moved.
    let of = [
        "--platform",
        "nocloud",
        "--bundle",
        "out/b.tar.gz",
        "--bundle-path",
        "/etc/carried.tar.gz",
        "-o",
        "u",
    ];
    bench.run(&[&["user-data"][..], &of].concat()).ok();
    start_of(&bench, "u");
    let mut bytes = fs::read(bench.path("out/b.tar.gz")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bench.put("carried.tar.gz", &bytes);
    let script = format!(
        "cp {path} /etc/carried.tar.gz
         sh /usr/local/lib/quantykube/first-boot/start; echo code $?
         cat /var/lib/quantykube/first-boot/outcome.json; ls /usr/local/lib/quantykube/first-boot
         cp out/b.tar.gz /etc/carried.tar.gz
         sh /usr/local/lib/quantykube/first-boot/start; echo again $?; ls /usr/local/lib/quantykube/first-boot"
    );
    let Some(ran) = on_a_node(test, &bench, &script) else {
        return;
    };
    let ran = ran.ok();
    assert!(
        ran.out.contains("code 3\n") && ran.out.contains("\"outcome\": \"failed\""),
        "{}{}",
        ran.out,
        ran.err
    );
    assert!(
        ran.out.contains("checksum differs") && ran.out.contains("\"exit\": 3"),
        "{}",
        ran.out
    );
    // The outcome stands: a second boot does nothing, whatever is on the disk then.
    assert!(ran.out.ends_with("}\nstart\nagain 0\nstart\n"), "{}", ran.out);
}
