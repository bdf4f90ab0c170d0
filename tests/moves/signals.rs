//! INT and TERM at the follower: back while files alone suffice, else the move stays open for `resume`. The follower's own
//! end, in whatever way, ends no move.

use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, STORE, Said};
use crate::kills::{read_up_to, wait_for_the_end};

#[test]
fn a_signal_puts_back_or_leaves_the_move_open_and_the_end_of_the_terminal_does_neither() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();

    // Until the manifest that names the store stands, files alone suffice: also where the store runs already.
    for (signal, place) in [(Signal::TERM, "gone"), (Signal::INT, "copy"), (Signal::INT, "unit")] {
        // A small copy may be over before the signal is there; then the move is past the gate, and the try is no use.
        let said = (0..5)
            .map(|_| signal_at(&bench, signal, place))
            .find(|said| {
                let late = said.code == 6;
                if late {
                    println!("the signal came too late for {place}");
                    bench.run(&["undo", "store"]).expect(0);
                    bench.node.api_ready(LONG);
                }
                !late
            })
            .expect("one of the signals comes in time")
            .expect(1);
        assert_eq!(said.last()["name"], "put-back", "{:?}", said.last());
        bench.node.api_ready(LONG);
        assert_eq!(
            (bench.serves_from().as_str(), bench.manifest()),
            (ETCD, original.clone())
        );
        assert!(!bench.is_active("quantykube-store") && !bench.is_enabled("quantykube-store"));
        assert_eq!(bench.status()["openMove"], Value::Null);
        bench.objects().unchanged_since(&before);
        println!("the signal {} during {place}: exit 1, back on etcd", signal.as_raw());
    }

    let said = signal_at(&bench, Signal::TERM, "ready").expect(6);
    assert_eq!(said.last()["name"], "open");
    assert_ne!(bench.status()["openMove"], Value::Null);
    let resumed = bench.run(&["resume"]).expect(0);
    assert_eq!(resumed.last()["state"], "the data lives in the store");
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), STORE);
    bench.objects().unchanged_since(&before);
    assert_eq!(bench.run(&["resume"]).expect(0).last()["changed"], false);
    println!(
        "the signal {} during ready: exit 6, resume finished it",
        Signal::TERM.as_raw()
    );

    without_a_terminal(&bench);
}

/// The move there and back goes on without its follower, and a second one is refused meanwhile.
fn without_a_terminal(bench: &Bench) {
    let before = bench.objects();
    for (verb, place, how) in [
        ("undo", "gone", Lost::Killed),
        ("install", "gone", Lost::Hangup),
        ("undo", "copy-back", Lost::Pipe),
    ] {
        let mut run = bench.spawn(&[verb, "store"]);
        read_up_to(&mut run, place);
        match how {
            Lost::Killed => {
                run.kill();
            }
            Lost::Hangup => run.signal(Signal::HUP),
            // The reader goes; what is written from now on reaches nobody.
            Lost::Pipe => drop(run.child.stdout.take()),
        }
        for other in [&["install", "store"][..], &["undo", "store"], &["resume"]] {
            let said = bench.run(other);
            assert_eq!(said.code, 4, "{verb} while it is {how:?}, {other:?}: {said:#?}");
            assert_eq!(said.last()["name"], "under-way", "{said:#?}");
        }
        if !matches!(how, Lost::Killed) {
            let mut rest = String::new();
            if let Some(output) = &mut run.child.stdout {
                output.read_to_string(&mut rest).unwrap();
                assert!(rest.contains("\"event\":\"result\""), "the follower goes on: {rest}");
            }
            assert!(run.wait().success(), "{verb}, {how:?}");
        }
        let status = wait_for_the_end(bench);
        let side = if verb == "install" { "store" } else { "etcd" };
        assert_eq!(status["data"], side, "{verb}, {how:?}: {status}");
        bench.node.api_ready(LONG);
        bench.objects().unchanged_since(&before);
        println!("{verb} went on to its end, its follower {how:?} at {place}");
    }
    let state = bench.node.exec(&["systemctl", "is-system-running"]);
    assert_eq!(
        String::from_utf8_lossy(&state.stdout).trim(),
        "running",
        "no unit is left as failed"
    );
}

/// How a follower is lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Killed,
    Hangup,
    Pipe,
}

/// Without systemd's D-Bus nothing is begun.
#[test]
fn without_systemd_nothing_is_begun() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let run = format!("{}/run", bench.folder);
    // As in a container that shares the node's files and lacks its sockets.
    let script =
        format!("mount -t tmpfs none /run/dbus && mount -t tmpfs none /run/systemd && exec {run} --json install store");
    let said = Said::of(&bench.node.exec(&["unshare", "--mount", "sh", "-c", &script])).expect(4);
    assert_eq!(said.last()["name"], "systemd", "{said:#?}");
    assert_eq!(bench.manifest(), original);
    assert!(!bench.node.path("/var/lib/quantykube").exists());
    println!("without D-Bus: exit 4, {}", said.last()["causes"]);
}

/// Starts an install, sends its follower a signal as soon as it begins the step `place`, and waits for its end.
fn signal_at(bench: &Bench, signal: Signal, place: &str) -> Said {
    let begun = Instant::now();
    let mut run = bench.spawn(&["install", "store"]);
    let mut events = read_up_to(&mut run, place);
    run.signal(signal);
    let rest = run.output();
    let said = Said::of(&rest);
    events.extend(said.events);
    assert!(begun.elapsed() < LONG + Duration::from_secs(60));
    Said { events, ..said }
}
