//! `etcdserverpb.KV`.

use std::sync::Arc;

use quantykube_etcd_api::kv_server::KV;
use quantykube_etcd_api::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse,
    RangeRequest, RangeResponse, SortOrder, SortTarget, TxnRequest, TxnResponse,
};
use tonic::{Request, Response, Status};

use super::list::{self, Held, Parts, Pieces};
use super::status;
use crate::engine::{Engine, Guard};
use crate::mvcc::{Applied, Compaction, Error, Range, is_filtered};

/// The service.
pub struct KvService(pub Arc<Engine>);

impl KvService {
    async fn synced<T>(&self, applied: Applied<T>) -> Result<T, Status> {
        self.0.synced(applied.wait).await.map_err(status)?;
        Ok(applied.response)
    }

    /// The rest of a large range: what is left to find is found, letting others run between slices; its values are read
    /// when they are sent.
    async fn large(&self, range: Range) -> Result<Response<RangeResponse>, Error> {
        let (hold, unfinished) = match range {
            Range::Whole(response) => return Ok(Response::new(response)),
            Range::Searching(search, hold) => (hold, Err(search)),
            Range::Listed(listed, hold) => (hold, Ok(listed)),
        };
        let held = Held::new(&self.0, hold);
        let listed = match unfinished {
            Ok(listed) => listed,
            Err(search) => list::find(&self.0, *search).await?,
        };
        let mut response = Response::new(RangeResponse::default());
        response.extensions_mut().insert(Pieces::new(&self.0, held, listed));
        Ok(response)
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
        let begin = |mut state: Guard<'_>| state.range_begin(request.get_ref());
        match self.0.lock().and_then(begin).map_err(status)? {
            Range::Whole(mut response) => {
                self.0.header(&mut response.header);
                Ok(Response::new(response))
            }
            large => self.large(large).await.map_err(status),
        }
    }

    type RangeStreamStream = Parts;

    async fn range_stream(&self, request: Request<RangeRequest>) -> Result<Response<Parts>, Status> {
        let request = request.into_inner();
        let unsupported = |what| Status::unimplemented(format!("RangeStream does not support {what}"));
        if request.key.is_empty() {
            return Err(status(Error::EmptyKey));
        }
        let target = SortTarget::try_from(request.sort_target).map_err(|_| status(Error::InvalidSort))?;
        match SortOrder::try_from(request.sort_order).map_err(|_| status(Error::InvalidSort))? {
            SortOrder::None => {}
            SortOrder::Ascend if target == SortTarget::Key => {}
            _ => return Err(unsupported("custom sort orders")),
        }
        if is_filtered(&request) {
            return Err(unsupported("revision filters"));
        }
        Ok(Response::new(Parts::begin(&self.0, request).map_err(status)?))
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
