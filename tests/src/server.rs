//! A server that a test starts: its output goes to a file, its end is waited for, and it never outlives the test.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running server.
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `command` with its output appended to `log`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Server {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log can be opened");
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a file handle can be doubled"))
            .stderr(out)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", command.get_program()));
        Server {
            child,
            log: log.to_owned(),
        }
    }

    /// A real etcd without TLS on free ports; `extra` arguments follow ours. Gives the server and its client port.
    pub fn etcd(program: &Path, folder: &Path, extra: &[&str]) -> (Server, u16) {
        let (client, peer) = (crate::free_port(), crate::free_port());
        let client_url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(program);
        command
            .args(["--name", "test", "--logger", "zap", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args([
                "--listen-client-urls",
                &client_url,
                "--advertise-client-urls",
                &client_url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args(["--initial-cluster", &format!("test={peer_url}")])
            .args(extra);
        let mut server = Server::start(&mut command, &folder.join("etcd.log"));
        server.wait_for_port(client, Duration::from_secs(30));
        (server, client)
    }

    /// Waits until something listens on a loopback port.
    ///
    /// # Panics
    /// If the server ends first or the time runs out; the message holds the end of its log.
    pub fn wait_for_port(&mut self, port: u16, at_most: Duration) {
        let begun = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                panic!("the server ended with {status} before it listened:\n{}", self.log_end());
            }
            assert!(
                begun.elapsed() < at_most,
                "nothing on port {port} after {at_most:?}:\n{}",
                self.log_end()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Panics
    /// If it has not ended in time.
    pub fn stop(&mut self, at_most: Duration) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            assert!(
                begun.elapsed() < at_most,
                "the server runs on {at_most:?} after SIGTERM:\n{}",
                self.log_end()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// The last lines of its output.
    pub fn log_end(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
