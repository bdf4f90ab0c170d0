//! INT and TERM: back while files alone suffice, else the move stays open for `resume`.

use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, STORE, Said};

#[test]
fn a_signal_puts_back_or_leaves_the_move_open() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();

    for (signal, place) in [(Signal::TERM, "gone"), (Signal::INT, "copy")] {
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
}

/// Starts an install, sends it a signal as soon as it begins the step `place`, and waits for its end.
fn signal_at(bench: &Bench, signal: Signal, place: &str) -> Said {
    let mut run = bench.spawn(&["install", "store"]);
    let mut events = crate::kills::read_up_to(&mut run, place);
    run.signal(signal);
    let rest = run.output();
    let said = Said::of(&rest);
    events.extend(said.events);
    Said { events, ..said }
}
