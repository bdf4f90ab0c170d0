//! Bugs that others have published of etcd and of servers like it: each is tried on real etcd and on the store. Numbers
//! and outcomes stand in docs/conformance.md; bugs that other tests try are named there with their test.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use quantykube_etcd_api::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::calls::make::*;
use crate::servers::{Clients, Kind, Running, block_on};
use crate::watches::{Stream, create, progress};

/// Makes of each bug a test on etcd and one on the store, and the list of all.
macro_rules! bugs {
    ($($bug:ident;)*) => {
        pub const BUGS: &[&str] = &[$(stringify!($bug)),*];
        $(mod $bug {
            use crate::servers::Kind;
            #[test]
            fn on_etcd() {
                super::$bug(Kind::Etcd);
            }
            #[test]
            fn on_the_store() {
                super::$bug(Kind::Store);
            }
        })*
    };
}
pub(crate) use bugs;

bugs! {
    bug_03_delete_at_the_compacted_revision;
    bug_08_progress_of_a_quiet_watch;
    bug_13_keep_alive_after_revoke;
    bug_14_read_of_the_future_after_a_write;
    bug_16_transactions_given_up_by_their_client;
    bug_20_defragmentation_under_load;
    bug_27_wrong_revisions_are_refused;
    bug_28_deletes_and_a_lagging_watch;
    bug_29_compaction_after_one_that_was_given_up;
    bug_33_writes_during_a_large_compaction;
    bug_35_deletes_of_nothing_and_restarts;
    bug_36_counts_and_deletes_over_prefixes;
}

/// The revision in a header.
pub fn revision(header: &Option<ResponseHeader>) -> i64 {
    header.as_ref().expect("a header").revision
}

pub async fn written(clients: &mut Clients, key: &str, value: &str) -> i64 {
    let response = clients.kv.put(put(key, value)).await.expect("a put").into_inner();
    revision(&response.header)
}

/// Puts a key `count` times: the longest put, and how many came back before `ended` said so.
pub async fn longest_put(
    clients: &mut Clients,
    key: &str,
    count: usize,
    ended: impl Fn() -> bool,
) -> (Duration, usize) {
    let (mut longest, mut meanwhile) = (Duration::ZERO, 0);
    for number in 0..count {
        let begun = std::time::Instant::now();
        written(clients, key, &format!("{number}")).await;
        longest = longest.max(begun.elapsed());
        meanwhile += usize::from(!ended());
    }
    (longest, meanwhile)
}

async fn deleted(clients: &mut Clients, key: &str, end: &str) -> (i64, i64) {
    let response = clients.kv.delete_range(delete(key, end)).await;
    let response = response.expect("a delete").into_inner();
    (revision(&response.header), response.deleted)
}

pub async fn compacted(clients: &mut Clients, revision: i64, physical: bool) -> Result<(), Status> {
    let request = CompactionRequest { revision, physical };
    clients.kv.compact(request).await.map(|_| ())
}

fn code_and_text(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

/// etcd#18089: the event of a delete was lost when its very revision had been compacted.
fn bug_03_delete_at_the_compacted_revision(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        for value in ["1", "2", "3"] {
            written(&mut clients, "k", value).await;
        }
        assert_eq!(deleted(&mut clients, "k", "").await, (5, 1));
        assert_eq!(written(&mut clients, "k", "4").await, 6);
        compacted(&mut clients, 5, true).await.expect("a compaction");
        let mut stream = Stream::open(&mut clients, create("k", "", |r| r.start_revision = 5)).await;
        let seen = stream.read_to(6).await;
        let told: Vec<_> = seen
            .events
            .iter()
            .map(|event| (event.r#type(), event.kv.as_ref().expect("a key").mod_revision))
            .collect();
        assert_eq!(told, [(EventType::Delete, 5), (EventType::Put, 6)], "{kind:?}");
    });
}

/// etcd#17557: a watch on quiet keys was not told of progress while the server wrote elsewhere.
fn bug_08_progress_of_a_quiet_watch(kind: Kind) {
    let running = Running::fresh(kind, &["--watch-progress-notify-interval=200ms"]);
    block_on(async {
        let mut clients = running.clients().await;
        let quiet = create("quiet", "", |r| r.progress_notify = true);
        let mut stream = Stream::open(&mut clients, quiet).await;
        assert!(stream.next().await.created);
        let mut head = 1;
        for round in 0..3 {
            for _ in 0..50 {
                head = written(&mut clients, "loud", &format!("{round}")).await;
            }
            if round == 1 {
                stream.send(progress()).await;
            }
            // What was under way before the writes may come first.
            while revision(&stream.next().await.header) < head {}
        }
    });
}

/// etcd PR 20615: a keep-alive succeeded after the lease had been revoked.
fn bug_13_keep_alive_after_revoke(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let mut alive_before = 0;
        for id in 1..=100 {
            clients.lease.lease_grant(grant(id, 600)).await.expect("a lease");
            let revoked = Arc::new(AtomicBool::new(false));
            let (sender, receiver) = mpsc::channel(1);
            let mut other = clients.clone();
            let seen = Arc::clone(&revoked);
            let asking = tokio::spawn(async move {
                sender.send(LeaseKeepAliveRequest { id }).await.expect("a receiver");
                let stream = other.lease.lease_keep_alive(ReceiverStream::new(receiver)).await;
                let mut answers = stream.expect("a stream").into_inner();
                answers.message().await.expect("the stream lives").expect("an answer");
                let (mut before, mut after) = (1, 0);
                while after < 3 {
                    // Asked strictly after the answer to the revocation.
                    let late = seen.load(Ordering::SeqCst);
                    sender.send(LeaseKeepAliveRequest { id }).await.expect("a receiver");
                    let answer = answers.message().await.expect("the stream lives").expect("an answer");
                    if late {
                        assert_eq!(answer.ttl, 0, "lease {id} lives after it was revoked");
                        after += 1;
                    } else if answer.ttl > 0 {
                        before += 1;
                    }
                }
                before
            });
            tokio::task::yield_now().await;
            clients
                .lease
                .lease_revoke(LeaseRevokeRequest { id })
                .await
                .expect("a revocation");
            revoked.store(true, Ordering::SeqCst);
            alive_before += asking.await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        }
        assert!(
            alive_before >= 100,
            "only {alive_before} answers before the revocations"
        );
    });
}

