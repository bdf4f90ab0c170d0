//! What a move does when something goes wrong or someone asks it to end: who is put back, who stays, and which code.

use std::path::Path;
use std::time::Duration;

use quantykube_base::Exit;
use quantykube_journal::system::sim::trial::{Silent, Trial};
use quantykube_journal::system::sim::{Program, Sim, Writes};
use quantykube_journal::{Ending, Error, Interrupt, Journals, Lister, Outcome, Status, System};

mod common;
use common::{ETCD, MACHINE, MANIFEST, STORE, STORE_FILE, UNIT, install, moved_node, node, run, session, undo};

fn resume(sim: &mut Sim) -> Result<Outcome, Error> {
    session(sim).resume(sim, &mut Silent)
}

fn walk_back(sim: &mut Sim) -> Result<Outcome, Error> {
    session(sim).undo(sim, &mut Silent)
}

fn journals() -> Journals {
    Journals::at(Journals::ROOT)
}

/// The node serves again from a side, nothing was violated.
fn serves(sim: &mut Sim, side: &str) {
    sim.pass(Duration::from_secs(10));
    assert_eq!(sim.serving(), Some(side));
    assert_eq!(sim.node.violations, Vec::<String>::new());
}

#[test]
fn a_store_that_does_not_start_leaves_the_node_on_etcd() {
    let mut sim = node(Writes::WhenReady);
    sim.node.broken_units.insert(UNIT.into());
    let outcome = run(&mut sim, &install()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::AsBefore, Exit::Failed));
    assert_eq!(outcome.trouble[0].step, "store-unit");
    serves(&mut sim, "etcd");
    assert!(!sim.node.unit(UNIT).active && !sim.node.unit(UNIT).enabled);
    assert!(
        sim.look(Path::new(STORE_FILE)).unwrap().is_none(),
        "the store file has its name for another try"
    );
    sim.node.broken_units.clear();
    // The place aside is taken: the next plan names another. This one says so before it changes anything.
    let again = run(&mut sim, &install()).unwrap();
    assert_eq!((again.ending, again.exit), (Ending::AsBefore, Exit::Failed));
    assert!(again.trouble[0].message.contains("is there already"), "{again:?}");
    serves(&mut sim, "etcd");
}

#[test]
fn a_copy_that_fails_leaves_the_node_on_etcd_with_its_code() {
    let mut sim = node(Writes::WhenReady);
    sim.program("quantykube-migrate", Program::Exit(5));
    let outcome = run(&mut sim, &install()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::AsBefore, Exit::NoSpace));
    assert!(
        outcome.trouble[0].message.contains("ended as told with 5"),
        "{outcome:?}"
    );
    serves(&mut sim, "etcd");
}

#[test]
fn an_api_server_never_ready_on_the_store_goes_back_while_nothing_was_written() {
    let mut sim = node(Writes::WhenReady);
    sim.node.ready_on_store = false;
    let outcome = run(&mut sim, &install()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::AsBefore, Exit::Failed));
    assert!(!outcome.gate_refused);
    serves(&mut sim, "etcd");
}

#[test]
fn an_acknowledged_write_on_the_store_bars_the_way_back() {
    let mut sim = node(Writes::WhenListening);
    sim.node.ready_on_store = false;
    let outcome = run(&mut sim, &install()).unwrap();
    assert_eq!(
        (outcome.ending, outcome.exit, outcome.gate_refused),
        (Ending::Stuck, Exit::Stuck, true)
    );
    let open = journals().open_move(&sim).unwrap().expect("it is open");
    assert!(matches!(open.status, Status::Open { way_back: false }) && open.acceptable);
    // No path leads back, asked for or not.
    for again in [resume(&mut sim).unwrap(), walk_back(&mut sim).unwrap()] {
        assert_eq!((again.ending, again.exit), (Ending::Stuck, Exit::Stuck));
    }
    let manifest = String::from_utf8(sim.read(Path::new(MANIFEST)).unwrap()).unwrap();
    assert!(manifest.contains(STORE), "the manifest stands, and names the store");
    // Cured: it is moved. Not cured: a person accepts, and a plan of its own may undo it.
    let mut cured = sim.clone();
    cured.node.ready_on_store = true;
    let outcome = resume(&mut cured).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::Moved, Exit::Done));
    serves(&mut cured, "store");
    let accepted = session(&mut sim).accept(&mut sim).unwrap();
    assert_eq!(accepted.ending, Ending::Moved);
    let outcome = run(&mut sim, &undo()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::Moved, Exit::Done));
    serves(&mut sim, "etcd");
}

