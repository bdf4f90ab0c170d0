//! Signs of a kubeadm that is at work on the control plane, or was stopped in the middle.

use std::fs;

use crate::facts::pods::PodFile;
use crate::facts::{Root, process};

/// What was found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kubeadm {
    /// Running commands that write manifests or certificates, each as it was typed, with its process.
    pub running: Vec<String>,
    /// Folders with manifests of an upgrade. kubeadm removes them at the end of one that succeeds (CleanupDirs in
    /// phases/upgrade/staticpods.go); its backups beside them stay for ever and mean nothing.
    pub left: Vec<String>,
    /// The versions of the control plane's programs by their images, each once, where they differ.
    pub versions: Vec<String>,
}

/// The verbs of kubeadm that write into the folder of static pods or renew certificates.
const WRITING: [&str; 5] = ["init", "join", "upgrade", "reset", "certs"];
/// Where kubeadm keeps what it works on.
const TEMPORARY: &str = "/etc/kubernetes/tmp";
/// The programs that kubeadm upgrades together.
const TOGETHER: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Looks for each of them.
pub fn read(root: &Root, pods: &[PodFile]) -> Kubeadm {
    let running = process::of_program(root, "kubeadm")
        .into_iter()
        .filter(|process| process.argv.get(1).is_some_and(|verb| WRITING.contains(&verb.as_str())))
        .map(|process| {
            format!(
                "{} (process {})",
                process.argv[..process.argv.len().min(3)].join(" "),
                process.pid
            )
        })
        .collect();
    let mut left: Vec<String> = fs::read_dir(root.at(TEMPORARY))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("kubeadm-upgraded-manifests"))
        .map(|name| format!("{TEMPORARY}/{name}"))
        .collect();
    left.sort();
    let mut versions: Vec<String> = Vec::new();
    let containers = pods
        .iter()
        .filter_map(|file| file.pod.as_ref().ok())
        .flat_map(|pod| &pod.containers);
    for container in containers.filter(|container| TOGETHER.contains(&container.program.as_str())) {
        let version = container.image.rsplit_once(':').map_or("", |(_, tag)| tag);
        let of = format!("{} {version}", container.program);
        if !version.is_empty() && !versions.contains(&of) {
            versions.push(of);
        }
    }
    let same = |version: &String| version.split(' ').nth(1) == versions[0].split(' ').nth(1);
    if versions.iter().all(same) {
        versions.clear();
    }
    Kubeadm {
        running,
        left,
        versions,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::facts::pods;
    use crate::testing::{fake_process, put};

    #[test]
    fn work_leftovers_and_mixed_versions_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let pod = |name: &str, version: &str| {
            put(
                &root,
                &format!("/pods/{name}.yaml"),
                &format!(
                    "metadata: {{name: {name}}}\nspec:\n  containers:\n  - image: registry/{name}:{version}\n    command: [{name}]\n"
                ),
            );
        };
        for name in TOGETHER {
            pod(name, "v1.36.3");
        }
        pod("etcd", "3.6.8-0");
        let found = |root: &Root| read(root, &pods::read(root, Path::new("/pods")).unwrap());
        put(&root, "/etc/kubernetes/tmp/kubeadm-backup-manifests-1/etcd.yaml", "x");
        fake_process(&root, 7, &["kubeadm", "version"], 1);
        assert_eq!(found(&root), Kubeadm::default());
        pod("kube-scheduler", "v1.35.4");
        assert_eq!(
            found(&root).versions,
            [
                "kube-apiserver v1.36.3",
                "kube-controller-manager v1.36.3",
                "kube-scheduler v1.35.4"
            ]
        );
        put(&root, "/etc/kubernetes/tmp/kubeadm-upgraded-manifests9/etcd.yaml", "x");
        assert_eq!(found(&root).left, ["/etc/kubernetes/tmp/kubeadm-upgraded-manifests9"]);
        fake_process(&root, 7, &["/usr/bin/kubeadm", "upgrade", "apply", "v1.37.2"], 1);
        assert_eq!(found(&root).running, ["/usr/bin/kubeadm upgrade apply (process 7)"]);
    }
}