/// etcd#18667: a read of a revision that is not there yet, inside a transaction that writes before it.
fn bug_14_read_of_the_future_after_a_write(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let head = written(&mut clients, "k", "1").await;
        let ahead = |by: i64| {
            let read = RangeRequest {
                revision: head + by,
                ..range("k", "")
            };
            txn(vec![], vec![Request::Put(put("k", "2")), Request::Range(read)], vec![])
        };
        // The revision that the transaction itself makes, and one that nothing makes.
        for by in [1, 2] {
            let refused = clients.kv.txn(ahead(by)).await.expect_err("a refusal");
            assert_eq!(
                code_and_text(&refused),
                (
                    Code::OutOfRange,
                    "etcdserver: mvcc: required revision is a future revision"
                ),
                "{kind:?} by {by}"
            );
        }
        let found = clients.kv.range(range("k", "")).await.expect("a read").into_inner();
        assert_eq!(&found.kvs[0].value[..], b"1", "{kind:?}: nothing of it was written");
        assert_eq!(revision(&found.header), head, "{kind:?}");
        let read = RangeRequest {
            revision: head,
            ..range("k", "")
        };
        let writes = txn(vec![], vec![Request::Put(put("k", "2")), Request::Range(read)], vec![]);
        let answer = clients.kv.txn(writes).await.expect("a transaction").into_inner();
        let Some(Response::Range(read)) = &answer.responses[1].response else {
            panic!("{answer:?}");
        };
        assert_eq!(&read.kvs[0].value[..], b"1", "{kind:?}: the past is read as it was");
        assert_eq!(revision(&answer.header), head + 1);
    });
}

/// etcd#14110: a client that gave up in the middle of a transaction ended the server.
fn bug_16_transactions_given_up_by_their_client(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let value = "v".repeat(500);
        for number in 0..500 {
            written(&mut clients, &format!("k{number:04}"), &value).await;
        }
        let reads: Vec<_> = (0..100).map(|_| Request::Range(range("k", "l"))).collect();
        let reads = txn(vec![], reads, vec![]);
        let mut given_up = 0;
        for micros in 0..100 {
            let mut one = clients.clone();
            let answer = one.kv.txn(reads.clone());
            let patience = Duration::from_micros(100 + micros * 20);
            given_up += usize::from(tokio::time::timeout(patience, answer).await.is_err());
        }
        assert!(given_up > 50, "{kind:?}: only {given_up} were given up");
        assert_eq!(written(&mut clients, "after", "1").await, 502, "{kind:?}: it lives");
    });
}

/// etcd#9222: writes stood still while the file was defragmented. How long a write waited is printed, not judged.
fn bug_20_defragmentation_under_load(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let value = "v".repeat(100_000);
        for number in 0..200 {
            written(&mut clients, &format!("k{}", number % 20), &value).await;
        }
        compacted(&mut clients, 200, true).await.expect("a compaction");
        let mut other = clients.clone();
        let defragmented = tokio::spawn(async move { other.maintenance.defragment(DefragmentRequest {}).await });
        let mut longest = Duration::ZERO;
        for number in 0..200 {
            let begun = std::time::Instant::now();
            written(&mut clients, "during", &format!("{number}")).await;
            longest = longest.max(begun.elapsed());
        }
        defragmented.await.expect("it ends").expect("an answer");
        println!("{kind:?}: the longest of 200 puts beside a defragmentation took {longest:?}");
        let all = clients.kv.range(range("\0", "\0")).await.expect("a read").into_inner();
        assert_eq!((all.count, revision(&all.header)), (21, 401), "{kind:?}");
    });
}