#[test]
fn a_refused_way_back_that_gets_ready_is_moved() {
    let mut sim = node(Writes::WhenListening);
    // Not ready within its time the first time, ready the second.
    sim.program("api-server-ready", Program::Ready);
    sim.node.ready_on_store = false;
    let effects = {
        let mut tried = sim.clone();
        let from = tried.effects();
        run(&mut tried, &install()).unwrap();
        let barred = tried
            .trace
            .iter()
            .rposition(|t| t.contains("rename to /etc/kubernetes/manifests"))
            .unwrap();
        barred as u64 - from
    };
    sim.crash_at(effects, quantykube_journal::system::sim::When::After);
    assert!(run(&mut sim, &install()).is_err() && sim.has_crashed());
    sim.restart(quantykube_journal::system::sim::How::Kill);
    sim.node.ready_on_store = true;
    let outcome = resume(&mut sim).unwrap();
    assert_eq!(
        (outcome.ending, outcome.exit, outcome.gate_refused),
        (Ending::Moved, Exit::Done, true)
    );
    serves(&mut sim, "store");
}

#[test]
fn a_copy_back_that_fails_leaves_the_node_on_the_store() {
    let mut sim = moved_node(Writes::WhenListening);
    sim.program("quantykube-copy-back", Program::Exit(1));
    let outcome = run(&mut sim, &undo()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::AsBefore, Exit::Failed));
    serves(&mut sim, "store");
    assert!(sim.node.unit(UNIT).ready);
    assert_eq!(
        journals().in_force(&sim, "store").unwrap().expect("still moved").id,
        "1-store"
    );
    sim.program(
        "quantykube-copy-back",
        Program::CopyBack {
            file: STORE_FILE.into(),
        },
    );
    assert_eq!(run(&mut sim, &undo()).unwrap().ending, Ending::Moved);
    serves(&mut sim, "etcd");
    assert!(journals().in_force(&sim, "store").unwrap().is_none());
}

#[test]
fn a_failure_past_the_point_of_no_return_is_finished_by_a_resume() {
    let mut sim = moved_node(Writes::WhenListening);
    sim.file("/var/lib/quantykube/store/store-2.qks.undone", "in the way", 0o600);
    let outcome = run(&mut sim, &undo()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::Stuck, Exit::Stuck));
    serves(&mut sim, "etcd");
    assert!(
        matches!(run(&mut sim, &install()), Err(Error::OpenMove { .. })),
        "an open move blocks the next"
    );
    sim.remove(Path::new("/var/lib/quantykube/store/store-2.qks.undone"))
        .unwrap();
    assert_eq!(resume(&mut sim).unwrap().exit, Exit::Done);
    serves(&mut sim, "etcd");
}

#[test]
fn an_api_server_that_is_not_stopped_is_asked_to_end() {
    let mut sim = node(Writes::None);
    sim.node.kubelet_stops = false;
    let outcome = run(&mut sim, &install()).unwrap();
    assert_eq!(outcome.ending, Ending::Moved, "{outcome:?}");
    assert!(sim.trace.iter().any(|effect| effect.starts_with("send TERM to")));
}

#[test]
fn every_effect_that_fails_once_ends_right() {
    let install = install();
    let machine = node(Writes::WhenListening);
    let trial = |name, machine, plan| Trial {
        name,
        machine,
        plan,
        second_every: 0,
    };
    let failures = trial("install", &machine, &install).every_failure();
    println!("install: {failures:?}");
    assert!(failures.put_back > 0 && failures.moved > 0);
    assert_eq!((failures.finished_later, failures.down.len()), (0, 0));

    let (machine, undo) = (moved_node(Writes::WhenListening), undo());
    let failures = trial("undo", &machine, &undo).every_failure();
    println!("undo: {failures:?}");
    assert!(failures.put_back > 0 && failures.moved > 0);
    // Also the one act from which there is no way back: it is tried again at once.
    assert_eq!((failures.finished_later, failures.down.len()), (0, 0));
}

