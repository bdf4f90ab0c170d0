//! Watch streams of one server: what they have shown, and whether that is all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quantykube_etcd_api::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::answer::blank;
use crate::side::Clients;

/// How long an answer may take before that is a finding.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a request for progress may take before it is made again: etcd drops it while a watch is behind.
const AGAIN: Duration = Duration::from_millis(15);

/// A watch stream.
pub struct Stream {
    sender: mpsc::UnboundedSender<WatchRequest>,
    responses: mpsc::UnboundedReceiver<Result<WatchResponse, String>>,
    /// The events of each watch since the last comparison.
    pub shown: BTreeMap<i64, Vec<Event>>,
    /// Replies to creating and cancelling, since the last comparison.
    pub replies: Vec<WatchResponse>,
    /// The watches that run.
    pub ids: BTreeSet<i64>,
    created: usize,
    canceled: BTreeSet<i64>,
    /// The revision of the last progress for all, and what it means for the watches that there were then.
    told: i64,
    told_to: BTreeMap<i64, i64>,
    /// The last revision of each watch, and whether more pieces of it follow.
    last: BTreeMap<i64, (i64, bool)>,
}

impl Stream {
    /// Opens a stream with its first watch.
    pub async fn open(clients: &mut Clients, first: WatchCreateRequest) -> Result<Stream, String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (push, responses) = mpsc::unbounded_channel();
        // A server may answer the call only when it has a first request.
        sender.send(create(first)).expect("the receiver is here");
        let call = clients.watch.watch(UnboundedReceiverStream::new(receiver)).await;
        let mut incoming = call.map_err(|status| format!("no stream: {status}"))?.into_inner();
        tokio::spawn(async move {
            loop {
                let next = match incoming.message().await {
                    Ok(Some(response)) => Ok(response),
                    Ok(None) => Err("the stream ended".to_owned()),
                    Err(status) => Err(format!("the stream failed: {status}")),
                };
                let ended = next.is_err();
                if push.send(next).is_err() || ended {
                    return;
                }
            }
        });
        let mut stream = Stream {
            sender,
            responses,
            shown: BTreeMap::new(),
            replies: Vec::new(),
            ids: BTreeSet::new(),
            created: 0,
            canceled: BTreeSet::new(),
            told: 0,
            told_to: BTreeMap::new(),
            last: BTreeMap::new(),
        };
        stream
            .until("an answer to create", |stream| stream.created == 1)
            .await?;
        Ok(stream)
    }

    /// Creates a watch and waits for the answer.
    pub async fn create(&mut self, request: WatchCreateRequest) -> Result<(), String> {
        let created = self.created + 1;
        self.send(create(request))?;
        self.until("an answer to create", |stream| stream.created == created)
            .await
    }

    /// Cancels a watch; waits for the answer if there is such a watch, for there is none if not.
    pub async fn cancel(&mut self, watch_id: i64) -> Result<(), String> {
        let known = self.ids.contains(&watch_id);
        self.canceled.remove(&watch_id);
        self.send(WatchRequest {
            request_union: Some(WatchRequestUnion::Cancel(WatchCancelRequest { watch_id })),
        })?;
        if known {
            self.until("an answer to cancel", |stream| stream.canceled.contains(&watch_id))
                .await?;
            self.ids.remove(&watch_id);
        }
        Ok(())
    }

    /// Waits until these watches were cancelled because of a compaction, then cancels them: etcd tells of no progress
    /// on the stream before.
    pub async fn compacted(&mut self, ids: &[i64]) -> Result<(), String> {
        for id in ids {
            if self.ids.contains(id) {
                self.until("a cancellation by compaction", |stream| stream.canceled.contains(id))
                    .await?;
                self.cancel(*id).await?;
            }
        }
        Ok(())
    }

    /// Waits until all watches of the stream were shown everything up to a revision, as progress tells it.
    pub async fn progress(&mut self, revision: i64) -> Result<(), String> {
        let begun = tokio::time::Instant::now();
        while self.told < revision {
            if begun.elapsed() > PATIENCE {
                return Err(format!("no progress to {revision}, only to {}", self.told));
            }
            self.send(WatchRequest {
                request_union: Some(WatchRequestUnion::Progress(WatchProgressRequest {})),
            })?;
            let wait = self.until("progress", |stream| stream.told >= revision);
            if let Ok(outcome) = tokio::time::timeout(AGAIN, wait).await {
                outcome?;
            }
        }
        Ok(())
    }

    /// Waits until each of these watches has shown so many events.
    pub async fn shows(&mut self, counts: &BTreeMap<i64, usize>) -> Result<(), String> {
        let enough = |stream: &Stream| {
            let shown = |id: &i64| stream.shown.get(id).map_or(0, Vec::len);
            counts.iter().all(|(id, count)| shown(id) >= *count)
        };
        self.until("all events", enough).await
    }

    fn send(&self, request: WatchRequest) -> Result<(), String> {
        self.sender.send(request).map_err(|_| "the stream is closed".to_owned())
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Stream) -> bool) -> Result<(), String> {
        while !done(self) {
            let response = tokio::time::timeout(PATIENCE, self.responses.recv()).await;
            match response {
                Err(_) => return Err(format!("{what} did not come in {PATIENCE:?}")),
                Ok(None) => return Err("the stream is over".to_owned()),
                Ok(Some(response)) => self.take(response?)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, mut response: WatchResponse) -> Result<(), String> {
        blank(&mut response.header);
        let Some(header) = &response.header else {
            return Err(format!("a response without header: {response:?}"));
        };
        let (head, id) = (header.revision, response.watch_id);
        if response.created {
            self.created += 1;
            if !response.canceled {
                self.ids.insert(id);
                // What an earlier watch with this id was told is not told to this one.
                self.canceled.remove(&id);
                self.last.remove(&id);
                self.told_to.remove(&id);
            }
            self.replies.push(response);
        } else if response.canceled {
            self.canceled.insert(id);
            self.replies.push(response);
        } else if id == -1 {
            if head < self.told {
                return Err(format!("progress {head} after {}", self.told));
            }
            self.told = head;
            self.told_to = self.ids.iter().map(|id| (*id, head)).collect();
        } else {
            let told = self.told_to.get(&id).copied().unwrap_or(0);
            let last = self.last.entry(id).or_default();
            for event in &response.events {
                let at = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
                let next = at > last.0 || last.1 && at == last.0;
                if !next || at > head || at <= told {
                    return Err(format!(
                        "watch {id}: revision {at} after {last:?}, header {head}, progress {told}"
                    ));
                }
                // Within one response a revision may go on.
                *last = (at, true);
            }
            last.1 = response.fragment;
            self.shown.entry(id).or_default().append(&mut response.events);
        }
        Ok(())
    }
}

fn create(request: WatchCreateRequest) -> WatchRequest {
    WatchRequest {
        request_union: Some(WatchRequestUnion::Create(request)),
    }
}
