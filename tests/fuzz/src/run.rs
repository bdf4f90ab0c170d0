//! Runs a list of steps on both servers and compares.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quantykube_etcd_api::*;

use crate::answer::{Answer, Call};
use crate::resolve::Known;
use crate::side::{Kind, Side};
use crate::step::{Grant, Step, Watch};
use crate::watching::Stream;

/// The number of the stream that watches every key.
const ALL: u8 = 255;

/// The stream whose watches may start in the future, and never in the past: with both on one stream, nothing would tell
/// when those of the past have shown everything.
pub const FUTURE: u8 = 3;

/// What was run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Requests, watches and their cancels included.
    pub requests: usize,
    /// Refused by both.
    pub refused: usize,
    /// Revisions made.
    pub revisions: i64,
    /// Compactions.
    pub compactions: usize,
    /// Watches created.
    pub watches: usize,
    /// Events compared.
    pub events: usize,
    /// Restarts.
    pub restarts: usize,
}

/// A difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The step that showed it; what comes after it was not run.
    pub at: usize,
    /// Both sides.
    pub what: String,
}

/// An error put into the answers of the right side, to prove that it is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// None.
    None,
    /// A range that shows a key in its third version or later counts one key more.
    ThirdVersion,
    /// A watch loses deletes of the key "b".
    LostDelete,
}

/// What tells how a watch was made.
struct Made {
    /// The first revision it can show.
    from: i64,
    request: WatchCreateRequest,
    /// Its start was compacted when it was made.
    compacted: bool,
}

/// Two servers.
pub struct Sides {
    kinds: [Kind; 2],
    folder: PathBuf,
    left: Side,
    right: Side,
    known: Known,
    made: BTreeMap<(u8, i64), Made>,
    fault: Fault,
}

impl Sides {
    /// Two fresh servers with their files under `folder`.
    pub async fn fresh(kinds: [Kind; 2], folder: PathBuf, fault: Fault) -> Result<Sides, String> {
        let (left, right) = tokio::join!(Side::fresh(kinds[0], &folder), Side::fresh(kinds[1], &folder));
        Ok(Sides {
            kinds,
            left: left?,
            right: right?,
            folder,
            known: Known::fresh(),
            made: BTreeMap::new(),
            fault,
        })
    }

    /// Two fresh servers in the place of these.
    pub async fn renew(&mut self) -> Result<(), String> {
        *self = Sides::fresh(self.kinds, self.folder.clone(), self.fault).await?;
        Ok(())
    }

    /// Empties both; if they do not agree even then, both are made anew.
    pub async fn clear(&mut self) -> Result<(), String> {
        self.made.clear();
        match tokio::join!(self.left.clear(), self.right.clear()) {
            (Ok(left), Ok(right)) if left == right => {
                self.known = Known {
                    head: left,
                    compacted: left,
                    ..Known::fresh()
                };
                Ok(())
            }
            _ => self.renew().await,
        }
    }

    /// Runs steps to the end or to the first difference.
    pub async fn run(&mut self, steps: &[Step]) -> Result<Counts, Difference> {
        let mut counts = Counts::default();
        let first = self.known.head;
        let outcome = self.open_all().await;
        outcome.map_err(|what| Difference { at: 0, what })?;
        for (at, step) in steps.iter().enumerate() {
            let outcome = self.step(step, &mut counts).await;
            self.judge(outcome, at)?;
        }
        let outcome = self.barrier(&mut counts).await;
        self.judge(outcome, steps.len().saturating_sub(1))?;
        counts.revisions = self.known.head - first;
        Ok(counts)
    }

    fn judge(&mut self, outcome: Result<(), String>, at: usize) -> Result<(), Difference> {
        outcome.map_err(|mut what| {
            for side in [&mut self.left, &mut self.right] {
                if let Some(ended) = side.ended() {
                    what = format!("{what}\n{ended}");
                }
            }
            Difference { at, what }
        })
    }

