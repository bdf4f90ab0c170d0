//! Clients that are broken, hostile or slow: the store stays, serves others, and its memory stays bounded.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use quantykube_etcd_api::*;
use quantykube_fuzz::generate;
use quantykube_fuzz::raw::call;
use quantykube_fuzz::resolve::Known;
use quantykube_fuzz::side::{Kind, Side};
use quantykube_fuzz::step::Step;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio_stream::wrappers::UnboundedReceiverStream;

async fn store() -> Side {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory } else { Path::new("/tmp") };
    Side::fresh(Kind::Store, folder).await.expect("a store")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

fn put(key: &str, value: Vec<u8>) -> PutRequest {
    PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: value.into(),
        ..Default::default()
    }
}

/// Whole messages of all kinds with a few bytes changed, cut, doubled or put in. None ends the server or is answered with
/// bytes that are no answer.
#[test]
fn mutated_requests_end_no_server() {
    let seed = match std::env::var("QUANTYKUBE_SEED") {
        Ok(seed) => seed.parse().expect("QUANTYKUBE_SEED is a number"),
        Err(_) => rand::random_range(0..u64::from(u32::MAX)),
    };
    println!("seed {seed} (QUANTYKUBE_SEED={seed} repeats this run)");
    block_on(async {
        let mut side = store().await;
        let channel = side.channel().await.expect("a connection");
        let mut rng = SmallRng::seed_from_u64(seed);
        let known = Known {
            head: 50,
            ..Known::fresh()
        };
        let (mut sent, mut refused, mut answered) = (0, 0, 0);
        for step in generate::steps(seed, 0, 4000) {
            let (path, bytes) = match &step {
                Step::Range(range) => ("/etcdserverpb.KV/Range", known.range(range).encode_to_vec()),
                Step::Put(put) => ("/etcdserverpb.KV/Put", known.put(put).encode_to_vec()),
                Step::Delete(delete) => ("/etcdserverpb.KV/DeleteRange", known.delete(delete).encode_to_vec()),
                Step::Txn(txn) => ("/etcdserverpb.KV/Txn", known.txn(txn).encode_to_vec()),
                Step::Leases => ("/etcdserverpb.Lease/LeaseLeases", vec![0; 3]),
                _ => continue,
            };
            let bytes = mutate(bytes, &mut rng);
            sent += 1;
            match call(&channel, path, bytes.into()).await {
                Ok(answer) => {
                    answered += 1;
                    let whole = match path {
                        "/etcdserverpb.KV/Range" => RangeResponse::decode(answer).is_ok(),
                        "/etcdserverpb.KV/Txn" => TxnResponse::decode(answer).is_ok(),
                        _ => true,
                    };
                    assert!(whole, "request {sent} is answered with bytes that are no answer");
                }
                Err(status) => {
                    refused += 1;
                    assert!(
                        status.code() != tonic::Code::Unavailable && status.code() != tonic::Code::Unknown,
                        "request {sent} to {path}: {status}"
                    );
                }
            }
        }
        println!(
            "{sent} requests: {answered} answered, {refused} refused; peak {} KiB",
            side.peak_kib()
        );
        assert!(side.ended().is_none());
        assert!(answered > sent / 20 && refused > sent / 20, "{answered} {refused}");
        assert!(side.peak_kib() < 400 << 10, "{} KiB", side.peak_kib());
    });
}

fn mutate(mut bytes: Vec<u8>, rng: &mut SmallRng) -> Vec<u8> {
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.random()),
            2 => {
                let tail = bytes[at..].to_vec();
                bytes.extend(tail);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.random_range(0..8);
                }
            }
        }
    }
    bytes
}

/// A transaction nested far deeper than any client nests.
#[test]
fn a_transaction_nested_very_deep_is_refused_or_served_and_ends_nothing() {
    block_on(async {
        let mut side = store().await;
        let channel = side.channel().await.expect("a connection");
        let mut refused = 0;
        for depth in [1, 10, 90, 99, 101, 1000, 20_000] {
            // TxnRequest { success: [RequestOp { txn: ... }] }, from the inside out.
            let mut bytes = Vec::new();
            for _ in 0..depth {
                for tag in [0x22, 0x12] {
                    let mut outer = vec![tag];
                    prost::encode_length_delimiter(bytes.len(), &mut outer).expect("room");
                    outer.extend(bytes);
                    bytes = outer;
                }
            }
            let answer = call(&channel, "/etcdserverpb.KV/Txn", bytes.into()).await;
            println!(
                "depth {depth}: {:?}",
                answer.as_ref().map(Bytes::len).map_err(|status| status.message())
            );
            refused += u32::from(answer.is_err());
            assert!(side.ended().is_none(), "depth {depth}");
        }
        assert!(refused >= 2);
        side.clients.kv.put(put("k", vec![])).await.expect("it serves");
    });
}