/// kine#215, k3s#1290: a revision that is gone or not there yet was served as the newest one, or refused with words that
/// no client knows.
fn bug_27_wrong_revisions_are_refused(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        for value in ["1", "2", "3"] {
            written(&mut clients, "k", value).await;
        }
        compacted(&mut clients, 3, false).await.expect("a compaction");
        let gone = (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        );
        let future = (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
        );
        for (asked, expected) in [
            (1, Some(gone)),
            (2, Some(gone)),
            (3, None),
            (4, None),
            (5, Some(future)),
        ] {
            let request = RangeRequest {
                revision: asked,
                ..range("k", "")
            };
            let answer = clients.kv.range(request).await;
            let found = answer.as_ref().err().map(code_and_text);
            assert_eq!(found, expected, "{kind:?}: a read at {asked}");
            let answer = compacted(&mut clients, asked, false).await;
            // Done once more, it is refused; 4 is done here.
            let expected = if asked == 4 { None } else { expected.or(Some(gone)) };
            assert_eq!(
                answer.as_ref().err().map(code_and_text),
                expected,
                "{kind:?}: a compaction at {asked}"
            );
        }
        let mut stream = Stream::open(&mut clients, create("k", "", |r| r.start_revision = 2)).await;
        assert!(stream.next().await.created);
        let end = stream.next().await;
        assert!(end.canceled && end.compact_revision == 4, "{kind:?}: {end:?}");
    });
}

/// kine#220, kine#408: compaction took deletes that a watch had not been told of, or brought deleted keys back.
fn bug_28_deletes_and_a_lagging_watch(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let value = "v".repeat(2000);
        let mut stream = Stream::open(&mut clients, create("k", "l", |r| r.prev_kv = true)).await;
        assert!(stream.next().await.created);
        // Nothing is read from the stream meanwhile: more than its buffers hold.
        const KEYS: i64 = 500;
        let mut head = 1;
        for _ in 0..4 {
            for number in 0..KEYS {
                written(&mut clients, &format!("k{number}"), &value).await;
            }
            head = deleted(&mut clients, "k", "l").await.0;
        }
        compacted(&mut clients, head, true).await.expect("a compaction");
        let left = clients.kv.range(range("k", "l")).await.expect("a read").into_inner();
        assert_eq!(
            (left.count, revision(&left.header)),
            (0, head),
            "{kind:?}: deleted keys are gone"
        );
        let seen = stream.read_to(head).await;
        let deletes = seen.events.iter().filter(|e| e.r#type() == EventType::Delete).count() as i64;
        match &seen.canceled {
            Some(end) => assert_eq!(end.compact_revision, head, "{kind:?}: {end:?}"),
            None => assert_eq!(deletes, 4 * KEYS, "{kind:?}: of {} events", seen.events.len()),
        }
        println!(
            "{kind:?}: {deletes} deletes were told, cancelled: {}",
            seen.canceled.is_some()
        );
    });
}

/// kine#414, kine#489: after one compaction that had ended with an error there was never another one.
fn bug_29_compaction_after_one_that_was_given_up(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let mut under_way = 0;
        for round in 0..20 {
            let mut head = 0;
            for number in 0..100 {
                head = written(&mut clients, &format!("k{number}"), "x").await;
            }
            {
                // Sent, and dropped before the answer is looked at, sooner or later: however fast a server is.
                let mut asked = std::pin::pin!(compacted(&mut clients, head, true));
                let pending = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await;
                assert!(pending, "{kind:?}: an answer before the request was sent");
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                std::thread::sleep(Duration::from_micros(100 * round));
            }
            under_way += usize::from(is_compacted(&mut clients, head - 1).await);
        }
        println!("{kind:?}: {under_way} of 20 compactions that were given up had reached the server");
        assert!(under_way > 0, "{kind:?}: no compaction was given up under way");
        let head = written(&mut clients, "last", "x").await;
        compacted(&mut clients, head, true).await.expect("a compaction");
        assert!(
            is_compacted(&mut clients, head - 1).await,
            "{kind:?}: the last one is done"
        );
    });
}

