//! The machine itself: files, `/proc`, systemd over D-Bus.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, FlockOperation, RenameFlags};
use rustix::process::Signal;
use sha2::{Digest, Sha256};

use super::{Call, Ended, Entry, Interrupt, Lock, MOVE_DIR, Meta, System, SystemError, UnitState, systemd};
use crate::plan::{Pid, Process};

const POLL: Duration = Duration::from_millis(50);
/// A look that does not wait.
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Where the kernel tells one boot from the next.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How long a program that we end has between TERM and KILL.
const GRACE: Duration = Duration::from_secs(10);
/// A line that never ends is passed on in pieces of this length, in bytes.
const LINE_MAX: usize = 16 << 10;

/// The machine. Programs are started by the thread that calls [`System::run`] and end with it.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    born: Instant,
    interrupt: Arc<AtomicUsize>,
    held: Vec<(Pid, OwnedFd)>,
}

impl Host {
    /// Interrupt value of [`Host::interrupt_flag`]: INT or TERM came.
    pub const PUT_BACK: usize = 1;
    /// Interrupt value of [`Host::interrupt_flag`]: the system is shutting down.
    pub const STOP: usize = 2;

    /// The machine that we run on.
    pub fn new() -> Host {
        Host::under("/")
    }

    /// The machine with its files under another folder: absolute paths are looked up below it. Links, processes, units
    /// and programs are the machine's own.
    pub fn under(root: impl Into<PathBuf>) -> Host {
        Host {
            root: root.into(),
            born: Instant::now(),
            interrupt: Arc::new(AtomicUsize::new(0)),
            held: Vec::new(),
        }
    }

    /// Whether the one process that a kind names lives now.
    fn named_lives(&self, process: &Process) -> Option<Pid> {
        let pid = process.pid.filter(|_| is_this_boot(process))?;
        let lives = match self.held.iter().find(|(held, _)| *held == pid) {
            // Readable once every thread of it has ended, also where nobody has waited for it yet.
            Some((_, handle)) => {
                let mut poll = [PollFd::new(handle, PollFlags::IN)];
                !matches!(rustix::event::poll(&mut poll, Some(&NO_TIME)), Ok(1..))
            }
            None => start_of(pid.pid) == Some(pid.start),
        };
        lives.then_some(pid)
    }

    /// Where a signal handler or another thread says how the move is to end: 0, [`Host::PUT_BACK`] or [`Host::STOP`].
    pub fn interrupt_flag(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.interrupt)
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

impl System for Host {
    fn look(&self, path: &Path) -> Result<Option<Entry>, SystemError> {
        let at = self.at(path);
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SystemError::at("look at", path)(error)),
        };
        let kind = found.file_type();
        if kind.is_symlink() {
            return fs::read_link(&at)
                .map(|target| Some(Entry::Link(target)))
                .map_err(SystemError::at("read", path));
        }
        if !kind.is_file() && !kind.is_dir() {
            return Ok(Some(Entry::Other));
        }
        let meta = Meta {
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            xattrs: xattrs(&at).map_err(SystemError::at("read the attributes of", path))?,
        };
        Ok(Some(if kind.is_dir() {
            Entry::Dir(meta)
        } else {
            Entry::File(found.len(), meta)
        }))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, SystemError> {
        fs::read(self.at(path)).map_err(SystemError::at("read", path))
    }

