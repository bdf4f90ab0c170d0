//! What etcd keeps beside the keys.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Revision;
use super::proto::{self, Fields, Value};

/// The bucket `meta`. What a version of etcd does not know is `None`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Meta {
    /// The raft index up to which the file holds everything.
    pub consistent_index: Option<u64>,
    /// The term of that index (from 3.5).
    pub term: Option<u64>,
    /// Who votes (from 3.5).
    pub conf_state: Option<ConfState>,
    /// The version of the layout, as `3.6.0` (from 3.6).
    pub storage_version: Option<String>,
    /// A compaction that was begun.
    pub scheduled_compact: Option<Revision>,
    /// The last one that was done.
    pub finished_compact: Option<Revision>,
}

/// Who votes in raft.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ConfState {
    /// The ids of the voting members.
    #[serde(default)]
    pub voters: Vec<u64>,
    /// The ids of learners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<u64>,
    /// The voters before a change that is under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voters_outgoing: Vec<u64>,
    /// Voters that become learners after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners_next: Vec<u64>,
    /// Whether such a change ends by itself.
    #[serde(default)]
    pub auto_leave: bool,
}

/// A lease.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lease {
    /// The id.
    pub id: i64,
    /// The granted time in seconds.
    pub ttl: i64,
    /// The seconds that were left at a checkpoint; 0 without one. An etcd that starts counts from these, else from
    /// `ttl`.
    pub remaining_ttl: i64,
}

/// A member of the cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Member {
    /// The id.
    pub id: u64,
    /// Where its peers reach it.
    #[serde(rename = "peerURLs", default)]
    pub peer_urls: Vec<String>,
    /// Whether it does not vote.
    #[serde(rename = "isLearner", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_learner: bool,
    /// Its name; empty before it first started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where clients reach it.
    #[serde(rename = "clientURLs", default, skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
}

/// The bucket `cluster`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// The version all members agreed on, as `3.6.0`.
    pub version: Option<String>,
    /// What is said about a downgrade, as JSON.
    pub downgrade: Option<String>,
}

/// An alarm that is raised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Alarm {
    /// By this member.
    pub member: u64,
    /// Which.
    pub kind: AlarmKind,
}

/// Which alarm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AlarmKind {
    /// The quota is used up.
    NoSpace,
    /// The data of members differ.
    Corrupt,
    /// Another one.
    Other(u64),
}

/// Users and roles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Auth {
    /// Whether they count.
    pub enabled: bool,
    /// Counts changes.
    pub revision: u64,
    /// Users.
    pub users: Vec<User>,
    /// Roles.
    pub roles: Vec<Role>,
}

/// A user. His password's hash is left out on purpose.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct User {
    /// The name.
    pub name: Vec<u8>,
    /// The names of his roles.
    pub roles: Vec<Vec<u8>>,
    /// Whether he has no password, only certificates.
    pub no_password: bool,
}

/// A role.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Role {
    /// The name.
    pub name: Vec<u8>,
    /// What it allows.
    pub permissions: Vec<Permission>,
}

/// What a role allows on a range of keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Permission {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// The first key.
    pub key: Vec<u8>,
    /// The range's end as in requests; empty for the one key.
    pub range_end: Vec<u8>,
}

impl Lease {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        proto::put_number(&mut out, 1, self.id as u64);
        proto::put_number(&mut out, 2, self.ttl as u64);
        proto::put_number(&mut out, 3, self.remaining_ttl as u64);
        out
    }

    pub(crate) fn decode(key: &[u8], value: &Bytes) -> Result<Lease, String> {
        let place: [u8; 8] = key.try_into().map_err(|_| "not an id of 8 bytes".to_owned())?;
        let mut lease = Lease::default();
        let mut fields = Fields::of(value);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Number(id)) => lease.id = id as i64,
                (2, Value::Number(ttl)) => lease.ttl = ttl as i64,
                (3, Value::Number(ttl)) => lease.remaining_ttl = ttl as i64,
                _ => {}
            }
        }
        match lease.id == i64::from_be_bytes(place) {
            true => Ok(lease),
            false => Err(format!("the lease says that its id is {:016x}", lease.id)),
        }
    }
}

impl Alarm {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        proto::put_number(&mut out, 1, self.member);
        let kind = match self.kind {
            AlarmKind::NoSpace => 1,
            AlarmKind::Corrupt => 2,
            AlarmKind::Other(kind) => kind,
        };
        proto::put_number(&mut out, 2, kind);
        out
    }

    pub(crate) fn decode(key: &Bytes) -> Result<Alarm, String> {
        let (mut member, mut kind) = (0, 0);
        let mut fields = Fields::of(key);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Number(id)) => member = id,
                (2, Value::Number(number)) => kind = number,
                _ => {}
            }
        }
        let kind = match kind {
            1 => AlarmKind::NoSpace,
            2 => AlarmKind::Corrupt,
            other => AlarmKind::Other(other),
        };
        Ok(Alarm { member, kind })
    }
}

impl User {
    pub(crate) fn decode(value: &Bytes) -> Result<User, String> {
        let mut user = User::default();
        let mut fields = Fields::of(value);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(name)) => user.name = name.to_vec(),
                (3, Value::Bytes(role)) => user.roles.push(role.to_vec()),
                (4, Value::Bytes(options)) => {
                    let mut fields = Fields::of(&options);
                    while let Some(field) = fields.next()? {
                        if let (1, Value::Number(flag)) = field {
                            user.no_password = flag != 0;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(user)
    }
}

impl Role {
    pub(crate) fn decode(value: &Bytes) -> Result<Role, String> {
        let mut role = Role::default();
        let mut fields = Fields::of(value);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(name)) => role.name = name.to_vec(),
                (2, Value::Bytes(permission)) => role.permissions.push(Permission::decode(&permission)?),
                _ => {}
            }
        }
        Ok(role)
    }
}

impl Permission {
    fn decode(value: &Bytes) -> Result<Permission, String> {
        let (mut permission, mut kind) = (Permission::default(), 0);
        let mut fields = Fields::of(value);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Number(number)) => kind = number,
                (2, Value::Bytes(key)) => permission.key = key.to_vec(),
                (3, Value::Bytes(end)) => permission.range_end = end.to_vec(),
                _ => {}
            }
        }
        // READ 0, WRITE 1, READWRITE 2.
        permission.read = kind != 1;
        permission.write = kind != 0;
        Ok(permission)
    }
}
