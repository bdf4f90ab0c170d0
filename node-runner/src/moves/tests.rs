//! The real plans on the simulated node: what they hold, and every crash.

use std::path::Path;
use std::time::Duration;

use quantykube_base::Exit;
use quantykube_journal::system::sim::trial::{Counts, Reboots, Silent, Trial};
use quantykube_journal::system::sim::{How, Node, Program, Sim, Writes};
use quantykube_journal::{Binding, Ending, Journals, Op, Plan, System};

use crate::facts::certificates::Files;
use crate::facts::manifest::Manifest;
use crate::facts::{Root, api_server, process};
use crate::moves::{etcd_servers, places, store, undo_store};
use crate::testing::{API_SERVER, render};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";
const ETCD: &str = "https://127.0.0.1:2379";

/// The manifest that the real kubeadm renders.
fn manifest() -> Manifest {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    render(&root);
    Manifest::read(&root, Path::new(API_SERVER)).unwrap().unwrap()
}

fn binding() -> Binding {
    Binding {
        machine_id: MACHINE.into(),
        node: "node1".into(),
        cluster: "c1".into(),
    }
}

fn files(cert: &str, key: &str, ca: &str) -> Files {
    Files {
        cert: cert.into(),
        key: key.into(),
        ca: ca.into(),
    }
}

/// A node on which kubeadm's API server runs, with a bundle beside it.
fn machine(manifest: &Manifest, writes: Writes) -> Sim {
    let mut sim = Sim::new(MACHINE);
    sim.file(API_SERVER, &manifest.text, 0o600);
    for (name, text) in [
        ("run", "the runner"),
        ("store", "the store"),
        ("unit", "[Service]\n"),
        ("recover", "[Service]\n#1"),
        ("resume", "[Service]\n#2"),
        ("guard", "[Service]\n#3"),
    ] {
        sim.file(&format!("/opt/bundle/{name}"), text, 0o755);
    }
    let file = Path::new(places::STORE_FILE);
    sim.program("api-ready", Program::Ready);
    sim.program("store-ready", Program::Exit(0));
    sim.program("etcd-quiet", Program::Exit(0));
    sim.node.groups_count = true;
    sim.program("gate-store", Program::StoreIsCopied);
    sim.program("raise-revision", Program::Exit(0));
    sim.program("copy-back", Program::CopyBack { file: file.into() });
    let partial = quantykube_base::durable::temporary_name(file).unwrap();
    sim.program(
        "quantykube migrate",
        Program::Migrate {
            to: file.into(),
            partial,
        },
    );
    sim.node.writes = writes;
    sim.pass(Duration::from_secs(30));
    sim
}

fn install_plan(sim: &Sim, manifest: &Manifest) -> Plan {
    let file = |name: &str| store::File {
        path: format!("/opt/bundle/{name}").into(),
        sha256: sim.digest(Path::new(&format!("/opt/bundle/{name}"))).unwrap(),
    };
    let bundle = store::Bundle {
        version: "0.1.0".into(),
        runner: file("run"),
        store: file("store"),
        unit: file("unit"),
        recover: file("recover"),
        resume: file("resume"),
        guard: file("guard"),
    };
    let flags = manifest.flags();
    let Op::WaitGone { process: wanted, .. } = store::wait_gone(&manifest.argv, None, quantykube_journal::Way::Forward)
    else {
        unreachable!()
    };
    let pids = sim.processes(&wanted).unwrap();
    assert_eq!(pids.len(), 1, "the API server is found by its flags alone");
    let node = store::Ready {
        binding: binding(),
        static_pods: "/etc/kubernetes/manifests".into(),
        api_server_argv: manifest.argv.clone(),
        api_server: process::Process {
            pid: pids[0].pid,
            start: pids[0].start,
            argv: manifest.argv.clone(),
            boot_id: Some(sim.node.boot_id()),
            group: Some(Node::group(pids[0].pid)),
        },
        endpoint: api_server::endpoint(&flags).unwrap(),
        etcd: etcd_servers::server(&flags).unwrap(),
        client: files("/pki/client.crt", "/pki/client.key", "/pki/ca.crt"),
        server: files("/pki/server.crt", "/pki/server.key", "/pki/ca.crt"),
        settings: vec![
            ("watch-progress-notify-interval", "5s".into()),
            ("name", "node 1".into()),
        ],
        store: "127.0.0.1:2479".parse().unwrap(),
        edit: etcd_servers::edit(&manifest.text, ETCD, "https://127.0.0.1:2479").unwrap(),
        number: Journals::at(Journals::ROOT).next_number(sim).unwrap(),
    };
    store::plan(&bundle, &node, store::READY_TIMEOUT_S)
}

