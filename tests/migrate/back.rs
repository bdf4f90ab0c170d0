//! The way back: what was written on the store is in etcd afterwards, and nothing else has changed there.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use etcd_client::{Client, LeaseGrantOptions, PutOptions, Txn, TxnOp, WatchOptions};
use quantykube_base::{Exit, Mode, Reporter};
use quantykube_migrate::{BackOutcome, FILLER_KEY, Source, copy, copy_back, foreign_keys, raise_revision};
use quantykube_store_file::{Frozen, Identity, Lease, Options, Record, Store};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::etcd::{Etcd, Kind};
use crate::history::{fill, generator, grow, key, value};
use crate::records::{leases_of_etcd, of_etcd, of_file, told};

pub fn reporter() -> Reporter {
    Reporter::new(Mode::Plain)
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn open(file: &Path) -> Store {
    let identity = Identity {
        cluster_id: 0,
        member_id: 0,
        raft_term: 1,
    };
    Store::open(file, Options { quota: 0, identity }).unwrap()
}

/// Writes, deletes and leases on the store, as an API server does: `steps` transactions.
pub fn live_on(file: &Path, random: &mut StdRng, steps: usize) {
    let mut store = open(file);
    let mut leases = vec![0; 4];
    for _ in 0..3 {
        let id = random.random_range(1..i64::MAX);
        let granted_ttl = random.random_range(100..5000);
        store
            .put_lease(Lease {
                id,
                granted_ttl,
                deadline_ms: now_ms() + granted_ttl * 1000,
            })
            .unwrap();
        leases.push(id);
    }
    for _ in 0..steps {
        let (key, value) = (Bytes::from(key(random)), Bytes::from(value(random)));
        let mut transaction = store.begin(1, key.len() + value.len(), false).unwrap();
        match random.random_range(0..4) {
            0 => {
                transaction.delete(&key);
            }
            _ => {
                let lease = leases[random.random_range(0..leases.len())];
                transaction.put(key, value, lease);
            }
        }
        transaction.commit().unwrap();
    }
    store.close().unwrap();
}

/// An etcd with a random history, and a copy of it.
pub async fn copied(random: &mut StdRng, kind: Kind) -> (Etcd, Client, PathBuf) {
    let etcd = Etcd::start(kind);
    let client = etcd.client().await;
    grow(&client, random, 400).await;
    let file = etcd.target("store");
    copy(&etcd.source, &file, &reporter()).await.unwrap();
    (etcd, client, file)
}

/// Everything the way back promises, of an etcd against the store file it was made from.
pub async fn assert_moved_back(client: &Client, before: &[Record], file: &Path, outcome: &BackOutcome) {
    let (store_head, store, store_leases) = of_file(file);
    let imported = Frozen::open(file).unwrap().imported().unwrap();
    let (head, etcd) = of_etcd(client, 0).await;
    assert_eq!(outcome.store_revision, store_head);
    assert_eq!(outcome.etcd_revision, head);
    assert!(head > store_head, "{head} is past {store_head}");
    let old: HashMap<&Bytes, &Record> = before.iter().map(|record| (&record.key, record)).collect();
    let mut untouched = 0;
    for (found, expected) in etcd.iter().zip(&store) {
        let context = || format!("{} instead of {}", told(found), told(expected));
        assert_eq!(found.key, expected.key, "{}", context());
        assert_eq!(found.value, expected.value, "{}", context());
        assert_eq!(found.lease, expected.lease, "{}", context());
        let kept = expected.modified <= imported;
        if kept && old.get(&found.key).is_some_and(|old| old.lease == 0 || *old == found) {
            untouched += 1;
            assert_eq!(found, expected, "an untouched key keeps its revisions");
        } else {
            assert!(found.modified > store_head, "{}", context());
        }
    }
    assert_eq!(etcd.len(), store.len());
    assert_eq!(outcome.keys, store.len() as u64);
    assert!(untouched > 0, "some keys were left alone");
    assert!(etcd.iter().all(|record| record.key != FILLER_KEY.as_bytes()));
    let leases: BTreeMap<i64, i64> = leases_of_etcd(client).await;
    let now = now_ms();
    for (id, lease) in store_leases.iter().filter(|(_, lease)| lease.deadline_ms > now) {
        assert!(leases.contains_key(id), "lease {id:x} {lease:?}");
        let left = client.lease_client().time_to_live(*id, None).await.unwrap().ttl();
        let store_left = (lease.deadline_ms - now_ms()) / 1000;
        assert!(
            left + 2 >= store_left,
            "lease {id:x} has {left} s left, {store_left} s in the store"
        );
    }
    for id in leases.keys() {
        assert!(store_leases.contains_key(id), "lease {id:x} is not the store's");
    }
    // A watch from any revision that the store gave out is told to list again; none stays silent.
    for start in [imported - 1, imported + 1, store_head] {
        assert_eq!(
            watch_from(client, start).await,
            Watched::Compacted,
            "from {start} of {store_head}"
        );
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Watched {
    Compacted,
    Open,
}

async fn watch_from(client: &Client, revision: i64) -> Watched {
    let options = WatchOptions::new().with_all_keys().with_start_revision(revision);
    let mut stream = client.watch_client().watch("", Some(options)).await.unwrap();
    loop {
        match tokio::time::timeout(Duration::from_secs(2), stream.message()).await {
            Err(_) => return Watched::Open,
            Ok(answer) => {
                let answer = answer.unwrap().expect("a watch is answered");
                if answer.canceled() {
                    assert!(answer.compact_revision() > 0);
                    return Watched::Compacted;
                }
                if !answer.events().is_empty() {
                    return Watched::Open;
                }
            }
        }
    }
}

async fn there_and_back(name: &str, kind: Kind) {
    let mut random = generator(name);
    let (etcd, client, file) = copied(&mut random, kind).await;
    live_on(&file, &mut random, 1500);
    let (before_head, before) = of_etcd(&client, 0).await;
    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert_eq!(outcome.etcd_revision_before, before_head);
    assert!(
        outcome.filled.writes > 0 && outcome.puts > 0 && outcome.deletes > 0,
        "{outcome:?}"
    );
    assert_moved_back(&client, &before, &file, &outcome).await;

    // Once more finds nothing to do.
    let again = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert_eq!(
        (again.filled.writes, again.puts, again.deletes, again.passes),
        (0, 0, 0, 1)
    );
    assert_eq!(again.etcd_revision, outcome.etcd_revision);
    // etcd works, and every later write is past the store's.
    let put = client.kv_client().put("/registry/pods/later", "x", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), outcome.etcd_revision + 1);

    // The next move starts from there.
    let second = etcd.target("second");
    copy(&etcd.source, &second, &reporter()).await.unwrap();
    live_on(&second, &mut random, 200);
    let (_, before) = of_etcd(&client, 0).await;
    let outcome = copy_back(&second, &etcd.source, &reporter()).await.unwrap();
    assert_moved_back(&client, &before, &second, &outcome).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_and_back_on_etcd_3_6() {
    there_and_back("there and back on etcd 3.6", Kind::Current).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_and_back_on_etcd_3_6_with_certificates() {
    there_and_back("there and back on etcd 3.6 with certificates", Kind::Secure).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_and_back_on_etcd_3_4() {
    there_and_back("there and back on etcd 3.4", Kind::Debian).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_and_back_on_etcd_3_7() {
    there_and_back("there and back on etcd 3.7", Kind::Newest).await;
}

/// A store that nobody wrote to: etcd is as it was, revision included, and old watches go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_untouched_store_changes_nothing() {
    let mut random = generator("an untouched store");
    let (etcd, client, file) = copied(&mut random, Kind::Current).await;
    let before = of_etcd(&client, 0).await;
    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert_eq!((outcome.filled.writes, outcome.puts, outcome.deletes), (0, 0, 0));
    assert_eq!(outcome.compacted, None);
    assert_eq!(of_etcd(&client, 0).await, before);
    assert_eq!(watch_from(&client, before.0 + 1).await, Watched::Open);
}

/// etcd ends leases while the store lives on; each kind of lease ends up right.
#[tokio::test(flavor = "multi_thread")]
async fn leases_that_went_their_own_way() {
    let etcd = Etcd::start(Kind::Current);
    let client = etcd.client().await;
    fill(&client, "configmaps", 20, 100).await;
    let (short, gone, kept, dropped) = (11, 12, 13, 14);
    for (id, ttl) in [(short, 4), (gone, 600), (kept, 600), (dropped, 600)] {
        let options = LeaseGrantOptions::new().with_id(id);
        client.lease_client().grant(ttl, Some(options)).await.unwrap();
        let options = PutOptions::new().with_lease(id);
        let key = format!("/registry/events/{id}");
        client.kv_client().put(key, "x", Some(options)).await.unwrap();
    }
    let file = etcd.target("store");
    copy(&etcd.source, &file, &reporter()).await.unwrap();
    let (_, before) = of_etcd(&client, 0).await;

    // etcd loses one that the store keeps; the store ends one that etcd keeps; one runs out on both.
    client.lease_client().revoke(gone).await.unwrap();
    let mut store = open(&file);
    let mut transaction = store.begin(1, 100, false).unwrap();
    transaction.delete(b"/registry/events/14");
    transaction.end_lease(dropped);
    transaction.commit().unwrap();
    store
        .put_lease(Lease {
            id: 15,
            granted_ttl: 90,
            deadline_ms: now_ms() + 90_000,
        })
        .unwrap();
    let mut transaction = store.begin(1, 100, false).unwrap();
    transaction.put(Bytes::from_static(b"/registry/events/15"), Bytes::from_static(b"y"), 15);
    transaction.commit().unwrap();
    store.close().unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;

    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    let (_, after) = of_etcd(&client, 0).await;
    let find = |records: &[Record], key: &str| records.iter().find(|record| record.key == key.as_bytes()).cloned();
    assert_eq!(find(&after, "/registry/events/11"), None, "ran out");
    assert_eq!(find(&after, "/registry/events/14"), None, "ended on the store");
    let back = find(&after, "/registry/events/12").expect("the store still had it");
    assert_eq!((back.lease, &back.value[..]), (gone, &b"x"[..]));
    assert!(back.modified > outcome.store_revision);
    let untouched = find(&after, "/registry/events/13");
    assert_eq!(untouched, find(&before, "/registry/events/13"));
    assert_eq!(find(&after, "/registry/events/15").unwrap().lease, 15);
    let leases = leases_of_etcd(&client).await;
    assert_eq!(leases.keys().copied().collect::<Vec<_>>(), [gone, kept, 15]);
    let left = client.lease_client().time_to_live(15, None).await.unwrap().ttl();
    assert!((75..=90).contains(&left), "{left} s are left of 90");
    assert_eq!(outcome.keys_ended, 1);
    assert_eq!(outcome.leases_revoked, 1, "{outcome:?}");
}

/// An etcd that was set to take fewer operations and smaller requests than by default, and a value of the greatest size
/// that fits into a put and into nothing that is wrapped around it.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_takes_little_at_once() {
    const REQUEST_MAX: usize = 300_000;
    const VALUE_MAX: usize = REQUEST_MAX - 40;
    let request_max = REQUEST_MAX.to_string();
    let limits = ["--max-txn-ops", "10", "--max-request-bytes", &request_max];
    let etcd = Etcd::start_with(Kind::Current, &limits);
    let client = etcd.client().await;
    fill(&client, "configmaps", 8, 100).await;
    let wrapped = Txn::new().and_then([TxnOp::put("/registry/big", vec![1; VALUE_MAX], None)]);
    let refused = client.kv_client().txn(wrapped).await.unwrap_err().to_string();
    assert!(refused.contains("request is too large"), "{refused}");
    client
        .kv_client()
        .put("/registry/big", vec![1; VALUE_MAX], None)
        .await
        .unwrap();
    let (_, before) = of_etcd(&client, 0).await;
    let file = etcd.target("store");
    copy(&etcd.source, &file, &reporter()).await.unwrap();
    let mut store = open(&file);
    let mut put = |key: String, value: Vec<u8>| {
        let mut transaction = store.begin(1, key.len() + value.len(), false).unwrap();
        transaction.put(Bytes::from(key), Bytes::from(value), 0);
        transaction.commit().unwrap();
    };
    put("/registry/big".to_owned(), vec![2; VALUE_MAX]);
    for n in 0..100 {
        put(format!("/registry/secrets/{n:03}"), vec![3; 9_000]);
    }
    store.close().unwrap();
    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert_eq!(outcome.puts, 101);
    assert_moved_back(&client, &before, &file, &outcome).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_refused() {
    let mut random = generator("a stranger");
    let (etcd, client, file) = copied(&mut random, Kind::Current).await;
    live_on(&file, &mut random, 10);
    let other = Etcd::start_with(Kind::Current, &["--initial-cluster-token", "another"]);
    let stranger = other.client().await;
    fill(&stranger, "configmaps", 10, 10).await;
    let before = of_etcd(&stranger, 0).await;
    let error = copy_back(&file, &other.source, &reporter()).await.unwrap_err();
    assert_eq!((error.exit(), error.name()), (Exit::Refused, "other-cluster"));
    assert_eq!(of_etcd(&stranger, 0).await, before, "not one write");

    // A store that is being served from.
    let store = open(&file);
    let before = of_etcd(&client, 0).await;
    let error = copy_back(&file, &etcd.source, &reporter()).await.unwrap_err();
    assert_eq!((error.exit(), error.name()), (Exit::Refused, "store-file-in-use"));
    assert_eq!(of_etcd(&client, 0).await, before, "not one write");
    store.close().unwrap();
}

/// The filler may run long before, while the store serves; its key is nobody's, and it is gone in the end.
#[tokio::test(flavor = "multi_thread")]
async fn the_filler_runs_ahead() {
    let mut random = generator("the filler runs ahead");
    let (etcd, client, file) = copied(&mut random, Kind::Current).await;
    live_on(&file, &mut random, 3000);
    let store_head = Frozen::open(&file).unwrap().revision();
    let (_, before) = of_etcd(&client, 0).await;
    let own = foreign_keys(&etcd.source, "/registry", 100).await.unwrap();
    let written = raise_revision(&etcd.source, store_head, &reporter()).await.unwrap();
    assert!(written.writes > 0);
    let (head, records) = of_etcd(&client, 0).await;
    assert!(head >= store_head);
    assert!(records.iter().any(|record| record.key == FILLER_KEY.as_bytes()));
    let with_filler = foreign_keys(&etcd.source, "/registry", 100).await.unwrap();
    assert_eq!(with_filler, own, "the filler's leftover is no foreign key");
    assert!(own.count > 0, "the history has keys that no API server made");
    assert_eq!(own.count as usize, own.first.len());
    live_on(&file, &mut random, 100);
    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert!(outcome.filled.writes < 200, "{outcome:?}");
    assert_moved_back(&client, &before, &file, &outcome).await;
}

/// The hidden verb that plans use: the same call as a program of its own.
fn start_program(file: &Path, target: &Source) -> Child {
    let mut command = Command::new(quantykube_tests::program("quantykube"));
    command
        .args(["copy-back", "--endpoints", &target.endpoints[0], "--file"])
        .arg(file);
    for (flag, path) in [
        ("--cert", &target.cert),
        ("--key", &target.key),
        ("--cacert", &target.cacert),
    ] {
        command.arg(flag).arg(path.as_ref().unwrap());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills that must have come before etcd's revision was past the store's, and in the middle of the keys after that.
const KILLS_WANTED: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_way_back_goes_on() {
    let mut random = generator("kills of the way back");
    let etcd = Etcd::start(Kind::Secure);
    let client = etcd.client().await;
    grow(&client, &mut random, 400).await;
    fill(&client, "replicasets", REWRITTEN, 10).await;
    let file = etcd.target("store");
    copy(&etcd.source, &file, &reporter()).await.unwrap();
    let (_, before) = of_etcd(&client, 0).await;
    live_on(&file, &mut random, 8000);
    let mut store = open(&file);
    for n in 0..REWRITTEN {
        let mut transaction = store.begin(1, 3000, false).unwrap();
        let key = format!("/registry/replicasets/{n:08}");
        transaction.put(Bytes::from(key), Bytes::from(vec![n as u8; 2500]), 0);
        transaction.commit().unwrap();
    }
    store.close().unwrap();
    let store_head = Frozen::open(&file).unwrap().revision();

    let (mut filling, mut writing) = (0, 0);
    while filling < KILLS_WANTED {
        let head = of_etcd(&client, 0).await.0;
        let moment = head + random.random_range(1..(store_head - head) / 4);
        filling += u32::from(kill_at(&file, &etcd.source, &client, moment).await <= store_head);
    }
    raise_revision(&etcd.source, store_head + 1, &reporter()).await.unwrap();
    while writing < KILLS_WANTED {
        let head = of_etcd(&client, 0).await.0;
        // 128 keys are written in one revision.
        kill_at(&file, &etcd.source, &client, head + random.random_range(1..10)).await;
        let (_, records) = of_etcd(&client, 0).await;
        let now = records.iter().filter(|record| record.value.len() == 2500).count();
        assert!(now < REWRITTEN, "the way back was faster than four kills");
        writing += u32::from(now > 0);
    }
    println!("{filling} kills while etcd was behind the store's revision, {writing} in the middle of the keys");
    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert_moved_back(&client, &before, &file, &outcome).await;
}

/// Keys written anew on the store: enough that a kill comes in the middle of them.
const REWRITTEN: usize = 16_000;

/// Starts the way back and kills it once etcd has come to a revision; gives etcd's revision after that.
async fn kill_at(file: &Path, target: &Source, client: &Client, revision: i64) -> i64 {
    let mut child = start_program(file, target);
    let mut kv = client.kv_client();
    let mut head = async || kv.get(FILLER_KEY, None).await.unwrap().header().unwrap().revision();
    while head().await < revision {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the way back ended before it was killed"
        );
    }
    child.kill().unwrap();
    assert_eq!(
        child.wait().unwrap().code(),
        None,
        "the way back ended before it was killed"
    );
    head().await
}
