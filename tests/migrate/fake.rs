//! A server that says of itself what a test wants and answers nothing else.

use std::pin::Pin;

use quantykube_etcd_api as api;
use tonic::{Request, Response, Status};

struct Fake {
    version: &'static str,
}

type Answer<T> = Result<Response<T>, Status>;

fn nothing<T>() -> Answer<T> {
    Err(Status::unimplemented("this server only tells its status"))
}

#[tonic::async_trait]
impl api::maintenance_server::Maintenance for Fake {
    async fn status(&self, _: Request<api::StatusRequest>) -> Answer<api::StatusResponse> {
        Ok(Response::new(api::StatusResponse {
            header: Some(api::ResponseHeader {
                cluster_id: 1,
                member_id: 2,
                revision: 3,
                raft_term: 4,
            }),
            version: self.version.to_owned(),
            ..api::StatusResponse::default()
        }))
    }

    async fn alarm(&self, _: Request<api::AlarmRequest>) -> Answer<api::AlarmResponse> {
        nothing()
    }

    async fn defragment(&self, _: Request<api::DefragmentRequest>) -> Answer<api::DefragmentResponse> {
        nothing()
    }

    async fn hash(&self, _: Request<api::HashRequest>) -> Answer<api::HashResponse> {
        nothing()
    }

    async fn hash_kv(&self, _: Request<api::HashKVRequest>) -> Answer<api::HashKVResponse> {
        nothing()
    }

    type SnapshotStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<api::SnapshotResponse, Status>> + Send>>;

    async fn snapshot(&self, _: Request<api::SnapshotRequest>) -> Answer<Self::SnapshotStream> {
        nothing()
    }

    async fn move_leader(&self, _: Request<api::MoveLeaderRequest>) -> Answer<api::MoveLeaderResponse> {
        nothing()
    }

    async fn downgrade(&self, _: Request<api::DowngradeRequest>) -> Answer<api::DowngradeResponse> {
        nothing()
    }
}

/// Serves on a free port until the test's runtime ends.
pub async fn serve(version: &'static str) -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = api::maintenance_server::MaintenanceServer::new(Fake { version });
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)),
    );
    port
}