/// The API server as the facts see it.
fn seen(sim: &Sim, argv: &[String]) -> Option<process::Process> {
    let Op::WaitGone { process: wanted, .. } = store::wait_gone(argv, None, quantykube_journal::Way::Forward) else {
        unreachable!()
    };
    let pid = *sim.processes(&wanted).unwrap().first()?;
    Some(process::Process {
        pid: pid.pid,
        start: pid.start,
        argv: argv.to_vec(),
        boot_id: Some(sim.node.boot_id()),
        group: Some(Node::group(pid.pid)),
    })
}

/// The plan that undoes the install that is in force, from the journal and today's manifest.
fn undo_plan(sim: &Sim) -> Plan {
    let journals = Journals::at(Journals::ROOT);
    let install = journals
        .in_force(sim, store::NAME)
        .unwrap()
        .expect("an install is in force");
    let installed = undo_store::Installed::of(&install.id, &install.plan).unwrap();
    let text = String::from_utf8(sim.read(&installed.manifest).unwrap()).unwrap();
    let argv = crate::facts::manifest::argv(&text).unwrap();
    let flags = crate::facts::manifest::Flags::parse(&argv);
    let node = undo_store::Ready {
        edit: etcd_servers::edit(&text, &installed.store, &installed.etcd).unwrap(),
        installed,
        api_server: seen(sim, &argv),
        endpoint: api_server::endpoint(&flags).unwrap(),
        api_server_argv: argv,
        client: files("/pki/client.crt", "/pki/client.key", "/pki/ca.crt"),
        number: journals.next_number(sim).unwrap(),
    };
    undo_store::plan(&node, store::READY_TIMEOUT_S)
}

fn run(sim: &mut Sim, plan: &Plan) -> quantykube_journal::Outcome {
    let session = Journals::at(Journals::ROOT).lock(sim).unwrap();
    let outcome = session.run(plan, sim, &mut Silent).unwrap();
    sim.pass(Duration::from_secs(30));
    outcome
}

fn moved(manifest: &Manifest, writes: Writes) -> Sim {
    let mut sim = machine(manifest, writes);
    let plan = install_plan(&sim, manifest);
    let outcome = run(&mut sim, &plan);
    assert_eq!(
        (outcome.ending, outcome.exit),
        (Ending::Moved, Exit::Done),
        "{outcome:?}"
    );
    assert_eq!(sim.serving(), Some("store"));
    sim
}

#[test]
fn the_plan_of_install_is_sound_and_says_what_it_does() {
    let manifest = manifest();
    let sim = machine(&manifest, Writes::None);
    let plan = install_plan(&sim, &manifest);
    plan.check().unwrap();
    println!("{}", plan.describe().join("\n"));
    let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
    let tail = [
        "answers",
        "retire",
        "gone",
        "quiet",
        "copy",
        "unit",
        "serves",
        "edit",
        "untouched",
        "left",
        "return",
        "ready",
    ];
    assert_eq!(names[names.len() - tail.len()..], tail);
    let env = plan.steps.iter().find(|step| step.name == "store-env").unwrap();
    let Op::PutFile {
        content: quantykube_journal::Content::Text(env),
        ..
    } = &env.op
    else {
        panic!("{env:?}")
    };
    for line in [
        "QUANTYKUBE_STORE_LISTEN=127.0.0.1:2479",
        "QUANTYKUBE_STORE_DATA=/var/lib/quantykube/store/store.qks",
        "QUANTYKUBE_STORE_CERT_FILE=/pki/server.crt",
        "QUANTYKUBE_STORE_CLIENT_CERT_AUTH=true",
        "QUANTYKUBE_STORE_LISTEN_METRICS=127.0.0.1:2481",
        "QUANTYKUBE_STORE_WATCH_PROGRESS_NOTIFY_INTERVAL=5s",
        "QUANTYKUBE_STORE_NAME=\"node 1\"",
    ] {
        assert!(env.lines().any(|found| found == line), "{line} is not in\n{env}");
    }
    let text = serde_json::to_string(&plan).unwrap();
    let back: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(back, plan);
    let installed = undo_store::Installed::of("1-store", &plan).unwrap();
    assert_eq!(installed.etcd, ETCD);
    assert_eq!(installed.store, "https://127.0.0.1:2479");
    assert_eq!(installed.manifest, Path::new(API_SERVER));
    let mut other = plan.clone();
    other.steps.retain(|step| step.name != "copy");
    assert!(undo_store::Installed::of("1-store", &other).is_err());
}

