//! Processes, found by what they were started with. A name is not enough: a node may run several API servers.

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use crate::facts::Root;
use crate::facts::manifest::Flags;

/// A process, told apart from a later one with the same number by its start time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot, as `/proc/PID/stat` has it.
    pub start: u64,
    /// What it was started with.
    #[serde(skip)]
    pub argv: Vec<String>,
    /// The boot in which it was seen.
    pub boot_id: Option<String>,
    /// The control group of the pod that it is in, as an absolute path; none outside of pods.
    pub group: Option<PathBuf>,
}

/// The flags that tell one API server from another.
pub const TELLING: [&str; 3] = ["etcd-servers", "secure-port", "advertise-address"];

/// The whole arguments of a command line that tell it from another, as they stand in it.
pub fn telling_items(argv: &[String]) -> Vec<String> {
    let mut items = Vec::new();
    let mut rest = argv.iter().skip(1);
    while let Some(item) = rest.next() {
        if TELLING.iter().any(|name| names(item, name)) {
            items.push(item.clone());
            if !item.contains('=') {
                items.extend(rest.next().cloned());
            }
        }
    }
    items
}

/// Whether an argument is the flag `name`, with or without a value.
pub fn names(item: &str, name: &str) -> bool {
    item.strip_prefix("--")
        .map(|flag| flag.split_once('=').map_or(flag, |(name, _)| name))
        .is_some_and(|found| found.replace('_', "-") == name)
}

/// Every process whose telling flags are those of the manifest.
pub fn of_manifest(root: &Root, manifest: &Flags) -> Vec<Process> {
    let telling = |flags: &Flags| TELLING.map(|name| flags.all(name).join(","));
    let wanted = telling(manifest);
    all(root)
        .into_iter()
        .filter(|process| telling(&Flags::parse(&process.argv)) == wanted)
        .collect()
}

/// Processes by the base name of their program.
pub fn of_program(root: &Root, name: &str) -> Vec<Process> {
    all(root)
        .into_iter()
        .filter(|process| {
            let program = PathBuf::from(process.argv.first().map(String::as_str).unwrap_or_default());
            program.file_name().is_some_and(|base| base == name)
        })
        .collect()
}

/// All processes that have a command line. One that ends meanwhile is left out.
fn all(root: &Root) -> Vec<Process> {
    let Ok(entries) = fs::read_dir(root.at("/proc")) else {
        return Vec::new();
    };
    let boot_id = fs::read_to_string(root.at("/proc/sys/kernel/random/boot_id")).ok();
    let boot_id = boot_id.map(|text| text.trim().to_owned());
    let mut found: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let argv: Vec<String> = line
                .split(|byte| *byte == 0)
                .map(|item| String::from_utf8_lossy(item).into_owned())
                .collect();
            let argv = argv[..argv.len() - 1].to_vec();
            (!argv.is_empty()).then_some(())?;
            Some(Process {
                pid,
                start: start_time(&stat)?,
                argv,
                boot_id: boot_id.clone(),
                group: fs::read_to_string(entry.path().join("cgroup"))
                    .ok()
                    .and_then(|text| pod_group(root, &text)),
            })
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// The pod's group in the text of `/proc/PID/cgroup`: `...-pod<UID>.slice` where systemd makes the groups, `pod<UID>` where
/// the kubelet does. On a machine with groups of version 1 it is looked for in systemd's own tree.
fn pod_group(root: &Root, text: &str) -> Option<PathBuf> {
    let at = |mark: &str| {
        text.lines()
            .find_map(|line| line.split_once(mark).map(|(_, path)| path.to_owned()))
    };
    let (mount, path) = match at(":name=systemd:") {
        Some(path) => ("/sys/fs/cgroup/systemd", path),
        None => ("/sys/fs/cgroup", at("0::")?),
    };
    let is_pod = |name: &str| {
        let name = name.strip_suffix(".slice").unwrap_or(name);
        let uid = name.rsplit_once("pod").map_or("", |(_, uid)| uid);
        uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-' || b == b'_')
    };
    let mut group = PathBuf::from(mount);
    let mut pod = None;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        group.push(name);
        if is_pod(name) {
            pod = Some(group.clone());
        }
    }
    pod.filter(|pod| root.at(pod).is_dir())
}

/// Field 22 of `/proc/PID/stat`. The name in field 2 may hold spaces and brackets, so fields count from its last bracket.
/// A zombie has no start of its own any more: it writes nothing and is left out.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    if matches!(fields.first(), Some(&"Z") | Some(&"X")) {
        return None;
    }
    fields.get(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fake_process;

    #[test]
    fn the_api_server_is_found_by_its_flags() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let ours = [
            "kube-apiserver",
            "--etcd-servers=https://127.0.0.1:2379",
            "--secure-port=6443",
        ];
        let tenant = [
            "kube-apiserver",
            "--etcd-servers=https://10.0.0.1:2379",
            "--secure-port=6443",
        ];
        let two_items = [
            "kube-apiserver",
            "--etcd-servers",
            "https://127.0.0.1:2379",
            "--secure-port",
            "6443",
        ];
        fake_process(&root, 10, &ours, 77);
        fake_process(&root, 11, &tenant, 78);
        fake_process(&root, 12, &two_items, 79);
        fake_process(
            &root,
            13,
            &["sh", "-c", "kube-apiserver --etcd-servers=https://127.0.0.1:2379"],
            80,
        );
        let manifest = Flags::parse(&ours.map(str::to_owned));
        let found: Vec<(u32, u64)> = of_manifest(&root, &manifest).iter().map(|p| (p.pid, p.start)).collect();
        assert_eq!(found, [(10, 77), (12, 79)]);
        assert_eq!(of_program(&root, "sh").len(), 1);
    }

    #[test]
    fn a_pod_is_found_in_its_groups() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let uid = "0123456789abcdef0123456789abcdef";
        let slice = format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
        let plain = "kubepods/burstable/pod11111111-2222-3333-4444-555555555555";
        for path in [
            format!("/sys/fs/cgroup/{slice}"),
            format!("/sys/fs/cgroup/systemd/{plain}"),
        ] {
            fs::create_dir_all(root.at(path)).unwrap();
        }
        let found = pod_group(&root, &format!("0::/{slice}/cri-containerd-77.scope\n"));
        assert_eq!(found, Some(PathBuf::from(format!("/sys/fs/cgroup/{slice}"))));
        let found = pod_group(
            &root,
            &format!("4:memory:/{plain}/77\n1:name=systemd:/{plain}/77\n0::/\n"),
        );
        assert_eq!(found, Some(PathBuf::from(format!("/sys/fs/cgroup/systemd/{plain}"))));
        assert_eq!(pod_group(&root, "0::/system.slice/kubepods.service\n"), None);
        assert_eq!(pod_group(&root, "0::/kubepods/podcafe\n"), None, "that is no pod's uid");
        let gone = "f".repeat(32);
        assert_eq!(
            pod_group(&root, &format!("0::/kubepods/pod{gone}/x\n")),
            None,
            "the group is not there"
        );
    }

    #[test]
    fn this_process_has_a_start_time() {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(start_time(&stat).unwrap() > 0);
        assert_eq!(
            start_time("1 (a) b) S 1 1 1 0 -1 4 1 1 0 0 0 0 0 0 20 0 1 0 55 1"),
            Some(55)
        );
        assert_eq!(start_time("1 (a) Z 1 1 1 0 -1 4 1 1 0 0 0 0 0 0 20 0 1 0 55 1"), None);
    }
}
