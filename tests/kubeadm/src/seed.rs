//! A first boot: cloud-init finds a seed with a signed bundle, and the node moves with nobody there.

use std::path::Path;
use std::time::{Duration, Instant};

use quantykube_test_vm::{Disk, Vm};
use serde_json::{Value, json};

use crate::bench::{Bench, ETCD, LONG, STORE};
use crate::keys;
use crate::tally::Tally;

const OUTCOME: &str = "cat /var/lib/quantykube/first-boot/outcome.json";

/// Boots the cluster's node with the seed; `long`: and once more.
pub fn first_boot(seed: &Path, tally: &mut Tally, long: bool) {
    let begun = Instant::now();
    let mut bench = Bench::bare(Vm::boot_with(Disk::Node, Some(seed)));
    println!(
        "scripts run {:.0} s after the power was on",
        begun.elapsed().as_secs_f64()
    );
    let said = ended(&bench);
    println!(
        "cloud-init had ended {:.0} s after the power was on: {said}",
        begun.elapsed().as_secs_f64()
    );
    tally.check("cloud-init is done", said.contains("status: done"), || {
        let journal = "journalctl -u quantykube-first-boot -u cloud-final --no-pager | tail -n 40";
        format!("{said}\n{}", bench.vm.run(journal).out)
    });
    let outcome = bench.vm.run(OUTCOME).out;
    let read: Value = serde_json::from_str(&outcome).unwrap_or(Value::Null);
    tally.same("the first boot's outcome", &read["outcome"], &json!("done"));
    bench.serves();
    tally.same(
        "the API server runs on the store",
        &bench.serves_from().as_str(),
        &STORE,
    );
    let now = status(&bench);
    tally.same("status says where the data lives", &now["data"], &json!("store"));
    tally.same(
        "status shows the first boot",
        &now["firstBoot"]["outcome"],
        &json!("done"),
    );
    let (revision, etcd) = bench.keys(ETCD, 0);
    let (_, store) = bench.keys(STORE, 0);
    let compared = keys::compare(&etcd, &store, revision);
    tally.check(
        &format!(
            "{} keys are as they were in etcd, {} written since",
            compared.same, compared.own
        ),
        compared.wrong.is_empty() && compared.same > 100,
        || format!("{:?}", compared.wrong.iter().take(8).collect::<Vec<_>>()),
    );

    if !long {
        return;
    }
    // It may be gone before it answers.
    let _ = bench.vm.try_run("systemctl poweroff", Duration::from_secs(5));
    bench.vm.wait_until_off(LONG);
    bench.vm.power_on();
    let said = ended(&bench);
    tally.check(
        "after a second boot cloud-init is done",
        said.contains("status: done"),
        || said.clone(),
    );
    bench.serves();
    tally.same(
        "after it the API server runs on the store",
        &bench.serves_from().as_str(),
        &STORE,
    );
    let moves = status(&bench)["journals"].as_array().map_or(0, Vec::len);
    tally.same("a second boot moves nothing", &moves, &1);
    tally.same("and leaves the outcome as it is", &bench.vm.run(OUTCOME).out, &outcome);
}

/// The same with one byte of the bundle changed: it ends in an error, and nothing is touched.
pub fn broken(seed: &Path, tally: &mut Tally) {
    let mut bytes = std::fs::read(seed).expect("the seed can be read");
    // The bundle takes nearly all of the seed.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let other = folder.path().join("seed.iso");
    std::fs::write(&other, bytes).expect("a seed can be written");
    let bench = Bench::bare(Vm::boot_with(Disk::Node, Some(&other)));
    let said = ended(&bench);
    tally.check(
        "with one byte changed cloud-init ends in an error",
        said.contains("status: error"),
        || said.clone(),
    );
    let read: Value = serde_json::from_str(&bench.vm.run(OUTCOME).out).unwrap_or(Value::Null);
    tally.same(
        "with one byte changed the outcome",
        &read["name"],
        &json!("checksum-differs"),
    );
    bench.serves();
    tally.same("the API server runs on etcd", &bench.serves_from().as_str(), &ETCD);
    let left = "ls /var/lib/quantykube /usr/local/lib/quantykube /etc/systemd/system | grep -E '^(install|store|bundle|[0-9].*|quantykube-(store|guard|recover|resume).*)$'";
    tally.same("nothing of a move is there", &bench.vm.run(left).out.trim(), &"");
}

/// What cloud-init says once it has ended.
fn ended(bench: &Bench) -> String {
    let ended = "cloud-init status | grep -qE 'status: (done|error|disabled)'";
    bench.vm.until("cloud-init ends", ended, LONG);
    bench.vm.run("cloud-init status --long").out
}

/// What the installed program tells.
fn status(bench: &Bench) -> Value {
    let text = bench
        .vm
        .sh("$(ls -d /usr/local/lib/quantykube/*/quantykube | head -n 1) status --json");
    text.lines()
        .last()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("status prints JSON: {text}"))
}
