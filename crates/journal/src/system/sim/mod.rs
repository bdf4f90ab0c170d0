//! A simulated machine: it counts effects, crashes at any of them, and lives on afterwards.
//!
//! [`trial`] runs a plan through every crash. Time passes only where someone waits.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Call, Ended, Entry, Interrupt, Lock, Meta, System, SystemError, UnitState};
use crate::plan::{Pid, Process};

mod node;
mod tree;
pub mod trial;

pub use node::{Data, Node, Writes};
pub use tree::Tree;

/// How often the kubelet and the clients look.
const TICK: Duration = Duration::from_millis(500);

/// When, around one effect, the crash comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// Before it.
    Before,
    /// After it; everything is kept.
    After,
    /// After it; what was not synced is lost. Only power does that.
    AfterLost,
}

/// What ends the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// SIGKILL: files, units and processes live on.
    Kill,
    /// The machine stops and starts.
    Reboot,
}

/// What a program does when it is run.
#[derive(Clone, Debug)]
pub enum Program {
    /// Copies etcd into a new store file.
    Migrate {
        /// The file.
        to: PathBuf,
        /// Its temporary name.
        partial: PathBuf,
    },
    /// Copies the store file into etcd.
    CopyBack {
        /// The file.
        file: PathBuf,
    },
    /// Succeeds while the API server is ready.
    Ready,
    /// Succeeds while the store holds what was copied and no more.
    StoreIsCopied,
    /// Says a line and exits.
    Exit(i32),
    /// Never ends by itself.
    Hang,
}

/// The simulated machine.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    /// Its files.
    pub tree: Tree,
    /// What lives on it.
    pub node: Node,
    /// What it is interrupted by, from which effect on.
    pub interrupt_at: Option<(u64, Interrupt)>,
    /// An effect that always fails, by its name in the trace.
    pub broken: Option<String>,
    /// The effect that fails, once, with which error.
    pub fail_at: Option<(u64, io::ErrorKind)>,
    /// The name of every effect so far.
    pub trace: Vec<String>,
    programs: Vec<(String, Program)>,
    now: Duration,
    crash_at: Option<(u64, When)>,
    crashed: bool,
    failed: bool,
}

impl Sim {
    /// An empty machine with a machine id and systemd's folders.
    pub fn new(machine_id: &str) -> Sim {
        let mut sim = Sim::default();
        for folder in [
            "/etc/systemd/system",
            "/usr/local/bin",
            "/usr/local/lib",
            "/var/lib",
            "/opt",
        ] {
            sim.folders(folder);
        }
        sim.file("/etc/machine-id", &format!("{machine_id}\n"), 0o444);
        sim
    }

    /// Puts a file, and the folders above it, that were there before everything.
    pub fn file(&mut self, path: &str, text: &str, mode: u32) {
        let path = Path::new(path);
        self.folders(&path.parent().unwrap_or(Path::new("/")).to_string_lossy());
        if self.tree.look(path).is_ok_and(|found| found.is_some()) {
            self.tree
                .change(path, |bytes| *bytes = text.as_bytes().to_vec())
                .expect("a file can be changed");
        } else {
            self.tree
                .create(path, text.as_bytes(), &Meta::mode(mode))
                .expect("a new file can be made");
        }
        self.tree.flush();
        self.node.reload(&self.tree);
    }

    /// Makes a folder and those above it.
    pub fn folders(&mut self, path: &str) {
        for path in Path::new(path).ancestors().collect::<Vec<_>>().into_iter().rev() {
            if path.file_name().is_some() && self.tree.look(path).is_ok_and(|found| found.is_none()) {
                self.tree.make_dir(path, 0o755).expect("a new folder can be made");
            }
        }
        self.tree.flush();
    }

    /// Says what programs do whose command line contains a text. A later rule goes before an earlier one.
    pub fn program(&mut self, contains: &str, program: Program) {
        self.programs.push((contains.to_owned(), program));
    }

