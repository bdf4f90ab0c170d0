//! The guard's service: looks before the kubelet starts, and after every change of the kubelet's folder.
//!
//! It stays: a path unit of systemd does not look while the service that it starts runs, and what changes then would be
//! missed.

use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Lister, Pid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use serde_json::json;

use crate::commands::Context;
use crate::facts::Root;
use crate::facts::manifest::Flags;
use crate::guard::Incident;
use crate::guard::look::{Look, Standing, look, terminate};

/// How often it looks though nothing was said to have changed: the folder may have become another one.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How soon it looks again where a run holds the lock, and while an API server from a wrong manifest may still start.
const SOON: Duration = Duration::from_millis(200);
/// For how long such a one may still start: the kubelet may have been about to.
const MAY_START_FOR: Duration = Duration::from_secs(60);

/// Looks for ever.
pub fn watch(context: &Context) -> Result<Exit, Failure> {
    context.must_be_root()?;
    let system = &mut context.machine();
    let mut watched: Option<(PathBuf, OwnedFd)> = None;
    let mut ending: Option<(Flags, Instant)> = None;
    let mut asked: Vec<Pid> = Vec::new();
    let mut lister = Lister::default();
    let mut told = String::new();
    let mut ready = false;
    loop {
        // The watch is set before the look: what changes in between is seen by one of the two.
        let standing = lister.list(&context.root.journals(), system).map(Standing::of);
        // While the journals cannot be read, what is watched stays so.
        let watch = standing.as_ref().unwrap_or(&Standing::Open);
        follow_folder(&context.root, watch, &mut watched);
        let looked = standing.and_then(|standing| Ok((look(&context.root, &standing, system)?, standing)));
        let mut wait = LOOK_EVERY;
        match looked {
            // A move that is open may end at any moment, and nothing in the watched folder tells so.
            Ok((Look::Quiet, standing)) if watched.is_none() || standing == Standing::Open => wait = SOON,
            Ok((Look::Quiet, _)) => {}
            Ok((Look::Later, _)) => wait = SOON,
            Ok((Look::Taken(incident, flags), _)) => {
                tell(context, &incident);
                ending = Some((flags, Instant::now()));
                wait = Duration::ZERO;
            }
            Err(error) => {
                let failure = error.failure();
                let text = format!("{}: {}", failure.message, failure.chain().join(": "));
                // Once, not every time.
                if text != told {
                    context.reporter.warning("guard", &text);
                    told = text;
                }
            }
        }
        if let Some((flags, since)) = &ending {
            asked.extend(terminate(&context.root, system, flags, &asked));
            wait = wait.min(SOON);
            if since.elapsed() >= MAY_START_FOR {
                ending = None;
            }
        }
        if !std::mem::replace(&mut ready, true) {
            notify_ready();
        }
        match &watched {
            Some((_, handle)) => {
                wait_for_change(handle, wait);
            }
            None => std::thread::sleep(wait),
        }
    }
}

/// Keeps the watch on the folder that the journals name, and forgets what it has told so far: the look that follows sees
/// all of it, and a wait for a change must not end at once for ever.
fn follow_folder(root: &Root, standing: &Standing, watched: &mut Option<(PathBuf, OwnedFd)>) {
    if watched.as_ref().is_some_and(|(_, handle)| !is_watched(handle)) {
        *watched = None;
    }
    // While a move is open its folder stays watched.
    let Standing::Settled(side) = standing else {
        return;
    };
    let folder = side.manifest.parent().unwrap_or(Path::new("/")).to_owned();
    if watched.as_ref().is_none_or(|(path, _)| *path != folder) {
        *watched = open(&root.at(&folder)).ok().map(|handle| (folder, handle));
    }
}

fn open(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let handle = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let events = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::ONLYDIR;
    inotify::add_watch(&handle, folder, events)?;
    Ok(handle)
}

/// A watch goes with its folder; then the handle has told so, and the next look sets a new one.
fn is_watched(handle: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4 << 10];
    let mut reader = inotify::Reader::new(handle, &mut buffer);
    while let Ok(event) = reader.next() {
        if event.events().contains(inotify::ReadFlags::IGNORED) {
            return false;
        }
    }
    true
}

