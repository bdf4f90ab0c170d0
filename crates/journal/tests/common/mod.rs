//! A control-plane node in simulation, and plans of the shape that the node-runner makes for it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::PathBuf;
use std::time::Duration;

use quantykube_journal::system::sim::trial::Silent;
use quantykube_journal::system::sim::{Program, Sim, Writes};
use quantykube_journal::{
    Back, Binding, Content, Direction, Ending, Error, Journals, Op, Outcome, Plan, Process, Session, Step, Way,
};
use sha2::{Digest, Sha256};

pub const MACHINE: &str = "0123456789abcdef0123456789abcdef";
pub const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
pub const ETCD: &str = "--etcd-servers=https://127.0.0.1:2379";
pub const STORE: &str = "--etcd-servers=https://127.0.0.1:2479";
pub const UNIT: &str = "quantykube-store.service";
pub const STORE_FILE: &str = "/var/lib/quantykube/store/store.qks";

/// A node whose API server is ready on etcd.
pub fn node(writes: Writes) -> Sim {
    let mut sim = Sim::new(MACHINE);
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command:\n    - kube-apiserver\n    - {ETCD}\n    - --secure-port=6443\n"
    );
    sim.file(MANIFEST, &manifest, 0o600);
    sim.file("/opt/bundle/run", "the runner", 0o755);
    sim.file("/opt/bundle/bin/quantykube-store", "the store", 0o755);
    // From an earlier version: replaced, and back after an undo.
    sim.file("/etc/quantykube/store.env", "an older text", 0o644);
    sim.program(
        "quantykube-migrate",
        Program::Migrate {
            to: STORE_FILE.into(),
            partial: partial(),
        },
    );
    sim.program(
        "quantykube-copy-back",
        Program::CopyBack {
            file: STORE_FILE.into(),
        },
    );
    sim.program("ready", Program::Ready);
    sim.program("store-is-copied", Program::StoreIsCopied);
    sim.node.writes = writes;
    sim.pass(Duration::from_secs(30));
    assert_eq!(sim.serving(), Some("etcd"));
    sim
}

/// The same node after an install.
pub fn moved_node(writes: Writes) -> Sim {
    let mut sim = node(writes);
    let outcome = session(&mut sim)
        .run(&install(), &mut sim, &mut Silent)
        .expect("the plan runs");
    assert_eq!(outcome.ending, Ending::Moved, "{outcome:?}");
    sim.pass(Duration::from_secs(30));
    assert_eq!(sim.serving(), Some("store"));
    sim
}

pub fn session(sim: &mut Sim) -> Session {
    Journals::at(Journals::ROOT)
        .lock(sim)
        .expect("nobody else has the lock")
}

pub fn run(sim: &mut Sim, plan: &Plan) -> Result<Outcome, Error> {
    let session = Journals::at(Journals::ROOT).lock(sim)?;
    session.run(plan, sim, &mut Silent)
}

fn partial() -> PathBuf {
    "/var/lib/quantykube/store/.store.qks.part".into()
}

fn argv(name: &str) -> Vec<String> {
    vec![format!("/usr/local/lib/quantykube/0.1.0/{name}"), "--now".into()]
}

fn file(name: &str, from: &str, text: &str) -> Op {
    Op::PutFile {
        path: format!("/usr/local/lib/quantykube/0.1.0/{name}").into(),
        mode: 0o755,
        content: Content::File {
            from: from.into(),
            sha256: hex::encode(Sha256::digest(text)),
        },
    }
}

fn api_server(servers: &str) -> Process {
    Process {
        program: "kube-apiserver".into(),
        args: vec![servers.into(), "--secure-port=6443".into()],
        ..Process::default()
    }
}

fn gone(servers: &str, way: Way) -> Op {
    Op::WaitGone {
        process: api_server(servers),
        timeout_s: 90,
        term_after_s: Some(60),
        quiet_ms: 500,
        way,
    }
}

fn folder(path: &str, mode: u32) -> Op {
    Op::MakeDir {
        path: path.into(),
        mode,
    }
}

fn plan(direction: Direction, steps: Vec<Step>) -> Plan {
    let binding = Binding {
        machine_id: MACHINE.into(),
        node: "node1".into(),
        cluster: "cafe".into(),
    };
    let plan = Plan {
        format: quantykube_journal::plan::FORMAT,
        name: "store".into(),
        direction,
        version: "0.1.0".into(),
        undoes: None,
        binding,
        point_of_no_return: None,
        steps,
    };
    plan.check().expect("a sound plan");
    plan
}

