//! `etcdserverpb.Lease`.

use std::sync::Arc;

use quantykube_etcd_api::lease_server::Lease;
use quantykube_etcd_api::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest,
    LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    errors,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::status;
use crate::clock;
use crate::engine::Engine;

/// The service.
pub struct LeaseService(pub Arc<Engine>);

#[tonic::async_trait]
impl Lease for LeaseService {
    type LeaseKeepAliveStream = ReceiverStream<Result<LeaseKeepAliveResponse, Status>>;

    async fn lease_grant(&self, request: Request<LeaseGrantRequest>) -> Result<Response<LeaseGrantResponse>, Status> {
        // Only positive ids are given out, as by etcd.
        let fresh = rand::random_range(1..=i64::MAX);
        let grant = |mut state: crate::engine::Guard<'_>| state.lease_grant(request.get_ref(), fresh, clock::now());
        let applied = self.0.lock().and_then(grant).map_err(status)?;
        self.0.synced(applied.wait).await.map_err(status)?;
        let mut response = applied.response;
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }

    async fn lease_revoke(
        &self,
        request: Request<LeaseRevokeRequest>,
    ) -> Result<Response<LeaseRevokeResponse>, Status> {
        let id = request.get_ref().id;
        let applied = self
            .0
            .lock()
            .and_then(|mut state| state.lease_revoke(id))
            .map_err(status)?;
        self.0.synced(applied.wait).await.map_err(status)?;
        let header = self.0.header_at(applied.response);
        Ok(Response::new(LeaseRevokeResponse { header }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        let engine = Arc::clone(&self.0);
        let mut requests = request.into_inner();
        tokio::spawn(async move {
            loop {
                let request = tokio::select! {
                    request = requests.next() => request,
                    () = engine.stopping() => Some(Err(errors::STOPPED.into())),
                };
                let answer = match request {
                    None => return,
                    Some(Ok(request)) => keep_alive(&engine, request.id).await,
                    Some(Err(error)) => Err(error),
                };
                let ended = answer.is_err();
                if sender.send(answer).await.is_err() || ended {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<LeaseTimeToLiveRequest>,
    ) -> Result<Response<LeaseTimeToLiveResponse>, Status> {
        let look = |mut state: crate::engine::Guard<'_>| {
            let found = state.lease_time_to_live(request.get_ref(), clock::now())?;
            Ok((found, state.visible()))
        };
        let (applied, visible) = self.0.lock().and_then(look).map_err(status)?;
        self.0.synced(applied.wait).await.map_err(status)?;
        let mut response = applied.response.unwrap_or(LeaseTimeToLiveResponse {
            header: crate::mvcc::header(visible),
            id: request.get_ref().id,
            ttl: -1,
            ..Default::default()
        });
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }

    async fn lease_leases(&self, _: Request<LeaseLeasesRequest>) -> Result<Response<LeaseLeasesResponse>, Status> {
        let applied = self.0.lock().map_err(status)?.lease_list();
        self.0.synced(applied.wait).await.map_err(status)?;
        let mut response = applied.response;
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }
}

async fn keep_alive(engine: &Engine, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    // The header is taken before the renewal: a lease that is revoked at a revision must not seem alive after it.
    let renew = |mut state: crate::engine::Guard<'_>| {
        let revision = state.visible();
        Ok((state.lease_renew(id, clock::now())?, revision))
    };
    let (applied, revision) = engine.lock().and_then(renew).map_err(status)?;
    engine.synced(applied.wait).await.map_err(status)?;
    Ok(LeaseKeepAliveResponse {
        header: engine.header_at(revision),
        id,
        ttl: applied.response,
    })
}
