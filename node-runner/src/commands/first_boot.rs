//! `first-boot`: what cloud-init has a node do with a bundle. It verifies, waits for what the move needs, makes a cluster
//! first where it is asked to, and leaves its outcome in a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::Verified;
use quantykube_journal::System;
use quantykube_journal::system::{Call, Ended, Heed, Interrupt, SystemError};
use serde_json::json;

use crate::commands::Context;
use crate::commands::bundle::{self, Meant};
use crate::facts::manifest::Manifest;
use crate::facts::{Known, api_server, chain, kubelet};
use crate::first_boot::{self, Init, Next, Outcome, OutcomeFile, Role, Seen};
use crate::moves::places;

/// What was typed.
#[derive(Debug)]
pub struct Request {
    /// What the node is meant to be.
    pub role: Role,
    /// How long to wait for what the move needs.
    pub deadline: Duration,
    /// A configuration of `kubeadm init`, for a node without a cluster.
    pub kubeadm: Option<PathBuf>,
    /// The id and key of the bundle.
    pub meant: Meant,
    /// The id as it was typed, for the move.
    pub id: Option<String>,
}

const POLL: Duration = Duration::from_secs(2);
/// How long one answer of the API server may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two tries of a move that a check refused.
const AFTER_REFUSAL: Duration = Duration::from_secs(20);
/// The longest that one program of the way to a cluster may take.
const PROGRAM: Duration = Duration::from_secs(1800);
/// Where a kubelet without a configuration will look.
const STATIC_PODS: &str = "/etc/kubernetes/manifests";

/// The programs that it runs.
#[derive(Debug)]
pub struct Programs {
    /// `install store`.
    pub install: Vec<String>,
    /// The way to a cluster, in order.
    pub init: Vec<Vec<String>>,
}

/// Verifies and goes on to an outcome.
pub fn run(context: &Context, request: &Request) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    if let Ok(Some(earlier)) = OutcomeFile::read(&context.root) {
        let text = format!("already so: an earlier boot ended with: {}", earlier.message);
        let value = json!({"what": "first-boot", "changed": false, "outcome": earlier});
        context.reporter.result(&text, value);
        return Ok(Exit::Done);
    }
    let end = match bundle::verify(context, None, &request.meant) {
        Ok((verified, _)) => {
            let programs = programs(&verified, request)?;
            let mut look = |system: &dyn System| look(context, system, request);
            to_the_end(system, &programs, request.deadline, &mut look, &mut |text| {
                context.reporter.step("first-boot", text);
            })?
        }
        Err(failure) => Some(Outcome {
            exit: failure.exit.code(),
            message: format!(
                "{}; nothing was touched",
                [vec![failure.message.clone()], failure.chain()].concat().join(": ")
            ),
            name: failure.name.to_owned(),
            outcome: "failed".into(),
        }),
    };
    let Some(outcome) = end else {
        return Err(
            Failure::new(Exit::Interrupted, "shutdown", "the system is shutting down")
                .hint("the next boot goes on by itself"),
        );
    };
    OutcomeFile::write(system, &outcome).map_err(|error| first_boot::failure(&error))?;
    match Exit::ALL.into_iter().find(|exit| exit.code() == outcome.exit) {
        Some(Exit::Done) => {
            let value = json!({"what": "first-boot", "changed": outcome.outcome == "done", "outcome": outcome});
            context.reporter.result(&format!("{}: {}", outcome.outcome, outcome.message), value);
            Ok(Exit::Done)
        }
        exit => Err(Failure::new(exit.unwrap_or(Exit::Failed), "first-boot", outcome.message)
            .hint("journalctl -u quantykube-first-boot; after the cure: sh /usr/local/lib/quantykube/first-boot/start begin")),
    }
}

/// On this node.
fn look(context: &Context, system: &dyn System, request: &Request) -> Result<Seen, Failure> {
    let folder = kubelet::static_pod_path(&context.root).unwrap_or_else(|_| STATIC_PODS.into());
    let path = folder.join(places::API_SERVER_MANIFEST);
    let mut ready = || -> Known<()> {
        let manifest = Manifest::read(&context.root, &path).map_err(|error| chain(&error))?;
        let manifest = manifest.ok_or_else(|| format!("{} is not there any more", path.display()))?;
        let endpoint = api_server::endpoint(&manifest.flags()).map_err(|error| chain(&error))?;
        api_server::ready(&context.root, &endpoint, ANSWER).map_err(|error| chain(&error))
    };
    let journals = context.root.journals();
    first_boot::look(
        system,
        &journals,
        &path,
        request.role,
        request.kubeadm.is_some(),
        &mut ready,
    )
}