#[test]
fn an_interrupt_at_every_effect_puts_back_or_stops() {
    for interrupt in [Interrupt::PutBack, Interrupt::Stop] {
        let machine = node(Writes::None);
        let mut whole = machine.clone();
        run(&mut whole, &install()).unwrap();
        let (mut back, mut open, mut done) = (0, 0, 0);
        for at in machine.effects() + 1..=whole.effects() {
            let mut sim = machine.clone();
            sim.interrupt_at = Some((at, interrupt));
            let outcome = run(&mut sim, &install()).unwrap();
            match (outcome.ending, outcome.exit) {
                (Ending::AsBefore, Exit::Failed) => {
                    assert_eq!(interrupt, Interrupt::PutBack);
                    serves(&mut sim, "etcd");
                    back += 1;
                }
                (Ending::Open, Exit::Interrupted) => {
                    sim.interrupt_at = None;
                    let mut other = sim.clone();
                    assert_eq!(resume(&mut sim).unwrap().exit, Exit::Done);
                    serves(&mut sim, "store");
                    assert_eq!(walk_back(&mut other).unwrap().exit, Exit::Done);
                    serves(&mut other, "etcd");
                    open += 1;
                }
                (Ending::Moved, Exit::Done) => done += 1,
                other => panic!("interrupted at {at}: {other:?} {outcome:?}"),
            }
        }
        println!("{interrupt:?}: {back} put back, {open} left open, {done} done");
        assert!(open > 0 && done > 0 && (back > 0) == (interrupt == Interrupt::PutBack));
    }
}

#[test]
fn an_interrupt_ends_a_program_that_hangs() {
    let mut sim = node(Writes::None);
    sim.program("quantykube-migrate", Program::Hang);
    let begins = {
        let mut whole = node(Writes::None);
        run(&mut whole, &install()).unwrap();
        whole
            .trace
            .iter()
            .position(|effect| effect.contains("store.qks.part"))
            .unwrap() as u64
    };
    sim.interrupt_at = Some((begins + 5, Interrupt::PutBack));
    let outcome = run(&mut sim, &install()).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::AsBefore, Exit::Failed));
    serves(&mut sim, "etcd");
}

#[test]
fn an_undo_refuses_by_name_where_someone_changed_what_stands_there() {
    let mut sim = node(Writes::None);
    sim.program("quantykube-migrate", Program::Hang);
    let copying = {
        let mut whole = node(Writes::None);
        run(&mut whole, &install()).unwrap();
        whole
            .trace
            .iter()
            .position(|effect| effect.contains("store.qks.part"))
            .unwrap() as u64
    };
    sim.crash_at(copying + 2, quantykube_journal::system::sim::When::Before);
    assert!(run(&mut sim, &install()).is_err() && sim.has_crashed());
    sim.restart(quantykube_journal::system::sim::How::Kill);
    let ours = sim.read(Path::new("/etc/quantykube/store.env")).unwrap();
    sim.file("/etc/quantykube/store.env", "someone's text", 0o600);
    let outcome = walk_back(&mut sim).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::Stuck, Exit::Stuck));
    assert!(
        outcome.trouble[0].message.contains("/etc/quantykube/store.env"),
        "{outcome:?}"
    );
    // The API server came first: it serves although a person must look.
    serves(&mut sim, "etcd");
    assert_eq!(
        sim.read(Path::new("/etc/quantykube/store.env")).unwrap(),
        b"someone's text"
    );
    sim.file("/etc/quantykube/store.env", &String::from_utf8(ours).unwrap(), 0o600);
    assert_eq!(resume(&mut sim).unwrap().ending, Ending::AsBefore);
    assert_eq!(
        sim.read(Path::new("/etc/quantykube/store.env")).unwrap(),
        b"an older text"
    );
}

