//! Makes the service traits from a table of methods: no protoc and no .proto file is needed.

use tonic_build::manual::{Builder, Method, Service};

/// Which sides of a call are streams.
#[derive(Clone, Copy)]
enum Streams {
    None,
    Answer,
    Both,
}

/// Route, request and response of a method.
type Row = (&'static str, &'static str, &'static str, Streams);

const KV: &[Row] = &[
    ("Range", "RangeRequest", "RangeResponse", Streams::None),
    ("RangeStream", "RangeRequest", "RangeStreamResponse", Streams::Answer),
    ("Put", "PutRequest", "PutResponse", Streams::None),
    (
        "DeleteRange",
        "DeleteRangeRequest",
        "DeleteRangeResponse",
        Streams::None,
    ),
    ("Txn", "TxnRequest", "TxnResponse", Streams::None),
    ("Compact", "CompactionRequest", "CompactionResponse", Streams::None),
];
const WATCH: &[Row] = &[("Watch", "WatchRequest", "WatchResponse", Streams::Both)];
const LEASE: &[Row] = &[
    ("LeaseGrant", "LeaseGrantRequest", "LeaseGrantResponse", Streams::None),
    (
        "LeaseRevoke",
        "LeaseRevokeRequest",
        "LeaseRevokeResponse",
        Streams::None,
    ),
    (
        "LeaseKeepAlive",
        "LeaseKeepAliveRequest",
        "LeaseKeepAliveResponse",
        Streams::Both,
    ),
    (
        "LeaseTimeToLive",
        "LeaseTimeToLiveRequest",
        "LeaseTimeToLiveResponse",
        Streams::None,
    ),
    (
        "LeaseLeases",
        "LeaseLeasesRequest",
        "LeaseLeasesResponse",
        Streams::None,
    ),
];
const CLUSTER: &[Row] = &[
    ("MemberAdd", "MemberAddRequest", "MemberAddResponse", Streams::None),
    (
        "MemberRemove",
        "MemberRemoveRequest",
        "MemberRemoveResponse",
        Streams::None,
    ),
    (
        "MemberUpdate",
        "MemberUpdateRequest",
        "MemberUpdateResponse",
        Streams::None,
    ),
    ("MemberList", "MemberListRequest", "MemberListResponse", Streams::None),
    (
        "MemberPromote",
        "MemberPromoteRequest",
        "MemberPromoteResponse",
        Streams::None,
    ),
];
const MAINTENANCE: &[Row] = &[
    ("Alarm", "AlarmRequest", "AlarmResponse", Streams::None),
    ("Status", "StatusRequest", "StatusResponse", Streams::None),
    ("Defragment", "DefragmentRequest", "DefragmentResponse", Streams::None),
    ("Hash", "HashRequest", "HashResponse", Streams::None),
    ("HashKV", "HashKVRequest", "HashKVResponse", Streams::None),
    ("Snapshot", "SnapshotRequest", "SnapshotResponse", Streams::Answer),
    ("MoveLeader", "MoveLeaderRequest", "MoveLeaderResponse", Streams::None),
    ("Downgrade", "DowngradeRequest", "DowngradeResponse", Streams::None),
];
const AUTH: &[Row] = &[
    ("AuthEnable", "AuthEnableRequest", "AuthEnableResponse", Streams::None),
    (
        "AuthDisable",
        "AuthDisableRequest",
        "AuthDisableResponse",
        Streams::None,
    ),
    ("AuthStatus", "AuthStatusRequest", "AuthStatusResponse", Streams::None),
    (
        "Authenticate",
        "AuthenticateRequest",
        "AuthenticateResponse",
        Streams::None,
    ),
    ("UserAdd", "AuthUserAddRequest", "AuthUserAddResponse", Streams::None),
    ("UserGet", "AuthUserGetRequest", "AuthUserGetResponse", Streams::None),
    ("UserList", "AuthUserListRequest", "AuthUserListResponse", Streams::None),
    (
        "UserDelete",
        "AuthUserDeleteRequest",
        "AuthUserDeleteResponse",
        Streams::None,
    ),
    (
        "UserChangePassword",
        "AuthUserChangePasswordRequest",
        "AuthUserChangePasswordResponse",
        Streams::None,
    ),
    (
        "UserGrantRole",
        "AuthUserGrantRoleRequest",
        "AuthUserGrantRoleResponse",
        Streams::None,
    ),
    (
        "UserRevokeRole",
        "AuthUserRevokeRoleRequest",
        "AuthUserRevokeRoleResponse",
        Streams::None,
    ),
    ("RoleAdd", "AuthRoleAddRequest", "AuthRoleAddResponse", Streams::None),
    ("RoleGet", "AuthRoleGetRequest", "AuthRoleGetResponse", Streams::None),
    ("RoleList", "AuthRoleListRequest", "AuthRoleListResponse", Streams::None),
    (
        "RoleDelete",
        "AuthRoleDeleteRequest",
        "AuthRoleDeleteResponse",
        Streams::None,
    ),
    (
        "RoleGrantPermission",
        "AuthRoleGrantPermissionRequest",
        "AuthRoleGrantPermissionResponse",
        Streams::None,
    ),
    (
        "RoleRevokePermission",
        "AuthRoleRevokePermissionRequest",
        "AuthRoleRevokePermissionResponse",
        Streams::None,
    ),
];
const HEALTH: &[Row] = &[
    ("Check", "HealthCheckRequest", "HealthCheckResponse", Streams::None),
    ("Watch", "HealthCheckRequest", "HealthCheckResponse", Streams::Answer),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let services = [
        service("etcdserverpb", "KV", KV),
        service("etcdserverpb", "Watch", WATCH),
        service("etcdserverpb", "Lease", LEASE),
        service("etcdserverpb", "Cluster", CLUSTER),
        service("etcdserverpb", "Maintenance", MAINTENANCE),
        service("etcdserverpb", "Auth", AUTH),
        service("grpc.health.v1", "Health", HEALTH),
    ];
    Builder::new()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_transport(false)
        .compile(&services);
    write_methods();
}

/// A table of all methods, for routing and counting.
fn write_methods() {
    let tables = [
        ("etcdserverpb.KV", KV),
        ("etcdserverpb.Watch", WATCH),
        ("etcdserverpb.Lease", LEASE),
        ("etcdserverpb.Cluster", CLUSTER),
        ("etcdserverpb.Maintenance", MAINTENANCE),
        ("etcdserverpb.Auth", AUTH),
        ("grpc.health.v1.Health", HEALTH),
    ];
    let mut rows = Vec::new();
    for (service, table) in tables {
        for (route, _, _, streams) in table {
            let kind = match streams {
                Streams::None => "unary",
                Streams::Answer => "server_stream",
                Streams::Both => "bidi_stream",
            };
            rows.push((service, *route, kind));
        }
    }
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = std::path::Path::new(&folder).join("methods.rs");
    std::fs::write(path, format!("&{rows:?}")).expect("OUT_DIR can be written");
}

fn service(package: &str, name: &str, rows: &[Row]) -> Service {
    let mut service = Service::builder().package(package).name(name);
    for (route, request, response, streams) in rows {
        let mut method = Method::builder()
            .name(snake(route))
            .route_name(route)
            .input_type(format!("crate::{request}"))
            .output_type(format!("crate::{response}"))
            .codec_path("crate::WireCodec");
        if matches!(streams, Streams::Both) {
            method = method.client_streaming();
        }
        if !matches!(streams, Streams::None) {
            method = method.server_streaming();
        }
        service = service.method(method.build());
    }
    service.build()
}

/// `HashKV` becomes `hash_kv`.
fn snake(route: &str) -> String {
    let mut name = String::new();
    let mut upper_before = true;
    for letter in route.chars() {
        if letter.is_ascii_uppercase() && !upper_before {
            name.push('_');
        }
        upper_before = letter.is_ascii_uppercase();
        name.push(letter.to_ascii_lowercase());
    }
    name
}
