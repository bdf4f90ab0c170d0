//! Which processes belong to which pod, read from `/proc`: that works with either version of cgroups.

use std::collections::BTreeSet;

use rustix::process::Pid;

/// The slice of a pod, under the name the kubelet gives it with the systemd driver.
pub fn slice(uid: &str) -> String {
    format!("kubepods-burstable-pod{uid}.slice")
}

/// The processes in a pod's slice, the oldest first.
pub fn processes(uid: &str) -> Vec<Pid> {
    let needle = format!("/{}/", slice(uid));
    let mut found: Vec<(u64, Pid)> = members()
        .filter(|(_, cgroups)| cgroups.contains(&needle))
        .filter_map(|(pid, _)| Some((started(pid)?, Pid::from_raw(pid)?)))
        .collect();
    found.sort_by_key(|(begun, pid)| (*begun, pid.as_raw_pid()));
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// The UIDs of all pods that have processes.
pub fn pods() -> BTreeSet<String> {
    members()
        .filter_map(|(_, cgroups)| {
            let rest = cgroups.split_once("/kubepods-burstable-pod")?.1;
            Some(rest.split_once(".slice/")?.0.to_string())
        })
        .collect()
}

fn members() -> impl Iterator<Item = (i32, String)> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, std::fs::read_to_string(entry.path().join("cgroup")).ok()?))
        })
}

/// When a process started, in ticks since boot; none for one that has ended.
fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_start() {
        let own = started(std::process::id() as i32).unwrap();
        let first = started(1).unwrap();
        assert!(first <= own && own > 0);
        assert_eq!(started(i32::MAX), None);
    }
}