#[test]
fn an_edit_goes_back_on_a_file_that_others_have_changed() {
    let mut sim = moved_node(Writes::None);
    let manifest = String::from_utf8(sim.read(Path::new(MANIFEST)).unwrap()).unwrap();
    sim.file(MANIFEST, &format!("{manifest}    - --v=4\n"), 0o600);
    sim.pass(Duration::from_secs(10));
    assert_eq!(run(&mut sim, &undo()).unwrap().ending, Ending::Moved);
    let edited = String::from_utf8(sim.read(Path::new(MANIFEST)).unwrap()).unwrap();
    assert_eq!(edited, format!("{}    - --v=4\n", manifest.replace(STORE, ETCD)));
}

#[test]
fn a_journal_of_another_machine_is_refused() {
    let mut sim = node(Writes::None);
    sim.file("/etc/machine-id", "ffffffffffffffffffffffffffffffff\n", 0o444);
    let error = run(&mut sim, &install()).unwrap_err();
    assert_eq!(error.exit(), Exit::Refused);
    assert!(error.to_string().contains(MACHINE), "{error}");
    assert!(journals().list(&sim).unwrap().is_empty());
}

#[test]
fn newer_formats_are_refused_and_damage_is_named() {
    let mut sim = moved_node(Writes::None);
    let folder = journals().list(&sim).unwrap()[0].folder.clone();
    let plan = String::from_utf8(sim.read(&folder.join("plan.json")).unwrap()).unwrap();
    let path = folder.join("plan.json").to_string_lossy().into_owned();
    let mut newer = sim.clone();
    newer.file(&path, &plan.replace("\"format\": 1", "\"format\": 2"), 0o600);
    assert_eq!(journals().list(&newer).unwrap_err().exit(), Exit::NeedsNewer);
    // A plan that was changed does not belong to its log any more.
    let mut changed = sim.clone();
    changed.file(&path, &plan.replace("--secure-port=6443", "--secure-port=6444"), 0o600);
    assert_eq!(journals().list(&changed).unwrap_err().exit(), Exit::Stuck);
    sim.tree.change(&folder.join("log"), |bytes| bytes[60] ^= 1).unwrap();
    let error = journals().list(&sim).unwrap_err();
    assert_eq!(error.exit(), Exit::Stuck);
    let chain = error.failure().chain();
    assert!(chain.iter().any(|cause| cause.contains("at byte 48")), "{chain:?}");
}

#[test]
fn what_has_ended_is_read_once_and_what_is_open_each_time() {
    let mut sim = moved_node(Writes::None);
    let mut lister = Lister::default();
    let told = |list: Vec<quantykube_journal::Summary>| -> Vec<(String, Status, usize)> {
        list.into_iter().map(|j| (j.id, j.status, j.done)).collect()
    };
    let mut whole = sim.clone();
    run(&mut whole, &undo()).unwrap();
    let begun = sim.effects();
    let mut open = 0;
    for at in (begun + 1..=whole.effects()).step_by(7) {
        let mut sim = sim.clone();
        sim.interrupt_at = Some((at, Interrupt::Stop));
        run(&mut sim, &undo()).unwrap();
        for round in ["cut off", "ended"] {
            let (expected, found) = (journals().list(&sim).unwrap(), lister.list(&journals(), &sim).unwrap());
            open += usize::from(expected.iter().any(quantykube_journal::Summary::is_open));
            assert_eq!(told(found), told(expected), "{round} at {at}");
            sim.interrupt_at = None;
            let _ = resume(&mut sim);
        }
    }
    println!("{open} lists with an open move");
    assert!(open > 3);
    // The proof that it is not read: it could not be.
    let plan = journals().list(&sim).unwrap()[0].folder.join("plan.json");
    let before = told(lister.list(&journals(), &sim).unwrap());
    sim.file(plan.to_str().unwrap(), "{", 0o600);
    assert!(journals().list(&sim).is_err());
    assert_eq!(told(lister.list(&journals(), &sim).unwrap()), before);
    assert!(Lister::default().list(&journals(), &sim).is_err());
}