/// Whether something has changed.
fn wait_for_change(handle: &OwnedFd, at_most: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// To the system journal, and to whoever stands at the machine.
fn tell(context: &Context, incident: &Incident) {
    let text = format!("{}\nhint: {}", incident.why, incident.cure);
    context.reporter.warning("guard", &text);
    if let Ok(mut console) = std::fs::OpenOptions::new().write(true).open("/dev/console") {
        let _ = writeln!(console, "\r\nquantykube-guard: {}\r", text.replace('\n', "\r\n"));
    }
}

/// Tells systemd that the first look is done: the kubelet may start.
fn notify_ready() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = UnixDatagram::unbound()
        .and_then(|socket| address.and_then(|address| socket.send_to_addr(b"READY=1", &address)));
    drop(sent);
}

/// `guard release`.
pub fn release(context: &Context) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    let journals = context.root.journals();
    let _session = journals.lock(system).map_err(|error| error.failure())?;
    if let Some(open) = journals.open_move(system).map_err(|error| error.failure())? {
        return Err(Failure::new(
            Exit::Refused,
            "move-open",
            format!("the move {} is open; nothing was touched", open.id),
        )
        .hint("finish it with quantykube resume, or put it back with quantykube undo store"));
    }
    let unreadable = |error: std::io::Error| {
        Failure::new(Exit::Failed, "guard-file", format!("{} cannot be read", super::FILE)).because(error)
    };
    let Some(incident) = super::last(&context.root).map_err(unreadable)? else {
        context.reporter.result(
            "already so: the guard holds no manifest back",
            json!({"what": "guard release", "changed": false}),
        );
        return Ok(Exit::Done);
    };
    super::look::release(&context.root, system, &incident).map_err(|error| {
        Failure::new(
            Exit::Refused,
            "guard-release",
            format!("{} was not released", incident.retired.display()),
        )
        .because(error)
        .hint(format!(
            "edit it by hand so that --etcd-servers is {}, then move it to {}",
            incident.expected,
            incident.manifest.display()
        ))
    })?;
    context.reporter.result(
        &format!(
            "done: {} names {} and is back in the kubelet's folder; the API server starts",
            incident.manifest.display(),
            incident.expected
        ),
        json!({"what": "guard release", "changed": true, "manifest": incident.manifest, "names": incident.expected}),
    );
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::look::Side;
    use crate::testing::put;

    #[test]
    fn what_was_told_is_told_once_whoever_has_the_data() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let manifest = PathBuf::from("/etc/kubernetes/manifests/kube-apiserver.yaml");
        let settled = Standing::Settled(Side {
            data: "store",
            right: "https://127.0.0.1:2479".into(),
            wrong: "https://127.0.0.1:2379".into(),
            manifest: manifest.clone(),
        });
        put(&root, manifest.to_str().unwrap(), "kind: Pod\n");
        let mut watched = None;
        follow_folder(&root, &settled, &mut watched);
        let changed = |watched: &Option<(PathBuf, OwnedFd)>, at_most| {
            wait_for_change(&watched.as_ref().expect("a folder is watched").1, at_most)
        };
        assert!(!changed(&watched, Duration::ZERO));
        for standing in [&settled, &Standing::Open, &Standing::Unmoved] {
            put(&root, manifest.to_str().unwrap(), "kind: Pod\n---\n");
            assert!(changed(&watched, Duration::from_secs(20)), "{standing:?}");
            follow_folder(&root, standing, &mut watched);
            assert!(
                !changed(&watched, Duration::ZERO),
                "{standing:?}: it would look again and again"
            );
        }
        // Another folder under the same name, which only a look while a move is open has seen go.
        let path = root.at(manifest.parent().unwrap());
        std::fs::rename(&path, path.with_file_name("gone")).unwrap();
        std::fs::remove_dir_all(path.with_file_name("gone")).unwrap();
        follow_folder(&root, &Standing::Open, &mut watched);
        put(&root, manifest.to_str().unwrap(), "kind: Pod\n");
        follow_folder(&root, &settled, &mut watched);
        put(&root, manifest.to_str().unwrap(), "kind: Pod\n---\n");
        assert!(changed(&watched, Duration::from_secs(20)));
    }
}