    fn digest(&self, path: &Path) -> Result<String, SystemError> {
        let digest = || {
            let mut hasher = Sha256::new();
            let mut file = File::open(self.at(path))?;
            let mut buffer = vec![0; 256 << 10];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(hex::encode(hasher.finalize())),
                    length => hasher.update(&buffer[..length]),
                }
            }
        };
        digest().map_err(SystemError::at("read", path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, SystemError> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(self.at(path))? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names)
        };
        list().map_err(SystemError::at("list", path))
    }

    fn create(&mut self, path: &Path, content: &[u8], meta: &Meta) -> Result<(), SystemError> {
        let create = || {
            let at = self.at(path);
            let mut file = create_private(&at)?;
            file.write_all(content)?;
            dress(&file, &at, meta)
        };
        create().map_err(SystemError::at("write", path))
    }

    fn copy(&mut self, from: &Path, to: &Path, meta: &Meta) -> Result<(), SystemError> {
        let mut source = File::open(self.at(from)).map_err(SystemError::at("read", from))?;
        let mut copy = || {
            let at = self.at(to);
            let mut file = create_private(&at)?;
            io::copy(&mut source, &mut file)?;
            dress(&file, &at, meta)
        };
        copy().map_err(SystemError::at("write", to))
    }

    fn append(&mut self, path: &Path, content: &[u8]) -> Result<(), SystemError> {
        let append = || OpenOptions::new().append(true).open(self.at(path))?.write_all(content);
        append().map_err(SystemError::at("append to", path))
    }

    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), SystemError> {
        let truncate = || OpenOptions::new().write(true).open(self.at(path))?.set_len(length);
        truncate().map_err(SystemError::at("cut", path))
    }

    fn symlink(&mut self, path: &Path, target: &Path) -> Result<(), SystemError> {
        std::os::unix::fs::symlink(target, self.at(path)).map_err(SystemError::at("make the link", path))
    }

    fn make_dir(&mut self, path: &Path, mode: u32) -> Result<(), SystemError> {
        let make = || {
            let at = self.at(path);
            fs::create_dir(&at)?;
            fs::set_permissions(&at, fs::Permissions::from_mode(mode))
        };
        make().map_err(SystemError::at("make the folder", path))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SystemError> {
        fs::rename(self.at(from), self.at(to)).map_err(SystemError::at("rename to", to))
    }

    fn rename_new(&mut self, from: &Path, to: &Path) -> Result<(), SystemError> {
        rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), RenameFlags::NOREPLACE)
            .map_err(|error| SystemError::at("rename to", to)(error.into()))
    }

    fn remove(&mut self, path: &Path) -> Result<(), SystemError> {
        fs::remove_file(self.at(path)).map_err(SystemError::at("remove", path))
    }

    fn remove_dir(&mut self, path: &Path) -> Result<(), SystemError> {
        fs::remove_dir(self.at(path)).map_err(SystemError::at("remove", path))
    }

    fn sync(&mut self, path: &Path) -> Result<(), SystemError> {
        File::open(self.at(path))
            .and_then(|file| file.sync_all())
            .map_err(SystemError::at("sync", path))
    }

    fn sync_dir(&mut self, path: &Path) -> Result<(), SystemError> {
        self.sync(path)
    }

    fn lock(&mut self, path: &Path) -> Result<Option<Lock>, SystemError> {
        let mut open = OpenOptions::new();
        let file = open
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.at(path));
        let file = file.map_err(SystemError::at("open", path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(SystemError::at("lock", path)(error.into())),
        }
    }

    fn unit(&self, name: &str) -> Result<UnitState, SystemError> {
        systemd::state(name)
    }

    fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<(), SystemError> {
        systemd::set_enabled(name, enabled)
    }

    fn set_active(&mut self, name: &str, active: bool) -> Result<(), SystemError> {
        systemd::set_active(name, active)
    }

    fn reload_units(&mut self) -> Result<(), SystemError> {
        systemd::reload()
    }

    fn processes(&self, process: &Process) -> Result<Vec<Pid>, SystemError> {
        let entries = fs::read_dir("/proc").map_err(SystemError::at("list", Path::new("/proc")))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if pid == std::process::id() || !is_like(pid, process) {
                continue;
            }
            // One that ends while we look is gone.
            let Some(start) = start_of(pid) else { continue };
            if is_like(pid, process) {
                found.push(Pid { pid, start });
            }
        }
        found.extend(self.named_lives(process));
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn group_stands(&self, process: &Process) -> Result<bool, SystemError> {
        match &process.group {
            Some(group) if is_this_boot(process) => group
                .try_exists()
                .map_err(SystemError::at("look at the control group", group)),
            _ => Ok(false),
        }
    }

    fn hold(&mut self, process: &Process) -> Result<(), SystemError> {
        let Some(pid) = process.pid.filter(|_| is_this_boot(process)) else {
            return Ok(());
        };
        let id = i32::try_from(pid.pid).ok().and_then(rustix::process::Pid::from_raw);
        let Some(id) = id.filter(|_| !self.held.iter().any(|(held, _)| *held == pid)) else {
            return Ok(());
        };
        match rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()) {
            // The handle holds whatever process has the number now.
            Ok(handle) if start_of(pid.pid) == Some(pid.start) => self.held.push((pid, handle)),
            // Gone, another one, or a kernel before 5.3: then its start time tells it from others.
            Ok(_) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::NOSYS) => {}
            Err(error) => return Err(SystemError::on("watch process", &pid.pid.to_string())(error.into())),
        }
        Ok(())
    }

    fn terminate(&mut self, pid: Pid) -> Result<(), SystemError> {
        let error = SystemError::on("send TERM to process", &pid.pid.to_string());
        if let Some((_, handle)) = self.held.iter().find(|(held, _)| *held == pid) {
            return match rustix::process::pidfd_send_signal(handle, Signal::TERM) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(errno) => Err(error(errno.into())),
            };
        }
        let Some(id) = i32::try_from(pid.pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return Ok(());
        };
        let sent = rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).and_then(|held| {
            // The handle holds whatever process has the number now: only if it is still ours may it be sent anything.
            match start_of(pid.pid) == Some(pid.start) {
                true => rustix::process::pidfd_send_signal(&held, Signal::TERM),
                false => Ok(()),
            }
        });
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(error(errno.into())),
        }
    }

    fn run(&mut self, call: &Call<'_>, line: &mut dyn FnMut(&str)) -> Result<Ended, SystemError> {
        let error = |source| SystemError::on("run", &call.argv[0])(source);
        let log = self.at(call.log);
        let write = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&log)
            .map_err(error)?;
        let mut tail = Tail::at_end_of(&log).map_err(error)?;
        let mut command = Command::new(&call.argv[0]);
        command.args(&call.argv[1..]).current_dir("/").env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env(MOVE_DIR, self.at(call.move_dir));
        command
            .stdin(Stdio::null())
            .stdout(write.try_clone().map_err(error)?)
            .stderr(write);
        // A group of its own: an interrupt at the terminal is ours to handle, not the program's.
        command.process_group(0);
        die_with_us(&mut command);
        let mut child = command.spawn().map_err(error)?;
        let began = Instant::now();
        let mut spoke = began;
        let mut asked: Option<(Ended, Instant)> = None;
        loop {
            let status = child.try_wait().map_err(error)?;
            if tail.pass_on(line, status.is_some()).map_err(error)? {
                spoke = Instant::now();
            }
            if let Some(status) = status {
                return Ok(match (asked, status.code(), status.signal()) {
                    // It may have come to its end just before it was asked to.
                    (Some((ended, _)), code, _) if code != Some(0) => ended,
                    (_, Some(code), _) => Ended::Code(code),
                    (_, None, signal) => Ended::Signal(signal.unwrap_or(0)),
                });
            }
            match &asked {
                None if call.heed.heeds(self.interrupt()) => {
                    asked = Some((Ended::Interrupted, end(&child)));
                }
                None if call.timeout.is_some_and(|timeout| began.elapsed() >= timeout) => {
                    asked = Some((Ended::TimedOut, end(&child)));
                }
                None if call.silence.is_some_and(|silence| spoke.elapsed() >= silence) => {
                    asked = Some((Ended::Silent, end(&child)));
                }
                Some((_, since)) if since.elapsed() >= GRACE => child.kill().map_err(error)?,
                _ => {}
            }
            std::thread::sleep(POLL);
        }
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    fn wall_clock(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }

    fn sleep(&mut self, time: Duration) {
        let end = Instant::now() + time;
        let first = self.interrupt();
        while Instant::now() < end && self.interrupt() == first {
            std::thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn interrupt(&self) -> Option<Interrupt> {
        match self.interrupt.load(Ordering::SeqCst) {
            0 => None,
            Host::PUT_BACK => Some(Interrupt::PutBack),
            _ => Some(Interrupt::Stop),
        }
    }
}

fn create_private(at: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(at)
}

/// Gives a new file its owner, mode and attributes. The owner first: changing it clears set-id bits.
fn dress(file: &File, at: &Path, meta: &Meta) -> io::Result<()> {
    let found = file.metadata()?;
    if (found.uid(), found.gid()) != (meta.uid, meta.gid) {
        std::os::unix::fs::fchown(file, Some(meta.uid), Some(meta.gid))?;
    }
    file.set_permissions(fs::Permissions::from_mode(meta.mode))?;
    let has = xattrs(at)?;
    for (name, value) in meta.xattrs.iter().filter(|(name, value)| has.get(*name) != Some(value)) {
        let value = hex::decode(value).map_err(io::Error::other)?;
        rustix::fs::fsetxattr(file, name.as_str(), &value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

/// Attributes that the kernel derives from the content: they cannot be carried over.
const OF_THE_CONTENT: [&str; 2] = ["security.ima", "security.evm"];

fn xattrs(at: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut names = vec![0u8; 64 << 10];
    let length = match rustix::fs::llistxattr(at, &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    for name in names[..length].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let name = std::str::from_utf8(name).map_err(io::Error::other)?;
        if OF_THE_CONTENT.contains(&name) {
            continue;
        }
        let mut value = vec![0u8; 64 << 10];
        let length = rustix::fs::lgetxattr(at, name, &mut value)?;
        found.insert(name.to_owned(), hex::encode(&value[..length]));
    }
    Ok(found)
}

/// Whether what was seen of a process by its number was seen in this boot. One without a boot is of this one.
fn is_this_boot(process: &Process) -> bool {
    let Some(seen) = &process.boot_id else { return true };
    fs::read_to_string(BOOT_ID).is_ok_and(|now| now.trim() == seen)
}

/// Whether a process has the program's name and every argument.
fn is_like(pid: u32, process: &Process) -> bool {
    if process.args.is_empty() {
        return false;
    }
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    let program = Path::new(std::ffi::OsStr::from_bytes(arguments[0])).file_name();
    program.is_some_and(|name| name.as_bytes() == process.program.as_bytes())
        && process
            .args
            .iter()
            .all(|wanted| arguments[1..].contains(&wanted.as_bytes()))
}

/// Field 22 of `/proc/PID/stat`; `None` where the process is gone or a zombie.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in the second field may hold anything, also spaces and brackets.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    match *fields.first()? {
        "Z" | "X" => None,
        _ => fields.get(19)?.parse().ok(),
    }
}

/// Asks a program of ours to end, and says when.
fn end(child: &Child) -> Instant {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Its whole group. It is not waited for yet, so the number is still its own.
        let _ = rustix::process::kill_process_group(pid, Signal::TERM);
    }
    Instant::now()
}

/// A program of a step never outlives the move's process: a resume would run it a second time beside itself.
#[allow(unsafe_code)]
fn die_with_us(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only two system calls are made, directly, without allocation or lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            match rustix::process::getppid() == Some(parent) {
                true => Ok(()),
                // We were killed before the wish was known.
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        });
    }
}

/// Follows what a program appends to its log.
struct Tail {
    file: File,
    rest: Vec<u8>,
}

impl Tail {
    fn at_end_of(path: &Path) -> io::Result<Tail> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Tail { file, rest: Vec::new() })
    }

    /// Passes on every whole line, at the end also an unfinished one. Returns whether anything was said.
    fn pass_on(&mut self, line: &mut dyn FnMut(&str), last: bool) -> io::Result<bool> {
        let said = self.file.read_to_end(&mut self.rest)? > 0;
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            line(&String::from_utf8_lossy(&self.rest[..end]));
            self.rest.drain(..=end);
        }
        if !self.rest.is_empty() && (last || self.rest.len() > LINE_MAX) {
            line(&String::from_utf8_lossy(&self.rest));
            self.rest.clear();
        }
        Ok(said)
    }
}