/// Whether a read at a revision is refused as compacted; any other refusal fails.
async fn is_compacted(clients: &mut Clients, revision: i64) -> bool {
    let request = RangeRequest {
        revision,
        ..range("last", "")
    };
    let Err(refused) = clients.kv.range(request).await else {
        return false;
    };
    assert_eq!(
        refused.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
    true
}

/// k8s-dqlite#133, #145: a large compaction kept writes waiting for minutes. How long is printed, not judged.
fn bug_33_writes_during_a_large_compaction(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let value = "v".repeat(500);
        let mut head = 0;
        for number in 0..150 {
            let puts = (0..100).map(|n| Request::Put(put(&format!("k{}", (number * 7 + n) % 1000), &value)));
            let answer = clients.kv.txn(txn(vec![], puts.collect(), vec![])).await.expect("puts");
            head = revision(&answer.into_inner().header);
        }
        // What the machine does to a put when nothing else goes on.
        let alone = longest_put(&mut clients, "before", 100, || false).await.0;
        head += 100;
        let mut other = clients.clone();
        let compaction = tokio::spawn(async move { compacted(&mut other, head, true).await });
        let (longest, meanwhile) = longest_put(&mut clients, "during", 100, || compaction.is_finished()).await;
        compaction.await.expect("it ends").expect("a compaction");
        println!(
            "{kind:?}: {meanwhile} puts beside a compaction of 15,000 versions, the longest of 100 {longest:?}; the longest \
             of 100 before it {alone:?}"
        );
        assert_eq!(written(&mut clients, "after", "x").await, head + 101, "{kind:?}");
    });
}

/// rusd: a delete of nothing raised the revision, and a restart began at revision 1.
fn bug_35_deletes_of_nothing_and_restarts(kind: Kind) {
    let mut running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let head = written(&mut clients, "k", "1").await;
        assert_eq!(deleted(&mut clients, "nothing", "").await, (head, 0), "{kind:?}");
        assert_eq!(deleted(&mut clients, "x", "y").await, (head, 0), "{kind:?}");
        assert_eq!(deleted(&mut clients, "k", "").await, (head + 1, 1), "{kind:?}");
    });
    running.kill();
    running.restart();
    block_on(async {
        let mut clients = running.clients().await;
        let empty = clients.kv.range(range("\0", "\0")).await.expect("a read").into_inner();
        assert_eq!((revision(&empty.header), empty.count), (3, 0), "{kind:?}");
        assert_eq!(written(&mut clients, "k", "2").await, 4, "{kind:?}");
    });
}

/// mem_etcd, Xline: counts and deletes over a range of several prefixes were wrong.
fn bug_36_counts_and_deletes_over_prefixes(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        for key in ["/a/1", "/a/2", "/ab/1", "/b/1", "/b/2", "/c"] {
            written(&mut clients, key, "x").await;
        }
        for (from, end, expected) in [
            ("\0", "\0", 6),
            ("/a/", "/a0", 2),
            ("/a", "/b", 3),
            ("/a/2", "/b/2", 3),
            ("/b/", "\0", 3),
            ("/d", "\0", 0),
            ("/b", "/a", 0),
        ] {
            let request = RangeRequest {
                count_only: true,
                ..range(from, end)
            };
            let found = clients.kv.range(request).await.expect("a count").into_inner();
            assert_eq!(
                (found.count, found.kvs.len()),
                (expected, 0),
                "{kind:?}: from {from:?} to {end:?}"
            );
        }
        let all_made = compare(
            "/a/",
            "/b0",
            CompareResult::Greater,
            CompareTarget::Create,
            TargetUnion::CreateRevision(0),
        );
        let deletes = vec![Request::DeleteRange(delete("/a/2", "/b/2"))];
        let answer = clients.kv.txn(txn(vec![all_made], deletes, vec![])).await;
        let answer = answer.expect("a transaction").into_inner();
        let Some(Response::DeleteRange(gone)) = &answer.responses[0].response else {
            panic!("{answer:?}");
        };
        assert_eq!(
            (answer.succeeded, gone.deleted, revision(&answer.header)),
            (true, 3, 8),
            "{kind:?}"
        );
        assert_eq!(deleted(&mut clients, "\0", "\0").await, (9, 3), "{kind:?}");
    });
}

/// The page that says how each came out names every bug here, and no bug that is not here.
#[test]
fn every_public_bug_has_its_row() {
    let page = quantykube_tests::places::root().join("docs/conformance.md");
    let page = fs::read_to_string(page).expect("docs/conformance.md");
    let known: Vec<&str> = BUGS.iter().chain(crate::public_bugs_load::BUGS).copied().collect();
    for bug in &known {
        assert!(
            page.contains(&format!("`{bug}`")),
            "{bug} has no row in docs/conformance.md"
        );
    }
    for row in page
        .split('`')
        .filter(|text| text.starts_with("bug_") && !text.contains('*'))
    {
        assert!(
            known.contains(&row),
            "docs/conformance.md names {row}, which is no test"
        );
    }
}
