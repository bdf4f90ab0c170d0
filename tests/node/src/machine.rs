//! The node as a machine: on, off, on again, gone.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::boot::{self, Options};
use crate::group::Group;
use crate::{places, still};

/// How long a boot may take on a machine that is busy with other things.
const BOOT: Duration = Duration::from_secs(120);

/// A node, from its first boot until it is dropped. Nothing of it is left then, on disk or among the processes.
pub struct Node {
    pub(crate) options: Options,
    folder: PathBuf,
    power: Option<Power>,
    pub(crate) group: Group,
    /// Held until the last process of the node is gone, also if the test is killed.
    lock: File,
}

/// What runs while the node is on.
struct Power {
    nspawn: Child,
    /// The node's process 1, as this machine numbers it.
    leader: Pid,
    watchdog: Child,
    /// The watchdog acts when this closes, which it does even if the test is killed.
    leash: Option<ChildStdin>,
}

impl Node {
    /// Makes a new node and boots it. Returns when its systemd has started everything.
    ///
    /// # Panics
    /// If something is missing on this machine (the message says what to run), the node does not boot or one of its
    /// units fails.
    pub fn boot(options: Options) -> Node {
        let mut node = Node::make(options);
        let state = node.start();
        if state != "running" {
            let failed = node.exec(&["systemctl", "--failed", "--full", "--no-pager", "status"]);
            panic!("the node is {state}:\n{}", String::from_utf8_lossy(&failed.stdout));
        }
        node
    }

    /// Makes a new node and leaves it off, so that files can be put into it before its first boot.
    pub fn make(options: Options) -> Node {
        assert!(rustix::process::geteuid().is_root(), "only root can boot a node");
        // First, for they panic if something is missing.
        places::template();
        places::peers();
        let (slot, lock) = take_slot();
        let folder = places::node(slot);
        // Whoever holds the lock is the only one there: what lies there is from a test that was killed.
        remove(&folder);
        fs::create_dir_all(&folder).unwrap_or_else(|err| panic!("cannot make {}: {err}", folder.display()));
        let node = Node {
            options,
            folder,
            power: None,
            group: Group::make(slot),
            lock,
        };
        boot::make_root(&node.root(), &node.options, &node.group);
        node
    }

