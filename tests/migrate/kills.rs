//! SIGKILL at random moments.

use std::fs;
use std::time::{Duration, Instant};

use rand::RngExt;

use crate::etcd::{Etcd, Kind, beside};
use crate::history::{fill, generator};
use crate::program::{run, start};
use crate::records::{assert_same, of_etcd, of_file};

const KILLS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_copy_never_has_the_final_name() {
    let mut random = generator("kills of migrate");
    let etcd = Etcd::start(Kind::Secure);
    let client = etcd.client().await;
    fill(&client, "configmaps", 30_000, 1_000).await;
    let (_, expected) = of_etcd(&client, 0).await;

    let whole = etcd.target("whole");
    let begun = Instant::now();
    run(&etcd.source, &whole, &[]).await.done();
    let whole_ms = begun.elapsed().as_millis() as u64;

    let file = etcd.target("killed");
    let (mut killed, mut writing) = (0, 0);
    while killed < KILLS {
        let moment = Duration::from_millis(random.random_range(0..whole_ms * 9 / 10));
        let mut child = start(&etcd.source, &file, &[]);
        tokio::time::sleep(moment).await;
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if status.code().is_some() {
            // It was faster than the first one: no kill, and the file is whole.
            assert!(status.success());
            assert_same(&of_file(&file).1, &expected);
            fs::remove_file(&file).unwrap();
            continue;
        }
        killed += 1;
        let left = beside(&file);
        assert!(!file.exists(), "killed after {moment:?}: {left:?}");
        // What is left is ours, hidden from whoever reads the folder, and in nobody's way.
        assert!(left.iter().all(|name| name.starts_with('.')), "{left:?}");
        assert!(left.len() <= 1, "{left:?}");
        writing += usize::from(!left.is_empty());
    }
    println!("{killed} kills within {whole_ms} ms, {writing} of them while the file was written");
    assert!(writing > 0, "no kill came while the file was written");

    run(&etcd.source, &file, &[]).await.done();
    assert_eq!(
        beside(&file),
        ["store.qks"],
        "the next run clears what the killed ones left"
    );
    assert_same(&of_file(&file).1, &expected);
}