    async fn step(&mut self, step: &Step, counts: &mut Counts) -> Result<(), String> {
        counts.requests += 1;
        let call = match step {
            Step::Range(range) => Call::Range(self.known.range(range)),
            Step::Put(put) => Call::Put(self.known.put(put)),
            Step::Delete(delete) => Call::Delete(self.known.delete(delete)),
            Step::Txn(txn) => Call::Txn(self.known.txn(txn)),
            Step::Compact(compact) => {
                // A watch that is behind would be cancelled by it or not, as time has it.
                self.barrier(counts).await?;
                let revision = self.known.rev(&compact.rev);
                if revision == 0 {
                    // A first compaction at 0 is taken by etcd, which then answers hashes at 0 from a cache, of nothing.
                    return Ok(());
                }
                Call::Compact(CompactionRequest {
                    revision,
                    physical: compact.physical,
                })
            }
            Step::Grant(grant) => return self.grant(grant, counts).await,
            Step::Revoke(id) => Call::Revoke(LeaseRevokeRequest { id: *id }),
            Step::KeepAlive(id) => Call::KeepAlive(LeaseKeepAliveRequest { id: *id }),
            Step::TimeToLive(what) => Call::TimeToLive(LeaseTimeToLiveRequest {
                id: what.id,
                keys: what.keys,
            }),
            Step::Leases => Call::Leases,
            Step::Hash(rev) => {
                let revision = self.known.rev(rev);
                if revision != 0 && revision <= self.known.compacted {
                    // At the compacted revision etcd answers from a cache, which may be older than the compaction.
                    return Ok(());
                }
                Call::Hash(HashKVRequest { revision })
            }
            Step::Alarm(action) => Call::Alarm(AlarmRequest {
                action: *action,
                member_id: 0,
                alarm: 1,
            }),
            Step::Defragment => Call::Defragment,
            Step::Watch(watch) => return self.watch(watch, counts).await,
            Step::Cancel(cancel) => {
                let key = (cancel.stream, cancel.id);
                if self.left.streams.contains_key(&cancel.stream) {
                    if self.made.contains_key(&key) {
                        self.barrier(counts).await?;
                    }
                    let streams = self.streams(cancel.stream);
                    let (left, right) = tokio::join!(streams.0.cancel(cancel.id), streams.1.cancel(cancel.id));
                    self.made.remove(&key);
                    return told(left, right);
                }
                return Ok(());
            }
            Step::Barrier => {
                counts.requests -= 1;
                return self.barrier(counts).await;
            }
            Step::Restart => {
                counts.requests -= 1;
                counts.restarts += 1;
                self.barrier(counts).await?;
                self.made.clear();
                let (left, right) = tokio::join!(self.left.restart(), self.right.restart());
                told(left, right)?;
                let known = self.known.head;
                for side in [&mut self.left, &mut self.right] {
                    let head = side.head().await?;
                    if head != known {
                        let kind = side.kind;
                        return Err(format!(
                            "{kind:?} had told revision {known}, started again it has {head}"
                        ));
                    }
                }
                return self.open_all().await;
            }
        };
        let answer = self.both(&call, counts).await?;
        if let (Step::Put(put), Some(revision)) = (step, answer.revision()) {
            self.known.put.insert(put.key.clone(), revision);
        }
        if let (Call::Compact(request), Answer::Compact(_)) = (&call, &answer) {
            self.known.compacted = request.revision;
            counts.compactions += 1;
        }
        Ok(())
    }

    /// Sends to both at once and compares.
    async fn both(&mut self, call: &Call, counts: &mut Counts) -> Result<Answer, String> {
        let (left, mut right) = tokio::join!(self.left.clients.send(call), self.right.clients.send(call));
        if let (Fault::ThirdVersion, Answer::Range(response)) = (self.fault, &mut right)
            && response.kvs.iter().any(|kv| kv.version >= 3)
        {
            response.count += 1;
        }
        if left != right {
            let [one, other] = self.kinds;
            return Err(format!(
                "{call:?}\n{one:?} answers {left:?}\n{other:?} answers {right:?}"
            ));
        }
        counts.refused += usize::from(left.is_refused());
        if let Some(revision) = left.revision() {
            self.known.head = self.known.head.max(revision);
        }
        Ok(left)
    }

