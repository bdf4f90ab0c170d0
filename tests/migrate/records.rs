//! What two sides hold, record by record.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use etcd_client::{Client, GetOptions};
use quantykube_store_file::{Frozen, Lease, Record};

/// Every key of an etcd at a revision (0 for its head), read in one go.
pub async fn of_etcd(client: &Client, revision: i64) -> (i64, Vec<Record>) {
    let options = GetOptions::new().with_all_keys().with_revision(revision);
    let answer = client
        .kv_client()
        .max_decoding_message_size(i32::MAX as usize)
        .get("", Some(options))
        .await
        .unwrap();
    let records = answer
        .kvs()
        .iter()
        .map(|key_value| Record {
            key: Bytes::copy_from_slice(key_value.key()),
            value: Bytes::copy_from_slice(key_value.value()),
            create: key_value.create_revision(),
            modified: key_value.mod_revision(),
            version: key_value.version(),
            lease: key_value.lease(),
        })
        .collect();
    (answer.header().unwrap().revision(), records)
}

/// Every lease of an etcd with the TTL it was granted.
pub async fn leases_of_etcd(client: &Client) -> BTreeMap<i64, i64> {
    let mut client = client.lease_client();
    let mut leases = BTreeMap::new();
    for lease in client.leases().await.unwrap().leases() {
        let told = client.time_to_live(lease.id(), None).await.unwrap();
        leases.insert(lease.id(), told.granted_ttl());
    }
    leases
}

/// A closed store file's head, records and leases.
pub fn of_file(path: &Path) -> (i64, Vec<Record>, BTreeMap<i64, Lease>) {
    let frozen = Frozen::open(path).unwrap();
    let mut records = Vec::new();
    frozen
        .records(&mut |record| {
            records.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    let leases = frozen.leases().into_iter().map(|lease| (lease.id, lease)).collect();
    (frozen.revision(), records, leases)
}

/// Asserts equality and names the first record that differs instead of printing all.
pub fn assert_same(found: &[Record], expected: &[Record]) {
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected,
            "record {n}: {} instead of {}",
            told(found),
            told(expected)
        );
    }
    assert_eq!(found.len(), expected.len(), "number of keys");
}

pub fn told(record: &Record) -> String {
    format!(
        "{:?} create {} modified {} version {} lease {:x}, {} bytes",
        record.key,
        record.create,
        record.modified,
        record.version,
        record.lease,
        record.value.len()
    )
}
