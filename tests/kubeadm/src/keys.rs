//! What an etcd or the store holds, key by key, and who may have written what since.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// One key's state.
#[derive(Clone, Eq, PartialEq)]
pub struct Kv {
    /// The revision that created it.
    pub create: i64,
    /// The revision that last wrote it.
    pub modified: i64,
    /// How often it was written.
    pub version: i64,
    /// Its lease, or 0.
    pub lease: i64,
    /// The bytes.
    pub value: Vec<u8>,
}

impl Kv {
    /// All but the bytes, which may be secret.
    fn shape(&self) -> String {
        let Kv {
            create,
            modified,
            version,
            lease,
            value,
        } = self;
        format!(
            "create {create} mod {modified} version {version} lease {lease:x} and {} bytes",
            value.len()
        )
    }
}

/// Every key at one revision.
pub type Keys = BTreeMap<String, Kv>;

/// Reads what `etcdctl get --write-out=json` printed; the revision of its header comes first.
pub fn parse(text: &str) -> (i64, Keys) {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|err| panic!("etcdctl printed no JSON: {err}"));
    let number = |pair: &Value, name: &str| pair[name].as_i64().unwrap_or(0);
    let bytes = |pair: &Value, name: &str| STANDARD.decode(pair[name].as_str().unwrap_or("")).expect("base64");
    let keys = answer["kvs"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(|pair| {
            let kv = Kv {
                create: number(pair, "create_revision"),
                modified: number(pair, "mod_revision"),
                version: number(pair, "version"),
                lease: number(pair, "lease"),
                value: bytes(pair, "value"),
            };
            (String::from_utf8_lossy(&bytes(pair, "key")).into_owned(), kv)
        });
    (number(&answer["header"], "revision"), keys.collect())
}

/// Reads what `quantykube-store dump --live` printed; the store's revision comes first.
pub fn parse_dump(text: &str) -> (i64, Keys) {
    let mut revision = 0;
    let mut keys = Keys::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|err| panic!("dump printed no JSON: {err}"));
        let number = |name: &str| line[name].as_i64().unwrap_or(0);
        match line["type"].as_str() {
            Some("store") => revision = number("revision"),
            Some("put") => {
                let kv = Kv {
                    create: number("create"),
                    modified: number("revision"),
                    version: number("version"),
                    lease: number("lease"),
                    value: STANDARD.decode(line["value"].as_str().unwrap_or("")).expect("base64"),
                };
                keys.insert(line["key"].as_str().expect("keys of a cluster are text").to_owned(), kv);
            }
            _ => {}
        }
    }
    (revision, keys)
}

/// Compares what a store held when it was closed, at revision `closed`, with what etcd held when all of it was copied back.
/// What an etcd had before the move, up to `copied`, is the very same; what was written on the store has its bytes and a
/// revision past the store's. No key may be there that the other has not.
pub fn compare_back(store: &Keys, etcd: &Keys, copied: i64, closed: i64) -> Compared {
    let mut compared = Compared::default();
    for (key, old) in store {
        match etcd.get(key) {
            Some(new) if old.modified <= copied && new == old => compared.same += 1,
            Some(new) if old.modified > copied && new.value == old.value && new.modified > closed => compared.own += 1,
            Some(new) => compared
                .wrong
                .push(format!("{key}: {}, in the store {}", new.shape(), old.shape())),
            None => compared.wrong.push(format!("{key} is not in etcd")),
        }
    }
    for (key, new) in etcd.iter().filter(|(key, _)| !store.contains_key(*key)) {
        compared.wrong.push(format!("{key} is only in etcd: {}", new.shape()));
    }
    compared
}

/// What a running cluster writes by itself: leases, events, the statuses of nodes and of pods (a node that was not ready for
/// a while makes its pods unready, too), and what the deployment controller does in the namespace where the test writes
/// all the time.
const OWN: &[&str] = &[
    "/registry/leases/",
    "/registry/masterleases/",
    "/registry/peerserverleases/",
    "/registry/events/",
    "/registry/minions/",
    "/registry/csinodes/",
    "/registry/pods/",
    "/registry/endpointslices/default/kubernetes",
    "/registry/services/endpoints/default/kubernetes",
    "/registry/apiregistration.k8s.io/",
    "/registry/deployments/busy/",
    "/registry/replicasets/busy/",
    "/registry/configmaps/busy/",
    "compact_rev_key",
];

