//! The machine itself: files on a temporary root with a process that aborts at every effect, compared with what the
//! simulation predicts.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quantykube_base::Exit;
use quantykube_journal::system::host::Host;
use quantykube_journal::system::sim::trial::Silent;
use quantykube_journal::system::sim::{How, Program, Sim, When};
use quantykube_journal::system::{Call, Ended, Entry, Lock, SystemError, UnitState};
use quantykube_journal::{
    Back, Binding, Content, Direction, Ending, Error, Interrupt, Journals, Meta, Op, Outcome, Pid, Plan, Process, Step,
    System,
};
use sha2::{Digest, Sha256};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";
const MANIFEST: &str = "apiVersion: v1\n  - --etcd-servers=one\n";
/// Absolute paths that stand before the plan, with their text and mode.
const FILES: [(&str, &str, u32); 5] = [
    ("/etc/machine-id", MACHINE, 0o444),
    ("/etc/old.conf", "an older text", 0o640),
    ("/etc/same.conf", "same", 0o644),
    ("/etc/manifests/api.yaml", MANIFEST, 0o600),
    ("/opt/program", "a program", 0o755),
];

/// One of each operation on files, and a program that may run twice.
fn plan() -> Plan {
    let text = |path: &str, text: &str, mode| Op::PutFile {
        path: path.into(),
        mode,
        content: Content::Text(text.into()),
    };
    let step = Step::new;
    let plan = Plan {
        format: quantykube_journal::plan::FORMAT,
        name: "files".into(),
        direction: Direction::Install,
        version: "0.1.0".into(),
        undoes: None,
        binding: Binding {
            machine_id: MACHINE.into(),
            node: "node1".into(),
            cluster: "cafe".into(),
        },
        point_of_no_return: None,
        steps: vec![
            step(
                "kept-folder",
                "",
                Op::MakeDir {
                    path: "/opt/kept".into(),
                    mode: 0o755,
                },
            )
            .back(Back::Keep),
            step(
                "folder",
                "",
                Op::MakeDir {
                    path: "/opt/folder".into(),
                    mode: 0o700,
                },
            ),
            step("new-file", "", text("/opt/folder/new.conf", "new", 0o600)),
            step("old-file", "", text("/etc/old.conf", "a newer text", 0o644)),
            step("same-file", "", text("/etc/same.conf", "same", 0o644)),
            step(
                "program",
                "",
                Op::PutFile {
                    path: "/opt/folder/program".into(),
                    mode: 0o755,
                    content: Content::File {
                        from: "/opt/program".into(),
                        sha256: hex::encode(Sha256::digest("a program")),
                    },
                },
            ),
            step(
                "link",
                "",
                Op::PutLink {
                    path: "/opt/link".into(),
                    target: "/opt/folder/program".into(),
                },
            ),
            step(
                "out",
                "",
                Op::Retire {
                    path: "/etc/manifests/api.yaml".into(),
                    to: "/opt/folder/api.yaml".into(),
                    runs: None,
                },
            ),
            step(
                "run",
                "",
                Op::Run {
                    argv: vec!["/bin/true".into()],
                    back: None,
                },
            ),
            step(
                "edit",
                "",
                Op::EditString {
                    path: "/opt/folder/api.yaml".into(),
                    from: "servers=one".into(),
                    to: "servers=two".into(),
                },
            ),
            step(
                "in",
                "",
                Op::Return {
                    from: "/opt/folder/api.yaml".into(),
                    to: "/etc/manifests/api.yaml".into(),
                },
            ),
        ],
    };
    plan.check().expect("a sound plan");
    plan
}

/// The host, which aborts this process around one effect.
struct Aborting {
    host: Host,
    at: u64,
    when: When,
    effects: u64,
}

impl Aborting {
    fn effect<T>(&mut self, work: impl FnOnce(&mut Host) -> T) -> T {
        self.effects += 1;
        if self.effects == self.at && self.when == When::Before {
            std::process::abort();
        }
        let done = work(&mut self.host);
        if self.effects == self.at {
            std::process::abort();
        }
        done
    }
}

