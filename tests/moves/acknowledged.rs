//! The rule of the acknowledged write: what an API server on the store has acknowledged, also before it said that it was
//! ready, is never given up. No failure leads back to etcd then but undo's full copy.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, STORE, Said};
use crate::kills::read_up_to;

#[test]
fn what_was_acknowledged_before_it_was_ready_is_not_given_up() {
    let bench = Bench::set_up();
    let stop = AtomicBool::new(false);
    let acknowledged = Mutex::new(Vec::<String>::new());
    let said = std::thread::scope(|scope| {
        let mut run = bench.spawn(&["install", "store"]);
        let mut events = read_up_to(&mut run, "return");
        // From here on the move cannot see that the API server is ready: what it asks with says no.
        let installed = bench
            .node
            .run(&["sh", "-c", "ls /usr/local/lib/quantykube/*/quantykube"]);
        let installed = installed.trim();
        bench.node.run(&["cp", installed, "/root/real"]);
        let wrapper = "#!/bin/sh\n[ \"$1\" = api-ready ] && exit 1\nexec /root/real \"$@\"\n";
        std::fs::write(bench.node.path("/root/wrapper"), wrapper).unwrap();
        bench.node.run(&["chmod", "755", "/root/wrapper"]);
        bench.node.run(&["mount", "--bind", "/root/wrapper", installed]);
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) {
                let name = format!("early-{number}");
                let ready = [
                    "kubectl",
                    "--kubeconfig",
                    "/etc/kubernetes/super-admin.conf",
                    "--request-timeout=2s",
                ];
                let write = ["-n", "moves", "create", "configmap", &name, "--from-literal=a=b"];
                let output = bench.node.exec(&[&ready[..], &write].concat());
                if output.status.success() {
                    acknowledged.lock().unwrap().push(name);
                    number += 1;
                } else {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let begun = std::time::Instant::now();
        while acknowledged.lock().unwrap().len() < 3 {
            assert!(begun.elapsed() < LONG, "the API server on the store takes no writes");
            std::thread::sleep(Duration::from_millis(20));
        }
        run.signal(Signal::TERM);
        let said = Said::of(&run.output());
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        events.extend(said.events);
        Said { events, ..said }
    });
    let said = said.expect(6);
    assert!(
        said.events.iter().all(|event| event["name"] != "turn"),
        "it did not turn back: {:#?}",
        said.events
    );
    assert_eq!(bench.serves_from(), STORE);
    bench
        .node
        .run(&["sh", "-c", "umount /usr/local/lib/quantykube/*/quantykube"]);
    let acknowledged = acknowledged.into_inner().unwrap();
    let of_open = bench.status();
    assert_ne!(of_open["openMove"], Value::Null);

    // The way back passes no gate: the move is finished, and then undone by its full copy.
    let undone = bench.run(&["undo", "store"]).expect(0);
    assert!(
        undone.events.iter().any(|event| event["message"]
            .as_str()
            .is_some_and(|m| m.contains("there is no way back"))),
        "the gate said no: {:#?}",
        undone.events
    );
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), ETCD);
    for name in &acknowledged {
        bench.kubectl(&["-n", "moves", "get", "configmap", name]);
    }
    println!(
        "{} writes were acknowledged before the move saw the API server ready; all of them are in etcd after the undo",
        acknowledged.len()
    );
}
