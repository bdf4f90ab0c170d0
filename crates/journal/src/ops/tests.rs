//! Twice is once: each operation done twice, each undo done twice, and a look at what an undo refuses.

use std::path::{Path, PathBuf};

use super::*;
use crate::plan::{Back, Content, Process, Way};
use crate::system::sim::trial::Silent;
use crate::system::sim::{Program, Sim, Writes};

const FOLDER: &str = "/journal";
const UNIT: &str = "one.service";

/// A machine with something in every place where an operation may find something.
fn machine() -> Sim {
    let mut sim = Sim::new("0123456789abcdef0123456789abcdef");
    sim.folders("/journal/kept");
    sim.folders("/journal/out");
    sim.file("/etc/systemd/system/one.service", "[Service]", 0o644);
    sim.file("/etc/old", "old", 0o640);
    sim.file("/etc/edited", "a=1\nb=2\n", 0o600);
    sim.symlink(Path::new("/etc/link"), Path::new("/somewhere")).unwrap();
    sim.program("true", Program::Exit(0));
    sim.program("false", Program::Exit(1));
    sim.program(
        "migrate",
        Program::Migrate {
            to: "/var/lib/store".into(),
            partial: "/var/lib/.store".into(),
        },
    );
    sim
}

fn argv(name: &str) -> Vec<String> {
    vec![format!("/bin/{name}")]
}

/// Each operation in each situation that it tells apart.
fn operations() -> Vec<Op> {
    let put = |path: &str, text: &str| Op::PutFile {
        path: path.into(),
        mode: 0o644,
        content: Content::Text(text.into()),
    };
    let link = |path: &str| Op::PutLink {
        path: path.into(),
        target: "/elsewhere".into(),
    };
    let process = Process {
        program: "server".into(),
        args: vec!["--one".into()],
        ..Process::default()
    };
    let gone = |way| Op::WaitGone {
        process: process.clone(),
        timeout_s: 5,
        term_after_s: None,
        quiet_ms: 200,
        way,
    };
    vec![
        Op::MakeDir {
            path: "/etc/new".into(),
            mode: 0o755,
        },
        Op::MakeDir {
            path: "/opt".into(),
            mode: 0o755,
        },
        put("/etc/new", "new"),
        put("/etc/old", "new"),
        put("/etc/systemd/system/one.service", "[Service]"),
        link("/etc/new"),
        link("/etc/link"),
        Op::PutLink {
            path: "/etc/link".into(),
            target: "/somewhere".into(),
        },
        Op::EditString {
            path: "/etc/edited".into(),
            from: "b=2".into(),
            to: "b=3".into(),
        },
        Op::EditString {
            path: "/etc/edited".into(),
            from: "b=1".into(),
            to: "b=2".into(),
        },
        Op::Retire {
            path: "/etc/old".into(),
            to: "/opt/old".into(),
            runs: None,
        },
        Op::Return {
            from: "/etc/old".into(),
            to: "/etc/new".into(),
        },
        Op::Build {
            argv: argv("migrate"),
            creates: "/var/lib/store".into(),
            partial: vec!["/var/lib/.store".into()],
            aside: None,
        },
        Op::Run {
            argv: argv("true"),
            back: Some(argv("true")),
        },
        Op::Unit {
            name: UNIT.into(),
            enabled: true,
            active: true,
        },
        Op::Unit {
            name: UNIT.into(),
            enabled: false,
            active: false,
        },
        Op::ReloadUnits { way: Way::Both },
        gone(Way::Both),
        Op::Probe {
            argv: argv("true"),
            timeout_s: 5,
            way: Way::Both,
        },
        Op::Gate {
            argv: argv("true"),
            timeout_s: 5,
        },
    ]
}

fn with<T>(sim: &mut Sim, op: &Op, work: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let step = Step {
        name: "step".into(),
        text: String::new(),
        back: Back::InTurn,
        op: op.clone(),
    };
    let folder = Path::new(FOLDER);
    let (observer, heed) = (&mut Silent, Heed::All);
    work(&mut Context {
        system: sim,
        observer,
        folder,
        index: 0,
        step: &step,
        heed,
    })
}

/// Files, links and units, without the journal.
fn picture(sim: &Sim) -> Vec<String> {
    let mut picture: Vec<String> = sim.node.units().iter().map(|unit| format!("{unit:?}")).collect();
    for (path, entry) in sim.tree.walk() {
        if !path.starts_with(FOLDER) {
            let text = sim
                .tree
                .read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            picture.push(format!("{} {entry:?} {text:?}", path.display()));
        }
    }
    picture
}

#[test]
fn twice_is_once() {
    for op in operations() {
        let mut sim = machine();
        let before = picture(&sim);
        let noted = with(&mut sim, &op, observe).unwrap();
        assert_eq!(picture(&sim), before, "{op:?}: to look changes nothing");
        with(&mut sim, &op, |context| act(context, &noted)).unwrap();
        let done = picture(&sim);
        let effects = sim.effects() as usize;
        with(&mut sim, &op, |context| act(context, &noted)).unwrap();
        assert_eq!(picture(&sim), done, "{op:?}: done twice");
        let harmless = ["sync", "enable", "disable", "reload"];
        let more: Vec<_> = sim.trace[effects..]
            .iter()
            .filter(|e| !harmless.iter().any(|h| e.starts_with(h)))
            .collect();
        assert!(more.is_empty(), "{op:?}: the second time did {more:?}");

        with(&mut sim, &op, |context| undo(context, &noted, true)).unwrap();
        assert_eq!(picture(&sim), before, "{op:?}: undone");
        with(&mut sim, &op, |context| undo(context, &noted, true)).unwrap();
        assert_eq!(picture(&sim), before, "{op:?}: undone twice");
        // Forward again, as after a gate that said no.
        with(&mut sim, &op, |context| act(context, &noted)).unwrap();
        assert_eq!(picture(&sim), done, "{op:?}: done again");
    }
}

