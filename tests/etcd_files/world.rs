//! Real etcds, filled at random, and what they answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use etcd_client::{Client, CompactionOptions, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp};
use quantykube_etcd_files::bolt::Source;
use quantykube_etcd_files::etcd::{Database, Revision};
use quantykube_tests::places::debian_etcd;
use quantykube_tests::{Server, peer};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tempfile::TempDir;

/// Which etcd.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The peers' own, 3.6.
    Current,
    /// Debian's, 3.4.
    Debian,
}

/// A running etcd in a folder of its own.
pub struct Etcd {
    pub kind: Kind,
    pub folder: TempDir,
    pub server: Server,
    pub port: u16,
}

/// What a client can see of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
    pub value: Vec<u8>,
}

/// What a client can see of an etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    pub revision: i64,
    pub keys: BTreeMap<Vec<u8>, Seen>,
    /// Granted seconds by id.
    pub leases: BTreeMap<i64, i64>,
}

pub fn rng() -> StdRng {
    let seed = std::env::var("QUANTYKUBE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("QUANTYKUBE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Runs a tool to its end.
pub fn run(command: &mut Command) -> Output {
    let output = command.env("ETCDCTL_API", "3").output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

impl Kind {
    fn etcd(self) -> PathBuf {
        match self {
            Kind::Current => peer("etcd"),
            Kind::Debian => debian_etcd("etcd"),
        }
    }

    pub fn etcdctl(self) -> Command {
        Command::new(match self {
            Kind::Current => peer("etcdctl"),
            Kind::Debian => debian_etcd("etcdctl"),
        })
    }

    /// The tool that reads snapshots from files.
    pub fn snapshot_tool(self) -> Command {
        match self {
            Kind::Current => Command::new(peer("etcdutl")),
            Kind::Debian => self.etcdctl(),
        }
    }
}

impl Etcd {
    pub fn start(kind: Kind) -> Etcd {
        Self::start_in(kind, tempfile::tempdir().unwrap())
    }

    /// Starts on whatever stands in `folder/etcd`.
    pub fn start_in(kind: Kind, folder: TempDir) -> Etcd {
        let (server, port) = Server::etcd(&kind.etcd(), folder.path(), &[]);
        Etcd {
            kind,
            folder,
            server,
            port,
        }
    }

    /// Stops it and starts it again.
    pub fn restarted(mut self) -> Etcd {
        self.stop();
        let Etcd { kind, folder, .. } = self;
        Self::start_in(kind, folder)
    }

    /// Starts one from a snapshot, by its own tool.
    pub fn restored(kind: Kind, snapshot: &Path) -> Etcd {
        let folder = tempfile::tempdir().unwrap();
        run(kind
            .snapshot_tool()
            .args(["snapshot", "restore", "--data-dir"])
            .arg(folder.path().join("etcd"))
            .arg(snapshot));
        Self::start_in(kind, folder)
    }

    pub async fn client(&self) -> Client {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        for _ in 0..100 {
            if let Ok(mut client) = Client::connect([&endpoint], None).await {
                // The port is open before there is a leader.
                if client.get("ready", None).await.is_ok() {
                    return client;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd does not answer:\n{}", self.server.log_end());
    }

    /// `etcdctl snapshot save`.
    pub fn save(&self) -> PathBuf {
        let path = self.folder.path().join("snapshot.db");
        let _ = std::fs::remove_file(&path);
        run(self
            .kind
            .etcdctl()
            .arg(format!("--endpoints=http://127.0.0.1:{}", self.port))
            .args(["snapshot", "save"])
            .arg(&path));
        path
    }

    /// Its database.
    pub fn db(&self) -> PathBuf {
        self.folder.path().join("etcd/member/snap/db")
    }

    pub fn stop(&mut self) {
        let status = self.server.stop(Duration::from_secs(20));
        // 3.4 ends by its own signal.
        println!("etcd ended: {status}");
    }
}

/// Puts, updates, deletes, transactions, leases and compactions.
pub async fn fill(client: &mut Client, rng: &mut StdRng, rounds: usize) {
    let mut leases = vec![0; 3];
    for number in 0..12 {
        let granted = client.lease_grant(3600 + number, None).await.unwrap();
        leases.push(granted.id());
    }
    let mut head = 1;
    for round in 0..rounds {
        if round == rounds / 2 {
            let put = client.put("/registry/half", "", None).await.unwrap();
            head = put.header().unwrap().revision();
            let at = (head - 10).max(1);
            let physical = CompactionOptions::new().with_physical();
            client.compact(at, Some(physical)).await.unwrap();
        }
        match rng.random_range(0..20) {
            0..=10 => {
                // Each key once in a transaction.
                let keys: std::collections::BTreeSet<Vec<u8>> =
                    (0..rng.random_range(1..60)).map(|_| key(rng)).collect();
                let ops: Vec<TxnOp> = keys
                    .into_iter()
                    .map(|key| match rng.random_ratio(1, 5) {
                        true => TxnOp::delete(key, None),
                        false => TxnOp::put(key, value(rng), Some(lease(rng, &leases))),
                    })
                    .collect();
                head = client
                    .txn(Txn::new().and_then(ops))
                    .await
                    .unwrap()
                    .header()
                    .unwrap()
                    .revision();
            }
            11..=15 => {
                client
                    .put(key(rng), value(rng), Some(lease(rng, &leases)))
                    .await
                    .unwrap();
            }
            16 => {
                let (from, to) = (key(rng), key(rng));
                let range = DeleteOptions::new().with_range(from.clone().max(to.clone()));
                client.delete(from.min(to), Some(range)).await.unwrap();
            }
            17 if leases.len() > 8 => {
                client.lease_revoke(leases.pop().unwrap()).await.unwrap();
            }
            18 if round > rounds / 2 => {
                // An older revision may be compacted already: that is an error and no matter.
                let at = head - rng.random_range(5..20);
                let _ = client.compact(at, Some(CompactionOptions::new().with_physical())).await;
            }
            _ => {
                client
                    .put("/registry/big", vec![b'x'; rng.random_range(0..200_000)], None)
                    .await
                    .unwrap();
            }
        }
    }
}

fn key(rng: &mut StdRng) -> Vec<u8> {
    let mut key = format!("/registry/{}/{}", rng.random_range(0..6), rng.random_range(0..60)).into_bytes();
    if rng.random_ratio(1, 30) {
        key.extend([0, 255, rng.random()]);
    }
    key
}

fn value(rng: &mut StdRng) -> Vec<u8> {
    let most = [1, 100, 1500, 9000][rng.random_range(0..4)];
    let mut value = vec![0; rng.random_range(0..most)];
    rng.fill_bytes(&mut value);
    value
}

fn lease(rng: &mut StdRng, leases: &[i64]) -> PutOptions {
    PutOptions::new().with_lease(leases[rng.random_range(0..leases.len())])
}

/// Everything that the API shows at the head.
pub async fn dump(client: &mut Client) -> Dump {
    let mut keys = BTreeMap::new();
    let mut from = vec![0];
    let revision = loop {
        let options = GetOptions::new().with_from_key().with_limit(50);
        let page = client.get(from.clone(), Some(options)).await.unwrap();
        for found in page.kvs() {
            let seen = Seen {
                create: found.create_revision(),
                modified: found.mod_revision(),
                version: found.version(),
                lease: found.lease(),
                value: found.value().to_vec(),
            };
            keys.insert(found.key().to_vec(), seen);
        }
        if !page.more() {
            break page.header().unwrap().revision();
        }
        from = page.kvs().last().unwrap().key().to_vec();
        from.push(0);
    };
    let mut leases = BTreeMap::new();
    for status in client.leases().await.unwrap().leases() {
        let lease = client.lease_time_to_live(status.id(), None).await.unwrap();
        leases.insert(status.id(), lease.granted_ttl());
    }
    Dump { revision, keys, leases }
}

/// The same from a file.
pub fn dump_of<S: Source>(database: &Database<S>) -> Dump {
    let live = database.live(None).unwrap();
    assert_eq!(database.dangling_leases(&live).unwrap(), []);
    let keys = live.records(database).unwrap().map(|record| {
        let record = record.unwrap();
        let seen = Seen {
            create: record.create_revision,
            modified: record.mod_revision,
            version: record.version,
            lease: record.lease,
            value: record.value.to_vec(),
        };
        (record.key.to_vec(), seen)
    });
    Dump {
        revision: database.revision().unwrap(),
        keys: keys.collect(),
        leases: database
            .leases()
            .unwrap()
            .iter()
            .map(|lease| (lease.id, lease.ttl))
            .collect(),
    }
}

/// Compares without printing megabytes.
pub fn same(found: &Dump, expected: &Dump) {
    assert_eq!(found.revision, expected.revision, "head revision");
    assert_eq!(found.leases, expected.leases, "leases");
    let keys = |dump: &Dump| dump.keys.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(found), keys(expected), "keys");
    for (key, seen) in &found.keys {
        assert!(*seen == expected.keys[key], "key {}", key.escape_ascii());
    }
}

/// HashKV at older revisions, with the compaction it was taken at.
///
/// etcd 3.6 remembers hashes that it took at a compaction, and answers with those: of the same revision, but as of the
/// compaction before. A restart forgets them.
pub async fn hashes(client: &mut Client, revisions: &[i64]) -> Vec<(u32, i64)> {
    let mut found = Vec::new();
    for revision in revisions {
        let hash = client.hash_kv(*revision).await.unwrap();
        found.push((hash.hash(), hash.compact_version()));
    }
    found
}

/// The same from a file.
pub fn hashes_of<S: Source>(database: &Database<S>, revisions: &[i64]) -> Vec<(u32, i64)> {
    let one = |revision: &i64| {
        let hash = database.hash_kv(Some(*revision)).unwrap();
        (hash.hash, hash.compact_revision)
    };
    revisions.iter().map(one).collect()
}

/// Revisions that can be asked for, the head and the oldest among them. That is the compaction's; 3.4 does not answer
/// for this one.
pub fn some_revisions<S: Source>(kind: Kind, database: &Database<S>, rng: &mut StdRng) -> Vec<i64> {
    let head = database.revision().unwrap();
    let compacted = database.compact_revision().unwrap().unwrap_or(1);
    let oldest = match kind {
        Kind::Current => compacted,
        Kind::Debian => compacted + 1,
    };
    let mut revisions = vec![head, oldest];
    revisions.extend((0..6).map(|_| rng.random_range(oldest..=head)));
    revisions
}

/// How many records there are.
pub fn records<S: Source>(database: &Database<S>) -> usize {
    database.records(Revision::default()).unwrap().count()
}
