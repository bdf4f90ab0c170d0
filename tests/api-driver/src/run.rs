//! The whole run: fill, note, move, compare.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

use crate::Args;
use crate::fill::fill;
use crate::judge::judge;
use crate::kinds::{KINDS, Random};
use crate::note::{Noted, begin_lists, through_api, through_etcd};
use crate::pki::Pki;
use crate::servers::{ApiServer, Backend, Place, Server, write_tokens};
use crate::tally;

const ANSWERS: &str = "answers word by word as etcd's";
const AT_HEAD: &str = "etcd watch from the head itself: compacted";
const UNTOUCHED: &str = "etcd after the copy: unchanged";

/// Runs everything; `true` when nothing differed.
pub async fn run(args: &Args) -> Result<bool> {
    let mut random = Random(args.seed);
    let token = format!(
        "{:016x}{:016x}",
        random.next() ^ u64::from(std::process::id()),
        random.next()
    );
    write_tokens(&args.work, &token)?;
    let place = Place {
        peers: args.peers.clone(),
        work: args.work.clone(),
        pki: Pki::make(&args.work)?,
        token,
        event_ttl: args.event_ttl,
    };
    let data = args.work.join("etcd-data");
    let etcd = Backend::Etcd { data: data.clone() };

    let (noted, server) = prepare(&place, &etcd, args, &mut random).await?;
    let seed = args.seed;
    if args.spoil {
        server.etcd.spoil(&noted.dump).await?;
        println!("spoiled: one key was written again with its own bytes; the comparison must find it");
    }
    if args.control {
        server.stop().await?;
        let control = judge(&place, &etcd, &noted, seed).await?;
        println!("etcd: a watch from the head itself says: {}", control.at_head);
        return Ok(finish(&[("etcd restarted", &control)]));
    }

    let file = args.work.join("store.qks");
    migrate(&place, args, server.port, &file).await?;
    let mut untouched = tally::Tally::default();
    let after = server.etcd.dump().await?;
    untouched.same(UNTOUCHED, "revision", after.revision, noted.dump.revision);
    crate::checks::raw::keys(UNTOUCHED, &noted.dump, &after, &mut untouched);
    server.stop().await?;

    let store = Backend::Store {
        program: args.store.clone().context("--store is needed")?,
        file,
    };
    let (control, judged) = tokio::join!(judge(&place, &etcd, &noted, seed), judge(&place, &store, &noted, seed));
    let (control, mut judged) = (
        control.context("the control run on etcd")?,
        judged.context("the run on the store")?,
    );
    tally::compare_answers(ANSWERS, &control, &mut judged);
    let (expected, found) = (control.at_head.clone(), judged.at_head.clone());
    // An import brings what is live at the head and no delete, so a watch from there is told to begin one later.
    let begins = format!("canceled, compacted at {}, ", noted.dump.revision + 1);
    judged.check(AT_HEAD, expected != "silence" && found.starts_with(&begins), || {
        format!("found {found}, expected {begins}; etcd says {expected}")
    });
    judged.absorb(untouched);
    Ok(finish(&[("etcd restarted", &control), ("store", &judged)]))
}

/// Fills a new etcd through a new API server, notes everything and stops the API server.
async fn prepare(place: &Place, etcd: &Backend, args: &Args, random: &mut Random) -> Result<(Noted, Server)> {
    let clock = Instant::now();
    let server = Server::start(place, etcd).await?;
    let api_server = ApiServer::start(place, "kube-apiserver", server.port).await?;
    println!(
        "fill: etcd {} and the API server are ready after {:.1} s",
        server.etcd.version().await?,
        clock.elapsed().as_secs_f64()
    );
    let clock = Instant::now();
    let filled = fill(&api_server.api, &server.etcd, args.objects, random).await?;
    println!(
        "fill: {} writes of {} kinds in {:.1} s, compacted at {} on the way",
        filled.writes,
        KINDS.len() + 2,
        clock.elapsed().as_secs_f64(),
        filled.compacted
    );
    let clock = Instant::now();
    let begun = begin_lists(&api_server.api).await?;
    let notes = through_api(&api_server.api, &server.etcd).await?;
    api_server.stop().await?;
    let noted = through_etcd(notes, begun, filled, &server.etcd).await?;
    ensure!(
        noted.leases.values().any(|lease| lease.keys.len() > 1),
        "no events' lease is left to look at"
    );
    println!(
        "note: {} objects ({} of the driver's), {} deleted; {} keys, {} leases, head {}; API server stopped; {:.1} s",
        noted.objects.len(),
        noted.ours.len(),
        noted.deleted.len(),
        noted.dump.keys.len(),
        noted.leases.len(),
        noted.dump.revision,
        clock.elapsed().as_secs_f64()
    );
    Ok((noted, server))
}

/// Copies with the program under test, as a person would.
async fn migrate(place: &Place, args: &Args, etcd_port: u16, file: &Path) -> Result<()> {
    let run: &PathBuf = args.run.as_ref().context("--run is needed")?;
    let clock = Instant::now();
    let output = Command::new(run)
        .arg("migrate")
        .arg(format!("--endpoints=https://127.0.0.1:{etcd_port}"))
        .arg(format!("--cert={}", place.pki.path("client.crt")))
        .arg(format!("--key={}", place.pki.path("client.key")))
        .arg(format!("--cacert={}", place.pki.path("ca.crt")))
        .arg("--to")
        .arg(file)
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {}", run.display()))?;
    for line in String::from_utf8_lossy(&output.stdout)
        .lines()
        .chain(String::from_utf8_lossy(&output.stderr).lines())
    {
        println!("migrate: {line}");
    }
    if !output.status.success() {
        bail!("{} migrate: {}", run.display(), output.status);
    }
    ensure!(file.is_file(), "migrate made no {}", file.display());
    println!("migrate: {:.1} s", clock.elapsed().as_secs_f64());
    Ok(())
}

fn finish(targets: &[(&str, &tally::Tally)]) -> bool {
    println!();
    let (passed, failed) = tally::print(targets);
    println!("{passed} passed, {failed} failed");
    failed == 0
}
