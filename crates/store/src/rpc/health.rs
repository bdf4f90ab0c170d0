//! `grpc.health.v1.Health`: the server as a whole, under the empty name.

use std::sync::Arc;

use quantykube_etcd_api::health_server::Health;
use quantykube_etcd_api::{HealthCheckRequest, HealthCheckResponse, ServingStatus, errors};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::engine::Engine;

/// The service.
pub struct HealthService(pub Arc<Engine>);

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !request.get_ref().service.is_empty() {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(HealthCheckResponse {
            status: ServingStatus::Serving as i32,
        }))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let status = match request.get_ref().service.is_empty() {
            true => ServingStatus::Serving,
            false => ServingStatus::ServiceUnknown,
        };
        let first = HealthCheckResponse { status: status as i32 };
        let (sender, receiver) = mpsc::channel(1);
        let engine = Arc::clone(&self.0);
        tokio::spawn(async move {
            if sender.send(Ok(first)).await.is_err() {
                return;
            }
            // It serves until it stops; nothing changes in between.
            tokio::select! {
                () = engine.stopping() => {}
                () = sender.closed() => return,
            }
            let _ = sender.send(Err(errors::STOPPED.into())).await;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