    /// The node's root folder as this machine sees it. `/run`, `/proc`, `/sys` and `/dev` are not in it.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A path in the node, as this machine sees it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root().join(inside.trim_start_matches('/'))
    }

    /// Whether the node is on.
    pub fn is_on(&self) -> bool {
        self.power.is_some()
    }

    /// The process id of the node's process 1 on this machine.
    ///
    /// # Panics
    /// If the node is off.
    pub fn leader(&self) -> u32 {
        self.leader_pid().as_raw_nonzero().get() as u32
    }

    pub(crate) fn leader_pid(&self) -> Pid {
        self.power.as_ref().expect("the node is on").leader
    }

    /// Turns the node on and returns when its systemd has started everything: `running`, or `degraded` if a unit
    /// failed.
    pub fn start(&mut self) -> String {
        self.turn_on();
        self.wait_for_systemd()
    }

    /// Turns the node on and returns as soon as its systemd runs. Units are still starting.
    pub fn turn_on(&mut self) {
        assert!(self.power.is_none(), "the node is on already");
        let console = File::options()
            .create(true)
            .append(true)
            .open(self.console())
            .unwrap_or_else(|err| panic!("cannot open {}: {err}", self.console().display()));
        let mut nspawn = boot::nspawn(&self.root(), &self.options, &self.group)
            .arg("--boot")
            .stdout(console.try_clone().expect("a file handle can be doubled"))
            .stderr(console)
            .spawn()
            .unwrap_or_else(|err| panic!("cannot run systemd-nspawn: {err}. hint: run scripts/setup --tests"));
        let mut watchdog = watchdog(nspawn.id(), &self.lock);
        let leash = watchdog.stdin.take();
        let leader = wait_for_leader(&mut nspawn, &self.console());
        self.power = Some(Power {
            nspawn,
            leader,
            watchdog,
            leash,
        });
    }

    /// Ends the node as a power cut does, but that what was written reaches the disk: every process of it ends at
    /// once, none is asked, and none lives to see another one gone.
    pub fn kill(&mut self) {
        let leader = self.leader_pid();
        let entered = still::stop_all(leader);
        kill_process(leader, Signal::KILL).expect("the node's process 1 runs");
        still::let_go(&entered);
        self.power_off();
    }

    /// Shuts the node down in order, as `systemctl poweroff` does, and waits until it is off.
    pub fn shut_down(&mut self, at_most: Duration) {
        self.run(&["systemctl", "poweroff"]);
        let begun = Instant::now();
        let power = self.power.as_mut().expect("the node is on");
        while power.nspawn.try_wait().expect("a child can be asked").is_none() {
            assert!(begun.elapsed() < at_most, "the node is not off after {at_most:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.power_off();
    }

    /// Shuts the node down in order within `at_most`, and starts it again as [`Node::start`] does.
    pub fn reboot(&mut self, at_most: Duration) -> String {
        self.shut_down(at_most);
        self.start()
    }

    /// Waits for the rest of the node's processes and forgets them.
    fn power_off(&mut self) {
        let Some(mut power) = self.power.take() else { return };
        drop(power.leash.take());
        let _ = power.nspawn.wait();
        let _ = power.watchdog.wait();
    }

    /// Waits until the node's systemd has nothing left to start; returns `running` or `degraded`.
    pub fn wait_for_systemd(&self) -> String {
        let begun = Instant::now();
        loop {
            let output = self.exec(&["timeout", "10", "systemctl", "is-system-running", "--wait"]);
            let state = String::from_utf8_lossy(&output.stdout).trim().to_string();
            if state == "running" || state == "degraded" {
                return state;
            }
            assert!(
                begun.elapsed() < BOOT,
                "the node's systemd says {state:?} after {BOOT:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// What a person wants to see of a node on which a test failed.
    fn print_logs(&self) {
        eprintln!("--- console\n{}", end_of(&self.console(), 20));
        if self.is_on() {
            let journal = self.exec(&["journalctl", "--no-pager", "--lines=60", "--output=short-precise"]);
            eprintln!("--- journal\n{}", String::from_utf8_lossy(&journal.stdout));
        }
        for log in self.pod_logs() {
            eprintln!("--- {}\n{}", log.display(), end_of(&log, 15));
        }
    }

    /// The newest log of each pod, as paths of this machine.
    pub fn pod_logs(&self) -> Vec<PathBuf> {
        let list = |folder: &Path| -> Vec<PathBuf> {
            fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .collect()
        };
        let modified = |path: &PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let containers = list(&self.path("/var/log/pods")).into_iter().flat_map(|pod| list(&pod));
        containers
            .filter_map(|container| list(&container).into_iter().max_by_key(modified))
            .collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        self.power_off();
        remove(&self.folder);
    }
}

/// The first slot that is free, with its lock. Who finds none waits, in no order: tests are the only ones who ask.
fn take_slot() -> (usize, File) {
    let mut told = false;
    loop {
        for slot in 0..places::SLOTS {
            let path = places::lock(slot);
            let lock = File::options().create(true).append(true).open(&path);
            let lock = lock.unwrap_or_else(|err| panic!("cannot open {}: {err}", path.display()));
            match lock.try_lock() {
                Ok(()) => return (slot, lock),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(err)) => panic!("cannot lock {}: {err}", path.display()),
            }
        }
        if !std::mem::replace(&mut told, true) {
            eprintln!(
                "node: {} nodes of the tests run on this machine; waiting for an end",
                places::SLOTS
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A process that ends the node when the test lets go of its input, in whatever way. SIGKILL to nspawn would leave the
/// node running, so it is the node's process 1 that has to go. It holds the lock as its output meanwhile.
fn watchdog(nspawn: u32, lock: &File) -> Child {
    let script = r#"
        cat
        lives() { grep -q '^Name:.systemd-nspawn$' "$1" && ! grep -q '^State:.Z' "$1"; }
        while lives "/proc/$1/status"; do
            children=$(pgrep -P "$1") && kill -KILL $children
            sleep 0.02
        done 2>/dev/null
    "#;
    Command::new("sh")
        .args(["-c", script, "sh", &nspawn.to_string()])
        .stdin(Stdio::piped())
        .stdout(lock.try_clone().expect("a file handle can be doubled"))
        .spawn()
        .expect("sh can be run")
}

/// The child of nspawn that has become the node's systemd.
fn wait_for_leader(nspawn: &mut Child, console: &Path) -> Pid {
    let begun = Instant::now();
    let children = format!("/proc/{0}/task/{0}/children", nspawn.id());
    loop {
        for child in fs::read_to_string(&children).unwrap_or_default().split_whitespace() {
            let Some(pid) = child.parse().ok().and_then(Pid::from_raw) else {
                continue;
            };
            let program = fs::read_link(format!("/proc/{child}/exe")).unwrap_or_default();
            if program.ends_with("systemd/systemd") {
                return pid;
            }
        }
        if let Some(status) = nspawn.try_wait().expect("a child can be asked") {
            panic!(
                "systemd-nspawn ended before the node booted: {status}\n{}",
                end_of(console, 20)
            );
        }
        assert!(
            begun.elapsed() < BOOT,
            "no systemd in the node after {BOOT:?}\n{}",
            end_of(console, 20)
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(err) if err.kind() == ErrorKind::NotFound => {}
        Err(err) => eprintln!("node: cannot remove {}: {err}", folder.display()),
    }
}

fn end_of(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