/// The bundle's own programs where it has them, else the node's.
fn programs(verified: &Verified, request: &Request) -> Result<Programs, Failure> {
    let root = verified.root().ok_or_else(|| {
        Failure::new(Exit::Usage, "not-extracted", "first-boot runs from an extracted bundle")
            .hint("extract the bundle (tar xzf FILE) and call ./run in its folder")
    })?;
    let text = |path: &Path| path.display().to_string();
    let of = |name: &str| match verified.file(&format!("bin/{name}")) {
        Some(_) => text(&root.join("bin").join(name)),
        None => format!("/usr/bin/{name}"),
    };
    let mut install = vec![text(&root.join("run")), "install".into(), "store".into()];
    if let Some(id) = &request.id {
        install.extend(["--id".to_owned(), id.clone()]);
    }
    if let Some(key) = &request.meant.key {
        install.extend(["--public-key".to_owned(), key.to_string()]);
    }
    let mut init = Vec::new();
    if let Some(config) = &request.kubeadm {
        if verified.file("images/index.json").is_some() {
            let archive = format!("{}/images.tar", places::FIRST_BOOT);
            let images = text(&root.join("images"));
            init.push(
                ["/usr/bin/tar", "-cf", &archive, "-C", &images, "."]
                    .map(String::from)
                    .to_vec(),
            );
            init.push(
                [&of("ctr"), "--namespace", "k8s.io", "images", "import", &archive]
                    .map(String::from)
                    .to_vec(),
            );
            init.push(["/usr/bin/rm", "-f", &archive].map(String::from).to_vec());
        }
        init.push(vec![of("kubeadm"), "init".into(), "--config".into(), text(config)]);
    }
    Ok(Programs { install, init })
}

