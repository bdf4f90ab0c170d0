//! `etcdserverpb.Cluster`: a cluster of one member, for ever.

use std::sync::Arc;

use quantykube_etcd_api::cluster_server::Cluster;
use quantykube_etcd_api::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
    MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
    ResponseHeader, errors,
};
use tonic::{Code, Request, Response, Status};

use super::status;
use crate::engine::Engine;

/// The note in the file that holds peer URLs which a client has set, one a line.
const PEER_URLS_NOTE: &str = "peer-urls";

/// The service.
pub struct ClusterService {
    /// The store.
    pub engine: Arc<Engine>,
    /// The member's name.
    pub name: String,
    /// Where clients find it.
    pub client_urls: Vec<String>,
}

impl ClusterService {
    fn members(&self) -> Result<Vec<Member>, Status> {
        let set = self.engine.lock().map_err(status)?.note(PEER_URLS_NOTE);
        let peer_urls = match set {
            Some(note) => String::from_utf8_lossy(&note).lines().map(str::to_owned).collect(),
            // There is no peer port; clients expect at least one URL here.
            None => self.client_urls.clone(),
        };
        Ok(vec![Member {
            id: self.engine.identity().member_id,
            name: self.name.clone(),
            peer_urls,
            client_urls: self.client_urls.clone(),
            is_learner: false,
        }])
    }

    /// Headers of this service name no revision, as in etcd.
    fn header(&self) -> Option<ResponseHeader> {
        self.engine.header_at(0)
    }

    fn is_me(&self, id: u64) -> bool {
        id == self.engine.identity().member_id
    }
}

/// As etcd sends it: its own table has no gRPC error for this one.
fn not_enough_started() -> Status {
    Status::new(Code::Unknown, errors::MEMBER_NOT_ENOUGH_STARTED.text)
}

fn are_urls(urls: &[String]) -> bool {
    let is_url = |url: &String| {
        let address = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        address.is_some_and(|address| {
            address
                .rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        })
    };
    !urls.is_empty() && urls.iter().all(is_url)
}

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_add(&self, request: Request<MemberAddRequest>) -> Result<Response<MemberAddResponse>, Status> {
        let urls = &request.get_ref().peer_urls;
        if !are_urls(urls) {
            return Err(errors::MEMBER_BAD_URLS.into());
        }
        if self
            .members()?
            .iter()
            .any(|member| member.peer_urls.iter().any(|url| urls.contains(url)))
        {
            return Err(errors::PEER_URL_EXIST.into());
        }
        // There is no second member: one that is added never starts.
        Err(not_enough_started())
    }

    async fn member_remove(
        &self,
        request: Request<MemberRemoveRequest>,
    ) -> Result<Response<MemberRemoveResponse>, Status> {
        match self.is_me(request.get_ref().id) {
            true => Err(not_enough_started()),
            false => Err(errors::MEMBER_NOT_FOUND.into()),
        }
    }

    async fn member_update(
        &self,
        request: Request<MemberUpdateRequest>,
    ) -> Result<Response<MemberUpdateResponse>, Status> {
        let request = request.into_inner();
        if !self.is_me(request.id) {
            return Err(errors::MEMBER_NOT_FOUND.into());
        }
        let note = request.peer_urls.join("\n");
        let keep = |mut state: crate::engine::Guard<'_>| state.put_note(PEER_URLS_NOTE, note.as_bytes());
        let applied = self.engine.lock().and_then(keep).map_err(status)?;
        self.engine.synced(applied.wait).await.map_err(status)?;
        Ok(Response::new(MemberUpdateResponse {
            header: self.header(),
            members: self.members()?,
        }))
    }

    async fn member_list(&self, _: Request<MemberListRequest>) -> Result<Response<MemberListResponse>, Status> {
        Ok(Response::new(MemberListResponse {
            header: self.header(),
            members: self.members()?,
        }))
    }

    async fn member_promote(
        &self,
        request: Request<MemberPromoteRequest>,
    ) -> Result<Response<MemberPromoteResponse>, Status> {
        match self.is_me(request.get_ref().id) {
            true => Err(errors::MEMBER_NOT_LEARNER.into()),
            false => Err(errors::MEMBER_NOT_FOUND.into()),
        }
    }
}