    async fn grant(&mut self, grant: &Grant, counts: &mut Counts) -> Result<(), String> {
        let call = Call::Grant(LeaseGrantRequest {
            ttl: grant.ttl,
            id: grant.id,
        });
        if !grant.revoke {
            return self.both(&call, counts).await.map(drop);
        }
        let (mut left, mut right) = tokio::join!(self.left.clients.send(&call), self.right.clients.send(&call));
        for (side, answer) in [(&mut self.left, &mut left), (&mut self.right, &mut right)] {
            if let Answer::Grant(response) = answer {
                let revoke = LeaseRevokeRequest { id: response.id };
                let revoked = side.clients.send(&Call::Revoke(revoke)).await;
                if revoked.is_refused() || response.id == 0 {
                    return Err(format!("{:?} grants {response:?} and revokes {revoked:?}", side.kind));
                }
                if grant.id == 0 {
                    response.id = 0;
                }
            }
        }
        if left != right {
            return Err(format!("{call:?}\n left {left:?}\nright {right:?}"));
        }
        Ok(())
    }

    fn streams(&mut self, number: u8) -> (&mut Stream, &mut Stream) {
        let left = self.left.streams.get_mut(&number).expect("the caller looked it up");
        let right = self.right.streams.get_mut(&number);
        (left, right.expect("both sides have the same streams"))
    }

    async fn open_all(&mut self) -> Result<(), String> {
        let every = WatchCreateRequest {
            key: vec![0].into(),
            range_end: vec![0].into(),
            prev_kv: true,
            ..Default::default()
        };
        self.create(ALL, every).await
    }

    async fn watch(&mut self, watch: &Watch, counts: &mut Counts) -> Result<(), String> {
        counts.watches += 1;
        let mut request = self.known.watch(watch);
        if watch.stream != FUTURE {
            request.start_revision = request.start_revision.min(self.known.head);
        }
        self.create(watch.stream, request).await
    }

    async fn create(&mut self, number: u8, request: WatchCreateRequest) -> Result<(), String> {
        let before = self.left.streams.get(&number).map(|stream| stream.ids.clone());
        if before.is_some() {
            let (left, right) = self.streams(number);
            let (left, right) = tokio::join!(left.create(request.clone()), right.create(request.clone()));
            told(left, right)?;
        } else {
            let (left, right) = tokio::join!(
                Stream::open(&mut self.left.clients, request.clone()),
                Stream::open(&mut self.right.clients, request.clone())
            );
            self.left
                .streams
                .insert(number, left.map_err(|what| format!("left: {what}"))?);
            self.right
                .streams
                .insert(number, right.map_err(|what| format!("right: {what}"))?);
        }
        let before = before.unwrap_or_default();
        let (left, right) = self.streams(number);
        if left.ids != right.ids {
            return Err(format!(
                "{request:?}\n left has watches {:?}\nright {:?}",
                left.ids, right.ids
            ));
        }
        if let Some(id) = left.ids.difference(&before).next().copied() {
            let made = Made {
                from: match request.start_revision {
                    0 => self.known.head + 1,
                    start => start,
                },
                compacted: request.start_revision != 0 && request.start_revision < self.known.compacted,
                request,
            };
            self.made.insert((number, id), made);
        }
        Ok(())
    }