#[test]
fn installed_and_undone_the_manifest_has_its_old_bytes_and_other_edits_stay() {
    let manifest = manifest();
    let mut sim = moved(&manifest, Writes::WhenReady);
    let on_store = String::from_utf8(sim.read(Path::new(API_SERVER)).unwrap()).unwrap();
    assert_eq!(on_store, manifest.text.replace(ETCD, "https://127.0.0.1:2479"));
    // Someone changes another line meanwhile.
    sim.file(API_SERVER, &on_store.replace("cpu: 250m", "cpu: 300m"), 0o600);
    sim.pass(Duration::from_secs(30));
    let plan = undo_plan(&sim);
    plan.check().unwrap();
    println!("{}", plan.describe().join("\n"));
    let outcome = run(&mut sim, &plan);
    assert_eq!(
        (outcome.ending, outcome.exit),
        (Ending::Moved, Exit::Done),
        "{outcome:?}"
    );
    assert_eq!(sim.serving(), Some("etcd"));
    assert_eq!(sim.node.violations, Vec::<String>::new());
    let back = String::from_utf8(sim.read(Path::new(API_SERVER)).unwrap()).unwrap();
    assert_eq!(back, manifest.text.replace("cpu: 250m", "cpu: 300m"));
    let kept = sim.list(Path::new(places::STORE_FOLDER)).unwrap();
    assert_eq!(kept, ["store-2.qks"], "the store's file is kept under a new name");
    assert!(!sim.unit(places::STORE_UNIT).unwrap().enabled);
    // And again.
    let plan = install_plan(
        &sim,
        &Manifest {
            text: back.clone(),
            ..manifest.clone()
        },
    );
    let outcome = run(&mut sim, &plan);
    assert_eq!(
        (outcome.ending, sim.serving()),
        (Ending::Moved, Some("store")),
        "{outcome:?}"
    );
    assert_eq!(sim.node.violations, Vec::<String>::new());
}

#[test]
fn failures_put_everything_back_or_keep_the_acknowledged_writes() {
    let manifest = manifest();
    // (what fails, what is written meanwhile, where the node must stand, the exit code)
    type Break = fn(&mut Sim);
    let cases: [(&str, Writes, Break, &str, Exit); 6] = [
        (
            "the store does not start",
            Writes::WhenReady,
            |sim| {
                sim.node.broken_units.insert(places::STORE_UNIT.into());
            },
            "etcd",
            Exit::Failed,
        ),
        (
            "the copy fails",
            Writes::WhenReady,
            |sim| sim.program("quantykube migrate", Program::Exit(1)),
            "etcd",
            Exit::Failed,
        ),
        (
            "no space for the copy",
            Writes::WhenReady,
            |sim| sim.program("quantykube migrate", Program::Exit(5)),
            "etcd",
            Exit::NoSpace,
        ),
        (
            "the store does not answer",
            Writes::WhenReady,
            |sim| sim.program("store-ready", Program::Exit(1)),
            "etcd",
            Exit::Failed,
        ),
        (
            "never ready, nobody writes",
            Writes::WhenReady,
            |sim| sim.node.ready_on_store = false,
            "etcd",
            Exit::Failed,
        ),
        (
            "the kubelet stops nothing, the API server ends when asked",
            Writes::WhenReady,
            |sim| sim.node.kubelet_stops = false,
            "store",
            Exit::Done,
        ),
    ];
    for (what, writes, breaks, side, exit) in cases {
        let mut sim = machine(&manifest, writes);
        let plan = install_plan(&sim, &manifest);
        breaks(&mut sim);
        let outcome = run(&mut sim, &plan);
        println!(
            "{what}: {:?}, exit {}, serving from {:?}",
            outcome.ending,
            outcome.exit.code(),
            sim.serving()
        );
        assert_eq!((outcome.exit, sim.serving()), (exit, Some(side)), "{what}: {outcome:?}");
        assert_eq!(sim.node.violations, Vec::<String>::new(), "{what}");
        if side == "etcd" {
            assert_eq!(outcome.ending, Ending::AsBefore, "{what}");
            assert_eq!(
                sim.read(Path::new(API_SERVER)).unwrap(),
                manifest.text.as_bytes(),
                "{what}"
            );
        }
    }
    // The API server writes before it is ready, and never gets ready: no way leads back to etcd.
    let mut sim = machine(&manifest, Writes::WhenListening);
    let plan = install_plan(&sim, &manifest);
    sim.node.ready_on_store = false;
    let outcome = run(&mut sim, &plan);
    println!(
        "never ready, but written to: {:?}, exit {}",
        outcome.ending,
        outcome.exit.code()
    );
    assert_eq!((outcome.ending, outcome.exit), (Ending::Stuck, Exit::Stuck));
    assert!(outcome.gate_refused);
    let on_store = String::from_utf8(sim.read(Path::new(API_SERVER)).unwrap()).unwrap();
    assert!(on_store.contains("https://127.0.0.1:2479"));
    assert_eq!(sim.node.violations, Vec::<String>::new());
    // Accepted, it can be undone by its full copy.
    let session = Journals::at(Journals::ROOT).lock(&mut sim).unwrap();
    session.accept(&mut sim).unwrap();
    drop(session);
    let plan = undo_plan(&sim);
    let outcome = run(&mut sim, &plan);
    assert_eq!(
        (outcome.ending, sim.serving()),
        (Ending::Moved, Some("etcd")),
        "{outcome:?}"
    );
    assert_eq!(sim.node.violations, Vec::<String>::new());
}