/// Whether a running cluster may write a key at any time.
pub fn is_own(key: &str) -> bool {
    OWN.iter().any(|own| key.starts_with(own))
}

/// How many keys are as they were, and which of the cluster's own have been written since; everything else is wrong.
#[derive(Default)]
pub struct Compared {
    /// As they were, to the byte.
    pub same: usize,
    /// The cluster's own, written or deleted since.
    pub own: usize,
    /// Neither.
    pub wrong: Vec<String>,
}

/// Compares what was copied at `revision` with what is there now.
pub fn compare(before: &Keys, now: &Keys, revision: i64) -> Compared {
    let mut compared = Compared::default();
    for (key, old) in before {
        match now.get(key) {
            Some(new) if new == old => compared.same += 1,
            Some(new) if is_own(key) && new.modified > revision && new.modified > old.modified => compared.own += 1,
            Some(new) => compared
                .wrong
                .push(format!("{key}: {}, was {}", new.shape(), old.shape())),
            None if is_own(key) => compared.own += 1,
            None => compared.wrong.push(format!("{key} is gone")),
        }
    }
    for (key, new) in now.iter().filter(|(key, _)| !before.contains_key(*key)) {
        if is_own(key) && new.modified > revision {
            compared.own += 1;
        } else {
            compared.wrong.push(format!("{key} has come: {}", new.shape()));
        }
    }
    compared
}

#[cfg(test)]
mod tests {
    use super::{Keys, Kv, compare, compare_back, parse_dump};

    fn kv(modified: i64, value: &str) -> Kv {
        Kv {
            create: 1,
            modified,
            version: 1,
            lease: 0,
            value: value.into(),
        }
    }

    #[test]
    fn only_the_clusters_own_may_be_written() {
        let keys = |pairs: &[(&str, Kv)]| -> Keys { pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect() };
        let before = keys(&[
            ("/registry/secrets/a/b", kv(5, "x")),
            ("/registry/leases/a/b", kv(6, "y")),
        ]);
        let good = keys(&[
            ("/registry/secrets/a/b", kv(5, "x")),
            ("/registry/leases/a/b", kv(12, "z")),
        ]);
        let compared = compare(&before, &good, 10);
        assert_eq!((compared.same, compared.own, compared.wrong.len()), (1, 1, 0));
        let other_bytes = keys(&[
            ("/registry/secrets/a/b", kv(5, "!")),
            ("/registry/leases/a/b", kv(6, "y")),
        ]);
        assert_eq!(compare(&before, &other_bytes, 10).wrong.len(), 1);
        let lower = keys(&[
            ("/registry/secrets/a/b", kv(5, "x")),
            ("/registry/leases/a/b", kv(9, "z")),
        ]);
        assert_eq!(compare(&before, &lower, 10).wrong.len(), 1);
        assert_eq!(compare(&before, &Keys::new(), 10).wrong.len(), 1);
    }

    #[test]
    fn all_of_a_store_is_in_etcd() {
        let dumped = concat!(
            r#"{"type":"store","revision":20}"#,
            "\n",
            r#"{"type":"put","revision":5,"create":1,"version":1,"lease":0,"key":"a","value":"eA=="}"#,
            "\n",
            r#"{"type":"put","revision":15,"create":1,"version":1,"lease":0,"key":"b","value":"eQ=="}"#,
        );
        let (closed, store) = parse_dump(dumped);
        assert_eq!(closed, 20);
        let etcd = |b: Kv| Keys::from([("a".to_owned(), kv(5, "x")), ("b".to_owned(), b)]);
        let good = compare_back(&store, &etcd(kv(21, "y")), 10, closed);
        assert_eq!((good.same, good.own, good.wrong.len()), (1, 1, 0));
        assert_eq!(compare_back(&store, &etcd(kv(21, "!")), 10, closed).wrong.len(), 1);
        assert_eq!(compare_back(&store, &etcd(kv(15, "y")), 10, closed).wrong.len(), 1);
        let mut more = etcd(kv(21, "y"));
        more.insert("c".to_owned(), kv(22, "z"));
        assert_eq!(compare_back(&store, &more, 10, closed).wrong.len(), 1);
        assert_eq!(compare_back(&store, &Keys::new(), 10, closed).wrong.len(), 2);
    }
}
