//! Doing something in the node: programs, files, its network, its cluster.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::machine::Node;
use crate::spawned::Spawned;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const KUBECONFIG: &str = "/etc/kubernetes/super-admin.conf";
/// What the node mounts over its root folder.
const NOT_ON_DISK: &[&str] = &["dev", "proc", "run", "sys"];

impl Node {
    /// A command that runs in the node as root, in all its namespaces, with an environment as at a login.
    pub fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.leader().to_string(), "--all", "--"])
            .args(argv)
            .env_clear()
            .envs([("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8"), ("TERM", "dumb")])
            .stdin(Stdio::null());
        command
    }

    /// Runs a program in the node to its end.
    pub fn exec(&self, argv: &[&str]) -> Output {
        self.command(argv)
            .output()
            .unwrap_or_else(|err| panic!("cannot run nsenter: {err}"))
    }

    /// Runs a program that must succeed; returns what it wrote to its standard output.
    pub fn run(&self, argv: &[&str]) -> String {
        let output = self.exec(argv);
        assert!(
            output.status.success(),
            "{argv:?} in the node: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap_or_else(|err| panic!("{argv:?} did not write UTF-8: {err}"))
    }

    /// Starts a program in the node, its outputs piped.
    pub fn spawn(&self, argv: &[&str]) -> Spawned {
        let mut command = self.command(argv);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Spawned::new(
            command
                .spawn()
                .unwrap_or_else(|err| panic!("cannot run nsenter: {err}")),
        )
    }

    /// Runs `work` in a thread of its own inside the node's network, on this machine's files: so a client of the test
    /// reaches the node's servers. Sockets made there stay in the node's network wherever they are used later; a
    /// runtime used in `work` must not make sockets on other threads.
    pub fn in_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.leader());
        let network = fs::File::open(&path).unwrap_or_else(|err| panic!("cannot open {path}: {err}"));
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network))
                    .expect("root may enter the node's network");
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Copies a file or folder of this machine to the path `to` in the node, with its modes and times, owned by root.
    pub fn copy_in(&self, from: &Path, to: &str) {
        let first = to.trim_start_matches('/').split('/').next().unwrap_or_default();
        assert!(
            to.starts_with('/') && !NOT_ON_DISK.contains(&first),
            "{to} is not a path on the node's disk"
        );
        let target = self.path(to);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|err| panic!("cannot make {}: {err}", parent.display()));
        }
        let status = Command::new("cp")
            .args([
                "--recursive",
                "--no-dereference",
                "--preserve=mode,timestamps,links",
                "--no-target-directory",
            ])
            .arg(from)
            .arg(&target)
            .status()
            .expect("cp can be run");
        assert!(status.success(), "cannot copy {} to {to} in the node", from.display());
    }

    /// Runs kubectl as the cluster's super-admin; it must succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.run(&[&["kubectl", "--kubeconfig", KUBECONFIG], args].concat())
    }

    /// Runs etcdctl on the node's etcd with kubeadm's certificates; it must succeed.
    pub fn etcdctl(&self, args: &[&str]) -> String {
        let loopback = if self.options.address.is_ipv6() {
            "[::1]"
        } else {
            "127.0.0.1"
        };
        self.etcdctl_at(&format!("https://{loopback}:2379"), args)
    }

    /// Runs etcdctl on any endpoint that takes kubeadm's certificates; it must succeed.
    pub fn etcdctl_at(&self, endpoint: &str, args: &[&str]) -> String {
        let pki = "/etc/kubernetes/pki";
        let (ca, cert) = (format!("{pki}/etcd/ca.crt"), format!("{pki}/apiserver-etcd-client.crt"));
        let key = format!("{pki}/apiserver-etcd-client.key");
        let start = [
            "etcdctl",
            "--endpoints",
            endpoint,
            "--cacert",
            &ca,
            "--cert",
            &cert,
            "--key",
            &key,
        ];
        self.run(&[&start, args].concat())
    }

    /// Waits until the API server says it is ready. Returns how long that took.
    ///
    /// # Panics
    /// If it has not said so in time; the message has its last answer.
    pub fn api_ready(&self, at_most: Duration) -> Duration {
        let begun = Instant::now();
        let ready = [
            "kubectl",
            "--kubeconfig",
            KUBECONFIG,
            "--request-timeout=5s",
            "get",
            "--raw",
            "/readyz",
        ];
        loop {
            let output = self.exec(&ready);
            if output.status.success() && output.stdout == b"ok" {
                return begun.elapsed();
            }
            assert!(
                begun.elapsed() < at_most,
                "the API server is not ready after {at_most:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The processes in the node whose program has this name, by their ids on this machine. One that is ending counts
    /// until nothing of it is left, its sockets included.
    pub fn processes(&self, program: &str) -> Vec<u32> {
        let path = format!("/proc/{}/ns/pid", self.leader());
        let namespace = fs::read_link(&path).unwrap_or_else(|err| panic!("cannot read {path}: {err}"));
        // The kernel cuts the name of a process after 15 bytes.
        let short = &program.as_bytes()[..program.len().min(15)];
        let is_it = |folder: &Path| {
            let cmdline = fs::read(folder.join("cmdline")).unwrap_or_default();
            let first = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
            if first.is_empty() {
                // While it ends, a process has neither a command line nor namespaces any more.
                let ids = fs::read_to_string(folder.join("status")).unwrap_or_default();
                let nested = ids
                    .lines()
                    .any(|line| line.starts_with("NSpid:") && line.split_whitespace().count() == 3);
                // Its control group it keeps to the end.
                let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
                return nested
                    && self.group.holds(&groups)
                    && fs::read(folder.join("comm")).is_ok_and(|comm| comm.trim_ascii_end() == short);
            }
            first.rsplit(|byte| *byte == b'/').next() == Some(program.as_bytes())
                && fs::read_link(folder.join("ns/pid")).is_ok_and(|other| other == namespace)
        };
        let all = fs::read_dir("/proc").expect("/proc can be read").flatten();
        all.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
            .filter(|(_, folder)| is_it(folder))
            .map(|(pid, _)| pid)
            .collect()
    }
}
