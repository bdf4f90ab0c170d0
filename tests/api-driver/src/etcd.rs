//! What an etcd server holds, as an etcd client sees it: every key at one revision, its leases, its events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use etcd_client::{
    Certificate, Client, ConnectOptions, EventType, GetOptions, Identity, KeyValue, KvClient, LeaseTimeToLiveOptions,
    PutOptions, TlsOptions, WatchClient, WatchOptions, WatchStream,
};
use tokio::task::JoinHandle;

use crate::pki::Pki;

/// Objects of 1 MiB come two to an event; the client's own limit of 4 MiB is far too small for pages of them.
const MESSAGE_LIMIT: usize = 512 << 20;
/// Keys of one page of a dump.
const PAGE: i64 = 400;

/// One key's state, without its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kv {
    /// The bytes.
    pub value: Vec<u8>,
    /// The revision that created it.
    pub create: i64,
    /// The revision that last changed it.
    pub modified: i64,
    /// How often it was written since it was created.
    pub version: i64,
    /// The lease it is bound to, or 0.
    pub lease: i64,
}

impl Kv {
    fn of(pair: &KeyValue) -> Kv {
        Kv {
            value: pair.value().to_vec(),
            create: pair.create_revision(),
            modified: pair.mod_revision(),
            version: pair.version(),
            lease: pair.lease(),
        }
    }

    /// Everything but the bytes, for messages: values may be secrets.
    pub fn shape(&self) -> String {
        format!(
            "create {} mod {} version {} lease {:x} and {} bytes",
            self.create,
            self.modified,
            self.version,
            self.lease,
            self.value.len()
        )
    }
}

/// Every key at one revision.
#[derive(Debug)]
pub struct Dump {
    /// The revision of the server when it was read.
    pub revision: i64,
    /// How many keys the server said there are.
    pub count: i64,
    /// The keys.
    pub keys: BTreeMap<Vec<u8>, Kv>,
}

/// One lease with the keys bound to it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// The TTL it was granted, in seconds.
    pub granted: i64,
    /// The seconds left when it was read.
    pub left: i64,
    /// The keys bound to it, sorted.
    pub keys: Vec<Vec<u8>>,
}

/// One event of a watch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The key.
    pub key: Vec<u8>,
    /// The new state, or `None` for a deletion.
    pub now: Option<Kv>,
    /// The revision of the event.
    pub revision: i64,
    /// The state before it.
    pub before: Option<Kv>,
}

/// A client of one etcd server.
#[derive(Clone)]
pub struct Etcd {
    client: Client,
}

impl Etcd {
    /// Connects with the client certificate of the run.
    pub async fn connect(port: u16, pki: &Pki) -> Result<Etcd> {
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(pki.pem("ca.crt")?))
            .identity(Identity::from_pem(pki.pem("client.crt")?, pki.pem("client.key")?));
        let options = ConnectOptions::new()
            .with_tls(tls)
            .with_connect_timeout(Duration::from_secs(5));
        let client = Client::connect([format!("https://127.0.0.1:{port}")], Some(options)).await?;
        Ok(Etcd { client })
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// The version the server gives itself.
    pub async fn version(&self) -> Result<String> {
        let status = self.client.maintenance_client().status().await?;
        Ok(status.version().to_string())
    }

    /// The revision of the server.
    pub async fn revision(&self) -> Result<i64> {
        let answer = self.kv().get("revision", None).await?;
        Ok(answer.header().context("an answer without a header")?.revision())
    }

    /// Compacts at `revision`.
    pub async fn compact(&self, revision: i64) -> Result<()> {
        self.kv().compact(revision, None).await?;
        Ok(())
    }

    /// Reads every key at the head, page by page at the revision of the first page.
    pub async fn dump(&self) -> Result<Dump> {
        let mut kv = self.kv();
        let mut keys = BTreeMap::new();
        let mut from = vec![0];
        let (mut revision, mut count) = (0, 0);
        loop {
            let options = GetOptions::new()
                .with_from_key()
                .with_limit(PAGE)
                .with_revision(revision);
            let page = kv.get(from.clone(), Some(options)).await?;
            if revision == 0 {
                revision = page.header().context("an answer without a header")?.revision();
                count = page.count();
            }
            for pair in page.kvs() {
                ensure!(
                    keys.insert(pair.key().to_vec(), Kv::of(pair)).is_none(),
                    "a page repeats the key {}",
                    show(pair.key())
                );
            }
            if !page.more() {
                return Ok(Dump { revision, count, keys });
            }
            from = page
                .kvs()
                .last()
                .context("an empty page with more to come")?
                .key()
                .to_vec();
            from.push(0);
        }
    }

    /// Writes one key of a dump again with its own bytes and lease: only its revision and version change.
    pub async fn spoil(&self, dump: &Dump) -> Result<()> {
        let (key, pair) = dump.keys.iter().nth(dump.keys.len() / 2).context("an empty dump")?;
        let options = PutOptions::new().with_lease(pair.lease);
        self.kv().put(key.clone(), pair.value.clone(), Some(options)).await?;
        Ok(())
    }

