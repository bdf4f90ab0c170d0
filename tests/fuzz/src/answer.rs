//! Sending a request and making answers of two servers comparable: ids, term and times are blanked, nothing else.

use quantykube_etcd_api::*;
use tonic::Status;

use crate::side::Clients;

/// A request.
#[derive(Clone, Debug)]
pub enum Call {
    /// KV.Range.
    Range(RangeRequest),
    /// KV.Put.
    Put(PutRequest),
    /// KV.DeleteRange.
    Delete(DeleteRangeRequest),
    /// KV.Txn.
    Txn(TxnRequest),
    /// KV.Compact.
    Compact(CompactionRequest),
    /// Lease.LeaseGrant.
    Grant(LeaseGrantRequest),
    /// Lease.LeaseRevoke.
    Revoke(LeaseRevokeRequest),
    /// Lease.LeaseKeepAlive, one request of it.
    KeepAlive(LeaseKeepAliveRequest),
    /// Lease.LeaseTimeToLive.
    TimeToLive(LeaseTimeToLiveRequest),
    /// Lease.LeaseLeases.
    Leases,
    /// Maintenance.HashKV.
    Hash(HashKVRequest),
    /// Maintenance.Alarm.
    Alarm(AlarmRequest),
    /// Maintenance.Defragment.
    Defragment,
}

/// An answer without what two servers cannot share.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each is the answer to the call of its name")]
pub enum Answer {
    Range(RangeResponse),
    Put(PutResponse),
    Delete(DeleteRangeResponse),
    Txn(TxnResponse),
    Compact(CompactionResponse),
    Grant(LeaseGrantResponse),
    Revoke(LeaseRevokeResponse),
    KeepAlive(LeaseKeepAliveResponse),
    TimeToLive(LeaseTimeToLiveResponse),
    Leases(LeaseLeasesResponse),
    Hash(HashKVResponse),
    Alarm(AlarmResponse),
    Defragment(DefragmentResponse),
    /// Code and message.
    Refused(i32, String),
}

impl Answer {
    /// The revision in the header of an answer that was no refusal.
    pub fn revision(&self) -> Option<i64> {
        let header = match self {
            Answer::Range(r) => &r.header,
            Answer::Put(r) => &r.header,
            Answer::Delete(r) => &r.header,
            Answer::Txn(r) => &r.header,
            Answer::Compact(r) => &r.header,
            Answer::Revoke(r) => &r.header,
            _ => &None,
        };
        header.as_ref().map(|header| header.revision)
    }

    /// Whether it is a refusal.
    pub fn is_refused(&self) -> bool {
        matches!(self, Answer::Refused(..))
    }
}

/// Blanks what two servers cannot share. A header without ids or term is kept as it is, so that it is seen.
pub fn blank(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header
        && header.cluster_id != 0
        && header.member_id != 0
        && header.raft_term != 0
    {
        (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    }
}

fn refused(status: Status) -> Answer {
    Answer::Refused(status.code() as i32, status.message().to_owned())
}

macro_rules! plain {
    ($kind:ident, $call:expr) => {
        match $call.await {
            Err(status) => refused(status),
            Ok(response) => {
                let mut response = response.into_inner();
                blank(&mut response.header);
                Answer::$kind(response)
            }
        }
    };
}

impl Clients {
    /// Sends a request.
    pub async fn send(&mut self, call: &Call) -> Answer {
        let mut answer = match call.clone() {
            Call::Range(request) => plain!(Range, self.kv.range(request)),
            Call::Put(request) => plain!(Put, self.kv.put(request)),
            Call::Delete(request) => plain!(Delete, self.kv.delete_range(request)),
            Call::Txn(request) => plain!(Txn, self.kv.txn(request)),
            Call::Compact(request) => plain!(Compact, self.kv.compact(request)),
            Call::Grant(request) => plain!(Grant, self.lease.lease_grant(request)),
            Call::Revoke(request) => plain!(Revoke, self.lease.lease_revoke(request)),
            Call::KeepAlive(request) => self.keep_alive(request).await,
            Call::TimeToLive(request) => plain!(TimeToLive, self.lease.lease_time_to_live(request)),
            Call::Leases => plain!(Leases, self.lease.lease_leases(LeaseLeasesRequest {})),
            Call::Hash(request) => plain!(Hash, self.maintenance.hash_kv(request)),
            Call::Alarm(request) => plain!(Alarm, self.maintenance.alarm(request)),
            Call::Defragment => plain!(Defragment, self.maintenance.defragment(DefragmentRequest {})),
        };
        match &mut answer {
            Answer::TimeToLive(response) => {
                response.keys.sort();
                // The seconds left differ by when each server was asked.
                response.ttl = response.ttl.signum();
            }
            Answer::Leases(response) => response.leases.sort_by_key(|lease| lease.id),
            Answer::Alarm(response) => {
                for alarm in &mut response.alarms {
                    alarm.member_id = alarm.member_id.min(1);
                }
            }
            _ => {}
        }
        answer
    }

    async fn keep_alive(&mut self, request: LeaseKeepAliveRequest) -> Answer {
        let requests = tokio_stream::iter([request]);
        let mut responses = match self.lease.lease_keep_alive(requests).await {
            Err(status) => return refused(status),
            Ok(responses) => responses.into_inner(),
        };
        match responses.message().await {
            Err(status) => refused(status),
            Ok(None) => Answer::Refused(-1, "the stream ended without an answer".to_owned()),
            Ok(Some(mut response)) => {
                blank(&mut response.header);
                Answer::KeepAlive(response)
            }
        }
    }
}
