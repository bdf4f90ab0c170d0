//! A node's own place among this machine's control groups. systemd-nspawn puts all it starts from one place into one
//! group: two nodes started from the same one would see each other's units as theirs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::places;

/// The hierarchies that systemd-nspawn looks at, by what `/proc/self/cgroup` calls them: version 2, and systemd's own where
/// the machine has it beside.
const HIERARCHIES: [(&str, &str); 2] = [("0::/", "cgroup2"), ("name=systemd:/", "cgroup")];

/// The groups of one node; they go with it.
pub struct Group {
    name: String,
    folders: Vec<PathBuf>,
}

impl Group {
    /// Makes them below the group of this process.
    pub fn make(slot: usize) -> Group {
        // Another cache has slots of its own.
        let mut cache = DefaultHasher::new();
        places::node(slot).hash(&mut cache);
        let name = format!("quantykube-node-{:08x}-{slot}", cache.finish() as u32);
        let own = fs::read_to_string("/proc/self/cgroup").expect("/proc/self/cgroup can be read");
        let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc/self/mounts can be read");
        let folder = |(hierarchy, kind): (&str, &str)| {
            let path = own.lines().find_map(|line| Some(line.split_once(hierarchy)?.1))?;
            let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let mount = mount.into_iter().find(|fields| {
                fields[2] == kind && (kind == "cgroup2" || fields[3].split(',').any(|option| option == "name=systemd"))
            })?[1]
                .to_owned();
            let folder = Path::new(&mount).join(path);
            Some(folder.join(&name))
        };
        let folders: Vec<PathBuf> = HIERARCHIES.into_iter().filter_map(folder).collect();
        for folder in &folders {
            // What a test that was killed has left.
            clear(folder);
            fs::create_dir(folder).unwrap_or_else(|err| panic!("cannot make {}: {err}", folder.display()));
        }
        Group { name, folders }
    }

    /// No other node on this machine has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a process with this `/proc/PID/cgroup` is in one of them.
    pub fn holds(&self, groups: &str) -> bool {
        groups.lines().any(|line| line.split('/').any(|part| part == self.name))
    }

    /// A command that runs in them.
    pub fn command(&self, program: &str) -> Command {
        let enter = r#"while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", enter, "sh"])
            .args(&self.folders)
            .args(["--", program]);
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            clear(folder);
        }
    }
}

/// Removes a group and those below it. The last process may have ended a moment ago only.
fn clear(folder: &Path) {
    let begun = Instant::now();
    while folder.exists() {
        remove(folder);
        if begun.elapsed() > Duration::from_secs(10) {
            eprintln!("node: {} cannot be removed: processes are left in it", folder.display());
            return;
        }
        if folder.exists() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
