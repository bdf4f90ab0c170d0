//! A disk that fills up.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::etcd::{Etcd, Kind, beside};
use crate::history::fill;
use crate::program::run;

/// A small file system of its own, gone with the test.
struct Small {
    folder: PathBuf,
}

impl Small {
    /// None where this machine does not let us mount.
    fn mount(folder: &Path, size: &str) -> Option<Small> {
        std::fs::create_dir(folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder)
            .status()
            .is_ok_and(|status| status.success());
        mounted.then(|| Small {
            folder: folder.to_owned(),
        })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk() {
    let etcd = Etcd::start(Kind::Current);
    fill(&etcd.client().await, "configmaps", 2000, 10_000).await;
    let Some(small) = Small::mount(&etcd.folder.path().join("small"), "8m") else {
        quantykube_tests::skipped("migrate a_full_disk", "mounting a tmpfs needs root");
        return;
    };
    let file = small.folder.join("store.qks");
    run(&etcd.source, &file, &[]).await.failed(5, "no-space");
    assert!(beside(&file).is_empty(), "{:?}", beside(&file));

    // Not even the first byte fits.
    let tiny = Small::mount(&etcd.folder.path().join("tiny"), "4k").expect("the first mount worked");
    let file = tiny.folder.join("store.qks");
    run(&etcd.source, &file, &[]).await.failed(5, "no-space");
    assert!(beside(&file).is_empty(), "{:?}", beside(&file));

    // With room the same etcd is copied.
    let wide = Small::mount(&etcd.folder.path().join("wide"), "200m").expect("the first mount worked");
    let file = wide.folder.join("store.qks");
    run(&etcd.source, &file, &[]).await.done();
}
