//! The node's containerd, as far as images go: spoken to with its own `ctr`, over its unix socket alone.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quantykube_base::{Exit, Failure};
use quantykube_oci::{Digest, Listed};

/// The namespace in which the kubelet looks for images.
const NAMESPACE: &str = "k8s.io";
/// Where programs are looked for, and what `ctr` finds its own in.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The longest that a list may take; it reads no layer.
const LIST: Duration = Duration::from_secs(60);
/// How much of what a program says is kept, in bytes.
const SAID_MAX: u64 = 1 << 20;
const POLL: Duration = Duration::from_millis(20);

/// An image as containerd has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Had {
    /// What its name stands for there.
    pub digest: String,
    /// Whether all of its content is there.
    pub complete: bool,
}

/// A containerd that was found.
#[derive(Debug)]
pub struct Containerd {
    ctr: PathBuf,
    address: PathBuf,
    /// How long it may be silent.
    patience: Duration,
}

impl Containerd {
    /// Looks for `ctr`, in the folder of a bundle's programs where it is one of them, else on the node; and for somebody who
    /// listens on `address`.
    ///
    /// # Errors
    /// 4 where one of the two is missing: nothing was touched.
    pub fn find(bundled: Option<PathBuf>, address: &Path, patience: Duration) -> Result<Containerd, Failure> {
        let shown = address.display();
        let start = "start containerd (systemctl start containerd), or say where it listens: --address SOCKET";
        let no = |name, message: String, hint: &str| {
            Failure::new(Exit::Refused, name, format!("{message}; nothing was touched")).hint(hint)
        };
        match address.metadata() {
            Ok(data) if data.file_type().is_socket() => {}
            Ok(_) => return Err(no("no-containerd", format!("{shown} is no socket"), start)),
            Err(error) => {
                return Err(no("no-containerd", format!("there is no containerd at {shown}"), start).because(error));
            }
        }
        if let Err(error) = UnixStream::connect(address) {
            return Err(no("no-containerd", format!("no containerd listens on {shown}"), start).because(error));
        }
        let on_node = || {
            PATH.split(':')
                .map(|folder| Path::new(folder).join("ctr"))
                .find(|path| path.is_file())
        };
        let ctr = bundled.or_else(on_node).ok_or_else(|| {
            let hint = "it comes with containerd; or build the bundle with it, as the binary ctr";
            no(
                "no-ctr",
                format!("there is no ctr in {PATH}, with which images are loaded"),
                hint,
            )
        })?;
        Ok(Containerd {
            ctr,
            address: address.into(),
            patience,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.ctr);
        command
            .arg("--address")
            .arg(&self.address)
            .args(["--namespace", NAMESPACE, "images"])
            // No proxy and no other address: it speaks with this socket and nobody else.
            .env_clear()
            .env("PATH", PATH)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Which of `names` are there, and as what.
    ///
    /// # Errors
    /// 4 where containerd does not answer.
    pub fn list(&self, names: &[&str]) -> Result<BTreeMap<String, Had>, Failure> {
        let mut command = self.command();
        command.arg("check").stdin(Stdio::null());
        command.args(names.iter().map(|name| format!("name=={name:?}")));
        let limit = self.patience.min(LIST);
        let ended = Running::start(&mut command)
            .and_then(|running| running.wait(&mut |since, _| since < limit))
            .map_err(|error| self.cannot_run(error))?;
        // An image of the list that cannot be checked makes ctr fail, and is not whole.
        let found = parse(&ended.out);
        match ended.status {
            Some(status) if status.success() || !found.is_empty() => Ok(found),
            _ => Err(Failure::new(
                Exit::Refused,
                "containerd-silent",
                format!(
                    "containerd at {} does not say which images it has",
                    self.address.display()
                ),
            )
            .because(ended.how(limit))
            .hint("see whether it is well: systemctl status containerd; journalctl -u containerd")),
        }
    }

    /// Imports one image of the layout in `root`. `told` hears how many bytes of its blobs went in.
    ///
    /// # Errors
    /// What containerd or `ctr` said; what is there under the image's name then, containerd knows alone.
    pub fn import(&self, root: &Path, image: &Listed, told: &mut dyn FnMut(u64)) -> Result<(), Failure> {
        let mut command = self.command();
        command.args(["import", "-"]).stdin(Stdio::piped());
        let failed = |cause: String| {
            Failure::new(
                Exit::Failed,
                "load",
                format!("the image {} could not be loaded", image.name),
            )
            .because(cause)
        };
        let mut running = Running::start(&mut command).map_err(|error| self.cannot_run(error))?;
        let mut input = running.child.stdin.take().expect("it was asked for");
        let (done, writer) = (Arc::clone(&running.done), (root.to_owned(), image.clone()));
        let writing = std::thread::spawn(move || {
            let (root, image) = writer;
            quantykube_oci::archive(&root, &image, &mut input, &mut |bytes| {
                done.store(bytes, Ordering::Relaxed)
            })
        });
        let (mut last, mut moved) = (0, Duration::ZERO);
        let ended = running
            .wait(&mut |since, bytes| {
                if bytes != last {
                    (last, moved) = (bytes, since);
                    told(bytes);
                }
                since - moved < self.patience
            })
            .map_err(|error| failed(error.to_string()))?;
        // The reader of the pipe is gone, so that this ends.
        let written = writing.join().expect("the writing thread does not panic");
        match (ended.status.is_some_and(|status| status.success()), written) {
            (true, Ok(())) => Ok(()),
            // Ours is the first cause where a blob could not be read; a pipe that broke is containerd's.
            (_, Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error.to_string())),
            (_, _) => Err(failed(ended.how(self.patience))),
        }
    }

    fn cannot_run(&self, error: io::Error) -> Failure {
        let message = format!("cannot run {}", self.ctr.display());
        Failure::new(Exit::Refused, "no-ctr", message).because(error)
    }
}

/// The rows of `ctr images check`: name, media type, digest, status, and more.
fn parse(text: &str) -> BTreeMap<String, Had> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let [name, _, digest, status] = words[..] else { continue };
        if digest.parse::<Digest>().is_ok() {
            let (digest, complete) = (digest.to_owned(), status == "complete");
            found.insert(name.to_owned(), Had { digest, complete });
        }
    }
    found
}