    /// Crashes at an effect, counted from 1 from now on.
    pub fn crash_at(&mut self, effect: u64, when: When) {
        self.crash_at = Some((self.effects() + effect, when));
    }

    /// How many effects there were.
    pub fn effects(&self) -> u64 {
        self.trace.len() as u64
    }

    /// Whether the crash has come.
    pub fn has_crashed(&self) -> bool {
        self.crashed
    }

    /// Whether the effect that was to fail has.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Lives on after a crash.
    pub fn restart(&mut self, how: How) {
        self.power_on(how);
        self.start_kubelet();
    }

    /// The kubelet's turn in a boot that began with [`Sim::power_on`].
    pub fn start_kubelet(&mut self) {
        self.node.kubelet_runs = true;
        self.pass(Duration::from_secs(1));
    }

    /// The side that the manifest in the kubelet's folder names.
    pub fn manifest_names(&mut self) -> Option<&'static str> {
        self.node.manifest_names(&self.tree)
    }

    /// Lives on after a crash; a reboot waits before the kubelet starts.
    pub fn power_on(&mut self, how: How) {
        let lost = self.crash_at.is_some_and(|(_, when)| when == When::AfterLost);
        self.crashed = false;
        self.crash_at = None;
        if how == How::Reboot {
            match lost {
                true => self.tree.lose(),
                false => {
                    self.tree.flush();
                    self.node.flush();
                }
            }
            self.node.reboot(&self.tree);
            self.node.kubelet_runs = false;
        }
        assert!(how == How::Reboot || !lost, "a kill loses nothing");
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + TICK);
            self.node.tick(&mut self.tree, self.now);
        }
    }

    /// The side from which a ready API server serves: `etcd` or `store`.
    pub fn serving(&self) -> Option<&'static str> {
        self.node.serving(&self.tree, self.now)
    }

    fn effect<T>(
        &mut self,
        act: &'static str,
        on: &str,
        work: impl FnOnce(&mut Sim) -> io::Result<T>,
    ) -> Result<T, SystemError> {
        self.alive(act, on)?;
        self.trace.push(format!("{act} {on}"));
        let number = self.effects();
        let crash = self.crash_at.filter(|(at, _)| *at == number).map(|(_, when)| when);
        if crash == Some(When::Before) {
            self.crashed = true;
        }
        self.alive(act, on)?;
        if self.trace.last() == self.broken.as_ref() {
            return Err(SystemError::on(act, on)(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        if let Some((at, kind)) = self.fail_at
            && at == number
        {
            self.failed = true;
            return Err(SystemError::on(act, on)(kind.into()));
        }
        let done = work(self).map_err(SystemError::on(act, on));
        if crash.is_some() {
            self.crashed = true;
            self.alive(act, on)?;
        }
        self.node.tick(&mut self.tree, self.now);
        done
    }

    /// After the crash nothing answers any more.
    fn alive(&self, act: &'static str, on: &str) -> Result<(), SystemError> {
        match self.crashed {
            true => Err(SystemError::on(act, on)(io::Error::other("the machine has crashed"))),
            false => Ok(()),
        }
    }

    fn read_from<T>(&self, act: &'static str, path: &Path, found: io::Result<T>) -> Result<T, SystemError> {
        self.alive(act, &path.to_string_lossy())?;
        found.map_err(SystemError::at(act, path))
    }

    fn on_path(
        &mut self,
        act: &'static str,
        path: &Path,
        work: impl FnOnce(&mut Tree) -> io::Result<()>,
    ) -> Result<(), SystemError> {
        self.effect(act, &path.to_string_lossy(), |sim| work(&mut sim.tree))
    }

    fn migrate(&mut self, to: &Path, partial: &Path) -> Result<Ended, SystemError> {
        if self.node.api_server_lives() {
            self.node.violation("etcd was copied while an API server lived".into());
        }
        if self.look(to)?.is_some() || self.look(partial)?.is_some() {
            return Ok(Ended::Code(1));
        }
        let mut data = self.node.etcd.clone();
        data.copied = Some(data.revision);
        let bytes = serde_json::to_vec(&data)
            .map_err(io::Error::other)
            .map_err(SystemError::at("write", to))?;
        self.create(partial, &bytes[..bytes.len() / 2], &Meta::mode(0o600))?;
        self.append(partial, &bytes[bytes.len() / 2..])?;
        self.sync(partial)?;
        self.rename_new(partial, to)?;
        self.sync_dir(to.parent().unwrap_or(Path::new("/")))?;
        Ok(Ended::Code(0))
    }

    fn copy_back(&mut self, file: &Path) -> Result<Ended, SystemError> {
        if self.node.api_server_lives() {
            self.node
                .violation("the store was copied back while an API server lived".into());
        }
        let Ok(data) = serde_json::from_slice::<Data>(&self.read(file)?) else {
            return Ok(Ended::Code(1));
        };
        // Half of it, then the rest: a crash between leaves etcd with neither state.
        let half = data.writes.iter().copied().step_by(2);
        self.effect("copy back the first half of", "etcd", |sim| {
            sim.node.etcd.writes.extend(half);
            sim.node.etcd.revision = sim.node.etcd.revision.max(data.revision) + 1;
            Ok(())
        })?;
        self.effect("copy back the second half of", "etcd", |sim| {
            let etcd = &mut sim.node.etcd;
            etcd.writes.clone_from(&data.writes);
            etcd.revision += 1;
            Ok(())
        })?;
        Ok(Ended::Code(0))
    }
}

impl System for Sim {
    fn look(&self, path: &Path) -> Result<Option<Entry>, SystemError> {
        self.read_from("look at", path, self.tree.look(path))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, SystemError> {
        self.read_from("read", path, self.tree.read(path))
    }

    fn digest(&self, path: &Path) -> Result<String, SystemError> {
        Ok(hex::encode(Sha256::digest(self.read(path)?)))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, SystemError> {
        self.read_from("list", path, self.tree.list(path))
    }

    fn create(&mut self, path: &Path, content: &[u8], meta: &Meta) -> Result<(), SystemError> {
        self.on_path("write", path, |tree| tree.create(path, content, meta))
    }

    fn copy(&mut self, from: &Path, to: &Path, meta: &Meta) -> Result<(), SystemError> {
        let content = self.read(from)?;
        self.on_path("copy to", to, |tree| tree.create(to, &content, meta))
    }

    fn append(&mut self, path: &Path, content: &[u8]) -> Result<(), SystemError> {
        self.on_path("append to", path, |tree| {
            tree.change(path, |bytes| bytes.extend(content))
        })
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), SystemError> {
        self.on_path("cut", path, |tree| {
            tree.change(path, |bytes| bytes.truncate(length as usize))
        })
    }

    fn symlink(&mut self, path: &Path, target: &Path) -> Result<(), SystemError> {
        self.on_path("make the link", path, |tree| tree.symlink(path, target))
    }

    fn make_dir(&mut self, path: &Path, mode: u32) -> Result<(), SystemError> {
        self.on_path("make the folder", path, |tree| tree.make_dir(path, mode))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SystemError> {
        self.on_path("rename to", to, |tree| tree.rename(from, to))
    }

    fn rename_new(&mut self, from: &Path, to: &Path) -> Result<(), SystemError> {
        self.on_path("rename to", to, |tree| match tree.look(to)? {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => tree.rename(from, to),
        })
    }

    fn remove(&mut self, path: &Path) -> Result<(), SystemError> {
        self.on_path("remove", path, |tree| tree.remove(path, false))
    }

    fn remove_dir(&mut self, path: &Path) -> Result<(), SystemError> {
        self.on_path("remove the folder", path, |tree| tree.remove(path, true))
    }

    fn sync(&mut self, path: &Path) -> Result<(), SystemError> {
        self.on_path("sync", path, |tree| tree.sync(path))
    }

    fn sync_dir(&mut self, path: &Path) -> Result<(), SystemError> {
        self.on_path("sync the folder", path, |tree| tree.sync(path))
    }

    fn lock(&mut self, path: &Path) -> Result<Option<Lock>, SystemError> {
        self.alive("lock", &path.to_string_lossy())?;
        Ok(Some(Box::new(())))
    }

    fn unit(&self, name: &str) -> Result<UnitState, SystemError> {
        self.alive("look at unit", name)?;
        Ok(self.node.unit(name))
    }

    fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<(), SystemError> {
        let act = if enabled { "enable" } else { "disable" };
        self.effect(act, name, |sim| {
            sim.node.set_enabled(name, enabled).map_err(io::Error::other)
        })?;
        self.effect("sync the links of", name, |sim| {
            sim.node.sync_links(name);
            Ok(())
        })
    }

    fn set_active(&mut self, name: &str, active: bool) -> Result<(), SystemError> {
        let act = if active { "start" } else { "stop" };
        self.effect(act, name, |sim| {
            sim.node.set_active(name, active).map_err(io::Error::other)
        })
    }

    fn reload_units(&mut self) -> Result<(), SystemError> {
        self.effect("reload", "units", |sim| {
            sim.node.reload(&sim.tree);
            Ok(())
        })
    }

    fn processes(&self, process: &Process) -> Result<Vec<Pid>, SystemError> {
        self.alive("list", "processes")?;
        Ok(self.node.processes(process))
    }

    fn group_stands(&self, process: &Process) -> Result<bool, SystemError> {
        self.alive("look at", "a control group")?;
        Ok(self.node.group_stands(process))
    }

    fn hold(&mut self, _process: &Process) -> Result<(), SystemError> {
        // Its numbers are never used twice.
        self.alive("hold", "a process")
    }

    fn terminate(&mut self, pid: Pid) -> Result<(), SystemError> {
        self.effect("send TERM to", &pid.pid.to_string(), |sim| {
            sim.node.terminate(pid, sim.now);
            Ok(())
        })
    }

    fn run(&mut self, call: &Call<'_>, line: &mut dyn FnMut(&str)) -> Result<Ended, SystemError> {
        let command = call.argv.join(" ");
        let begun = self.now;
        self.alive("run", &command)?;
        self.pass(Duration::from_millis(200));
        let program = self
            .programs
            .iter()
            .rev()
            .find(|(contains, _)| command.contains(contains));
        let code = |yes: bool| Ok(Ended::Code(i32::from(!yes)));
        match program.map(|(_, program)| program.clone()) {
            None => Err(SystemError::on("run", &command)(io::ErrorKind::NotFound.into())),
            Some(Program::Migrate { to, partial }) => self.migrate(&to, &partial),
            Some(Program::CopyBack { file }) => self.copy_back(&file),
            Some(Program::Ready) => code(self.serving().is_some()),
            Some(Program::StoreIsCopied) => code(
                self.node
                    .store(&self.tree)
                    .is_some_and(|data| data.copied == Some(data.revision)),
            ),
            Some(Program::Exit(status)) => {
                line(&format!("ended as told with {status}"));
                Ok(Ended::Code(status))
            }
            Some(Program::Hang) => loop {
                self.pass(Duration::from_secs(1));
                if call.heed.heeds(self.interrupt()) {
                    return Ok(Ended::Interrupted);
                }
                if call.timeout.is_some() {
                    return Ok(Ended::TimedOut);
                }
                if call.silence.is_some_and(|silence| self.now - begun >= silence) {
                    return Ok(Ended::Silent);
                }
                self.effect("wait for", &command, |_| Ok(()))?;
            },
        }
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn wall_clock(&self) -> u64 {
        1_700_000_000 + self.now.as_secs()
    }

    fn sleep(&mut self, time: Duration) {
        self.pass(time);
    }

    fn interrupt(&self) -> Option<Interrupt> {
        self.interrupt_at
            .filter(|(at, _)| self.effects() >= *at)
            .map(|(_, interrupt)| interrupt)
    }
}
