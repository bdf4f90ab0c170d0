//! Maintenance.

use bytes::Bytes;

use super::ResponseHeader;

/// `etcdserverpb.DefragmentRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DefragmentRequest {}

/// `etcdserverpb.DefragmentResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DefragmentResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.MoveLeaderRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MoveLeaderRequest {
    #[prost(uint64, tag = "1")]
    pub target_id: u64,
}

/// `etcdserverpb.MoveLeaderResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MoveLeaderResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AlarmRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlarmRequest {
    #[prost(enumeration = "AlarmAction", tag = "1")]
    pub action: i32,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(enumeration = "AlarmType", tag = "3")]
    pub alarm: i32,
}

/// `etcdserverpb.AlarmMember`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    #[prost(enumeration = "AlarmType", tag = "2")]
    pub alarm: i32,
}

/// `etcdserverpb.AlarmResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AlarmResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

/// `etcdserverpb.DowngradeRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DowngradeRequest {
    #[prost(enumeration = "DowngradeAction", tag = "1")]
    pub action: i32,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `etcdserverpb.DowngradeResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DowngradeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `etcdserverpb.DowngradeInfo`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct DowngradeInfo {
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    #[prost(string, tag = "2")]
    pub target_version: String,
}

/// `etcdserverpb.StatusRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct StatusRequest {}

/// `etcdserverpb.StatusResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    #[prost(uint64, tag = "7")]
    pub raft_applied_index: u64,
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
    #[prost(string, tag = "11")]
    pub storage_version: String,
    #[prost(int64, tag = "12")]
    pub db_size_quota: i64,
    #[prost(message, optional, tag = "13")]
    pub downgrade_info: Option<DowngradeInfo>,
}

/// `etcdserverpb.HashRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct HashRequest {}

/// `etcdserverpb.HashResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct HashResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(uint32, tag = "2")]
    pub hash: u32,
}

/// `etcdserverpb.HashKVRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct HashKVRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// `etcdserverpb.HashKVResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct HashKVResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(uint32, tag = "2")]
    pub hash: u32,
    #[prost(int64, tag = "3")]
    pub compact_revision: i64,
    #[prost(int64, tag = "4")]
    pub hash_revision: i64,
}

/// `etcdserverpb.SnapshotRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SnapshotRequest {}

/// `etcdserverpb.SnapshotResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SnapshotResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(uint64, tag = "2")]
    pub remaining_bytes: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub blob: Bytes,
    #[prost(string, tag = "4")]
    pub version: String,
}

/// `AlarmType`, by its numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum AlarmType {
    None = 0,
    NoSpace = 1,
    Corrupt = 2,
}

/// `AlarmAction`, by its numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum AlarmAction {
    Get = 0,
    Activate = 1,
    Deactivate = 2,
}

/// `DowngradeAction`, by its numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum DowngradeAction {
    Validate = 0,
    Enable = 1,
    Cancel = 2,
}
