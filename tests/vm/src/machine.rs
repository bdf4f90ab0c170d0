//! The machine: on, off, on again, gone.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agent::{Agent, Output};
use crate::qmp::Qmp;
use crate::{carry, hardware, places};

/// How long a script may take where the caller says nothing: emulation is slow, and the machine may be shared.
const SCRIPT: Duration = Duration::from_secs(600);
/// How long a boot may take until scripts run.
const BOOT: Duration = Duration::from_secs(900);

/// What a cold boot starts from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disk {
    /// Everything is there for `kubeadm init`, which has not run.
    Bare,
    /// The cluster is made.
    Node,
}

/// A machine, until it is dropped. Nothing of it is left then, on disk or among the processes.
pub struct Vm {
    pub(crate) folder: PathBuf,
    baked: PathBuf,
    power: Option<Power>,
    /// The machine's clock when it was last turned on or off, in seconds since 1970.
    clock: u64,
    disks: RefCell<u32>,
    /// An image that is attached at every boot.
    second: Option<PathBuf>,
    _lock: File,
}

/// What runs while the machine is on.
struct Power {
    qemu: Child,
    since: Instant,
    agent: RefCell<Agent>,
}

impl Vm {
    /// Goes on from the memory of the baked machine: the cluster runs, and all of its pods.
    pub fn resume() -> Vm {
        let baked = places::baked();
        let clock = baked_clock(&baked);
        let mut vm = Vm::make(&baked, &baked.join("node.qcow2"), "qcow2", clock);
        vm.turn_on(Some(&baked.join("memory")));
        vm.wait_for_scripts();
        vm
    }

    /// A cold boot; returns as soon as scripts run in it. Units are still starting.
    pub fn boot(disk: Disk) -> Vm {
        Vm::boot_with(disk, None)
    }

    /// The same with an image as a second disk, which can only be read and is there at every boot.
    pub fn boot_with(disk: Disk, second: Option<&Path>) -> Vm {
        let baked = places::baked();
        let clock = baked_clock(&baked);
        let (file, format) = match disk {
            Disk::Bare => ("bare.raw", "raw"),
            Disk::Node => ("node.qcow2", "qcow2"),
        };
        let mut vm = Vm::make(&baked, &baked.join(file), format, clock);
        vm.second = second.map(Path::to_owned);
        vm.power_on();
        vm
    }

    /// A machine that is off, with a copy-on-write disk over `below`.
    pub(crate) fn make(baked: &Path, below: &Path, format: &str, clock: u64) -> Vm {
        assert!(rustix::process::geteuid().is_root(), "only root can run a machine");
        let lock = take_lock();
        let folder = places::run();
        // Whoever holds the lock is the only one here: what lies there is from a test that was killed.
        remove(&folder);
        fs::create_dir_all(&folder).unwrap_or_else(|err| panic!("cannot make {}: {err}", folder.display()));
        let mut image = Command::new("qemu-img");
        image.args(["create", "-q", "-f", "qcow2", "-F", format, "-b"]);
        image.arg(below).arg(folder.join("disk.qcow2"));
        let output = image
            .output()
            .unwrap_or_else(|err| panic!("cannot run qemu-img: {err}. hint: run scripts/setup --tests"));
        assert!(
            output.status.success(),
            "{image:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Vm {
            folder,
            baked: baked.to_owned(),
            power: None,
            clock,
            disks: RefCell::new(0),
            second: None,
            _lock: lock,
        }
    }

    /// Boots the machine; returns as soon as scripts run in it.
    pub fn power_on(&mut self) {
        self.turn_on(None);
        self.wait_for_scripts();
    }

