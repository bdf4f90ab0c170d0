//! What a move must know of an etcd before it starts.

use etcd_client::{AlarmAction, AlarmType, GetOptions};

use crate::connect::{Connection, Source};
use crate::error::Error;
use crate::version::Version;
use crate::{COMPACT_KEY, FILLER_KEY};

/// A member of the cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Whether it is a learner.
    pub learner: bool,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Where members reach it.
    pub peer_urls: Vec<String>,
}

/// An etcd as it is now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EtcdStatus {
    /// The endpoint that answered.
    pub endpoint: String,
    /// As told.
    pub version_text: String,
    /// Parsed; None if it is no version.
    pub version: Option<Version>,
    /// The cluster id in its headers.
    pub cluster_id: u64,
    /// The id of the member that answered.
    pub member_id: u64,
    /// The raft term.
    pub raft_term: u64,
    /// The leader's member id, 0 for none.
    pub leader: u64,
    /// Whether the member that answered is a learner.
    pub learner: bool,
    /// The members of the cluster.
    pub members: Vec<Member>,
    /// The head revision.
    pub revision: i64,
    /// The number of keys at the head.
    pub keys: u64,
    /// Size of its database file, in bytes.
    pub db_size: u64,
    /// What of it is in use, in bytes.
    pub db_size_in_use: u64,
    /// Its quota, in bytes, where it tells it: from 3.6 on.
    pub quota: Option<u64>,
    /// The names of alarms that are set, such as `NOSPACE`.
    pub alarms: Vec<String>,
}

/// Keys that are not the API server's, or that it has not written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Foreign {
    /// How many there are.
    pub count: u64,
    /// The first few in key order, unreadable bytes replaced.
    pub first: Vec<String>,
}

impl Foreign {
    /// Counts a key, and names it if it is one of the first `named`.
    pub(crate) fn add(&mut self, key: &[u8], named: usize) {
        self.count += 1;
        if self.first.len() < named {
            self.first.push(String::from_utf8_lossy(key).into_owned());
        }
    }
}

/// The status of the first endpoint that answers, whatever its version.
pub async fn status(source: &Source) -> Result<EtcdStatus, Error> {
    let connection = Connection::open(source).await?;
    let mut client = connection.client.clone();
    let status = client
        .status()
        .await
        .map_err(|error| connection.failed("asking for its status", error))?;
    let members = client
        .member_list()
        .await
        .map_err(|error| connection.failed("listing its members", error))?;
    let alarms = client
        .alarm(AlarmAction::Get, AlarmType::None, None)
        .await
        .map_err(|error| connection.failed("listing its alarms", error))?;
    let options = GetOptions::new().with_all_keys().with_count_only();
    let count = client
        .get("", Some(options))
        .await
        .map_err(|error| connection.failed("counting its keys", error))?;
    let header = count
        .header()
        .ok_or_else(|| connection.impossible("an answer without a header"))?;
    Ok(EtcdStatus {
        endpoint: connection.endpoint.clone(),
        version_text: status.version().to_owned(),
        version: connection.opened.version,
        cluster_id: header.cluster_id(),
        member_id: header.member_id(),
        raft_term: header.raft_term(),
        leader: status.leader(),
        learner: status.is_learner(),
        members: members
            .members()
            .iter()
            .map(|member| Member {
                id: member.id(),
                name: member.name().to_owned(),
                learner: member.is_learner(),
                client_urls: member.client_urls().to_vec(),
                peer_urls: member.peer_urls().to_vec(),
            })
            .collect(),
        revision: header.revision(),
        keys: count.count().max(0) as u64,
        db_size: status.db_size().max(0) as u64,
        db_size_in_use: status.raft_used_db_size().max(0) as u64,
        quota: u64::try_from(status.db_size_quota()).ok().filter(|quota| *quota > 0),
        alarms: alarms
            .alarms()
            .iter()
            .map(|alarm| match alarm.alarm() {
                AlarmType::Nospace => "NOSPACE".to_owned(),
                AlarmType::Corrupt => "CORRUPT".to_owned(),
                AlarmType::None => "NONE".to_owned(),
            })
            .collect(),
    })
}

/// The head revision of the first endpoint that answers: of an etcd or of the store.
pub async fn store_revision(source: &Source) -> Result<i64, Error> {
    Connection::open(source).await?.revision().await
}

