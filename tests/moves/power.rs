//! The power goes in the middle of a move: after the next boot the API server serves all that was acknowledged, and no
//! move is open, with no act of a person.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, Objects, STORE};
use crate::kills::read_up_to;

#[test]
fn cut_off_in_the_middle_a_node_puts_itself_right() {
    let mut bench = Bench::set_up();
    let original = bench.manifest();
    let mut known = bench.objects();

    bench.node.kill();
    let plain = boot(&mut bench);
    println!("control: killed and booted, the API server is ready {plain:.1} s after the power is on");
    bench.objects().unchanged_since(&known);

    // Where it is cut off, and from where the cluster is served afterwards.
    for (place, sides) in [("gone", &[ETCD]), ("unit", &[ETCD]), ("ready", &[STORE])] {
        if bench.serves_from() == STORE {
            bench.run(&["undo", "store"]).expect(0);
            bench.node.api_ready(LONG);
        }
        assert_eq!(
            (bench.serves_from().as_str(), bench.manifest()),
            (ETCD, original.clone())
        );
        known = bench.objects();
        let side = cut_at(&mut bench, "install", place, sides, plain, &known);
        if side == ETCD {
            assert_eq!(bench.manifest(), original);
            assert!(!bench.is_enabled("quantykube-store") && !bench.is_active("quantykube-store"));
        }
    }
    // What is written on the store gets a new revision in etcd, all else stays as it was.
    known = bench.objects();
    for (place, side) in [("copy-back", STORE), ("ready", ETCD)] {
        let name = format!("acknowledged-before-{place}");
        bench.kubectl(&["-n", "moves", "create", "configmap", &name, "--from-literal=a=b"]);
        cut_at(&mut bench, "undo", place, &[side], plain, &known);
        bench.kubectl(&["-n", "moves", "get", "configmap", &name]);
    }
    bench.kubectl(&["-n", "moves", "get", "configmap", "acknowledged-before-copy-back"]);
    assert_eq!(bench.manifest(), original);
}

/// Turns the node on; returns how many seconds later its API server was ready.
fn boot(bench: &mut Bench) -> f64 {
    let begun = Instant::now();
    bench.node.turn_on();
    bench.node.api_ready(LONG);
    begun.elapsed().as_secs_f64()
}

/// Starts a move, ends the node as soon as the step `place` has begun, and boots it. Returns from where it is served.
fn cut_at(bench: &mut Bench, verb: &str, place: &str, sides: &[&str], plain: f64, known: &Objects) -> String {
    let mut run = bench.spawn(&[verb, "store"]);
    read_up_to(&mut run, place);
    // Somewhere inside of the step, not always at its beginning.
    std::thread::sleep(Duration::from_millis(20));
    bench.node.kill();
    let mut rest = String::new();
    run.child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(!run.wait().success(), "the power went too late: {rest}");
    assert!(
        !rest.contains("\"event\":\"result\""),
        "the power went too late: {rest}"
    );

    let took = boot(bench);
    let begun = Instant::now();
    let status = loop {
        let status = bench.status();
        if status["openMove"] == Value::Null {
            break status;
        }
        assert!(begun.elapsed() < LONG, "the move is still open: {status}");
        std::thread::sleep(Duration::from_millis(500));
    };
    bench.node.api_ready(LONG);
    let side = bench.serves_from();
    assert!(
        sides.contains(&side.as_str()),
        "{verb} cut off at {place}: on {side}, {status}"
    );
    assert_eq!(status["data"], if side == ETCD { "etcd" } else { "store" }, "{status}");
    let journal = status["journals"].as_array().unwrap().last().unwrap();
    let units = ["--unit=quantykube-recover", "--unit=quantykube-resume"];
    let said = bench
        .node
        .run(&[&["journalctl", "--boot", "--output=cat", "--no-pager"], &units[..]].concat());
    assert!(said.contains("was interrupted, and"), "the boot units ended it: {said}");
    let (compared, written) = bench.objects().unchanged_since(known);
    println!(
        "{verb} cut off at {place}: {} {}; ready after {took:.1} s, {:.2} times the control; {compared} objects as they \
         were, {written} of the API server's own written since",
        journal["id"],
        journal["status"],
        took / plain
    );
    side
}