    /// Waits until all watches on both sides have shown everything, and compares what they have shown.
    async fn barrier(&mut self, counts: &mut Counts) -> Result<(), String> {
        let head = self.known.head;
        self.complete(ALL, head).await?;
        let log = self.left.streams[&ALL]
            .shown
            .values()
            .next()
            .cloned()
            .unwrap_or_default();
        let numbers: Vec<u8> = self
            .left
            .streams
            .keys()
            .copied()
            .filter(|number| *number != ALL)
            .collect();
        for number in numbers {
            let mine = |made: &BTreeMap<(u8, i64), Made>, compacted: bool| -> Vec<i64> {
                let of_stream = made.range((number, i64::MIN)..=(number, i64::MAX));
                of_stream
                    .filter(|(_, made)| made.compacted == compacted)
                    .map(|((_, id), _)| *id)
                    .collect()
            };
            let compacted = mine(&self.made, true);
            let live = mine(&self.made, false);
            let (left, right) = self.streams(number);
            let (left, right) = tokio::join!(left.compacted(&compacted), right.compacted(&compacted));
            told(left, right).map_err(|what| format!("stream {number}: {what}"))?;
            for id in compacted {
                self.made.remove(&(number, id));
            }
            if live
                .iter()
                .any(|id| self.made[&(number, *id)].request.start_revision > head)
            {
                // A watch of the future keeps the stream from any progress: the log says how much must have come.
                let counts = live
                    .iter()
                    .map(|id| (*id, expected(&log, &self.made[&(number, *id)])))
                    .collect();
                let (left, right) = self.streams(number);
                let (left, right) = tokio::join!(left.shows(&counts), right.shows(&counts));
                told(left, right).map_err(|what| format!("stream {number}: {what}"))?;
            } else if !live.is_empty() {
                self.complete(number, head).await?;
            }
            self.compare(number, counts)?;
        }
        self.compare(ALL, counts)
    }

    async fn complete(&mut self, number: u8, head: i64) -> Result<(), String> {
        let (left, right) = self.streams(number);
        let (left, right) = tokio::join!(left.progress(head), right.progress(head));
        told(left, right).map_err(|what| format!("stream {number}: {what}"))
    }

    fn compare(&mut self, number: u8, counts: &mut Counts) -> Result<(), String> {
        let fault = self.fault;
        let (left, right) = self.streams(number);
        if fault == Fault::LostDelete {
            for events in right.shown.values_mut() {
                events.retain(|event| event.r#type == 0 || event.kv.as_ref().is_none_or(|kv| kv.key != "b"));
            }
            right.shown.retain(|_, events| !events.is_empty());
        }
        let mut replies = [std::mem::take(&mut left.replies), std::mem::take(&mut right.replies)];
        for replies in &mut replies {
            // Cancellations of several watches have no order.
            replies.sort_by_key(|reply| reply.watch_id);
        }
        if replies[0] != replies[1] {
            let [left, right] = replies;
            return Err(format!("stream {number}: replies\n left {left:?}\nright {right:?}"));
        }
        let (left, right) = (std::mem::take(&mut left.shown), std::mem::take(&mut right.shown));
        counts.events += left.values().map(Vec::len).sum::<usize>();
        if left == right {
            return Ok(());
        }
        let ids: std::collections::BTreeSet<i64> = left.keys().chain(right.keys()).copied().collect();
        let none = Vec::new();
        for id in ids {
            let (one, other) = (left.get(&id).unwrap_or(&none), right.get(&id).unwrap_or(&none));
            if one != other {
                let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
                return Err(format!(
                    "stream {number}, watch {id} ({:?}): {} and {} events, the first {same} the same, then\n left \
                     {:?}\nright {:?}",
                    self.made.get(&(number, id)).map(|made| &made.request),
                    one.len(),
                    other.len(),
                    one.get(same),
                    other.get(same)
                ));
            }
        }
        unreachable!("the maps differ")
    }
}

/// How many of all events a watch must have shown.
fn expected(log: &[Event], made: &Made) -> usize {
    let request = &made.request;
    let matches = |event: &&Event| {
        let Some(kv) = &event.kv else { return false };
        let start = if request.key.is_empty() {
            &[0][..]
        } else {
            &request.key[..]
        };
        let inside = match &request.range_end[..] {
            [] => kv.key == start,
            [0] => &kv.key[..] >= start,
            end => &kv.key[..] >= start && &kv.key[..] < end,
        };
        inside && kv.mod_revision >= made.from && !request.filters.contains(&event.r#type)
    };
    log.iter().filter(matches).count()
}

fn told(left: Result<(), String>, right: Result<(), String>) -> Result<(), String> {
    left.map_err(|what| format!("left: {what}"))?;
    right.map_err(|what| format!("right: {what}"))
}
