//! Everything in a database but its records.

use std::collections::BTreeMap;

use super::database::Database;
use super::state::{Alarm, AlarmKind, ConfState, Lease, Member};
use super::{
    ALARM, AUTH, AUTH_ROLES, AUTH_USERS, CLUSTER, CLUSTER_VERSION, CONF_STATE, CONSISTENT_INDEX, DOWNGRADE,
    FINISHED_COMPACT, KEY, LEASE, MEMBERS, MEMBERS_REMOVED, META, Revision, SCHEDULED_COMPACT, STORAGE_VERSION, TERM,
};
use crate::bolt::Source;
use crate::error::ReadError;

/// The version of the layout that is written unless another is asked for: etcd 3.6 and newer take it as it is.
const VERSION: &str = "3.6.0";

/// Everything in a database but its records: revisions, identity, leases, alarms, users. Small enough for memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head {
    revision: i64,
    compacted: i64,
    buckets: BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Head {
    /// Of a store at `revision` whose history begins after `compact_revision`, if it was ever compacted.
    ///
    /// etcd takes the last record's revision or the compaction's, whichever is later, for its head. So either a record
    /// with this revision follows, or it is the compaction's. A set of live records alone is complete with
    /// `compact_revision` at the head.
    pub fn new(revision: i64, compact_revision: Option<i64>) -> Head {
        let mut head = Head {
            revision,
            compacted: 0,
            buckets: super::BUCKETS
                .into_iter()
                .filter(|name| *name != KEY)
                .map(|name| (name, BTreeMap::new()))
                .collect(),
        };
        if let Some(main) = compact_revision.filter(|main| *main > 0) {
            head.compacted = main;
            let place = Revision { main, sub: 0 }.encode();
            head.set(META, SCHEDULED_COMPACT.as_bytes(), &place);
            head.set(META, FINISHED_COMPACT.as_bytes(), &place);
        }
        head
    }

    /// Also says that `member` is the only one, and where its log stands. What `etcdutl snapshot restore` replaces.
    pub fn with_member(mut self, member: &Member, index: u64, term: u64) -> Head {
        self.member(member);
        self.raft(index, term);
        let conf_state = ConfState {
            voters: vec![member.id],
            ..ConfState::default()
        };
        self.set(META, CONF_STATE.as_bytes(), &json(&conf_state));
        self.storage_version(Some(VERSION));
        self.set(CLUSTER, CLUSTER_VERSION.as_bytes(), VERSION.as_bytes());
        self.set(
            CLUSTER,
            DOWNGRADE.as_bytes(),
            br#"{"target-version":"","enabled":false}"#,
        );
        self
    }

    /// Also takes over who an etcd is and what it knows, from its own database: members, cluster, voters, version,
    /// users and roles, alarms but the one about space, and where its log stands (see [`Head::raft`]). Not its leases
    /// and its revisions.
    ///
    /// # Errors
    /// When its database is damaged.
    pub fn with_identity<S: Source>(mut self, database: &Database<S>) -> Result<Head, ReadError> {
        for bucket in [AUTH, AUTH_ROLES, AUTH_USERS, CLUSTER, MEMBERS, MEMBERS_REMOVED] {
            self.buckets.insert(bucket, database.raw(bucket)?);
        }
        for alarm in database.alarms()? {
            if alarm.kind != AlarmKind::NoSpace {
                self.alarm(alarm);
            }
        }
        for (key, value) in database.raw(META)? {
            if key != SCHEDULED_COMPACT.as_bytes() && key != FINISHED_COMPACT.as_bytes() {
                self.set(META, &key, &value);
            }
        }
        Ok(self)
    }

    /// Where raft's log stands: etcd applies only entries after `index`. In a member's folder whose log stays it must
    /// be the last entry's.
    pub fn raft(&mut self, index: u64, term: u64) {
        self.set(META, CONSISTENT_INDEX.as_bytes(), &index.to_be_bytes());
        self.set(META, TERM.as_bytes(), &term.to_be_bytes());
    }

    /// The version of the layout, as `3.6.0`; `None` for an etcd before 3.6.
    pub fn storage_version(&mut self, version: Option<&str>) {
        match version {
            Some(version) => self.set(META, STORAGE_VERSION.as_bytes(), version.as_bytes()),
            None => {
                let meta = self.buckets.entry(META).or_default();
                meta.remove(STORAGE_VERSION.as_bytes());
            }
        }
    }

    /// Adds a member.
    pub fn member(&mut self, member: &Member) {
        self.set(MEMBERS, format!("{:x}", member.id).as_bytes(), &json(member));
    }

    /// Adds a lease.
    pub fn lease(&mut self, lease: &Lease) {
        self.set(LEASE, &lease.id.to_be_bytes(), &lease.encode());
    }

    /// Raises an alarm.
    pub fn alarm(&mut self, alarm: Alarm) {
        self.set(ALARM, &alarm.encode(), &[]);
    }

    /// The head's revision.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The compaction's revision; 0 for none.
    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    pub(crate) fn bucket(&self, name: &str) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.buckets.get(name).into_iter().flatten()
    }

    fn set(&mut self, bucket: &'static str, key: &[u8], value: &[u8]) {
        let bucket = self.buckets.entry(bucket).or_default();
        bucket.insert(key.to_vec(), value.to_vec());
    }
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain values become JSON")
}