#[test]
fn a_failed_undo_leaves_the_cluster_on_the_store() {
    let manifest = manifest();
    let mut sim = moved(&manifest, Writes::WhenReady);
    let plan = undo_plan(&sim);
    sim.program("copy-back", Program::Exit(1));
    let outcome = run(&mut sim, &plan);
    assert_eq!(
        (outcome.ending, outcome.exit),
        (Ending::AsBefore, Exit::Failed),
        "{outcome:?}"
    );
    assert_eq!(sim.serving(), Some("store"));
    assert!(sim.unit(places::STORE_UNIT).unwrap().enabled);
    assert_eq!(sim.node.violations, Vec::<String>::new());
    assert!(
        Journals::at(Journals::ROOT)
            .in_force(&sim, store::NAME)
            .unwrap()
            .is_none_or(|s| s.id == "1-store")
    );
}

/// Tries every crash of a plan and prints the count.
fn every_crash(name: &str, machine: &Sim, plan: &Plan) {
    let trial = Trial {
        name,
        machine,
        plan,
        second_every: 0,
    };
    let Counts {
        effects,
        single,
        moved,
        as_before,
        ..
    } = trial.every_crash();
    println!("{name}: {effects} effects, {single} crashes and recoveries: {moved} ended moved, {as_before} as before");
    assert!(effects > 30, "{name}: only {effects} effects");
    assert!(
        moved > 0 && as_before > 0 && moved + as_before == single,
        "{name}: every crash has an end"
    );
}

#[test]
fn every_crash_of_install_ends_before_or_after() {
    let manifest = manifest();
    for writes in [Writes::WhenReady, Writes::WhenListening] {
        let sim = machine(&manifest, writes);
        let plan = install_plan(&sim, &manifest);
        every_crash(&format!("install store, clients write {writes:?}"), &sim, &plan);
    }
}

#[test]
fn every_crash_of_undo_ends_before_or_after() {
    let manifest = manifest();
    for writes in [Writes::WhenReady, Writes::WhenListening] {
        let sim = moved(&manifest, writes);
        let plan = undo_plan(&sim);
        every_crash(&format!("undo store, clients write {writes:?}"), &sim, &plan);
    }
}

/// Lets the power go at every effect of a plan, with nobody there afterwards, and prints the count.
fn every_reboot(name: &str, machine: &Sim, plan: &Plan) -> Reboots {
    let links = [places::RECOVER_UNIT, places::RESUME_UNIT].map(|unit| Path::new(places::BOOT_UNITS).join(unit));
    let enabled = |sim: &Sim| links.iter().all(|link| sim.look(link).unwrap().is_some());
    let trial = Trial {
        name,
        machine,
        plan,
        second_every: 7,
    };
    let reboots = trial.every_reboot(&enabled);
    println!("{name}: {reboots:?}");
    let Reboots {
        effects,
        single,
        double,
        untouched,
        moved,
        as_before,
        ..
    } = reboots;
    assert!(effects > 30 && double > effects, "{name}: {reboots:?}");
    assert_eq!(single, effects * 3, "{name}");
    assert_eq!(untouched + moved + as_before, single + double, "{name}");
    assert!(moved > 0 && as_before > 0, "{name}: {reboots:?}");
    reboots
}

