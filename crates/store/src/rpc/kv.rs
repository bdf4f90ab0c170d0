//! `etcdserverpb.KV`.

use std::sync::Arc;
use std::time::Duration;

use quantykube_etcd_api::kv_server::KV;
use quantykube_etcd_api::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use tonic::{Request, Response, Status};

use super::status;
use crate::engine::{Engine, Guard};
use crate::mvcc::{Applied, Compaction, Error, Range, Reading};

/// How long a compaction waits before it asks again whether large ranges have ended.
const COMPACT_AGAIN: Duration = Duration::from_millis(2);

/// The service.
pub struct KvService(pub Arc<Engine>);

impl KvService {
    async fn synced<T>(&self, applied: Applied<T>) -> Result<T, Status> {
        self.0.synced(applied.wait).await.map_err(status)?;
        Ok(applied.response)
    }

    /// Reads what is left of a large range, letting others run between slices.
    async fn rest(&self, reading: Reading) -> Result<RangeResponse, Error> {
        let mut unfinished = Unfinished {
            engine: &self.0,
            reading,
        };
        loop {
            tokio::task::yield_now().await;
            let whole = self.0.lock()?.range_next(&mut unfinished.reading)?;
            if whole {
                return Ok(std::mem::take(&mut unfinished.reading.response));
            }
        }
    }

    async fn compact(&self, request: &CompactionRequest) -> Result<(), Error> {
        loop {
            // The lock is let go before waiting.
            let compaction = self.0.lock()?.compact(request)?;
            match compaction {
                Compaction::Later(seq) => self.0.synced(seq).await?,
                Compaction::Busy => tokio::time::sleep(COMPACT_AGAIN).await,
                Compaction::Done(seq) => return self.0.synced(seq).await,
            }
        }
    }
}

/// A large range that reads; it is ended also when its client goes away.
struct Unfinished<'a> {
    engine: &'a Engine,
    reading: Reading,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.engine.lock() {
            state.range_end(self.reading.at);
        }
    }
}

#[tonic::async_trait]
impl KV for KvService {
    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeResponse>, Status> {
        let begin = |mut state: Guard<'_>| state.range_begin(request.get_ref());
        let mut response = match self.0.lock().and_then(begin).map_err(status)? {
            Range::Whole(response) => response,
            Range::Partly(reading) => self.rest(reading).await.map_err(status)?,
        };
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