/// Whether an etcd has authentication switched on, so that its users and roles would have to come along. It tells so before
/// it looks at any user (`Authenticate` of etcd's auth service), and nothing is written.
pub async fn has_users(source: &Source) -> Result<bool, Error> {
    /// What etcd answers where it has none (`ErrAuthNotEnabled`).
    const OFF: &str = "authentication is not enabled";
    // No more than the connection's own check of the status fails where a user is asked for.
    let connection = match Connection::open(source).await {
        Ok(connection) => connection,
        Err(Error::Authentication { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut auth = connection.client.auth_client();
    match auth
        .authenticate("quantykube-asks-whether".to_owned(), String::new())
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.to_string().contains(OFF) => Ok(false),
        Err(etcd_client::Error::GRpcStatus(status)) if status.message().starts_with("etcdserver: ") => Ok(true),
        Err(error) => Err(connection.failed("asking whether it has users", error)),
    }
}

/// How many keys begin with `prefix`.
pub async fn count_below(source: &Source, prefix: &str) -> Result<u64, Error> {
    let connection = Connection::open(source).await?;
    let options = GetOptions::new().with_prefix().with_count_only();
    let answer = connection
        .client
        .kv_client()
        .get(prefix, Some(options))
        .await
        .map_err(|error| connection.failed("counting keys of others", error))?;
    Ok(answer.count().max(0) as u64)
}

/// The keys that were written into an etcd after `revision`, the one at which it was copied, and that are there still:
/// what another program wrote, and what the way back will overwrite. What an interrupted way back has written is not
/// counted; what it has deleted, or somebody else, cannot be seen here. At most `named` of them are named.
pub async fn written_since(source: &Source, revision: i64, named: usize) -> Result<Foreign, Error> {
    /// Keys in one answer.
    const PAGE: i64 = 5_000;
    let connection = Connection::open(source).await?;
    let failed = |error| connection.failed("looking for keys written since the move", error);
    let mut client = connection.client.kv_client();
    let options = GetOptions::new().with_keys_only();
    let filler = client.get(FILLER_KEY, Some(options)).await.map_err(failed)?;
    let began = filler
        .kvs()
        .first()
        .map_or(i64::MAX, etcd_client::KeyValue::create_revision);
    let mut found = Foreign::default();
    let mut start = vec![0];
    loop {
        let options = GetOptions::new()
            .with_from_key()
            .with_keys_only()
            .with_min_mod_revision(revision + 1)
            .with_limit(PAGE);
        let answer = client.get(start, Some(options)).await.map_err(failed)?;
        for key in answer.kvs() {
            let own = [COMPACT_KEY, FILLER_KEY]
                .iter()
                .any(|known| known.as_bytes() == key.key());
            if !own && key.mod_revision() < began {
                found.add(key.key(), named);
            }
        }
        // etcd filters before it limits: an answer without a key is the last one.
        match answer.kvs().last() {
            Some(last) if answer.more() => {
                start = last.key().to_vec();
                start.push(0);
            }
            _ => return Ok(found),
        }
    }
}

/// The keys outside of `prefix` (the API server's `--etcd-prefix`, usually `/registry`) that are neither the API
/// server's compaction mark nor our own leftover. At most `first` of them are named.
pub async fn foreign_keys(source: &Source, prefix: &str, first: usize) -> Result<Foreign, Error> {
    let connection = Connection::open(source).await?;
    let prefix = match prefix.trim_matches('/') {
        "" => "/".to_owned(),
        inner => format!("/{inner}/"),
    };
    let mut end = prefix.clone().into_bytes();
    // The byte after '/' is '0': the first key that does not begin with the prefix.
    *end.last_mut().expect("a prefix is not empty") += 1;
    // Two keys of the API server's and ours may be among those found.
    let limit = first as i64 + 2;
    let below = GetOptions::new().with_range(prefix).with_keys_only().with_limit(limit);
    let above = GetOptions::new().with_from_key().with_keys_only().with_limit(limit);
    let mut foreign = Foreign::default();
    for (start, options) in [(vec![0], below), (end, above)] {
        let answer = connection
            .client
            .kv_client()
            .get(start, Some(options))
            .await
            .map_err(|error| connection.failed("looking for keys of others", error))?;
        foreign.count += answer.count().max(0) as u64;
        for found in answer.kvs() {
            if [COMPACT_KEY, FILLER_KEY]
                .iter()
                .any(|known| known.as_bytes() == found.key())
            {
                continue;
            }
            if foreign.first.len() < first {
                foreign.first.push(String::from_utf8_lossy(found.key()).into_owned());
            }
        }
    }
    for known in [COMPACT_KEY, FILLER_KEY] {
        let options = GetOptions::new().with_count_only();
        let answer = connection
            .client
            .kv_client()
            .get(known, Some(options))
            .await
            .map_err(|error| connection.failed("looking for keys of others", error))?;
        foreign.count = foreign.count.saturating_sub(answer.count().max(0) as u64);
    }
    Ok(foreign)
}
