//! What happens to etcd while it is read. The wire stops in the middle of the read, so that it has happened for sure.

use std::path::Path;
use std::time::Duration;

use etcd_client::{LeaseGrantOptions, PutOptions};
use quantykube_migrate::Source;

use crate::etcd::{Etcd, Kind, beside};
use crate::history::fill;
use crate::program::{Ended, start, wait};
use crate::proxy::Proxy;
use crate::records::{assert_same, of_etcd, of_file};

/// Far enough that pages remain to be asked for: 30 MB are read, 8 MiB at a time.
const STOP_AT: u64 = 4 << 20;

/// An etcd with 30 MB in it, and a wire to it that stops in the middle.
async fn half_read() -> (Etcd, Proxy) {
    let etcd = Etcd::start(Kind::Current);
    fill(&etcd.client().await, "configmaps", 3000, 10_000).await;
    let proxy = Proxy::to(etcd.port, STOP_AT).await;
    (etcd, proxy)
}

async fn wait_for(child: std::process::Child) -> Ended {
    tokio::task::spawn_blocking(|| wait(child)).await.unwrap()
}

/// Waits until the temporary file is there.
async fn writing(file: &Path) {
    for _ in 0..1000 {
        if beside(file).len() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it writes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction() {
    let (etcd, proxy) = half_read().await;
    let file = etcd.target("compacted");
    let child = start(&proxy.source(), &file, &[]);
    proxy.stopped().await;
    let mut kv = etcd.client().await.kv_client();
    let put = kv.put("/registry/pods/new", "x", None).await.unwrap();
    kv.compact(put.header().unwrap().revision(), None).await.unwrap();
    proxy.go_on();
    let ended = wait_for(child).await;
    ended.failed(1, "etcd-compacted");
    assert!(beside(&file).is_empty(), "{:?}", beside(&file));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_etcd() {
    let (mut etcd, proxy) = half_read().await;
    let file = etcd.target("lost");
    let child = start(&proxy.source(), &file, &[]);
    proxy.stopped().await;
    etcd.server.kill();
    proxy.go_on();
    let ended = wait_for(child).await;
    ended.failed(1, "etcd-lost");
    assert!(beside(&file).is_empty(), "{:?}", beside(&file));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let (etcd, proxy) = half_read().await;
        let file = etcd.target("signal");
        let child = start(&proxy.source(), &file, &[]);
        proxy.stopped().await;
        writing(&file).await;
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        let ended = wait_for(child).await;
        ended.failed(1, "interrupted");
        assert!(beside(&file).is_empty(), "{:?}", beside(&file));
    }
}

/// Lets `change` happen while etcd is half read.
async fn meanwhile<F: AsyncFnOnce(&Etcd)>(etcd: &Etcd, proxy: &Proxy, name: &str, extra: &[&str], change: F) -> Ended {
    let file = etcd.target(name);
    let child = start(&proxy.source(), &file, extra);
    proxy.stopped().await;
    change(etcd).await;
    proxy.go_on();
    wait_for(child).await
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_told_and_not_copied() {
    let (etcd, proxy) = half_read().await;
    let client = etcd.client().await;
    let (head, expected) = of_etcd(&client, 0).await;
    let write = async |etcd: &Etcd| {
        let mut kv = etcd.client().await.kv_client();
        kv.put("/registry/configmaps/00000000", "changed", None).await.unwrap();
        kv.put("/registry/configmaps/zzz", "new", None).await.unwrap();
        kv.delete("/registry/configmaps/00002999", None).await.unwrap();
    };
    let ended = meanwhile(&etcd, &proxy, "told", &[], write).await;
    let result = ended.done();
    assert_eq!(result["revision"], head);
    assert_eq!(result["revisionAfter"], head + 3);
    assert_eq!(result["writesMeanwhile"], 3);
    assert!(
        ended.events.iter().any(|event| event["event"] == "warning"),
        "{ended:#?}"
    );
    assert_same(&of_file(&etcd.folder.path().join("told/store.qks")).1, &expected);

    let proxy = Proxy::to(etcd.port, STOP_AT).await;
    let ended = meanwhile(&etcd, &proxy, "refused", &["--refuse-writes"], write).await;
    ended.failed(1, "etcd-written-to");
    assert!(beside(&etcd.folder.path().join("refused/store.qks")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_lease_is_no_write_and_gets_one_second() {
    let (etcd, proxy) = half_read().await;
    let client = etcd.client().await;
    let lease = 0x1234;
    client
        .lease_client()
        .grant(3600, Some(LeaseGrantOptions::new().with_id(lease)))
        .await
        .unwrap();
    let options = PutOptions::new().with_lease(lease);
    client
        .kv_client()
        .put("/registry/events/a", "x", Some(options))
        .await
        .unwrap();
    let (head, expected) = of_etcd(&client, 0).await;
    let ended = meanwhile(&etcd, &proxy, "lease", &["--refuse-writes"], async |etcd| {
        // A revoked lease takes its keys along as one that ran out does.
        etcd.client().await.lease_client().revoke(lease).await.unwrap();
    })
    .await;
    let result = ended.done();
    assert_eq!(result["revision"], head);
    assert_eq!(result["revisionAfter"], head + 1);
    assert_eq!(result["writesMeanwhile"], 0);
    assert_eq!(result["leasesEnded"], 1);
    let (_, found, leases) = of_file(&etcd.folder.path().join("lease/store.qks"));
    assert_same(&found, &expected);
    assert_eq!(leases[&lease].granted_ttl, 1);
}

/// A wire that stays silent is found out: nothing waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_wire() {
    let (etcd, proxy) = half_read().await;
    let file = etcd.target("silent");
    let child = start(&proxy.source(), &file, &[]);
    proxy.stopped().await;
    let ended = tokio::time::timeout(Duration::from_secs(60), wait_for(child))
        .await
        .expect("a silent wire is given up within a minute");
    ended.failed(1, "etcd-lost");
    assert!(beside(&file).is_empty());
}

/// The library, too, leaves nothing behind when its future is dropped in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_future() {
    let (etcd, proxy) = half_read().await;
    let file = etcd.target("dropped");
    let source: Source = proxy.source();
    let to = file.clone();
    let task = tokio::spawn(async move {
        let reporter = quantykube_base::Reporter::new(quantykube_base::Mode::Plain);
        quantykube_migrate::copy(&source, &to, &reporter).await
    });
    proxy.stopped().await;
    writing(&file).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    for _ in 0..500 {
        if beside(&file).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?} is left", beside(&file));
}
