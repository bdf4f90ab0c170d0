//! One process of a pod: started in a scope of its own, or found again.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup;
use crate::manifest::Pod;

const LOGS: &str = "/var/log/pods";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A process that may or may not be a child of this one.
pub struct Container {
    pub pid: Pid,
    handle: OwnedFd,
    child: Option<Child>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot write its log below {LOGS}: {0}")]
    Log(std::io::Error),
    #[error("cannot run systemd-run: {0}")]
    Spawn(std::io::Error),
    #[error("it ended before it could be watched: {0}")]
    Watch(rustix::io::Errno),
}

impl Container {
    /// Starts the pod's process. That its program is missing shows as an end of the process.
    pub fn start(pod: &Pod) -> Result<Container, StartError> {
        let log = log_file(pod).map_err(StartError::Log)?;
        let errors = log.try_clone().map_err(StartError::Log)?;
        let child = Command::new("setsid")
            .args([
                "systemd-run",
                "--scope",
                "--quiet",
                "--collect",
                "--property=TimeoutStopSec=30",
            ])
            .arg(format!("--unit=cri-containerd-{}.scope", scope_id(pod)))
            .arg(format!("--slice={}", cgroup::slice(&pod.uid)))
            // env, because systemd-run would put the full path in the place of the program's name.
            .args(["--", "env"])
            .args(&pod.argv)
            .env_clear()
            .env("PATH", PATH)
            .envs(pod.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(StartError::Spawn)?;
        // setsid, systemd-run and env become the program, so the child's number stays the process's own.
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(StartError::Watch)?;
        Ok(Container {
            pid,
            handle,
            child: Some(child),
        })
    }

    /// The pod's process that an earlier run of this program started.
    pub fn find(uid: &str) -> Option<Container> {
        let pid = *cgroup::processes(uid).first()?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Container {
            pid,
            handle,
            child: None,
        })
    }

    /// A second handle, to wait for the end elsewhere.
    pub fn waiter(&mut self) -> std::io::Result<Waiter> {
        Ok(Waiter {
            handle: self.handle.try_clone()?,
            child: self.child.take(),
        })
    }

    /// Asks the process to end. That it has ended already is no error.
    pub fn ask_to_end(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::TERM);
    }
}

/// Waits for the end of one process.
pub struct Waiter {
    handle: OwnedFd,
    child: Option<Child>,
}

impl Waiter {
    /// Blocks; returns how the process ended, as far as that can be known.
    pub fn wait(mut self) -> String {
        wait_for_end(&self.handle, None);
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => status.to_string(),
            Some(Err(err)) => format!("unknown: {err}"),
            None => "unknown: an earlier run of the kubelet started it".to_string(),
        }
    }
}

/// True once the process has ended.
fn wait_for_end(handle: &OwnedFd, limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    });
    loop {
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], limit.as_ref()) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return true,
        }
    }
}

/// Ends a pod of which only the UID is known.
pub fn end_pod(uid: &str, grace: Duration) {
    if let Some(container) = Container::find(uid) {
        container.ask_to_end();
        wait_for_end(&container.handle, Some(grace));
    }
    clear_pod(uid);
}

/// Kills what is left of a pod and takes its slice away.
pub fn clear_pod(uid: &str) {
    let begun = Instant::now();
    loop {
        let left = cgroup::processes(uid);
        if left.is_empty() {
            break;
        }
        for pid in left {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        if begun.elapsed() > Duration::from_secs(10) {
            eprintln!("kubelet: processes of pod {uid} outlive KILL");
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    match Command::new("systemctl").args(["stop", &cgroup::slice(uid)]).status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("kubelet: systemctl stop of the slice of pod {uid}: {status}"),
        Err(err) => eprintln!("kubelet: cannot run systemctl: {err}"),
    }
}

/// One log per start, as the kubelet numbers them.
fn log_file(pod: &Pod) -> std::io::Result<File> {
    let folder = Path::new(LOGS).join(&pod.log_folder).join(&pod.container);
    std::fs::create_dir_all(&folder)?;
    (0..)
        .map(|number| {
            File::options()
                .write(true)
                .create_new(true)
                .open(folder.join(format!("{number}.log")))
        })
        .find(|file| !matches!(file, Err(err) if err.kind() == std::io::ErrorKind::AlreadyExists))
        .expect("the numbers do not end")
}

/// 64 hexadecimal digits that no other start has.
fn scope_id(pod: &Pod) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    format!("{}{now:032x}", pod.uid)
}
