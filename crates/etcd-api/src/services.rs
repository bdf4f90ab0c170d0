//! What build.rs makes of its table: a server trait per service (and a client each with the feature `client`).

macro_rules! include_service {
    ($file:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $file, ".rs"));
    };
}

include_service!("etcdserverpb.KV");
include_service!("etcdserverpb.Watch");
include_service!("etcdserverpb.Lease");
include_service!("etcdserverpb.Cluster");
include_service!("etcdserverpb.Maintenance");
include_service!("etcdserverpb.Auth");
include_service!("grpc.health.v1.Health");

#[cfg(feature = "client")]
pub use k_v_client as kv_client;
pub use k_v_server as kv_server;