/// A `ctr` at work.
struct Running {
    child: Child,
    begun: Instant,
    /// How many bytes went into it.
    done: Arc<AtomicU64>,
    out: JoinHandle<String>,
    err: JoinHandle<String>,
}

/// How it ended.
struct Ended {
    /// `None`: it was silent for too long, and was ended.
    status: Option<ExitStatus>,
    out: String,
    err: String,
}

impl Running {
    fn start(command: &mut Command) -> io::Result<Running> {
        let mut child = command.spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        Ok(Running {
            out: listen(out.expect("it was asked for")),
            err: listen(err.expect("it was asked for")),
            begun: Instant::now(),
            done: Arc::default(),
            child,
        })
    }

    /// Waits for the end, or ends it once `go_on`, told how long it runs and how many bytes went in, says no.
    fn wait(mut self, go_on: &mut dyn FnMut(Duration, u64) -> bool) -> io::Result<Ended> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if !go_on(self.begun.elapsed(), self.done.load(Ordering::Relaxed)) {
                self.child.kill()?;
                self.child.wait()?;
                break None;
            }
            std::thread::sleep(POLL);
        };
        let text = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
        Ok(Ended {
            status,
            out: text(self.out),
            err: text(self.err),
        })
    }
}

impl Ended {
    /// In words.
    fn how(&self, limit: Duration) -> String {
        let mut said = self.err.lines().map(str::trim).filter(|line| !line.is_empty());
        let said = said.rfind(|line| !line.contains("level=warning"));
        let said = said.map(|line| format!(": {line}")).unwrap_or_default();
        match self.status {
            None => format!("ctr was silent for {} s and was ended{said}", limit.as_secs()),
            Some(status) => format!("ctr ended with {status}{said}"),
        }
    }
}

/// Reads to the end and keeps the beginning.
fn listen(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = (&mut stream).take(SAID_MAX).read_to_end(&mut text);
        let _ = io::copy(&mut stream, &mut io::sink());
        String::from_utf8_lossy(&text).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_nothing_else() {
        let digest = Digest::of(b"a");
        let text = format!(
            "REF TYPE DIGEST STATUS SIZE UNPACKED\n\
             r.example/a:1 application/vnd.oci.image.manifest.v1+json {digest} complete (2/2) 1.0 KiB/1.0 KiB true\n\
             r.example/b:1 application/vnd.oci.image.manifest.v1+json {digest} incomplete (1/2) 1.0 KiB/2.0 KiB false\n\
             time=\"now\" level=error msg=\"nothing\"\n\n"
        );
        let found = parse(&text);
        let had = |complete| {
            let digest = digest.to_string();
            Some(Had { digest, complete })
        };
        assert_eq!(found.len(), 2);
        assert_eq!(found.get("r.example/a:1").cloned(), had(true));
        assert_eq!(found.get("r.example/b:1").cloned(), had(false));
    }
}
