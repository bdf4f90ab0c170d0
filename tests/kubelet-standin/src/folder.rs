//! The manifests folder, watched and listed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::manifest::{self, Pod, PodName};

const LARGEST: u64 = 10 << 20;

/// What inotify said about one file.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there: new, written to, or its attributes changed.
    There(OsString),
    /// It left.
    Left(OsString),
    /// Events were lost; only a list helps.
    Unknown,
}

/// The folder and the pods its files hold.
pub struct Folder {
    path: PathBuf,
    node: String,
    watch: Option<OwnedFd>,
    /// The pod each file was last seen to hold: a file that left can no longer be asked.
    held: BTreeMap<OsString, PodName>,
    pods: BTreeMap<PodName, Pod>,
}

impl Folder {
    /// The folder may be missing, now and later.
    pub fn new(path: &Path, node: &str) -> Folder {
        let mut folder = Folder {
            path: path.to_owned(),
            node: node.to_owned(),
            watch: None,
            held: BTreeMap::new(),
            pods: BTreeMap::new(),
        };
        folder.watch();
        folder
    }

    /// The pods as of the last list and the changes since.
    pub fn pods(&self) -> &BTreeMap<PodName, Pod> {
        &self.pods
    }

    fn watch(&mut self) {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mask = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::DELETE_SELF
            | inotify::WatchFlags::MOVE_SELF
            | inotify::WatchFlags::ONLYDIR;
        let new = inotify::init(flags).and_then(|fd| inotify::add_watch(&fd, &self.path, mask).map(|_| fd));
        self.watch = match new {
            Ok(fd) => Some(fd),
            Err(err) => {
                eprintln!("kubelet: cannot watch {}: {err}", self.path.display());
                None
            }
        };
    }

    /// Reads the whole folder; what it does not hold is no pod any more.
    pub fn list(&mut self) {
        if self.watch.is_none() {
            self.watch();
        }
        self.held.clear();
        self.pods.clear();
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(err) => return eprintln!("kubelet: cannot list {}: {err}", self.path.display()),
        };
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            self.read(&name);
        }
    }

    fn read(&mut self, name: &OsString) {
        let path = self.path.join(name);
        let content = match load(&path) {
            Ok(Some(content)) => content,
            Ok(None) => return,
            Err(err) => return eprintln!("kubelet: cannot read {}: {err}", path.display()),
        };
        match manifest::parse(&content, &path, &self.node) {
            Ok(pod) => {
                self.held.insert(name.clone(), pod.name.clone());
                self.pods.insert(pod.name.clone(), pod);
            }
            Err(err) => eprintln!("kubelet: {} is left out: {err}", path.display()),
        }
    }

    /// Takes over one change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::There(name) => self.read(&name),
            Change::Left(name) => {
                if let Some(pod) = self.held.remove(&name) {
                    self.pods.remove(&pod);
                }
            }
            Change::Unknown => {
                self.watch = None;
                self.list();
            }
        }
    }

    /// Waits for changes, at most for `timeout`. Names that start with a dot never count.
    pub fn wait(&mut self, timeout: Duration) -> Vec<Change> {
        let Some(fd) = &self.watch else {
            std::thread::sleep(timeout);
            return Vec::new();
        };
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        if !matches!(poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)), Ok(1..)) {
            return Vec::new();
        }
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut changes = Vec::new();
        while let Ok(event) = reader.next() {
            let events = event.events();
            let Some(name) = event.file_name() else {
                changes.push(Change::Unknown);
                continue;
            };
            let name = OsString::from_vec(name.to_bytes().to_vec());
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let left = inotify::ReadFlags::DELETE | inotify::ReadFlags::MOVED_FROM;
            changes.push(if events.intersects(left) {
                Change::Left(name)
            } else {
                Change::There(name)
            });
        }
        changes
    }
}

