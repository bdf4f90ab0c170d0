//! `plan store --rehearse`: the copy and the start of the store, made on the live cluster while its API server runs, and
//! thrown away. It shows what the move will take, and that this etcd's content and these certificates are good for it.
//!
//! Nothing of the node changes: the copy stands in a folder of its own on the disk that the store will be on, the server
//! listens on a spare port of loopback, and both are gone at the end, also on a failure, INT or TERM. What a KILL leaves
//! is cleared away by the next rehearsal.

use std::fs::{self, File, OpenOptions};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quantykube_base::{Exit, Failure, human_bytes};
use quantykube_migrate::{EtcdStatus, Options, Outcome, copy_with, status};
use serde_json::json;

use crate::commands::Context;
use crate::commands::migrate::stopped;
use crate::facts::etcd::source;
use crate::facts::{Root, chain, host};
use crate::moves::places;
use crate::moves::store::{Bundle, Ready};

/// The folder of a rehearsal: on the disk of the store's folder, which may not be there yet.
const FOLDER: &str = "/var/lib/.quantykube-rehearsal";
/// In it: the process id of the store that serves for the rehearsal.
const PID: &str = "pid";
/// How long the store may take until it answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// What a rehearsal has found.
struct Rehearsed {
    copied: Outcome,
    file_bytes: u64,
    starts: Duration,
    served: EtcdStatus,
}

/// Rehearses on a node of which every check said yes.
pub fn run(context: &Context, bundle: &Bundle, node: &Ready) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let mut folder = None;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| failed("cannot start the runtime of connections").because(error))?;
    let rehearsed = runtime.block_on(async {
        tokio::select! {
            biased;
            name = stopped() => Err(Failure::new(
                Exit::Failed,
                "interrupted",
                format!("{} came before the rehearsal was over; nothing was left behind", name?),
            )
            .hint("run the same command again")),
            // The folder is made here: a signal is heard from before there is anything to leave behind.
            rehearsed = async {
                let folder = folder.insert(Folder::make(&context.root)?);
                rehearse(context, bundle, node, folder).await
            } => rehearsed,
        }
    });
    // Waits for the writing thread, where the copy was given up.
    drop(runtime);
    folder.map_or(Ok(()), Folder::remove)?;
    let rehearsed = rehearsed?;
    tell(context, &rehearsed, begun.elapsed());
    Ok(Exit::Done)
}

async fn rehearse(context: &Context, bundle: &Bundle, node: &Ready, folder: &Folder) -> Result<Rehearsed, Failure> {
    let file = folder.path.join("store.qks");
    let etcd = source(&context.root, &node.etcd, &node.client);
    // The API server runs and writes: what it writes after the copy's revision is not in the copy.
    let options = Options { refuse_writes: false };
    let copied = copy_with(&etcd, &file, &context.reporter, options).await?;
    let file_bytes = fs::metadata(&file)
        .map_err(|error| failed("the copy cannot be looked at").because(error))?
        .len();
    let address = SocketAddr::new(node.store.ip(), spare_port(node.store.ip())?);
    let begun = Instant::now();
    let mut server = Server::start(&context.root, bundle, node, &file, address, &folder.path)?;
    context.reporter.step(
        "store",
        &format!("the copy is served on {address}, for the rehearsal alone"),
    );
    let served = source(&context.root, &places::store_url(address), &node.client);
    let status = loop {
        match status(&served).await {
            Ok(status) => break status,
            Err(error) => {
                if server.has_ended() || begun.elapsed() > ANSWERS_WITHIN {
                    return Err(failed(format!(
                        "the store does not serve the copy: {}\n{}",
                        chain(&error),
                        server.said()
                    )));
                }
            }
        }
        tokio::time::sleep(ASK_EVERY).await;
    };
    let starts = begun.elapsed();
    if (status.revision, status.keys) != (copied.head, copied.keys) {
        return Err(Failure::new(
            Exit::NotVerified,
            "rehearsal-differs",
            format!(
                "the store serves {} keys at revision {}, {} keys were copied at revision {}",
                status.keys, status.revision, copied.keys, copied.head
            ),
        )
        .hint("do not move this cluster; keep this output and the output of quantykube status --json"));
    }
    Ok(Rehearsed {
        copied,
        file_bytes,
        starts,
        served: status,
    })
}

