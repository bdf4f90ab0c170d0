//! `etcdserverpb.Maintenance`.

use std::sync::Arc;

use quantykube_etcd_api::maintenance_server::Maintenance;
use quantykube_etcd_api::{
    AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DefragmentRequest, DefragmentResponse, DowngradeAction,
    DowngradeInfo, DowngradeRequest, DowngradeResponse, HashKVRequest, HashKVResponse, HashRequest, HashResponse,
    MoveLeaderRequest, MoveLeaderResponse, SnapshotRequest, StatusRequest, StatusResponse, errors,
};
use tonic::{Request, Response, Status};

use super::{snapshot, status};
use crate::engine::Engine;
use crate::mvcc::Error;
use crate::version::{ETCD_MINOR_VERSION, ETCD_STORAGE_VERSION, ETCD_VERSION};

/// The only minor version an etcd of the version we speak for lets itself be downgraded to.
const DOWNGRADE_TARGET: (u64, u64) = (3, 5);

/// The service.
pub struct MaintenanceService(pub Arc<Engine>);

impl MaintenanceService {
    async fn hash_at(&self, revision: i64) -> Result<HashKVResponse, Error> {
        let mut hasher = self.0.lock()?.hash_begin(revision)?;
        loop {
            let step = self.0.lock()?.hash_step(&mut hasher)?;
            if let Some(hash) = step {
                return Ok(HashKVResponse {
                    header: self.0.header_at(hasher.current),
                    hash,
                    compact_revision: hasher.first,
                    hash_revision: hasher.revision,
                });
            }
            tokio::task::yield_now().await;
        }
    }
}

/// An alarm as etcd prints it into the errors of a status.
pub fn alarm_text(alarm: &AlarmMember) -> String {
    let kind = match AlarmType::try_from(alarm.alarm) {
        Ok(AlarmType::NoSpace) => "NOSPACE",
        Ok(AlarmType::Corrupt) => "CORRUPT",
        _ => "NONE",
    };
    format!("memberID:{} alarm:{kind} ", alarm.member_id)
}

/// Major and minor of "3.5" or "3.5.0".
fn minor_version(text: &str) -> Option<(u64, u64)> {
    let parts: Vec<u64> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [major, minor] | [major, minor, _] => Some((major, minor)),
        _ => None,
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    type SnapshotStream = snapshot::Stream;

    async fn alarm(&self, request: Request<AlarmRequest>) -> Result<Response<AlarmResponse>, Status> {
        let (applied, visible) = {
            let mut state = self.0.lock().map_err(status)?;
            (state.alarm(request.get_ref()).map_err(status)?, state.visible())
        };
        self.0.synced(applied.wait).await.map_err(status)?;
        Ok(Response::new(AlarmResponse {
            header: self.0.header_at(visible),
            alarms: applied.response,
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let state = self.0.lock().map_err(status)?;
        let sizes = state.sizes();
        let identity = self.0.identity();
        // Clients want an index that grows with every write and is never 0; revisions and frames both do.
        let index = state.durable().seq.max(1);
        Ok(Response::new(StatusResponse {
            header: self.0.header_at(state.visible()),
            version: ETCD_VERSION.to_owned(),
            db_size: sizes.allocated as i64,
            leader: identity.member_id,
            raft_index: index,
            raft_term: identity.raft_term,
            raft_applied_index: index,
            errors: state.alarms().iter().map(alarm_text).collect(),
            db_size_in_use: sizes.in_use as i64,
            is_learner: false,
            storage_version: ETCD_STORAGE_VERSION.to_owned(),
            db_size_quota: state.limits().quota as i64,
            downgrade_info: Some(DowngradeInfo::default()),
        }))
    }

    async fn defragment(&self, _: Request<DefragmentRequest>) -> Result<Response<DefragmentResponse>, Status> {
        // The file gives space back by itself, while it serves.
        Ok(Response::new(DefragmentResponse { header: None }))
    }

    async fn hash(&self, _: Request<HashRequest>) -> Result<Response<HashResponse>, Status> {
        let hash = self.hash_at(0).await.map_err(status)?;
        Ok(Response::new(HashResponse {
            header: hash.header,
            hash: hash.hash,
        }))
    }

    async fn hash_kv(&self, request: Request<HashKVRequest>) -> Result<Response<HashKVResponse>, Status> {
        let hash = self.hash_at(request.get_ref().revision).await.map_err(status)?;
        Ok(Response::new(hash))
    }

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        snapshot::begin(&self.0).await.map(Response::new)
    }

    async fn move_leader(&self, request: Request<MoveLeaderRequest>) -> Result<Response<MoveLeaderResponse>, Status> {
        match request.get_ref().target_id == self.0.identity().member_id {
            true => Ok(Response::new(MoveLeaderResponse { header: None })),
            false => Err(errors::BAD_LEADER_TRANSFEREE.into()),
        }
    }

    async fn downgrade(&self, request: Request<DowngradeRequest>) -> Result<Response<DowngradeResponse>, Status> {
        let request = request.get_ref();
        let action = DowngradeAction::try_from(request.action);
        // Cancelling what never began is no error to etcd.
        if action != Ok(DowngradeAction::Cancel) {
            let Some(target) = minor_version(&request.version) else {
                return Err(errors::WRONG_DOWNGRADE_VERSION_FORMAT.into());
            };
            if target != DOWNGRADE_TARGET {
                return Err(errors::INVALID_DOWNGRADE_TARGET_VERSION.into());
            }
            if action == Ok(DowngradeAction::Enable) {
                return Err(errors::NOT_CAPABLE.into());
            }
        }
        let revision = self.0.lock().map_err(status)?.visible();
        Ok(Response::new(DowngradeResponse {
            header: self.0.header_at(revision),
            version: ETCD_MINOR_VERSION.to_owned(),
        }))
    }
}