#[test]
fn an_undo_before_the_act_changes_nothing() {
    for op in operations() {
        let mut sim = machine();
        let before = picture(&sim);
        let noted = with(&mut sim, &op, observe).unwrap();
        with(&mut sim, &op, |context| undo(context, &noted, true)).unwrap();
        assert_eq!(picture(&sim), before, "{op:?}");
    }
}

/// Someone else changes the path between the act and the undo.
#[test]
fn an_undo_refuses_what_is_neither_ours_nor_the_old() {
    let changed = |op: &Op, path: &str| {
        let mut sim = machine();
        let noted = with(&mut sim, op, observe).unwrap();
        with(&mut sim, op, |context| act(context, &noted)).unwrap();
        if sim.tree.look(Path::new(path)).unwrap().is_some() {
            sim.remove(Path::new(path)).unwrap();
        }
        sim.file(path, "someone else's", 0o644);
        let undone = with(&mut sim, op, |context| undo(context, &noted, true));
        let Err(Trouble::Failed { message, .. }) = undone else {
            panic!("{op:?}: {undone:?}")
        };
        assert!(message.contains(path), "{op:?}: {message}");
        assert_eq!(sim.read(Path::new(path)).unwrap(), b"someone else's", "{op:?}");
    };
    let operations = operations();
    changed(&operations[2], "/etc/new");
    changed(&operations[3], "/etc/old");
    changed(&operations[5], "/etc/new");
    changed(&operations[6], "/etc/link");
    changed(&operations[8], "/etc/edited");
    changed(&operations[10], "/etc/old");
}

#[test]
fn a_look_refuses_what_is_in_the_way() {
    let mut sim = machine();
    sim.file("/opt/old", "in the way", 0o644);
    sim.file("/var/lib/store", "in the way", 0o644);
    sim.file("/etc/edited", "b=2\nb=2\n", 0o644);
    let refuses = [
        Op::MakeDir {
            path: "/etc/old".into(),
            mode: 0o755,
        },
        Op::PutFile {
            path: "/etc/link".into(),
            mode: 0o644,
            content: Content::Text(String::new()),
        },
        Op::PutLink {
            path: "/etc/old".into(),
            target: "/elsewhere".into(),
        },
        Op::EditString {
            path: "/etc/edited".into(),
            from: "b=2".into(),
            to: "b=3".into(),
        },
        Op::EditString {
            path: "/etc/nothing".into(),
            from: "b=2".into(),
            to: "b=3".into(),
        },
        Op::Retire {
            path: "/etc/old".into(),
            to: "/opt/old".into(),
            runs: None,
        },
        Op::Retire {
            path: "/etc/nothing".into(),
            to: "/opt/new".into(),
            runs: None,
        },
        Op::Build {
            argv: argv("migrate"),
            creates: "/var/lib/store".into(),
            partial: vec![],
            aside: None,
        },
    ];
    let before = picture(&sim);
    for op in refuses {
        let looked = with(&mut sim, &op, observe);
        assert!(matches!(looked, Err(Trouble::Failed { .. })), "{op:?}: {looked:?}");
        assert_eq!(picture(&sim), before, "{op:?}");
    }
}

#[test]
fn a_file_that_is_not_what_the_plan_says_is_never_put() {
    let mut sim = machine();
    let content = Content::File {
        from: PathBuf::from("/etc/edited"),
        sha256: "0".repeat(64),
    };
    let op = Op::PutFile {
        path: "/etc/new".into(),
        mode: 0o755,
        content,
    };
    let noted = with(&mut sim, &op, observe).unwrap();
    let before = picture(&sim);
    let acted = with(&mut sim, &op, |context| act(context, &noted));
    assert!(
        matches!(
            acted,
            Err(Trouble::Failed {
                exit: Exit::NotVerified,
                ..
            })
        ),
        "{acted:?}"
    );
    assert_eq!(picture(&sim), before);
}

#[test]
fn a_gate_is_asked_only_where_it_must_be() {
    let mut sim = machine();
    let op = Op::Gate {
        argv: argv("false"),
        timeout_s: 5,
    };
    assert!(with(&mut sim, &op, |context| undo(context, &Before::Nothing, false)).is_ok());
    let asked = with(&mut sim, &op, |context| undo(context, &Before::Nothing, true));
    assert!(matches!(asked, Err(Trouble::Barred(_))), "{asked:?}");
}

#[test]
fn a_process_that_stays_bars_a_gate_and_fails_elsewhere() {
    let mut sim = machine();
    sim.file(
        "/etc/kubernetes/manifests/api.yaml",
        "kube-apiserver\n- --etcd-servers=x:2379\n",
        0o600,
    );
    sim.node.writes = Writes::None;
    sim.pass(std::time::Duration::from_secs(5));
    let args = vec!["--etcd-servers=x:2379".to_owned()];
    let process = Process {
        program: "kube-apiserver".into(),
        args,
        ..Process::default()
    };
    let op = Op::WaitGone {
        process,
        timeout_s: 2,
        term_after_s: None,
        quiet_ms: 0,
        way: Way::Both,
    };
    let waited = with(&mut sim, &op, |context| act(context, &Before::Nothing));
    assert!(matches!(waited, Err(Trouble::Failed { .. })), "{waited:?}");
    let behind = with(&mut sim, &op, |context| undo(context, &Before::Nothing, true));
    assert!(matches!(behind, Err(Trouble::Barred(_))), "{behind:?}");
}
