//! Everything that is checked on one target: etcd itself, which is the measure, or the store.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::checks::{history, leases, objects, raw, updates, watches};
use crate::etcd::Etcd;
use crate::note::Noted;
use crate::servers::{ApiServer, Backend, Place, Server};
use crate::tally::Tally;

const RESTART: &str = "keys after a restart of the server";
const COMPACTED: &str = "after a compaction: old reads and watches refused";

/// Starts the target and an API server on it, and compares with what was noted.
pub async fn judge(place: &Place, backend: &Backend, noted: &Noted, seed: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    tally.expect(&[]);
    let name = backend.name();
    let clock = Instant::now();
    let say = |text: String| println!("{name}: [{:>5.1} s] {text}", clock.elapsed().as_secs_f64());
    let head = noted.dump.revision;

    let served = Instant::now();
    let server = Server::start(place, backend)
        .await
        .with_context(|| format!("starting {name}"))?;
    say(format!("serves, version {}", server.etcd.version().await?));
    if matches!(backend, Backend::Etcd { .. }) {
        // The store's history begins at the head: the measure must not know more.
        server.etcd.compact(head).await?;
    }
    raw::run(&server.etcd, noted, &mut tally)
        .await
        .context("comparing keys")?;
    let live_events = server.etcd.follow(head + 1).await?;
    say(format!("{} keys compared", noted.dump.keys.len()));

    let api_name = format!("kube-apiserver-on-{name}");
    let api_server = ApiServer::start(place, &api_name, server.port).await?;
    let ready = Instant::now();
    say("the API server is ready".to_string());
    objects::run(&api_server.api, noted, &mut tally)
        .await
        .context("comparing objects")?;
    say(format!("{} objects compared", noted.objects.len()));
    let watching = api_server.connect(place).await?;
    watches::old(&watching, noted, &mut tally)
        .await
        .context("watching from old resourceVersions")?;
    say("watches from old resourceVersions compared".to_string());

    let live = watches::Live::open(&watching).await?;
    let written = updates::run(&api_server.api, noted, seed, &mut tally)
        .await
        .context("updating")?;
    let per_kind: Vec<(String, i64)> = written.puts.iter().map(|(kind, _, rv)| (kind.clone(), *rv)).collect();
    live.close(&per_kind, &mut tally).await;
    drop(watching);
    say(format!(
        "{} objects written",
        written.puts.len() + written.deletions.len()
    ));

    leases::run(&api_server.api, &live_events, noted, served, ready, &mut tally)
        .await
        .context("waiting for leases")?;
    say("the events' leases have ended".to_string());
    api_server.stop().await?;
    let end = history::run(&server.etcd, live_events, noted, &written, &mut tally)
        .await
        .context("reading events")?;
    server.stop().await?;

    let server = Server::start(place, backend)
        .await
        .with_context(|| format!("starting {name} again"))?;
    let restarted = server.etcd.dump().await?;
    tally.same(RESTART, "revision", restarted.revision, end.revision);
    raw::keys(RESTART, &end, &restarted, &mut tally);
    compacted(&server.etcd, head, end.revision, &mut tally).await?;
    server.stop().await?;
    say("done".to_string());
    Ok(tally)
}

/// Compacts at the end: what was readable a moment ago is refused by its right name.
async fn compacted(etcd: &Etcd, head: i64, end: i64, tally: &mut Tally) -> Result<()> {
    tokio::time::timeout(Duration::from_secs(30), etcd.compact(end))
        .await
        .context("no answer to Compact")??;
    let refused = "OutOfRange: etcdserver: mvcc: required revision has been compacted";
    for revision in [head, head + 1, end - 1] {
        let found = etcd.read_at(b"any", revision).await;
        tally.same(
            COMPACTED,
            &format!("read at {revision} of {end}"),
            found.as_str(),
            refused,
        );
        let found = etcd.first_word(revision).await?;
        let good = found.starts_with(&format!("canceled, compacted at {end}, "));
        tally.check(COMPACTED, good, || {
            format!("watch from {revision}, compacted at {end}: {found}")
        });
    }
    tally.same(
        COMPACTED,
        "read at the head",
        etcd.read_at(b"any", end).await.as_str(),
        "absent",
    );
    Ok(())
}