pub fn install() -> Plan {
    let aside = "/etc/kubernetes/quantykube/kube-apiserver.yaml";
    let step = Step::new;
    plan(
        Direction::Install,
        vec![
            step(
                "api-server-back",
                "the API server is ready again",
                Op::Probe {
                    argv: argv("ready"),
                    timeout_s: 120,
                    way: Way::Back,
                },
            ),
            step(
                "folder-quantykube",
                "a folder for programs",
                folder("/usr/local/lib/quantykube", 0o755),
            )
            .back(Back::Keep),
            step(
                "folder-version",
                "a folder for this version",
                folder("/usr/local/lib/quantykube/0.1.0", 0o755),
            )
            .back(Back::Keep),
            step(
                "program-run",
                "the node-runner",
                file("quantykube", "/opt/bundle/run", "the runner"),
            )
            .back(Back::Keep),
            step(
                "program-store",
                "the store",
                file("quantykube-store", "/opt/bundle/bin/quantykube-store", "the store"),
            )
            .back(Back::Keep),
            step(
                "link",
                "a link to the node-runner",
                Op::PutLink {
                    path: "/usr/local/bin/quantykube".into(),
                    target: "/usr/local/lib/quantykube/0.1.0/quantykube".into(),
                },
            )
            .back(Back::Keep),
            step(
                "reload-back",
                "systemd forgets the unit",
                Op::ReloadUnits { way: Way::Back },
            ),
            step(
                "folder-config",
                "a folder for settings",
                folder("/etc/quantykube", 0o755),
            ),
            step(
                "store-env",
                "the settings of the store",
                Op::PutFile {
                    path: "/etc/quantykube/store.env".into(),
                    mode: 0o600,
                    content: Content::Text("A=1\n".into()),
                },
            ),
            step(
                "store-unit-file",
                "the unit of the store",
                Op::PutFile {
                    path: format!("/etc/systemd/system/{UNIT}").into(),
                    mode: 0o644,
                    content: Content::Text("[Service]\n".into()),
                },
            ),
            step(
                "reload",
                "systemd reads the unit",
                Op::ReloadUnits { way: Way::Forward },
            ),
            step(
                "folder-data",
                "a folder for the data",
                folder("/var/lib/quantykube/store", 0o700),
            ),
            step(
                "folder-retired",
                "a folder for manifests",
                folder("/etc/kubernetes/quantykube", 0o700),
            ),
            step(
                "manifest-out",
                "the manifest goes",
                Op::Retire {
                    path: MANIFEST.into(),
                    to: aside.into(),
                    runs: Some(api_server(ETCD)),
                },
            )
            .back(Back::First),
            step("api-server-gone", "the API server ends", gone(ETCD, Way::Forward)),
            step(
                "copy",
                "etcd is copied",
                Op::Build {
                    argv: argv("quantykube-migrate"),
                    creates: STORE_FILE.into(),
                    partial: vec![partial()],
                    aside: Some("/var/lib/quantykube/store/store-1.qks.undone".into()),
                },
            ),
            step(
                "store-unit",
                "the store starts",
                Op::Unit {
                    name: UNIT.into(),
                    enabled: true,
                    active: true,
                },
            ),
            step(
                "manifest-edit",
                "the manifest names the store",
                Op::EditString {
                    path: aside.into(),
                    from: ETCD.into(),
                    to: STORE.into(),
                },
            )
            .back(Back::First),
            step(
                "gate",
                "nothing was written to the store",
                Op::Gate {
                    argv: argv("store-is-copied"),
                    timeout_s: 30,
                },
            ),
            step(
                "store-api-server-gone",
                "the API server on the store ends",
                gone(STORE, Way::Back),
            ),
            step(
                "manifest-in",
                "the manifest comes back",
                Op::Return {
                    from: aside.into(),
                    to: MANIFEST.into(),
                },
            ),
            step(
                "api-server-ready",
                "the API server is ready",
                Op::Probe {
                    argv: argv("ready"),
                    timeout_s: 120,
                    way: Way::Forward,
                },
            ),
        ],
    )
}

pub fn undo() -> Plan {
    let aside = "/etc/kubernetes/quantykube/kube-apiserver.undo.yaml";
    let step = Step::new;
    let mut plan = plan(
        Direction::Undo,
        vec![
            step(
                "api-server-back",
                "the API server is ready again",
                Op::Probe {
                    argv: argv("ready"),
                    timeout_s: 120,
                    way: Way::Back,
                },
            ),
            step(
                "manifest-out",
                "the manifest goes",
                Op::Retire {
                    path: MANIFEST.into(),
                    to: aside.into(),
                    runs: Some(api_server(STORE)),
                },
            ),
            step("api-server-gone", "the API server ends", gone(STORE, Way::Forward)),
            step(
                "store-stops",
                "the store stops",
                Op::Unit {
                    name: UNIT.into(),
                    enabled: false,
                    active: false,
                },
            ),
            step(
                "copy-back",
                "the store is copied into etcd",
                Op::Run {
                    argv: argv("quantykube-copy-back"),
                    back: None,
                },
            ),
            step(
                "manifest-edit",
                "the manifest names etcd",
                Op::EditString {
                    path: aside.into(),
                    from: STORE.into(),
                    to: ETCD.into(),
                },
            ),
            step(
                "manifest-in",
                "the manifest comes back",
                Op::Return {
                    from: aside.into(),
                    to: MANIFEST.into(),
                },
            ),
            step(
                "api-server-ready",
                "the API server is ready",
                Op::Probe {
                    argv: argv("ready"),
                    timeout_s: 120,
                    way: Way::Forward,
                },
            ),
            step(
                "store-file",
                "the store's file is kept",
                Op::Retire {
                    path: STORE_FILE.into(),
                    to: "/var/lib/quantykube/store/store-2.qks.undone".into(),
                    runs: None,
                },
            ),
        ],
    );
    plan.point_of_no_return = Some("manifest-in".into());
    plan.undoes = Some("1-store".into());
    plan.check().expect("a sound plan");
    plan
}
