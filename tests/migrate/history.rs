//! Random histories. Every test prints its seed; `QUANTYKUBE_SEED` repeats one.

use etcd_client::{Client, DeleteOptions, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A generator whose seed is printed.
pub fn generator(test: &str) -> StdRng {
    let seed = match std::env::var("QUANTYKUBE_SEED") {
        Ok(seed) => seed.parse().expect("QUANTYKUBE_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("{test}: QUANTYKUBE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// A key out of a few hundred: kinds as kube-apiserver's, and what no one would choose.
pub fn key(random: &mut StdRng) -> Vec<u8> {
    const KINDS: [&str; 5] = ["configmaps", "events", "leases", "pods", "secrets"];
    match random.random_range(0..100) {
        0 => vec![0],
        1 => vec![0, 0, 1],
        2 => vec![0xff, 0xff, random.random_range(0..4)],
        3 => vec![b'k'; random.random_range(1..4000)],
        4 => b"compact_rev_key".to_vec(),
        5..8 => format!("/registry/{}", random.random_range(0..9)).into_bytes(),
        _ => {
            let kind = KINDS[random.random_range(0..KINDS.len())];
            format!(
                "/registry/{kind}/ns{}/{}",
                random.random_range(0..3),
                random.random_range(0..40)
            )
            .into_bytes()
        }
    }
}

/// A value: mostly small, sometimes empty, rarely large.
pub fn value(random: &mut StdRng) -> Vec<u8> {
    let length = match random.random_range(0..200) {
        0..10 => 0,
        10 => random.random_range(100_000..300_000),
        11..20 => random.random_range(2_000..20_000),
        _ => random.random_range(1..500),
    };
    let mut value = vec![0; length];
    random.fill(&mut value[..]);
    value
}

/// Leases of a history: granted for so many seconds, in order.
const GRANTED: [i64; 6] = [600, 900, 3600, 3600, 86_400, 1_000_000];

/// Writes, updates, deletes, transactions and compactions, some of the keys with a lease.
pub async fn grow(client: &Client, random: &mut StdRng, steps: usize) {
    let mut kv = client.kv_client();
    let mut leases = vec![0; 12];
    for ttl in GRANTED {
        let id = random.random_range(1..i64::MAX);
        let options = LeaseGrantOptions::new().with_id(id);
        client.lease_client().grant(ttl, Some(options)).await.unwrap();
        leases.push(id);
    }
    // One that holds nothing.
    client.lease_client().grant(777, None).await.unwrap();
    for _ in 0..steps {
        let lease = leases[random.random_range(0..leases.len())];
        match random.random_range(0..100) {
            0..60 => {
                let options = PutOptions::new().with_lease(lease);
                kv.put(key(random), value(random), Some(options)).await.unwrap();
            }
            60..75 => {
                kv.delete(key(random), None).await.unwrap();
            }
            75..77 => {
                let prefix = format!("/registry/pods/ns{}/1", random.random_range(0..3));
                let options = DeleteOptions::new().with_prefix();
                kv.delete(prefix, Some(options)).await.unwrap();
            }
            77..97 => {
                let mut keys: Vec<Vec<u8>> = (0..random.random_range(1..20)).map(|_| key(random)).collect();
                keys.sort();
                keys.dedup();
                let operations: Vec<TxnOp> = keys
                    .into_iter()
                    .map(|key| match random.random_range(0..4) {
                        0 => TxnOp::delete(key, None),
                        _ => TxnOp::put(key, value(random), Some(PutOptions::new().with_lease(lease))),
                    })
                    .collect();
                // The large values of one transaction must stay under etcd's limit for a request.
                let _ = kv.txn(Txn::new().and_then(operations)).await;
            }
            _ => {
                let answer = kv.get("compact_rev_key", None).await.unwrap();
                let head = answer.header().unwrap().revision();
                let _ = kv.compact(random.random_range(1..=head), None).await;
            }
        }
    }
}

/// Many keys of one size, quickly.
pub async fn fill(client: &Client, kind: &str, keys: usize, size: usize) {
    let mut kv = client.kv_client();
    let together = (1_000_000 / size.max(1)).clamp(1, 100);
    let mut value = vec![0; size];
    StdRng::seed_from_u64(1).fill(&mut value[..]);
    let names: Vec<String> = (0..keys).map(|n| format!("/registry/{kind}/{n:08}")).collect();
    for names in names.chunks(together) {
        let operations: Vec<TxnOp> = names
            .iter()
            .map(|name| TxnOp::put(name.as_str(), value.clone(), None))
            .collect();
        kv.txn(Txn::new().and_then(operations)).await.unwrap();
    }
}
