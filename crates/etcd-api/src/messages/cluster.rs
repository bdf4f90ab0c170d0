//! Members of the cluster.

use super::ResponseHeader;

/// `etcdserverpb.Member`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Member {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// `etcdserverpb.MemberAddRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberAddRequest {
    #[prost(string, repeated, tag = "1")]
    pub peer_urls: Vec<String>,
    #[prost(bool, tag = "2")]
    pub is_learner: bool,
}

/// `etcdserverpb.MemberAddResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberAddResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, optional, tag = "2")]
    pub member: Option<Member>,
    #[prost(message, repeated, tag = "3")]
    pub members: Vec<Member>,
}

/// `etcdserverpb.MemberRemoveRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberRemoveRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// `etcdserverpb.MemberRemoveResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberRemoveResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// `etcdserverpb.MemberUpdateRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberUpdateRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(string, repeated, tag = "2")]
    pub peer_urls: Vec<String>,
}

/// `etcdserverpb.MemberUpdateResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberUpdateResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// `etcdserverpb.MemberListRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberListRequest {
    #[prost(bool, tag = "1")]
    pub linearizable: bool,
}

/// `etcdserverpb.MemberListResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// `etcdserverpb.MemberPromoteRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberPromoteRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
}

/// `etcdserverpb.MemberPromoteResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct MemberPromoteResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}
