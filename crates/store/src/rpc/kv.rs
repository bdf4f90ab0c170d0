//! `etcdserverpb.KV`.

use std::sync::Arc;

use quantykube_etcd_api::kv_server::KV;
use quantykube_etcd_api::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use tonic::{Request, Response, Status};

use super::status;
use crate::engine::Engine;
use crate::mvcc::{Applied, Compaction, Error};

/// The service.
pub struct KvService(pub Arc<Engine>);

impl KvService {
    async fn synced<T>(&self, applied: Applied<T>) -> Result<T, Status> {
        self.0.synced(applied.wait).await.map_err(status)?;
        Ok(applied.response)
    }

    async fn compact(&self, request: &CompactionRequest) -> Result<(), Error> {
        loop {
            // The lock is let go before waiting.
            let compaction = self.0.lock()?.compact(request)?;
            match compaction {
                Compaction::Later(seq) => self.0.synced(seq).await?,
                Compaction::Done(seq) => return self.0.synced(seq).await,
            }
        }
    }
}

#[tonic::async_trait]
impl KV for KvService {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        let mut response = self
            .0
            .lock()
            .and_then(|mut state| state.range(request.get_ref()))
            .map_err(status)?;
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let applied = self
            .0
            .lock()
            .and_then(|mut state| state.put(request.get_ref()))
            .map_err(status)?;
        let mut response = self.synced(applied).await?;
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let applied = self
            .0
            .lock()
            .and_then(|mut state| state.delete_range(request.get_ref()))
            .map_err(status)?;
        let mut response = self.synced(applied).await?;
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }

    async fn txn(&self, request: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        let applied = self
            .0
            .lock()
            .and_then(|mut state| state.txn(request.get_ref()))
            .map_err(status)?;
        let mut response = self.synced(applied).await?;
        self.0.header(&mut response.header);
        Ok(Response::new(response))
    }

    async fn compact(&self, request: Request<CompactionRequest>) -> Result<Response<CompactionResponse>, Status> {
        KvService::compact(self, request.get_ref()).await.map_err(status)?;
        let revision = self.0.lock().map_err(status)?.visible();
        let header = self.0.header_at(revision);
        Ok(Response::new(CompactionResponse { header }))
    }
}
