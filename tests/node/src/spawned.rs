//! A process that goes on in the node while the test does something else.

use std::process::{Child, ExitStatus, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process in the node. Dropping it kills it.
pub struct Spawned {
    /// The `nsenter` that waits for it. Its pipes are the process's own.
    pub child: Child,
    done: bool,
}

impl Spawned {
    pub(crate) fn new(child: Child) -> Spawned {
        Spawned { child, done: false }
    }

    /// The process id on this machine, not in the node. None while it starts and after it has ended.
    pub fn pid(&self) -> Option<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        std::fs::read_to_string(path)
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// Sends a signal to the process itself. `nsenter` would not pass it on.
    ///
    /// # Panics
    /// If the process does not start within 10 s or has ended.
    pub fn signal(&self, signal: Signal) {
        let begun = Instant::now();
        loop {
            if let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(pid as i32)) {
                kill_process(pid, signal).expect("the process runs");
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "the process is not running");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.wait()
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        self.done = true;
        self.child.wait().expect("a child can be waited for")
    }

    /// Waits for the end and returns what was written.
    pub fn output(mut self) -> Output {
        use std::io::Read;
        let mut stderr = self.child.stderr.take();
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.as_mut().map(|pipe| pipe.read_to_end(&mut text));
            text
        });
        let mut stdout = Vec::new();
        self.child.stdout.as_mut().map(|pipe| pipe.read_to_end(&mut stdout));
        let stderr = errors.join().expect("the reader does not panic");
        Output {
            status: self.wait(),
            stdout,
            stderr,
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if self.done || matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