type Of<T> = Result<T, SystemError>;

#[rustfmt::skip]
impl System for Aborting {
    fn look(&self, path: &Path) -> Of<Option<Entry>> { self.host.look(path) }
    fn read(&self, path: &Path) -> Of<Vec<u8>> { self.host.read(path) }
    fn digest(&self, path: &Path) -> Of<String> { self.host.digest(path) }
    fn list(&self, path: &Path) -> Of<Vec<String>> { self.host.list(path) }
    fn create(&mut self, path: &Path, content: &[u8], meta: &Meta) -> Of<()> { self.effect(|h| h.create(path, content, meta)) }
    fn copy(&mut self, from: &Path, to: &Path, meta: &Meta) -> Of<()> { self.effect(|h| h.copy(from, to, meta)) }
    fn append(&mut self, path: &Path, content: &[u8]) -> Of<()> { self.effect(|h| h.append(path, content)) }
    fn truncate(&mut self, path: &Path, length: u64) -> Of<()> { self.effect(|h| h.truncate(path, length)) }
    fn symlink(&mut self, path: &Path, target: &Path) -> Of<()> { self.effect(|h| h.symlink(path, target)) }
    fn make_dir(&mut self, path: &Path, mode: u32) -> Of<()> { self.effect(|h| h.make_dir(path, mode)) }
    fn rename(&mut self, from: &Path, to: &Path) -> Of<()> { self.effect(|h| h.rename(from, to)) }
    fn rename_new(&mut self, from: &Path, to: &Path) -> Of<()> { self.effect(|h| h.rename_new(from, to)) }
    fn remove(&mut self, path: &Path) -> Of<()> { self.effect(|h| h.remove(path)) }
    fn remove_dir(&mut self, path: &Path) -> Of<()> { self.effect(|h| h.remove_dir(path)) }
    fn sync(&mut self, path: &Path) -> Of<()> { self.effect(|h| h.sync(path)) }
    fn sync_dir(&mut self, path: &Path) -> Of<()> { self.effect(|h| h.sync_dir(path)) }
    fn lock(&mut self, path: &Path) -> Of<Option<Lock>> { self.host.lock(path) }
    fn unit(&self, name: &str) -> Of<UnitState> { self.host.unit(name) }
    fn set_enabled(&mut self, name: &str, enabled: bool) -> Of<()> { self.host.set_enabled(name, enabled) }
    fn set_active(&mut self, name: &str, active: bool) -> Of<()> { self.host.set_active(name, active) }
    fn reload_units(&mut self) -> Of<()> { self.host.reload_units() }
    fn processes(&self, process: &Process) -> Of<Vec<Pid>> { self.host.processes(process) }
    fn group_stands(&self, process: &Process) -> Of<bool> { self.host.group_stands(process) }
    fn hold(&mut self, process: &Process) -> Of<()> { self.host.hold(process) }
    fn terminate(&mut self, pid: Pid) -> Of<()> { self.host.terminate(pid) }
    fn run(&mut self, call: &Call<'_>, line: &mut dyn FnMut(&str)) -> Of<Ended> { self.host.run(call, line) }
    fn now(&self) -> Duration { self.host.now() }
    fn wall_clock(&self) -> u64 { self.host.wall_clock() }
    fn sleep(&mut self, time: Duration) { self.host.sleep(time) }
    fn interrupt(&self) -> Option<Interrupt> { self.host.interrupt() }
}

fn go(system: &mut dyn System, what: &str) -> Result<Outcome, Error> {
    let session = Journals::at(Journals::ROOT).lock(system)?;
    match what {
        "run" => session.run(&plan(), system, &mut Silent),
        "resume" => session.resume(system, &mut Silent),
        _ => session.undo(system, &mut Silent),
    }
}

fn lay_out(root: &Path) {
    // The folders that a simulated machine has, so that both begin alike.
    for folder in [
        "etc/systemd/system",
        "usr/local/bin",
        "usr/local/lib",
        "var/lib",
        "opt",
        "etc/manifests",
    ] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (path, text, mode) in FILES {
        let path = root.join(&path[1..]);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
}

fn simulated() -> Sim {
    let mut sim = Sim::new(MACHINE);
    for (path, text, mode) in FILES {
        sim.file(path, text, mode);
    }
    sim.program("/bin/true", Program::Exit(0));
    sim
}

/// Every path with its kind, mode and text. Logs carry the time and are compared by what they cause; what a program
/// said is the machine's own.
fn real_picture(root: &Path) -> BTreeMap<PathBuf, String> {
    fn walk(root: &Path, at: &Path, picture: &mut BTreeMap<PathBuf, String>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let mode = meta.mode() & 0o7777;
            let text = if meta.is_symlink() {
                format!("link {}", std::fs::read_link(&path).unwrap().display())
            } else if meta.is_dir() {
                walk(root, &path, picture);
                "folder".into()
            } else {
                format!(
                    "file {mode:o} {}",
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap())
                )
            };
            picture.insert(Path::new("/").join(path.strip_prefix(root).unwrap()), text);
        }
    }
    let mut picture = BTreeMap::new();
    walk(root, root, &mut picture);
    picture.retain(|path, _| comparable(path));
    picture
}