fn tell(context: &Context, rehearsed: &Rehearsed, took: Duration) {
    let copied = &rehearsed.copied;
    let free = host::free_bytes(&context.root, Path::new(places::STORE_FOLDER));
    let text = format!(
        "rehearsed: {} keys, {}, {} leases of etcd {} at revision {}, copied and compared in {:.1} s; the store answered after {:.1} s with all of them\n\
         space: the store's file has {}, {} are free on its disk\n\
         in all: {:.1} s; the move stops the API server for the copy, and for as long as the API server takes to end and to start\n\
         nothing was changed: the copy and its server are gone",
        copied.keys,
        human_bytes(copied.bytes),
        copied.leases,
        copied.version,
        copied.head,
        copied.took.as_secs_f64(),
        rehearsed.starts.as_secs_f64(),
        human_bytes(rehearsed.file_bytes),
        free.map_or("an unknown number of bytes".to_owned(), human_bytes),
        took.as_secs_f64(),
    );
    context.reporter.result(
        &text,
        json!({
            "what": "rehearse store",
            "changed": false,
            "keys": copied.keys,
            "bytes": copied.bytes,
            "leases": copied.leases,
            "revision": copied.head,
            "writesMeanwhile": copied.movement.writes,
            "copySeconds": copied.took.as_secs_f64(),
            "startSeconds": rehearsed.starts.as_secs_f64(),
            "seconds": took.as_secs_f64(),
            "fileBytes": rehearsed.file_bytes,
            "freeBytes": free,
            "servedKeys": rehearsed.served.keys,
            "servedRevision": rehearsed.served.revision,
        }),
    );
}

fn failed(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Failed, "rehearsal", what)
}

fn spare_port(ip: IpAddr) -> Result<u16, Failure> {
    TcpListener::bind((ip, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| failed("there is no spare port on loopback").because(error))
}

/// The rehearsal's folder, which goes with it. Held by a lock, so that what an ended one has left is known from one
/// that runs.
struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    fn make(root: &Root) -> Result<Folder, Failure> {
        let path = root.at(FOLDER);
        let cannot = |error: std::io::Error| failed(format!("cannot make the folder {FOLDER}")).because(error);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let lock = lock(&path).map_err(cannot)?;
                if lock.is_none() {
                    return Err(Failure::new(
                        Exit::Refused,
                        "rehearsal-runs",
                        "another rehearsal runs on this node; nothing was touched",
                    )
                    .hint("wait for its end"));
                }
                end_orphan(root, &path);
                fs::remove_dir_all(&path).map_err(cannot)?;
                fs::DirBuilder::new().mode(0o700).create(&path).map_err(cannot)?;
            }
            Err(error) => return Err(cannot(error)),
        }
        let held = lock(&path).map_err(cannot)?;
        let held = held.ok_or_else(|| failed(format!("another rehearsal has taken {FOLDER}")))?;
        Ok(Folder { path, _lock: held })
    }

    /// Removes it, and says where that fails.
    fn remove(self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.path)
            .map_err(|error| failed(format!("cannot remove {FOLDER}; remove it by hand")).because(error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Ends the server of a rehearsal that was killed: the process that is noted, if it still serves from that folder.
fn end_orphan(root: &Root, folder: &Path) {
    let noted = fs::read_to_string(folder.join(PID)).unwrap_or_default();
    let Some(pid) = noted.trim().parse().ok().and_then(rustix::process::Pid::from_raw) else {
        return;
    };
    let line = fs::read(root.at(format!("/proc/{}/cmdline", pid.as_raw_pid()))).unwrap_or_default();
    if String::from_utf8_lossy(&line).contains(&folder.display().to_string()) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The lock of a rehearsal's folder; `None` where another one has it.
fn lock(folder: &Path) -> std::io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// The store as it runs for the rehearsal; ends with it.
struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    fn start(
        root: &Root,
        bundle: &Bundle,
        node: &Ready,
        file: &Path,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Server, Failure> {
        let log = folder.join("store.log");
        let cannot = |error: std::io::Error| failed("cannot start the store out of the bundle").because(error);
        let out = File::create(&log).map_err(cannot)?;
        let files = &node.server;
        let mut command = Command::new(&bundle.store.path);
        command
            .env_clear()
            .arg("--data")
            .arg(file)
            .args(["--listen", &address.to_string(), "--client-cert-auth"])
            .arg("--cert-file")
            .arg(root.at(&files.cert))
            .arg("--key-file")
            .arg(root.at(&files.key))
            .arg("--trusted-ca-file")
            .arg(root.at(&files.ca))
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(cannot)?)
            .stderr(out);
        for (name, value) in &node.settings {
            command.arg(format!("--{name}={value}"));
        }
        let server = Server {
            child: command.spawn().map_err(cannot)?,
            log,
        };
        fs::write(folder.join(PID), server.child.id().to_string()).map_err(cannot)?;
        Ok(server)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it has said.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
