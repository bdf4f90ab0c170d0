//! What the node-runner takes and refuses, with the trusted keys of a node of its own: an empty `/etc` in a namespace.

use std::fs;

use crate::workbench::{OWN, Ran, Workbench, unshared};

const TOP: &str = "quantykube-0.1.0-linux-amd64";

/// A workbench with the node-runner as `runner`, the keys `mine` and `other`, and three bundles: `mine`, `other` and
/// `none`, as archives and as folders. The program in each folder is the runner, which no bundle lists: so whatever is
/// looked at after the signature is found wrong.
fn bench() -> Workbench {
    let bench = Workbench::new();
    fs::copy(quantykube_tests::program("quantykube"), bench.path("runner")).unwrap();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    for key in ["mine", "other"] {
        bench.run(&["keygen", "--no-password", "-o", key]).ok();
        let (file, key) = (format!("{key}.tar.gz"), format!("{key}.key"));
        bench.run(&["build", "spec.yaml", "-o", &file, "--sign", &key]).ok();
    }
    bench.run(&["build", "spec.yaml", "-o", "none.tar.gz"]).ok();
    for name in ["mine", "other", "none"] {
        bench.run(&["extract", &format!("{name}.tar.gz"), name]).ok();
        fs::copy(bench.path("runner"), bench.path(&format!("{name}/{TOP}/run"))).unwrap();
    }
    bench
}

/// Runs `script` where `/etc/quantykube/trusted-keys` holds the keys named. `None`, said loudly, where this machine does
/// not let us mount.
fn on_a_node(bench: &Workbench, test: &str, keys: &[&str], script: &str) -> Option<Ran> {
    let keys: String = keys
        .iter()
        .map(|key| format!("cp {key}.pub /etc/quantykube/trusted-keys/\n"))
        .collect();
    let script = format!("mount -t tmpfs none /etc || exit 99\nmkdir -p /etc/quantykube/trusted-keys\n{keys}{script}");
    unshared(bench, test, &["--mount"], &script)
}

#[test]
fn a_node_without_trusted_keys_takes_every_whole_bundle() {
    let bench = bench();
    for name in ["mine", "other", "none"] {
        let script = format!("./runner verify {name}.tar.gz");
        let test = "a_node_without_trusted_keys_takes_every_whole_bundle";
        let Some(ran) = on_a_node(&bench, test, &[], &script) else {
            return;
        };
        let ran = ran.ok();
        assert!(ran.out.contains("signed by: not checked"), "{}", ran.out);
    }
}

#[test]
fn with_a_trusted_key_the_signature_comes_before_all_else() {
    let bench = bench();
    let test = "with_a_trusted_key_the_signature_comes_before_all_else";
    let Some(ran) = on_a_node(&bench, test, &["mine"], "./runner verify mine.tar.gz") else {
        return;
    };
    assert!(ran.ok().out.contains("signed by: "));
    let Some(ran) = on_a_node(&bench, test, &["mine", "other"], "./runner verify other.tar.gz") else {
        return;
    };
    ran.ok();
    // Each verb that reads a bundle; the folder's program is another than the bundle lists, which is never reached.
    for verb in ["verify", "plan store", "install store"] {
        for (name, said) in [("none", "is not signed"), ("other", "it is signed with the key")] {
            let script = format!("cd {name}/{TOP} && ./run {verb}");
            let Some(ran) = on_a_node(&bench, test, &["mine"], &script) else {
                return;
            };
            ran.failed(3, &[said]);
            assert!(!ran.err.contains("sha256 is"), "{verb}: {}", ran.err);
        }
        let script = format!("cd mine/{TOP} && ./run {verb}");
        let Some(ran) = on_a_node(&bench, test, &["mine"], &script) else {
            return;
        };
        ran.failed(3, &["run"]);
        assert!(!ran.err.contains("signed"), "{verb}: {}", ran.err);
    }
    for name in ["none", "other"] {
        let script = format!("./runner verify {name}.tar.gz");
        let Some(ran) = on_a_node(&bench, test, &["mine"], &script) else {
            return;
        };
        ran.failed(3, &["signed"]);
    }
}

#[test]
fn a_key_on_the_command_line_takes_the_place_of_the_trusted_ones() {
    let bench = bench();
    let test = "a_key_on_the_command_line_takes_the_place_of_the_trusted_ones";
    for (key, name, code) in [
        ("other", "other", 0),
        ("other", "mine", 3),
        ("other", "none", 3),
        ("mine", "mine", 0),
    ] {
        let script = format!("./runner verify {name}.tar.gz --public-key {key}.pub");
        let Some(ran) = on_a_node(&bench, test, &["mine"], &script) else {
            return;
        };
        assert_eq!(ran.code, Some(code), "{name} with {key}: {}{}", ran.out, ran.err);
    }
    let script = "./runner verify mine.tar.gz --public-key nothing";
    let Some(ran) = on_a_node(&bench, test, &["mine"], script) else {
        return;
    };
    ran.failed(2, &["--public-key names no key"]);
}

#[test]
fn a_trusted_key_that_cannot_be_read_opens_no_door() {
    let bench = bench();
    let test = "a_trusted_key_that_cannot_be_read_opens_no_door";
    let script = "echo nonsense > /etc/quantykube/trusted-keys/bad.pub; ./runner verify none.tar.gz";
    let Some(ran) = on_a_node(&bench, test, &[], script) else {
        return;
    };
    ran.failed(4, &["trusted key", "bad.pub", "cannot be used"]);
}

#[test]
fn taking_the_signature_out_of_a_folder_makes_it_unsigned() {
    let bench = bench();
    bench.run(&["extract", "mine.tar.gz", "whole"]).ok();
    let test = "taking_the_signature_out_of_a_folder_makes_it_unsigned";
    let Some(ran) = on_a_node(&bench, test, &["mine"], &format!("./runner verify whole/{TOP}")) else {
        return;
    };
    ran.ok();
    let signature = bench.path(&format!("whole/{TOP}/SHA256SUMS.minisig"));
    let whole = fs::read(&signature).unwrap();
    let mut bad = whole.clone();
    bad[60] ^= 1;
    fs::write(&signature, &bad).unwrap();
    let Some(ran) = on_a_node(&bench, test, &["mine"], &format!("./runner verify whole/{TOP}")) else {
        return;
    };
    ran.failed(3, &[]);
    fs::remove_file(&signature).unwrap();
    let Some(ran) = on_a_node(&bench, test, &["mine"], &format!("./runner verify whole/{TOP}")) else {
        return;
    };
    ran.failed(3, &["is not signed"]);
    // Without a trusted key it is the unsigned bundle with the same id, and whole.
    let Some(ran) = on_a_node(&bench, test, &[], &format!("./runner verify whole/{TOP}")) else {
        return;
    };
    ran.ok();
}
