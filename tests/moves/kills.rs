//! kill -9 of `run`: the next `./run undo store` puts the node right.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use quantykube_test_node::Spawned;
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, STORE};

#[test]
fn killed_at_five_places_an_install_is_put_back() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let mut before = bench.objects();
    for place in ["gone", "copy", "unit", "return", "ready"] {
        kill_at(&bench, "install", place);
        let status = bench.status();
        assert_eq!(
            status["openMove"],
            status["journals"].as_array().unwrap().last().unwrap()["id"],
            "{status}"
        );
        let began = Instant::now();
        let said = bench.run(&["undo", "store"]).expect(0);
        let took = began.elapsed();
        bench.node.api_ready(LONG);
        assert_eq!(bench.serves_from(), ETCD, "killed at {place}");
        assert_eq!(bench.manifest(), original, "killed at {place}");
        assert!(!bench.is_active("quantykube-store") && !bench.is_enabled("quantykube-store"));
        assert!(!bench.node.path("/var/lib/quantykube/store/store.qks").exists());
        assert_eq!(bench.status()["openMove"], Value::Null);
        let after = bench.objects();
        let (compared, _) = after.unchanged_since(&before);
        println!(
            "killed at {place}: undo took {:.1} s ({}), {compared} objects as they were",
            took.as_secs_f64(),
            said.last()["journal"]
        );
        before = after;
    }
}

#[test]
fn killed_on_its_way_back_an_undo_is_finished() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    for (round, place) in ["copy-back", "return"].into_iter().enumerate() {
        bench.run(&["install", "store"]).expect(0);
        bench.node.api_ready(LONG);
        assert_eq!(bench.serves_from(), STORE);
        let name = format!("round-{round}");
        bench.kubectl(&["-n", "moves", "create", "configmap", &name, "--from-literal=a=b"]);
        let on_store = bench.objects();
        kill_at(&bench, "undo", place);
        assert_ne!(bench.status()["openMove"], Value::Null);
        bench.run(&["undo", "store"]).expect(0);
        bench.node.api_ready(LONG);
        assert_eq!(bench.serves_from(), ETCD, "killed at {place}");
        assert_eq!(bench.manifest(), original, "killed at {place}");
        let back = bench.objects();
        let written = &back.objects[&format!("configmaps moves/{name}")];
        assert!(back.revision > on_store.revision);
        println!(
            "undo killed at {place}: finished, {name} is at {} in etcd",
            written.revision
        );
    }
}

/// Starts a move and kills it as soon as it says that it begins the step `place`. Proves that the kill came in time.
fn kill_at(bench: &Bench, verb: &str, place: &str) {
    let mut run = bench.spawn(&[verb, "store"]);
    read_up_to(&mut run, place);
    // Somewhere inside of the step, not always at its beginning.
    std::thread::sleep(Duration::from_millis(20));
    let status = run.kill();
    assert_eq!(nsenter_signal(status), Some(9), "the kill came too late: {status}");
}

/// Reads what a run says up to the beginning of the step `place`, and not a byte more.
pub fn read_up_to(run: &mut Spawned, place: &str) -> Vec<Value> {
    let output = run.child.stdout.as_mut().unwrap();
    let mut events = Vec::new();
    loop {
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        assert!(!line.is_empty(), "the move ended before the step {place}: {events:#?}");
        let event: Value = serde_json::from_slice(&line).unwrap();
        let reached = event["event"] == "step" && event["name"] == place;
        events.push(event);
        if reached {
            return events;
        }
    }
}

/// The signal that ended a program in the node: nsenter passes it on as its own end or as 128 + the number.
fn nsenter_signal(status: std::process::ExitStatus) -> Option<i32> {
    status.signal().or(status.code().and_then(|code| code.checked_sub(128)))
}