/// Streams that watch everything and never read, while much more is written than the server may keep for them.
#[test]
fn watchers_that_never_read_cost_no_memory_without_end() {
    const STREAMS: usize = 60;
    const VALUE: usize = 256 << 10;
    const PUTS: usize = 600;
    block_on(async {
        let mut side = store().await;
        let mut held = Vec::new();
        for _ in 0..STREAMS {
            // A connection each, or one client's window would hold all of them back together.
            let channel = side.channel().await.expect("a connection");
            let mut client = watch_client::WatchClient::new(channel);
            let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
            let create = WatchCreateRequest {
                key: Bytes::from_static(&[0]),
                range_end: Bytes::from_static(&[0]),
                prev_kv: true,
                ..Default::default()
            };
            let request = WatchRequest {
                request_union: Some(WatchRequestUnion::Create(create)),
            };
            sender.send(request).expect("the receiver is here");
            let mut responses = client
                .watch(UnboundedReceiverStream::new(receiver))
                .await
                .expect("a stream")
                .into_inner();
            assert!(responses.message().await.expect("it lives").expect("a reply").created);
            held.push((sender, responses));
        }
        for n in 0..PUTS {
            side.clients
                .kv
                .put(put("k", vec![n as u8; VALUE]))
                .await
                .expect("a put");
        }
        let written = (PUTS * VALUE) >> 10;
        let peak = side.peak_kib();
        println!("{STREAMS} streams, {written} KiB written, peak {peak} KiB");
        // All of it for each of them would be 9 GiB.
        assert!(peak < 900 << 10, "{peak} KiB");
        // One that begins to read gets everything, in order.
        let (_, responses) = &mut held[7];
        let mut seen = 0;
        while seen < PUTS {
            let next = tokio::time::timeout(Duration::from_secs(60), responses.message()).await;
            let response = next.expect("in time").expect("it lives").expect("it goes on");
            for event in response.events {
                let kv = event.kv.expect("a key");
                assert_eq!(kv.version, seen as i64 + 1);
                seen += 1;
            }
        }
        assert!(side.ended().is_none());
    });
}

/// Thousands of leases with a key each that end within the same moment.
#[test]
fn thousands_of_leases_that_end_at_once() {
    const LEASES: i64 = 5000;
    block_on(async {
        let mut side = store().await;
        let mut tasks = tokio::task::JoinSet::new();
        for lane in 0..50 {
            let mut clients = side.clients.clone();
            tasks.spawn(async move {
                for id in (lane + 1..=LEASES).step_by(50) {
                    let grant = LeaseGrantRequest { id, ttl: 2 };
                    clients.lease.lease_grant(grant).await.expect("a lease");
                    let mut request = put(&format!("k{id}"), vec![1; 100]);
                    request.lease = id;
                    // It may have ended already on a slow machine.
                    let _ = clients.kv.put(request).await;
                }
            });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.expect("a lane ends well");
        }
        let all = RangeRequest {
            key: Bytes::from_static(&[0]),
            range_end: Bytes::from_static(&[0]),
            count_only: true,
            ..Default::default()
        };
        let begun = std::time::Instant::now();
        loop {
            // Others are served while they end.
            side.clients.kv.put(put("other", vec![])).await.expect("a put");
            let left = side
                .clients
                .kv
                .range(all.clone())
                .await
                .expect("a count")
                .into_inner()
                .count;
            if left == 1 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{left} keys are left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let leases = side
            .clients
            .lease
            .lease_leases(LeaseLeasesRequest {})
            .await
            .expect("a list");
        assert!(leases.into_inner().leases.is_empty());
        println!("peak {} KiB", side.peak_kib());
        assert!(side.peak_kib() < 200 << 10 && side.ended().is_none());
    });
}