fn simulated_picture(sim: &Sim) -> BTreeMap<PathBuf, String> {
    let mut picture = BTreeMap::new();
    for (path, entry) in sim.tree.walk() {
        let text = match entry {
            Entry::File(_, meta) => {
                format!(
                    "file {:o} {}",
                    meta.mode,
                    String::from_utf8_lossy(&sim.tree.read(&path).unwrap())
                )
            }
            Entry::Dir(_) => "folder".into(),
            Entry::Link(target) => format!("link {}", target.display()),
            Entry::Other => "other".into(),
        };
        picture.insert(path, text);
    }
    picture.retain(|path, _| comparable(path));
    picture
}

fn comparable(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let machine_id = path == Path::new("/etc/machine-id");
    !machine_id && name != "log" && name != "lock" && !name.ends_with(".log")
}

/// Not a test of its own: the process that [`a_real_abort_at_every_effect_is_what_the_simulation_says`] lets abort.
#[test]
#[ignore = "a part of another test"]
fn child_that_aborts() {
    let root = std::env::var("QUANTYKUBE_TEST_ROOT").expect("the other test names the root");
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let when = if number("QUANTYKUBE_TEST_BEFORE") == 1 {
        When::Before
    } else {
        When::After
    };
    let at = number("QUANTYKUBE_TEST_AT");
    let mut system = Aborting {
        host: Host::under(root),
        at,
        when,
        effects: 0,
    };
    let outcome = go(&mut system, "run").expect("the plan runs");
    assert_eq!(outcome.ending, Ending::Moved);
    assert_eq!(at, 0, "the abort has not come in {} effects", system.effects);
}

