//! Requests as values, so that the same one goes to both servers, and answers as text without what cannot be equal.

use quantykube_etcd_api::*;
use tonic::{Code, Status};

use crate::servers::Clients;

/// A request.
#[derive(Clone, Debug)]
pub enum Call {
    Range(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Compact(CompactionRequest),
    Grant(LeaseGrantRequest),
    Revoke(LeaseRevokeRequest),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
    HashKv(i64),
    Alarm(AlarmRequest),
    MemberList,
    MemberAdd(MemberAddRequest),
    MemberRemove(u64),
    MemberPromote(u64),
    MoveLeader(u64),
    Downgrade(DowngradeRequest),
    Defragment,
}

/// An answer: the blanked response as text, or code and message.
pub type Answer = Result<String, (Code, String)>;

/// Ids and term differ; the revision must not.
pub fn blank(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        assert!(
            header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0,
            "header {header:?}"
        );
        *header = ResponseHeader {
            revision: header.revision,
            ..Default::default()
        };
    }
}

macro_rules! answer {
    ($call:expr, $blank:expr) => {
        match $call.await {
            Err(status) => Err(refused(status)),
            Ok(response) => {
                let mut response = response.into_inner();
                blank(&mut response.header);
                #[allow(clippy::redundant_closure_call)]
                ($blank)(&mut response);
                Ok(format!("{response:?}"))
            }
        }
    };
    ($call:expr) => {
        answer!($call, |_: &mut _| ())
    };
}

fn refused(status: Status) -> (Code, String) {
    (status.code(), status.message().to_owned())
}

/// The member id a server gives itself; ids in requests and answers are relative to it.
const ME: u64 = 1;

impl Clients {
    /// The server's member id.
    pub async fn member_id(&mut self) -> u64 {
        let status = self
            .maintenance
            .status(StatusRequest {})
            .await
            .expect("a status")
            .into_inner();
        status.header.expect("a header").member_id
    }

    /// Sends a request. A member id of 1 stands for the server's own.
    pub async fn send(&mut self, call: Call) -> Answer {
        let me = match &call {
            Call::Alarm(_) | Call::MemberList | Call::MemberAdd(_) | Call::MemberRemove(_) => self.member_id().await,
            Call::MemberPromote(_) | Call::MoveLeader(_) => self.member_id().await,
            _ => 0,
        };
        let real = |id: u64| if id == ME { me } else { id };
        let members = |members: &mut Vec<Member>| {
            for member in members {
                assert!(
                    !member.peer_urls.is_empty() && member.client_urls.len() == 1,
                    "{member:?}"
                );
                member.id = if member.id == me { ME } else { 0 };
                member.peer_urls.clear();
                member.client_urls.clear();
            }
        };
        match call {
            Call::Range(request) => answer!(self.kv.range(request)),
            Call::Put(request) => answer!(self.kv.put(request)),
            Call::Delete(request) => answer!(self.kv.delete_range(request)),
            Call::Txn(request) => answer!(self.kv.txn(request)),
            Call::Compact(request) => answer!(self.kv.compact(request)),
            Call::Grant(request) => answer!(self.lease.lease_grant(request)),
            Call::Revoke(request) => answer!(self.lease.lease_revoke(request)),
            Call::TimeToLive(request) => {
                answer!(
                    self.lease.lease_time_to_live(request),
                    |response: &mut LeaseTimeToLiveResponse| {
                        response.keys.sort();
                        // The seconds left differ by when each server was asked.
                        response.ttl = response.ttl.signum();
                    }
                )
            }
            Call::Leases => answer!(
                self.lease.lease_leases(LeaseLeasesRequest {}),
                |r: &mut LeaseLeasesResponse| { r.leases.sort_by_key(|lease| lease.id) }
            ),
            Call::HashKv(revision) => answer!(self.maintenance.hash_kv(HashKVRequest { revision })),
            Call::Alarm(mut request) => {
                request.member_id = real(request.member_id);
                answer!(self.maintenance.alarm(request), |response: &mut AlarmResponse| {
                    for alarm in &mut response.alarms {
                        alarm.member_id = if alarm.member_id == me { ME } else { alarm.member_id };
                    }
                    response.alarms.sort_by_key(|alarm| (alarm.alarm, alarm.member_id));
                })
            }
            Call::MemberList => {
                let request = MemberListRequest { linearizable: true };
                answer!(self.cluster.member_list(request), |r: &mut MemberListResponse| members(
                    &mut r.members
                ))
            }
            Call::MemberAdd(request) => answer!(self.cluster.member_add(request)),
            Call::MemberRemove(id) => answer!(self.cluster.member_remove(MemberRemoveRequest { id: real(id) })),
            Call::MemberPromote(id) => answer!(self.cluster.member_promote(MemberPromoteRequest { id: real(id) })),
            Call::MoveLeader(id) => answer!(self.maintenance.move_leader(MoveLeaderRequest { target_id: real(id) })),
            Call::Downgrade(request) => answer!(self.maintenance.downgrade(request)),
            Call::Defragment => answer!(self.maintenance.defragment(DefragmentRequest {})),
        }
    }
}

/// Sends a request to both and compares.
///
/// # Panics
/// If the answers differ.
pub async fn both(etcd: &mut Clients, store: &mut Clients, name: &str, call: Call) -> Answer {
    let expected = etcd.send(call.clone()).await;
    let found = store.send(call.clone()).await;
    assert!(
        found == expected,
        "{name}: {call:?}\n etcd answers {expected:?}\nstore answers {found:?}"
    );
    found
}

/// Shorthands for requests.
pub mod make {
    use super::*;
    use bytes::Bytes;

    pub fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    pub fn range(key: &str, end: &str) -> RangeRequest {
        RangeRequest {
            key: bytes(key),
            range_end: bytes(end),
            ..Default::default()
        }
    }

    pub fn put(key: &str, value: &str) -> PutRequest {
        PutRequest {
            key: bytes(key),
            value: bytes(value),
            ..Default::default()
        }
    }

    pub fn delete(key: &str, end: &str) -> DeleteRangeRequest {
        DeleteRangeRequest {
            key: bytes(key),
            range_end: bytes(end),
            ..Default::default()
        }
    }

    pub fn op(request: Request) -> RequestOp {
        RequestOp { request: Some(request) }
    }

    pub fn compare(key: &str, end: &str, result: CompareResult, target: CompareTarget, union: TargetUnion) -> Compare {
        Compare {
            result: result as i32,
            target: target as i32,
            key: bytes(key),
            range_end: bytes(end),
            target_union: Some(union),
        }
    }

    pub fn mod_is(key: &str, revision: i64) -> Compare {
        compare(
            key,
            "",
            CompareResult::Equal,
            CompareTarget::Mod,
            TargetUnion::ModRevision(revision),
        )
    }

    pub fn txn(compare: Vec<Compare>, success: Vec<Request>, failure: Vec<Request>) -> TxnRequest {
        TxnRequest {
            compare,
            success: success.into_iter().map(op).collect(),
            failure: failure.into_iter().map(op).collect(),
        }
    }

    pub fn grant(id: i64, ttl: i64) -> LeaseGrantRequest {
        LeaseGrantRequest { id, ttl }
    }
}