    fn turn_on(&mut self, memory: Option<&Path>) {
        assert!(self.power.is_none(), "the machine is on already");
        let clock = Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%S", "-d", &format!("@{}", self.clock)])
            .output()
            .expect("date can be run");
        let clock = String::from_utf8_lossy(&clock.stdout).trim().to_owned();
        for socket in ["agent", "qmp"] {
            let _ = fs::remove_file(self.folder.join(socket));
        }
        let mut command = hardware::qemu(&self.baked, &self.folder.join("disk.qcow2"), &self.folder, &clock);
        if let Some(image) = &self.second {
            let drive = format!("id=second,if=none,format=raw,readonly=on,file={}", image.display());
            command.args(["-drive", &drive, "-device", "virtio-blk-pci,drive=second"]);
        }
        if let Some(memory) = memory {
            command.arg("-incoming").arg(format!("exec:cat '{}'", memory.display()));
        }
        let errors = File::create(self.folder.join("qemu.log")).expect("a log can be made");
        let mut qemu = command
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|err| panic!("cannot run setpriv: {err}"));
        let begun = Instant::now();
        while !(self.folder.join("qmp").exists() && self.folder.join("agent").exists()) {
            let ended = qemu.try_wait().expect("a child can be asked");
            assert!(
                ended.is_none() && begun.elapsed() < BOOT,
                "qemu does not start: {}. hint: run scripts/setup --tests",
                fs::read_to_string(self.folder.join("qemu.log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        // Beside other tests it takes no more than its share.
        if let Ok(nice) = std::env::var("QUANTYKUBE_VM_NICE") {
            let path = format!("/proc/{}/autogroup", qemu.id());
            fs::write(&path, nice).unwrap_or_else(|err| panic!("cannot write {path}: {err}"));
        }
        let agent = RefCell::new(Agent::connect(&self.folder.join("agent")));
        self.power = Some(Power {
            qemu,
            since: Instant::now(),
            agent,
        });
        if memory.is_some() {
            let mut qmp = self.qmp();
            while qmp.call("query-status", json!({}))["status"] == "inmigrate" {
                std::thread::sleep(Duration::from_millis(100));
            }
            qmp.call("cont", json!({}));
        }
    }

    fn wait_for_scripts(&self) {
        let begun = Instant::now();
        while self.try_run("true", Duration::from_secs(20)).is_none() {
            assert!(
                begun.elapsed() < BOOT,
                "no script has run in the machine for {BOOT:?}:\n{}",
                self.end_of_console()
            );
        }
    }

    /// Ends the machine as a power cut does: at once, and what it has not flushed to its disk is lost.
    pub fn cut(&mut self) {
        let mut power = self.power.take().expect("the machine is on");
        power.qemu.kill().expect("qemu can be ended");
        let _ = power.qemu.wait();
        self.clock += power.since.elapsed().as_secs();
    }

    /// Waits until the machine has turned itself off, as `systemctl poweroff` in it does.
    pub fn wait_until_off(&mut self, at_most: Duration) {
        let mut power = self.power.take().expect("the machine is on");
        let begun = Instant::now();
        while power.qemu.try_wait().expect("a child can be asked").is_none() {
            if begun.elapsed() > at_most {
                let _ = power.qemu.kill();
                panic!("the machine is not off after {at_most:?}:\n{}", self.end_of_console());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        self.clock += power.since.elapsed().as_secs();
    }

    /// Runs a bash script as root in the machine; `None` if it has not ended after `at_most`.
    pub fn try_run(&self, script: &str, at_most: Duration) -> Option<Output> {
        let power = self.power.as_ref().expect("the machine is on");
        power.agent.borrow_mut().run(script, at_most)
    }

    /// Runs a bash script as root in the machine, whatever it ends with.
    pub fn run(&self, script: &str) -> Output {
        self.try_run(script, SCRIPT)
            .unwrap_or_else(|| panic!("not ended after {SCRIPT:?} in the machine: {script}"))
    }

    /// The same where it must succeed; returns its standard output.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        let output = self.run(script);
        assert!(
            output.code == 0,
            "{script}: exit code {}\n{}{}",
            output.code,
            output.out,
            output.err
        );
        output.out
    }

    /// Starts a script that goes on by itself, whose output and exit code land in `/run/NAME.{out,err,code}`.
    pub fn start(&self, name: &str, script: &str) {
        self.put(&format!("/run/{name}.sh"), script.as_bytes());
        self.sh(&format!(
            "rm -f /run/{name}.code; setsid bash -c 'bash /run/{name}.sh >/run/{name}.out 2>/run/{name}.err; \
             echo $? >/run/{name}.new; mv /run/{name}.new /run/{name}.code' >/dev/null 2>&1 </dev/null &"
        ));
    }

    /// How such a script has ended; `None` while it runs.
    pub fn ended(&self, name: &str) -> Option<Output> {
        let code = self.run(&format!("cat /run/{name}.code")).out.trim().parse().ok()?;
        Some(Output {
            code,
            out: self.sh(&format!("cat /run/{name}.out")),
            err: self.sh(&format!("cat /run/{name}.err")),
        })
    }

    /// Waits for its end.
    pub fn wait_for(&self, name: &str, at_most: Duration) -> Output {
        let begun = Instant::now();
        loop {
            if let Some(output) = self.ended(name) {
                return output;
            }
            if begun.elapsed() > at_most {
                let so_far = self.run(&format!("tail -n 20 /run/{name}.out /run/{name}.err")).out;
                panic!("{name} has not ended after {at_most:?}:\n{so_far}");
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Repeats a script until it succeeds; returns how long that took.
    pub fn until(&self, what: &str, script: &str, at_most: Duration) -> Duration {
        let begun = Instant::now();
        loop {
            let output = self.try_run(script, SCRIPT);
            if output.as_ref().is_some_and(|output| output.code == 0) {
                return begun.elapsed();
            }
            assert!(
                begun.elapsed() < at_most,
                "{what}: not so after {at_most:?}: {output:?}"
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Writes a small file in the machine. Much comes in faster on a disk: [`Vm::carry_in`].
    pub fn put(&self, path: &str, content: &[u8]) {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(content);
        self.sh(&format!(
            "mkdir -p \"$(dirname '{path}')\" && base64 -d >'{path}' <<<'{text}'"
        ));
    }

    /// Plugs in a disk with what a folder holds and mounts it, read-only, below `/mnt`. Returns the mount point.
    pub fn carry_in(&self, content: &Path) -> String {
        let number = {
            let mut disks = self.disks.borrow_mut();
            *disks += 1;
            *disks
        };
        let name = format!("carry{number}");
        let image = self.folder.join(&name);
        carry::make(content, &image);
        let mut qmp = self.qmp();
        let file = json!({ "driver": "file", "filename": image.to_str() });
        qmp.call(
            "blockdev-add",
            json!({ "driver": "raw", "node-name": name, "file": file }),
        );
        qmp.call(
            "device_add",
            json!({ "driver": "virtio-blk-pci", "drive": name, "id": name, "serial": name }),
        );
        let device = format!("/dev/disk/by-id/virtio-{name}");
        self.until("the disk is there", &format!("test -e {device}"), BOOT);
        self.sh(&format!("mkdir -p /mnt/{name} && mount -o ro {device} /mnt/{name}"));
        format!("/mnt/{name}")
    }

    /// What the machine has written on its second serial port (`/dev/ttyS1`) so far. It survives a power cut.
    pub fn notes(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("notes")).unwrap_or_default()).replace('\r', "")
    }

    /// The same of its third one (`/dev/ttyS2`).
    pub fn events(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("events")).unwrap_or_default()).replace('\r', "")
    }

    /// Whether the machine is on.
    pub fn is_on(&self) -> bool {
        self.power.is_some()
    }

    pub(crate) fn qmp(&self) -> Qmp {
        Qmp::connect(&self.folder.join("qmp"))
    }

    fn end_of_console(&self) -> String {
        let console = fs::read(self.folder.join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&console[console.len().saturating_sub(8000)..]).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- console\n{}", self.end_of_console());
            if self.power.is_some() {
                let script = "crictl ps -a; for file in $(ls -t /var/log/containers/*.log | head -n 6); do \
                              echo \"--- $file\"; tail -n 12 $file | cut -c1-400; done; \
                              echo '--- journal'; journalctl --no-pager -n 60 | cut -c1-300";
                if let Some(output) = self.try_run(script, Duration::from_secs(180)) {
                    eprintln!("{}{}", output.out, output.err);
                }
            }
        }
        if let Some(mut power) = self.power.take() {
            let _ = power.qemu.kill();
            let _ = power.qemu.wait();
        }
        remove(&self.folder);
    }
}

/// The time at which the baked machine was stopped.
fn baked_clock(baked: &Path) -> u64 {
    let path = baked.join("facts.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()));
    let facts: Value = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    facts["clock"].as_u64().expect("a baked machine has a clock")
}

fn take_lock() -> File {
    let path = places::lock();
    let lock = File::options().create(true).append(true).open(&path);
    let lock = lock.unwrap_or_else(|err| panic!("cannot open {}: {err}", path.display()));
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            eprintln!("vm: another machine of the tests runs; waiting for its end");
            lock.lock()
                .unwrap_or_else(|err| panic!("cannot lock {}: {err}", path.display()));
        }
        Err(fs::TryLockError::Error(err)) => panic!("cannot lock {}: {err}", path.display()),
    }
    lock
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
            panic!("cannot remove {}: {err}", folder.display())
        }
        _ => {}
    }
}