/// Takes steps until there is an outcome. `None`: the system is shutting down, and the next boot goes on.
///
/// # Errors
/// A node that cannot be looked at or written to.
pub fn to_the_end(
    system: &mut dyn System,
    programs: &Programs,
    deadline: Duration,
    look: &mut dyn FnMut(&dyn System) -> Result<Seen, Failure>,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Outcome>, Failure> {
    let failure = |error: SystemError| first_boot::failure(&error);
    let begun = system.now();
    let mut refusals = 0;
    let mut said = String::new();
    loop {
        match system.interrupt() {
            Some(Interrupt::Stop) => return Ok(None),
            Some(Interrupt::PutBack) => return Ok(Some(stopped())),
            None => {}
        }
        let seen = Seen {
            refusals,
            late: system.now().saturating_sub(begun) >= deadline,
            ..look(system)?
        };
        match first_boot::next(&seen) {
            Next::End(outcome) => return Ok(Some(outcome)),
            Next::Wait(why) => {
                // Once for each reason, not every two seconds.
                if why != said {
                    say(&format!("waiting: {why}"));
                    said = why;
                }
                system.sleep(POLL);
            }
            Next::Init => {
                debug_assert_eq!(seen.init, Init::Asked);
                first_boot::note_init(system, false).map_err(failure)?;
                for argv in &programs.init {
                    say(&format!("running {}", argv.join(" ")));
                    match call(system, argv, Some(PROGRAM), say)? {
                        Ended::Code(0) => {}
                        Ended::Interrupted if system.interrupt() == Some(Interrupt::Stop) => return Ok(None),
                        ended => return Ok(Some(program_failed(argv, &ended))),
                    }
                }
                first_boot::note_init(system, true).map_err(failure)?;
            }
            Next::Move => {
                say("running install store");
                // It runs in a unit of its own; each of its steps has its own end.
                match call(system, &programs.install, None, say)? {
                    // The next look finds it in force.
                    Ended::Code(0) => {}
                    Ended::Code(code) if code == i32::from(Exit::Refused.code()) => {
                        refusals += 1;
                        if refusals < first_boot::REFUSALS_MAX {
                            system.sleep(AFTER_REFUSAL);
                        }
                    }
                    Ended::Interrupted if system.interrupt() == Some(Interrupt::Stop) => return Ok(None),
                    ended => return Ok(Some(program_failed(&programs.install, &ended))),
                }
            }
        }
    }
}

fn call(
    system: &mut dyn System,
    argv: &[String],
    timeout: Option<Duration>,
    say: &mut dyn FnMut(&str),
) -> Result<Ended, Failure> {
    let folder = Path::new(places::FIRST_BOOT);
    let call = Call {
        argv,
        log: &folder.join("log"),
        move_dir: folder,
        timeout,
        silence: None,
        heed: Heed::All,
    };
    first_boot::folders(system).map_err(|error| first_boot::failure(&error))?;
    system
        .run(&call, &mut |line| say(line))
        .map_err(|error| first_boot::failure(&error))
}

fn stopped() -> Outcome {
    Outcome {
        exit: Exit::Failed.code(),
        message: "it was stopped before anything was moved".into(),
        name: "stopped".into(),
        outcome: "failed".into(),
    }
}

fn program_failed(argv: &[String], ended: &Ended) -> Outcome {
    let how = match ended {
        Ended::Code(code) => format!("ended with {code}"),
        Ended::Signal(signal) => format!("was ended by signal {signal}"),
        Ended::TimedOut => format!("did not end within {} s", PROGRAM.as_secs()),
        Ended::Silent => "said nothing for too long".into(),
        Ended::Interrupted => "was interrupted".into(),
    };
    let own = |code: &i32| Exit::ALL.into_iter().find(|exit| i32::from(exit.code()) == *code);
    // The move's codes are ours; those of others mean something else.
    let exit = match ended {
        Ended::Code(code) if argv.iter().any(|word| word == "store") => own(code).unwrap_or(Exit::Failed),
        _ => Exit::Failed,
    };
    let program = argv.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(" ");
    Outcome {
        exit: exit.code(),
        message: format!("{program} {how}: see {}/log", places::FIRST_BOOT),
        name: "program".into(),
        outcome: "failed".into(),
    }
}

#[cfg(test)]
mod tests {
    use quantykube_journal::Journals;
    use quantykube_journal::system::sim::{Program, Sim};

    use super::*;

    const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

    fn programs() -> Programs {
        let words = |text: &str| text.split(' ').map(String::from).collect();
        Programs {
            install: words("/b/run install store"),
            init: vec![words("/b/ctr import"), words("/b/kubeadm init")],
        }
    }

    /// Runs on a simulated machine; `ready` is asked each time.
    fn end(sim: &mut Sim, kubeadm: bool, ready: &mut dyn FnMut(u32) -> Known<()>) -> (Outcome, Vec<String>) {
        let journals = Journals::at(places::JOURNALS);
        let (mut asked, mut said) = (0, Vec::new());
        let mut look = |system: &dyn System| {
            asked += 1;
            let mut answer = || ready(asked);
            first_boot::look(
                system,
                &journals,
                Path::new(MANIFEST),
                Role::ControlPlane,
                kubeadm,
                &mut answer,
            )
        };
        let deadline = Duration::from_secs(600);
        let outcome = to_the_end(sim, &programs(), deadline, &mut look, &mut |line| {
            said.push(line.to_owned())
        })
        .unwrap();
        (outcome.unwrap(), said)
    }

    fn machine() -> Sim {
        let mut sim = Sim::new("machine");
        for folder in ["/var/lib", "/etc/kubernetes/manifests", "/run/containerd"] {
            sim.folders(folder);
        }
        sim
    }

    #[test]
    fn a_cluster_that_never_answers_ends_at_the_deadline_and_runs_nothing() {
        let mut sim = machine();
        sim.file(MANIFEST, "pod", 0o600);
        let before = sim.now();
        let (outcome, said) = end(&mut sim, false, &mut |_| Err("refused".into()));
        assert_eq!((outcome.exit, outcome.name.as_str()), (4, "deadline"), "{outcome:?}");
        let took = sim.now() - before;
        assert!(
            took >= Duration::from_secs(600) && took < Duration::from_secs(610),
            "{took:?}"
        );
        assert_eq!(said.len(), 1, "{said:?}");
    }

    #[test]
    fn it_moves_once_the_api_server_answers_and_tries_a_refusal_again() {
        let mut sim = machine();
        sim.file(MANIFEST, "pod", 0o600);
        sim.program("install store", Program::Exit(4));
        let (outcome, said) = end(&mut sim, false, &mut |asked| match asked {
            1..=3 => Err("not yet".into()),
            _ => Ok(()),
        });
        assert_eq!((outcome.exit, outcome.name.as_str()), (4, "refused"), "{outcome:?}");
        let moves = said
            .iter()
            .filter(|line| line.as_str() == "running install store")
            .count();
        assert_eq!(moves, first_boot::REFUSALS_MAX as usize, "{said:?}");
    }

    #[test]
    fn a_move_that_failed_is_an_outcome_with_its_own_code() {
        for code in [1, 3, 5, 8] {
            let mut sim = machine();
            sim.file(MANIFEST, "pod", 0o600);
            sim.program("install store", Program::Exit(code));
            let (outcome, _) = end(&mut sim, false, &mut |_| Ok(()));
            assert_eq!(
                (i32::from(outcome.exit), outcome.outcome.as_str()),
                (code, "failed"),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn kubeadm_runs_once_and_one_that_failed_or_was_cut_short_never_again() {
        let mut sim = machine();
        sim.file("/run/containerd/containerd.sock", "", 0o600);
        sim.program("ctr import", Program::Exit(0));
        sim.program("kubeadm init", Program::Exit(1));
        let (outcome, said) = end(&mut sim, true, &mut |_| Ok(()));
        assert_eq!((outcome.exit, outcome.name.as_str()), (1, "program"), "{outcome:?}");
        assert!(
            said.iter().any(|line| line.contains("running /b/kubeadm init")),
            "{said:?}"
        );
        let (outcome, said) = end(&mut sim, true, &mut |_| Ok(()));
        assert_eq!((outcome.exit, outcome.name.as_str()), (8, "init-cut"), "{outcome:?}");
        assert!(said.is_empty(), "{said:?}");
    }

    #[test]
    fn an_outcome_is_written_whole_and_read_by_a_shell() {
        let mut sim = machine();
        let outcome = program_failed(&programs().install, &Ended::Code(5));
        OutcomeFile::write(&mut sim, &outcome).unwrap();
        OutcomeFile::write(&mut sim, &outcome).unwrap();
        let text = sim.read(&Path::new(places::FIRST_BOOT).join("outcome.json")).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().any(|line| line == "  \"exit\": 5,"), "{text}");
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
