//! Watches: who gets which event, and when.
//!
//! ```text
//! apply --Pending--> (synced to disk) --publish--> synced watchers --outbox of their stream--> connection
//!                                                  outbox full: the watcher becomes unsynced, nothing is dropped
//! history of the file --catch_up, when the stream has room again--> unsynced watchers --> synced again
//! ```
//! Invariants:
//! - Only durable events leave: `publish` is called with what is synced.
//! - All events of one revision for one watcher are in one response, and responses to a watcher are in order.
//! - A response's header never names a revision beyond the events that its watcher has been given.
//! - A stream's outbox is bounded; a slow stream costs its own watchers latency, nobody memory.

mod hub;
mod index;
mod stream;

use bytes::Bytes;
use quantykube_etcd_api::{Event, EventType, KeyValue};
use quantykube_store_file::{Revision, Store, Version};

pub use hub::{Figures, Hub};
pub use stream::{Outgoing, StreamId};

use super::Error;

/// A change that is applied but not yet published.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The key.
    pub key: Bytes,
    /// The revision of the change.
    pub revision: Revision,
    /// What happened.
    pub what: What,
}

/// What a change did.
#[derive(Clone, Debug)]
pub enum What {
    /// A put.
    Put {
        /// The value.
        value: Bytes,
        /// The version it made.
        version: Version,
    },
    /// A delete.
    Delete,
}

impl Pending {
    /// Whether the key existed before this change.
    fn has_previous(&self) -> bool {
        match &self.what {
            What::Put { version, .. } => version.create != version.modified.main,
            What::Delete => true,
        }
    }

    /// The event without what was there before.
    fn event(&self) -> Event {
        let (kind, kv) = match &self.what {
            What::Put { value, version } => {
                let kv = KeyValue {
                    key: self.key.clone(),
                    create_revision: version.create,
                    mod_revision: version.modified.main,
                    version: version.version,
                    value: value.clone(),
                    lease: version.lease,
                };
                (EventType::Put, kv)
            }
            What::Delete => {
                let kv = KeyValue {
                    key: self.key.clone(),
                    mod_revision: self.revision.main,
                    ..Default::default()
                };
                (EventType::Delete, kv)
            }
        };
        Event {
            r#type: kind as i32,
            kv: Some(kv),
            prev_kv: None,
        }
    }

    /// What was there before the revision. None only for what was created by it.
    fn previous(&self, store: &Store) -> Result<Option<KeyValue>, Error> {
        let before = self.revision.main - 1;
        if !self.has_previous() || before < store.compacted() {
            return Ok(None);
        }
        let Some(version) = store.get(&self.key, before) else {
            return Ok(None);
        };
        Ok(Some(KeyValue {
            key: self.key.clone(),
            create_revision: version.create,
            mod_revision: version.modified.main,
            version: version.version,
            value: store.value(&version)?,
            lease: version.lease,
        }))
    }

    /// Rough size of its event on the wire.
    fn bytes(&self) -> usize {
        let value = match &self.what {
            What::Put { value, .. } => value.len(),
            What::Delete => 0,
        };
        self.key.len() + value + 32
    }
}