#[test]
fn a_power_cut_anywhere_in_install_needs_no_person() {
    let manifest = manifest();
    for writes in [Writes::WhenReady, Writes::WhenListening] {
        let sim = machine(&manifest, writes);
        let plan = install_plan(&sim, &manifest);
        let reboots = every_reboot(&format!("install store, clients write {writes:?}"), &sim, &plan);
        assert!(reboots.untouched > 0);
        assert!(reboots.at_once > reboots.later * 4, "{reboots:?}");
    }
}

#[test]
fn a_power_cut_anywhere_in_undo_needs_no_person() {
    let manifest = manifest();
    for writes in [Writes::WhenReady, Writes::WhenListening] {
        let sim = moved(&manifest, writes);
        let plan = undo_plan(&sim);
        let reboots = every_reboot(&format!("undo store, clients write {writes:?}"), &sim, &plan);
        assert_eq!(reboots.untouched, 0, "the units are kept by the undo");
        assert_eq!(
            reboots.later, 0,
            "a manifest always stands when the kubelet starts: {reboots:?}"
        );
    }
}

#[test]
fn what_needs_a_person_is_not_tried_again_at_boot() {
    let manifest = manifest();
    let mut sim = machine(&manifest, Writes::WhenListening);
    let plan = install_plan(&sim, &manifest);
    sim.node.ready_on_store = false;
    assert_eq!(run(&mut sim, &plan).ending, Ending::Stuck);
    sim.power_on(How::Reboot);
    let from = sim.effects();
    let journals = Journals::at(Journals::ROOT);
    let recovered = journals.lock(&mut sim).unwrap().recover_at_boot(&mut sim, &mut Silent);
    assert_eq!(recovered.unwrap().unwrap().ending, Ending::Stuck);
    sim.start_kubelet();
    let resumed = journals.lock(&mut sim).unwrap().resume_at_boot(&mut sim, &mut Silent);
    let resumed = resumed.unwrap().unwrap();
    assert_eq!((resumed.ending, resumed.exit), (Ending::Stuck, Exit::Stuck));
    assert_eq!(resumed.trouble.last().unwrap().step, "ready");
    // What the journal's folder itself needs is all that was done.
    let touched: Vec<&String> = sim.trace[from as usize..]
        .iter()
        .filter(|effect| !effect.contains("/install"))
        .collect();
    assert_eq!(touched, Vec::<&String>::new());
    assert!(journals.open_move(&sim).unwrap().unwrap().stuck);
    assert_eq!(sim.manifest_names(), Some("store"));
    assert_eq!(sim.node.violations, Vec::<String>::new());
}

#[test]
fn every_failure_ends_before_or_after_and_none_leaves_the_node_without_an_api_server() {
    let manifest = manifest();
    let sim = machine(&manifest, Writes::WhenListening);
    let plan = install_plan(&sim, &manifest);
    let trial = |name, machine, plan| Trial {
        name,
        machine,
        plan,
        second_every: 0,
    };
    let failures = trial("install store", &sim, &plan).every_failure();
    println!("install store: {failures:?}");
    assert!(failures.put_back > 0 && failures.down.is_empty());
    let sim = moved(&manifest, Writes::WhenListening);
    let plan = undo_plan(&sim);
    let failures = trial("undo store", &sim, &plan).every_failure();
    println!("undo store: {failures:?}");
    assert!(failures.put_back > 0);
    assert_eq!(
        failures.down,
        Vec::<String>::new(),
        "what failed once is tried again at once"
    );

    // A return that never goes through: nothing can be put back into that folder. A person must look; then resume ends it.
    let mut broken = sim.clone();
    broken.broken = Some(format!("rename to {API_SERVER}"));
    let outcome = run(&mut broken, &plan);
    assert_eq!(
        (outcome.ending, outcome.exit),
        (Ending::Stuck, Exit::Stuck),
        "{outcome:?}"
    );
    assert_eq!(outcome.trouble.len(), 3, "it was tried three times: {outcome:?}");
    assert_eq!(broken.serving(), None);
    broken.broken = None;
    let session = Journals::at(Journals::ROOT).lock(&mut broken).unwrap();
    assert_eq!(session.resume(&mut broken, &mut Silent).unwrap().ending, Ending::Moved);
    broken.pass(Duration::from_secs(30));
    assert_eq!(broken.serving(), Some("etcd"));
    assert_eq!(broken.node.violations, Vec::<String>::new());
}
