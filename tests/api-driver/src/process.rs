//! The servers of one run as processes: started with a log file, stopped by their own id.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// One running server.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; what it prints goes to `NAME.log` in `logs`.
    ///
    /// setpriv ends it with this process, whatever ends this process. The signal is bound to the thread that starts
    /// the server, so the driver runs on one thread.
    pub fn start(name: &str, program: &Path, args: &[String], logs: &Path) -> Result<Process> {
        let log = logs.join(format!("{name}.log"));
        let out = File::options().append(true).create(true).open(&log)?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .env("KUBE_WATCHCACHE_CONSISTENCY_CHECKER", "true")
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {} through setpriv", program.display()))?;
        Ok(Process {
            name: name.to_string(),
            child,
            log,
        })
    }

    /// An error with the end of the log when the process has ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended by itself: {status}\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Sends TERM and waits for the end; KILL and an error after `within`.
    pub async fn stop(mut self, within: Duration) -> Result<ExitStatus> {
        self.check_alive()?;
        let pid = self.child.id().context("the process has no id any more")?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => {
                self.child.kill().await?;
                bail!(
                    "{} did not end within {within:?} after TERM\n{}",
                    self.name,
                    self.log_tail()
                )
            }
        }
    }

    /// The last lines it printed.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(15)..];
        format!("  the end of {}:\n  {}", self.log.display(), tail.join("\n  "))
    }
}

/// Calls `ready` until it says yes; ends early when the process is gone.
pub async fn wait_ready<F: AsyncFnMut() -> bool>(
    process: &mut Process,
    within: Duration,
    mut ready: F,
) -> Result<Duration> {
    let start = Instant::now();
    loop {
        process.check_alive()?;
        if ready().await {
            return Ok(start.elapsed());
        }
        if start.elapsed() > within {
            bail!("{} is not ready after {within:?}\n{}", process.name, process.log_tail());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
