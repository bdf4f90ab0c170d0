//! Which file system stands behind a path, from `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::fs;
use std::path::{Path, PathBuf};

use crate::facts::{Known, Root, attributes};

/// A mount.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mount {
    /// Where it is mounted.
    pub at: PathBuf,
    /// The type of the file system, as `ext4`.
    pub kind: String,
    /// Options of the mount and of the file system, without order.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether an option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|set| set == option)
    }

    /// The value of an option `NAME=VALUE`.
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter();
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}

/// All mounts that this process sees, in the order in which they were made.
pub fn all(root: &Root) -> Known<Vec<Mount>> {
    let path = "/proc/self/mountinfo";
    let text = fs::read_to_string(root.at(path)).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// The mount behind a path, or behind the nearest folder above it that exists. Links on the way are followed.
pub fn behind<'a>(root: &Root, mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let existing = attributes::nearest(root, path);
    let real = fs::canonicalize(root.at(&existing)).ok()?;
    let top = fs::canonicalize(root.at("/")).ok()?;
    let path = Path::new("/").join(real.strip_prefix(top).ok()?);
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.at))
        // The last one of several at one place.
        .max_by_key(|mount| mount.at.as_os_str().len())
}

fn parse(line: &str) -> Option<Mount> {
    let (mount, system) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    let mut system = system.split(' ');
    let kind = system.next()?.to_owned();
    let options = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut all = options(fields.get(5)?);
    all.extend(options(system.nth(1).unwrap_or_default()));
    Some(Mount {
        at: unescape(fields.get(4)?).into(),
        kind,
        options: all,
    })
}

/// Spaces, tabs, line ends and backslashes stand as three octal digits.
fn unescape(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn the_innermost_and_the_last_mount_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(all(&root).is_err());
        put(
            &root,
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=remount-ro\n\
             23 22 0:21 / /var/lib rw,noexec - tmpfs tmpfs rw,size=10k\n\
             24 22 0:22 / /var/lib ro - xfs /dev/sdb1 rw\n\
             25 22 0:23 / /a\\040b rw - nfs4 host:/x rw\n",
        );
        put(&root, "/var/lib/x", "");
        put(&root, "/var/library/x", "");
        put(&root, "/a b/x", "");
        std::os::unix::fs::symlink(root.at("/var/lib"), root.at("/link")).unwrap();
        let mounts = all(&root).unwrap();
        let kind = |path: &str| behind(&root, &mounts, Path::new(path)).unwrap().kind.clone();
        assert_eq!(kind("/"), "ext4");
        assert_eq!(kind("/etc/none"), "ext4");
        assert_eq!(kind("/var/lib/none/at/all"), "xfs");
        assert_eq!(kind("/var/library/none"), "ext4");
        assert_eq!(kind("/a b/x"), "nfs4");
        assert_eq!(kind("/link/none"), "xfs");
        let xfs = behind(&root, &mounts, Path::new("/var/lib")).unwrap();
        assert!(xfs.has("ro") && !xfs.has("noexec"));
        assert_eq!(mounts[1].value("size"), Some("10k"));
        assert_eq!(mounts[1].value("siz"), None);
    }

    #[test]
    fn this_machine_has_a_root() {
        let root = Root::new("/");
        let mounts = all(&root).unwrap();
        assert!(behind(&root, &mounts, Path::new("/")).is_some());
    }
}
