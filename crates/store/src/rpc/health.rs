//! `grpc.health.v1.Health`: the server as a whole, under the empty name.

use std::pin::Pin;

use quantykube_etcd_api::health_server::Health;
use quantykube_etcd_api::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

/// The service.
pub struct HealthService;

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

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
        // It serves until the connection ends with the server.
        Ok(Response::new(Box::pin(
            tokio_stream::once(Ok(first)).chain(tokio_stream::pending()),
        )))
    }
}