    /// What a Range of one key at `revision` says: `found`, `absent`, or the server's error.
    pub async fn read_at(&self, key: &[u8], revision: i64) -> String {
        match self
            .kv()
            .get(key, Some(GetOptions::new().with_revision(revision)))
            .await
        {
            Ok(answer) if answer.kvs().is_empty() => "absent".to_string(),
            Ok(_) => "found".to_string(),
            Err(error) => status_text(&error),
        }
    }

    /// Every lease.
    pub async fn leases(&self) -> Result<BTreeMap<i64, Lease>> {
        let mut client = self.client.lease_client();
        let mut leases = BTreeMap::new();
        for lease in client.leases().await?.leases() {
            let options = LeaseTimeToLiveOptions::new().with_keys();
            let answer = client.time_to_live(lease.id(), Some(options)).await?;
            // It may have ended since it was listed.
            if answer.ttl() < 0 {
                continue;
            }
            let mut keys = answer.keys().to_vec();
            keys.sort();
            let note = Lease {
                granted: answer.granted_ttl(),
                left: answer.ttl(),
                keys,
            };
            leases.insert(lease.id(), note);
        }
        Ok(leases)
    }

    async fn watch_all(&self, from: i64) -> Result<WatchStream> {
        let mut client: WatchClient = self.client.watch_client().max_decoding_message_size(MESSAGE_LIMIT);
        let options = WatchOptions::new()
            .with_from_key()
            .with_start_revision(from)
            .with_prev_key()
            .with_fragment();
        Ok(client.watch(vec![0], Some(options)).await?)
    }

    /// Follows every event from `from` on in a task of its own.
    pub async fn follow(&self, from: i64) -> Result<Follower> {
        let mut stream = self.watch_all(from).await?;
        let seen: Seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let Some(answer) = stream.message().await? else {
                    bail!("the server ended the watch");
                };
                ensure!(
                    !answer.canceled(),
                    "the server canceled the watch from {from}: {:?}, compacted at {}",
                    answer.cancel_reason(),
                    answer.compact_revision()
                );
                let header = answer.header().context("a watch response without a header")?.revision();
                let mut log = log.lock().map_err(|_| anyhow!("the log of events is poisoned"))?;
                for event in answer.events() {
                    let pair = event.kv().context("an event without a key")?;
                    ensure!(
                        pair.mod_revision() <= header,
                        "an event of revision {} came under the header {header}",
                        pair.mod_revision()
                    );
                    let event = Event {
                        key: pair.key().to_vec(),
                        now: (event.event_type() == EventType::Put).then(|| Kv::of(pair)),
                        revision: pair.mod_revision(),
                        before: event.prev_kv().map(Kv::of),
                    };
                    log.push((Instant::now(), Arc::new(event)));
                }
            }
        });
        Ok(Follower { seen, task })
    }

    /// What a watch of everything from `from` says first: the first event, or why it was canceled.
    pub async fn first_word(&self, from: i64) -> Result<String> {
        let mut stream = self.watch_all(from).await?;
        loop {
            let Ok(answer) = tokio::time::timeout(Duration::from_secs(5), stream.message()).await else {
                return Ok("silence".to_string());
            };
            let Some(answer) = answer? else {
                return Ok("the stream ended".to_string());
            };
            if answer.canceled() {
                let reason = answer.cancel_reason();
                return Ok(format!(
                    "canceled, compacted at {}, {reason:?}",
                    answer.compact_revision()
                ));
            }
            if let Some(event) = answer.events().first() {
                let pair = event.kv().context("an event without a key")?;
                let what = if event.event_type() == EventType::Put {
                    "a put"
                } else {
                    "a deletion"
                };
                return Ok(format!(
                    "{what} at revision {} of {}",
                    pair.mod_revision(),
                    show(pair.key())
                ));
            }
        }
    }
}

type Seen = Arc<Mutex<Vec<(Instant, Arc<Event>)>>>;

/// A watch that collects what it sees, each event with the time of its arrival.
pub struct Follower {
    seen: Seen,
    task: JoinHandle<Result<()>>,
}

impl Follower {
    /// What it has seen so far.
    pub fn so_far(&self) -> Vec<(Instant, Arc<Event>)> {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }

    /// The revision of the last event so far, or 0.
    fn last_revision(&self) -> i64 {
        self.seen
            .lock()
            .map_or(0, |seen| seen.last().map_or(0, |(_, event)| event.revision))
    }

    /// Waits until an event of `revision` has come, ends the watch and returns all it saw.
    pub async fn finish(self, revision: i64, within: Duration) -> Result<Vec<Arc<Event>>> {
        let start = Instant::now();
        while self.last_revision() < revision {
            if self.task.is_finished() {
                self.task.await??;
                bail!("the watch ended");
            }
            ensure!(
                start.elapsed() < within,
                "the watch is at revision {}, the server at {revision}, and nothing came for {within:?}",
                self.last_revision()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Whatever comes after the last revision would be one event too many.
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.task.abort();
        Ok(self.so_far().into_iter().map(|(_, event)| event).collect())
    }
}

/// A key for a person.
pub fn show(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// The code and text of a server's error, which clients compare word by word.
fn status_text(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) => format!("{:?}: {}", status.code(), status.message()),
        other => other.to_string(),
    }
}