#[test]
fn a_real_abort_at_every_effect_is_what_the_simulation_says() {
    if !rustix::process::geteuid().is_root() {
        panic!("files are put as root's: run the tests as root");
    }
    let mut whole = simulated();
    let before = simulated_picture(&whole);
    assert_eq!(go(&mut whole, "run").unwrap().ending, Ending::Moved);
    let effects = whole.effects();
    let (mut compared, began) = (0, Instant::now());
    for at in 1..=effects {
        for when in [When::Before, When::After] {
            // An abort loses nothing that was written: memory is as good as a disk here, and faster.
            let folder = tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap();
            lay_out(folder.path());
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_that_aborts", "--ignored"])
                .env("QUANTYKUBE_TEST_ROOT", folder.path())
                .env("QUANTYKUBE_TEST_AT", at.to_string())
                .env("QUANTYKUBE_TEST_BEFORE", u8::from(when == When::Before).to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(child.signal(), Some(6), "{when:?} effect {at}: the abort has not come");

            let mut sim = simulated();
            sim.crash_at(at, when);
            assert!(go(&mut sim, "run").is_err() && sim.has_crashed());
            sim.restart(How::Kill);
            let story = || format!("{when:?} effect {at} ({})", whole.trace[at as usize - 1]);
            assert_eq!(real_picture(folder.path()), simulated_picture(&sim), "{}", story());

            // Each way on, chosen in turn, ends on the machine as in the simulation.
            let what = if (at + u64::from(when == When::Before)).is_multiple_of(2) {
                "resume"
            } else {
                "undo"
            };
            let ended = |done: Result<Outcome, Error>| match done {
                Ok(outcome) => Some(outcome.ending),
                Err(Error::NoOpenMove) => None,
                Err(error) => panic!("{}: {what}: {error:?}", story()),
            };
            let real = ended(go(&mut Host::under(folder.path()), what));
            assert_eq!(real, ended(go(&mut sim, what)), "{}: {what}", story());
            assert_eq!(
                real_picture(folder.path()),
                simulated_picture(&sim),
                "{}: {what}",
                story()
            );
            if real == Some(Ending::AsBefore) {
                let mut after = real_picture(folder.path());
                after.retain(|path, _| {
                    let kept = Path::new(Journals::ROOT);
                    !path.starts_with(kept) && !kept.starts_with(path) && path != Path::new("/opt/kept")
                });
                let mut before = before.clone();
                before.retain(|path, _| !Path::new(Journals::ROOT).starts_with(path));
                assert_eq!(after, before, "{}: {what}", story());
            }
            compared += 1;
        }
    }
    println!(
        "{compared} aborts over {effects} effects compared in {:?}",
        began.elapsed()
    );
    assert_eq!(compared, effects * 2);
}

#[test]
fn attributes_owner_and_mode_survive_an_edit_and_its_undo() {
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path());
    let path = folder.path().join("etc/manifests/api.yaml");
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    let set = rustix::fs::setxattr(&path, "user.quantykube", b"a value", rustix::fs::XattrFlags::empty());
    let xattrs = set.is_ok();
    if !xattrs {
        println!(
            "skipped: extended attributes, which {} does not have",
            folder.path().display()
        );
    }
    let host = Host::under(folder.path());
    let before = host.look(Path::new("/etc/manifests/api.yaml")).unwrap();
    let mut host = host;
    assert_eq!(go(&mut host, "run").unwrap().ending, Ending::Moved);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), MANIFEST.replace("one", "two"));
    let after = host.look(Path::new("/etc/manifests/api.yaml")).unwrap();
    assert_eq!(after, before);
    let Some(Entry::File(_, meta)) = after else {
        panic!("a file")
    };
    assert_eq!((meta.uid, meta.gid, meta.mode), (1234, 4321, 0o600));
    assert_eq!(
        meta.xattrs.get("user.quantykube").map(String::as_str),
        xattrs.then(|| hex::encode("a value")).as_deref()
    );
}

#[test]
fn what_is_kept_in_a_journal_is_for_root_alone() {
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path());
    assert_eq!(
        go(&mut Host::under(folder.path()), "run").unwrap().ending,
        Ending::Moved
    );
    let root = folder.path().join(&Journals::ROOT[1..]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&root), 0o700);
    let journal = root.join("1-files");
    for name in ["plan.json", "log", "reserve", "kept/3"] {
        assert_eq!(mode(&journal.join(name)), 0o600, "{name}");
    }
    assert_eq!(
        std::fs::read_to_string(journal.join("kept/3")).unwrap(),
        "an older text"
    );
}

#[test]
fn two_runs_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path());
    let journals = Journals::at(Journals::ROOT);
    let held = journals.lock(&mut Host::under(folder.path())).unwrap();
    let other = journals.lock(&mut Host::under(folder.path()));
    let Err(error) = other else { panic!("two locks") };
    assert!(matches!(error, Error::Locked { .. }) && error.exit() == Exit::Refused);
    drop(held);
    assert!(journals.lock(&mut Host::under(folder.path())).is_ok());
}
