//! Manifests as kubeadm 1.34 to 1.37 render them, for IPv4 and IPv6: read, judged and edited there and back.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::facts::manifest::Manifest;
use crate::facts::{Root, api_server, pods};
use crate::moves::etcd_servers;
use crate::testing::{API_SERVER, ETCD, Family, put, render_as};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/kubeadm")
}

fn folders() -> BTreeSet<String> {
    fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn each_kubeadm_is_read_and_edited_there_and_back() {
    let folders = folders();
    for minor in ["v1.34.", "v1.35.", "v1.36.", "v1.37."] {
        let of_minor: Vec<_> = folders.iter().filter(|name| name.starts_with(minor)).collect();
        assert_eq!(of_minor.len(), 2, "IPv4 and IPv6 of {minor}: {folders:?}");
    }
    for name in folders {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for (place, file) in [(API_SERVER, "kube-apiserver.yaml"), (ETCD, "etcd.yaml")] {
            put(
                &root,
                place,
                &fs::read_to_string(fixtures().join(&name).join(file)).unwrap(),
            );
        }
        let (old, store, address) = match name.ends_with("-ipv6") {
            true => ("https://[::1]:2379", "https://[::1]:2479", "[2001:db8::10]:6443"),
            false => ("https://127.0.0.1:2379", "https://127.0.0.1:2479", "192.0.2.10:6443"),
        };
        let manifest = Manifest::read(&root, Path::new(API_SERVER)).unwrap().unwrap();
        let flags = manifest.flags();
        assert_eq!(etcd_servers::server(&flags).as_deref(), Ok(old), "{name}");
        assert_eq!(
            api_server::endpoint(&flags).unwrap().address.to_string(),
            address,
            "{name}"
        );
        for flag in ["etcd-cafile", "etcd-certfile", "etcd-keyfile"] {
            assert!(
                flags.last(flag).unwrap().starts_with("/etc/kubernetes/pki/"),
                "{name}: {flag}"
            );
        }
        let there = etcd_servers::edit(&manifest.text, old, store).unwrap();
        assert_eq!(manifest.text.lines().count(), there.text.lines().count());
        let changed = manifest
            .text
            .lines()
            .zip(there.text.lines())
            .filter(|(a, b)| a != b)
            .count();
        assert_eq!(changed, 1, "{name}: one line differs");
        let back = etcd_servers::edit(&there.text, store, old).unwrap();
        assert_eq!(back.text, manifest.text, "{name}: back to the same bytes");
        // etcd's own: it listens where the API server looks, and names what the store takes over.
        let etcd = Manifest::read(&root, Path::new(ETCD)).unwrap().unwrap().flags();
        let listens: Vec<_> = etcd.last("listen-client-urls").unwrap().split(',').collect();
        assert!(listens.contains(&old), "{name}: {listens:?}");
        assert_eq!(etcd.last("name"), Some("node1"), "{name}");
        assert_eq!(etcd.last("watch-progress-notify-interval"), Some("5s"), "{name}");
        // And both are pods as the kubelet reads them.
        let files = pods::read(&root, Path::new("/etc/kubernetes/manifests")).unwrap();
        let programs: Vec<_> = files
            .iter()
            .map(|file| file.pod.as_ref().unwrap().containers[0].program.as_str())
            .collect();
        assert_eq!(programs, ["etcd", "kube-apiserver"], "{name}");
    }
}

#[test]
fn kubeadm_still_renders_the_fixtures() {
    for (family, name) in [(Family::Four, "v1.36.3-ipv4"), (Family::Six, "v1.36.3-ipv6")] {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        render_as(&root, family);
        for (place, file) in [(API_SERVER, "kube-apiserver.yaml"), (ETCD, "etcd.yaml")] {
            let fixture = fs::read_to_string(fixtures().join(name).join(file)).unwrap();
            assert_eq!(fs::read_to_string(root.at(place)).unwrap(), fixture, "{name}/{file}");
        }
    }
}