/// The content of a file that counts; none for one that does not.
fn load(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    if path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
    {
        return Ok(None);
    }
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.len() > LARGEST {
        return Err(std::io::Error::other(format!(
            "it has {} bytes, more than {LARGEST}",
            metadata.len()
        )));
    }
    std::fs::read(path).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::POD;

    const NAME: &str = "api-node1_kube-system";

    /// Applies changes until the folder is as expected.
    fn settle(folder: &mut Folder, expected: impl Fn(&Folder) -> bool) {
        while !expected(folder) {
            let changes = folder.wait(Duration::from_secs(5));
            assert!(!changes.is_empty(), "inotify said nothing within 5 s");
            changes.into_iter().for_each(|change| folder.apply(change));
        }
    }

    #[test]
    fn a_list_takes_every_regular_file_but_dot_files_and_large_ones() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, pod: &str| {
            std::fs::write(
                dir.path().join(name),
                POD.replace("name: api\n  name", &format!("name: {pod}\n  name")),
            )
        };
        write("a.yaml", "a").unwrap();
        write("b.bak", "b").unwrap();
        write("c", "c").unwrap();
        write(".d.yaml", "d").unwrap();
        std::fs::create_dir(dir.path().join("e.yaml")).unwrap();
        std::fs::write(dir.path().join("f.yaml"), "no pod").unwrap();
        let large = format!(
            "{}#{}\n",
            POD.replace("name: api\n  name", "name: g\n  name"),
            "x".repeat(10 << 20)
        );
        std::fs::write(dir.path().join("g.yaml"), large).unwrap();
        std::os::unix::fs::symlink(dir.path().join(".d.yaml"), dir.path().join("h.yaml")).unwrap();
        let mut folder = Folder::new(dir.path(), "node1");
        folder.list();
        let names: Vec<&str> = folder.pods().keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["a", "b", "c", "d"].map(|name| format!("{name}-node1_kube-system"))
        );
    }

    #[test]
    fn a_rename_out_and_in_is_seen_at_once_with_the_same_uid() {
        let dir = tempfile::tempdir().unwrap();
        let away = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        let (inside, outside) = (dir.path().join("api.yaml"), away.path().join("api.yaml"));
        std::fs::write(&inside, POD).unwrap();
        let mut folder = Folder::new(dir.path(), "node1");
        folder.list();
        let uid = folder.pods()[NAME].uid.clone();

        std::fs::rename(&inside, &outside).unwrap();
        settle(&mut folder, |folder| folder.pods().is_empty());
        std::fs::rename(&outside, &inside).unwrap();
        settle(&mut folder, |folder| folder.pods().contains_key(NAME));
        assert_eq!(folder.pods()[NAME].uid, uid);

        // Out and in at once is two changes, not none.
        std::fs::rename(&inside, &outside).unwrap();
        std::fs::rename(&outside, &inside).unwrap();
        let name: OsString = "api.yaml".into();
        assert_eq!(
            folder.wait(Duration::from_secs(5)),
            [Change::Left(name.clone()), Change::There(name)]
        );
    }

    #[test]
    fn a_temporary_name_without_a_dot_deletes_the_pod_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("api.yaml"), POD).unwrap();
        let mut folder = Folder::new(dir.path(), "node1");
        folder.list();
        let temporary = dir.path().join("api.yaml.tmp");
        let uid = folder.pods()[NAME].uid.clone();
        std::fs::write(&temporary, POD).unwrap();
        settle(&mut folder, |folder| folder.pods()[NAME].uid != uid);
        std::fs::remove_file(&temporary).unwrap();
        // The file that leaves takes the pod of the other file along.
        settle(&mut folder, |folder| folder.pods().is_empty());
        folder.list();
        assert!(folder.pods().contains_key(NAME), "the next list brings it back");
    }

    #[test]
    fn a_folder_that_comes_later_is_found_by_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manifests");
        let mut folder = Folder::new(&path, "node1");
        folder.list();
        assert!(folder.pods().is_empty());
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("api.yaml"), POD).unwrap();
        folder.list();
        assert!(folder.pods().contains_key(NAME));
        std::fs::remove_file(path.join("api.yaml")).unwrap();
        // The folder is watched by now.
        settle(&mut folder, |folder| folder.pods().is_empty());
    }
}
