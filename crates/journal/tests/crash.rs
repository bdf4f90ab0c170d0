//! Every crash of an install and of an undo, in simulation: the node ends moved or as before, never between.

use quantykube_journal::Plan;
use quantykube_journal::system::sim::trial::{Counts, Trial};
use quantykube_journal::system::sim::{Sim, Writes};

mod common;

/// One crash at every effect, and a second one at every `second_every`th effect of the recovery.
fn every_crash(name: &str, machine: &Sim, plan: &Plan, second_every: u64) -> Counts {
    let counts = Trial {
        name,
        machine,
        plan,
        second_every,
    }
    .every_crash();
    println!("{name}: {counts}");
    // 5 crashes x (resume, undo) at each effect, and each of them ended one way.
    assert_eq!(counts.single, counts.effects * 10, "{name}");
    assert_eq!(counts.moved + counts.as_before, counts.single + counts.double, "{name}");
    counts
}

#[test]
fn install_on_a_quiet_cluster() {
    let counts = every_crash(
        "install, no writes",
        &common::node(Writes::None),
        &common::install(),
        17,
    );
    assert!(counts.moved > 0 && counts.as_before > 0);
}

#[test]
fn install_while_clients_write_as_soon_as_they_can() {
    every_crash(
        "install, writes",
        &common::node(Writes::WhenListening),
        &common::install(),
        41,
    );
}

#[test]
fn undo_on_a_quiet_cluster() {
    let counts = every_crash(
        "undo, no writes",
        &common::moved_node(Writes::None),
        &common::undo(),
        17,
    );
    assert!(counts.moved > 0 && counts.as_before > 0);
}

#[test]
fn undo_while_clients_write_as_soon_as_they_can() {
    every_crash(
        "undo, writes",
        &common::moved_node(Writes::WhenListening),
        &common::undo(),
        41,
    );
}
