//! What a connection speaks to: the gRPC services by their path, and the plain HTTP pages beside them.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use quantykube_etcd_api::auth_server::AuthServer;
use quantykube_etcd_api::cluster_server::ClusterServer;
use quantykube_etcd_api::health_server::HealthServer;
use quantykube_etcd_api::kv_server::KVServer;
use quantykube_etcd_api::lease_server::LeaseServer;
use quantykube_etcd_api::maintenance_server::MaintenanceServer;
use quantykube_etcd_api::watch_server::WatchServer;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};

use super::metrics::Calls;
use super::pages::Pages;
use crate::args::Config;
use crate::engine::Engine;
use crate::rpc;
use crate::rpc::list::Pieces;

/// What etcd allows on top of the largest write before it does not even read a message.
const OVERHEAD_BYTES: usize = 512 << 10;

/// tonic's words for a message above the limit; what follows are the two numbers.
const TONIC_TOO_LARGE: &str = "Error, decoded message length too large: found ";

/// All services. Cloned for each connection; cheap.
#[derive(Clone)]
pub struct Front {
    kv: KVServer<rpc::kv::KvService>,
    watch: WatchServer<rpc::watch::WatchService>,
    lease: LeaseServer<rpc::lease::LeaseService>,
    cluster: ClusterServer<rpc::cluster::ClusterService>,
    maintenance: MaintenanceServer<rpc::maintenance::MaintenanceService>,
    auth: AuthServer<rpc::auth::AuthService>,
    health: HealthServer<rpc::health::HealthService>,
    calls: Arc<Calls>,
    pages: Arc<Pages>,
    /// Most calls and streams at once on one connection.
    pub streams: u32,
}

/// An answer on its way.
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Front {
    /// Puts the services together.
    pub fn new(engine: &Arc<Engine>, config: &Config, client_urls: Vec<String>, pages: Arc<Pages>) -> Front {
        let limit = config.request_bytes + OVERHEAD_BYTES;
        let watch = rpc::watch::WatchService {
            engine: Arc::clone(engine),
            progress_every: config.progress_every,
            fragment_bytes: limit,
        };
        let cluster = rpc::cluster::ClusterService {
            engine: Arc::clone(engine),
            name: config.name.clone(),
            client_urls,
        };
        Front {
            kv: KVServer::new(rpc::kv::KvService(Arc::clone(engine))).max_decoding_message_size(limit),
            watch: WatchServer::new(watch).max_decoding_message_size(limit),
            lease: LeaseServer::new(rpc::lease::LeaseService(Arc::clone(engine))).max_decoding_message_size(limit),
            cluster: ClusterServer::new(cluster).max_decoding_message_size(limit),
            maintenance: MaintenanceServer::new(rpc::maintenance::MaintenanceService(Arc::clone(engine)))
                .max_decoding_message_size(limit),
            auth: AuthServer::new(rpc::auth::AuthService(Arc::clone(engine))).max_decoding_message_size(limit),
            health: HealthServer::new(rpc::health::HealthService(Arc::clone(engine))).max_decoding_message_size(limit),
            calls: Arc::clone(&pages.calls),
            pages,
            streams: config.streams,
        }
    }

    fn dispatch(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
            return self.page(request);
        };
        let Some(call) = self.calls.find(path) else {
            let kind = request.headers().get("content-type");
            let text = match self.calls.has_service(service) {
                true => format!("unknown method {method} for service {service}"),
                false if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) => {
                    format!("unknown service {service}")
                }
                false => return self.page(request),
            };
            let response = Status::unimplemented(text).into_http();
            return Box::pin(std::future::ready(Ok(response)));
        };
        let answer = match service {
            "etcdserverpb.KV" => self.kv.clone().call(request),
            "etcdserverpb.Watch" => self.watch.clone().call(request),
            "etcdserverpb.Lease" => self.lease.clone().call(request),
            "etcdserverpb.Cluster" => self.cluster.clone().call(request),
            "etcdserverpb.Maintenance" => self.maintenance.clone().call(request),
            "etcdserverpb.Auth" => self.auth.clone().call(request),
            _ => self.health.clone().call(request),
        };
        let calls = Arc::clone(&self.calls);
        calls.started(call);
        Box::pin(async move {
            let mut response = answer.await?;
            if let Some(list) = response.extensions_mut().remove::<Pieces>().and_then(Pieces::into_body) {
                calls.handled(call, Code::Ok);
                return Ok(response.map(|_| Body::new(list)));
            }
            let status = Status::from_header_map(response.headers());
            calls.handled(call, status.as_ref().map_or(Code::Ok, Status::code));
            match status {
                Some(status) if status.code() == Code::OutOfRange => Ok(translate(status, response)),
                _ => Ok(response),
            }
        })
    }

    /// Answers with a page.
    pub fn page(&self, request: Request<Incoming>) -> Answer {
        let pages = Arc::clone(&self.pages);
        Box::pin(async move {
            let page = pages.answer(request.method(), request.uri());
            Ok(page.map(|text| Body::new(Full::from(text).map_err(|never: Infallible| match never {}))))
        })
    }
}

/// A message above the limit is ResourceExhausted to etcd's clients, with grpc-go's words.
fn translate(status: Status, response: Response<Body>) -> Response<Body> {
    let Some(numbers) = status.message().strip_prefix(TONIC_TOO_LARGE) else {
        return response;
    };
    let mut numbers = numbers
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let (found, limit) = (numbers.next().unwrap_or("?"), numbers.next().unwrap_or("?"));
    Status::resource_exhausted(format!("grpc: received message larger than max ({found} vs. {limit})")).into_http()
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        self.dispatch(request)
    }
}
