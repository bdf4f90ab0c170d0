//! Random plans on a small tree, with steps that build on each other: every crash of each ends moved or as before.

use quantykube_journal::system::sim::trial::{Silent, Trial};
use quantykube_journal::system::sim::{Program, Sim};
use quantykube_journal::{Back, Binding, Content, Direction, Ending, Journals, Op, Plan, Step, Way};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sha2::{Digest, Sha256};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";
const UNITS: [&str; 2] = ["one.service", "two.service"];
/// Few paths, so that steps meet on them.
const PATHS: [&str; 7] = ["/a/x", "/a/y", "/b/x", "/b/y", "/b", "/a/new", "/a/new/z"];
const TEXTS: [&str; 4] = ["color=red\n", "color=blue\n", "size=1\n", "color=red\nsize=1\n"];

fn machine(random: &mut StdRng) -> Sim {
    let mut sim = Sim::new(MACHINE);
    sim.folders("/a");
    sim.folders("/b");
    for path in &PATHS[..4] {
        if random.random_bool(0.6) {
            let mode = *[0o600, 0o644].choose(random).expect("two modes");
            sim.file(path, TEXTS.choose(random).expect("texts"), mode);
        }
    }
    sim.file("/opt/source", "from elsewhere", 0o644);
    for unit in UNITS {
        sim.file(&format!("/etc/systemd/system/{unit}"), "[Service]\n", 0o644);
    }
    sim.program("/bin/true", Program::Exit(0));
    sim
}

fn operation(random: &mut StdRng) -> Op {
    let path = |random: &mut StdRng| PATHS.choose(random).expect("paths").into();
    let truth = || vec!["/bin/true".to_owned()];
    match random.random_range(0..10) {
        0 => Op::MakeDir {
            path: path(random),
            mode: 0o700,
        },
        1 => Op::PutLink {
            path: path(random),
            target: path(random),
        },
        2 | 3 => {
            let text = *TEXTS.choose(random).expect("texts");
            Op::PutFile {
                path: path(random),
                mode: 0o644,
                content: Content::Text(text.into()),
            }
        }
        4 => {
            let sha256 = hex::encode(Sha256::digest("from elsewhere"));
            Op::PutFile {
                path: path(random),
                mode: 0o755,
                content: Content::File {
                    from: "/opt/source".into(),
                    sha256,
                },
            }
        }
        5 => {
            let (from, to) = *[("red", "blue"), ("blue", "red"), ("size=1", "size=2")]
                .choose(random)
                .expect("edits");
            Op::EditString {
                path: path(random),
                from: from.into(),
                to: to.into(),
            }
        }
        6 => Op::Retire {
            path: path(random),
            to: path(random),
            runs: None,
        },
        7 => Op::Return {
            from: path(random),
            to: path(random),
        },
        8 => {
            let on = random.random();
            Op::Unit {
                name: (*UNITS.choose(random).expect("units")).into(),
                enabled: on,
                active: on,
            }
        }
        _ => Op::Probe {
            argv: truth(),
            timeout_s: 5,
            way: Way::Both,
        },
    }
}

fn plan(steps: Vec<Step>) -> Plan {
    Plan {
        format: quantykube_journal::plan::FORMAT,
        name: "random".into(),
        direction: Direction::Install,
        version: "0".into(),
        undoes: None,
        binding: Binding {
            machine_id: MACHINE.into(),
            node: "n".into(),
            cluster: "c".into(),
        },
        point_of_no_return: None,
        steps,
    }
}

fn moves(machine: &Sim, plan: &Plan) -> bool {
    let mut sim = machine.clone();
    let session = Journals::at(Journals::ROOT).lock(&mut sim).expect("the lock is free");
    plan.check().is_ok()
        && session
            .run(plan, &mut sim, &mut Silent)
            .expect("a sound plan runs")
            .ending
            == Ending::Moved
}

/// A plan that succeeds: steps that cannot are left out.
fn sound(random: &mut StdRng, machine: &Sim, length: usize) -> Plan {
    let mut steps: Vec<Step> = Vec::new();
    for number in 0..length * 4 {
        steps.push(Step::new(format!("step-{number}"), "", operation(random)).back(Back::InTurn));
        if !moves(machine, &plan(steps.clone())) {
            steps.pop();
        }
        if steps.len() == length {
            break;
        }
    }
    plan(steps)
}

#[test]
fn random_plans_end_moved_or_as_before() {
    let seed: u64 = std::env::var("QUANTYKUBE_TEST_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("QUANTYKUBE_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut plans, mut runs) = (0, 0);
    while plans < 12 {
        let machine = machine(&mut random);
        let plan = sound(&mut random, &machine, 6);
        let trial = Trial {
            name: "random",
            machine: &machine,
            plan: &plan,
            second_every: 23,
        };
        if !trial.does_something() {
            continue;
        }
        let counts = trial.every_crash();
        trial.every_failure();
        plans += 1;
        runs += counts.single + counts.double;
    }
    println!("{plans} random plans, {runs} runs with a crash or two");
}
