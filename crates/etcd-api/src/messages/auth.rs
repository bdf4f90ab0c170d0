//! Authentication and its users and roles.

use bytes::Bytes;

use super::ResponseHeader;

/// `authpb.UserAddOptions`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct UserAddOptions {
    #[prost(bool, tag = "1")]
    pub no_password: bool,
}

/// `authpb.Permission`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Permission {
    #[prost(enumeration = "PermissionType", tag = "1")]
    pub perm_type: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// `etcdserverpb.AuthEnableRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthEnableRequest {}

/// `etcdserverpb.AuthDisableRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthDisableRequest {}

/// `etcdserverpb.AuthStatusRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthStatusRequest {}

/// `etcdserverpb.AuthenticateRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

/// `etcdserverpb.AuthUserAddRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserAddRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
    #[prost(string, tag = "4")]
    pub hashed_password: String,
}

/// `etcdserverpb.AuthUserGetRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserGetRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `etcdserverpb.AuthUserDeleteRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserDeleteRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `etcdserverpb.AuthUserChangePasswordRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserChangePasswordRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
    #[prost(string, tag = "3")]
    pub hashed_password: String,
}

/// `etcdserverpb.AuthUserGrantRoleRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserGrantRoleRequest {
    #[prost(string, tag = "1")]
    pub user: String,
    #[prost(string, tag = "2")]
    pub role: String,
}

/// `etcdserverpb.AuthUserRevokeRoleRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserRevokeRoleRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub role: String,
}

/// `etcdserverpb.AuthRoleAddRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleAddRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `etcdserverpb.AuthRoleGetRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleGetRequest {
    #[prost(string, tag = "1")]
    pub role: String,
}

/// `etcdserverpb.AuthUserListRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserListRequest {}

/// `etcdserverpb.AuthRoleListRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleListRequest {}

/// `etcdserverpb.AuthRoleDeleteRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleDeleteRequest {
    #[prost(string, tag = "1")]
    pub role: String,
}

/// `etcdserverpb.AuthRoleGrantPermissionRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleGrantPermissionRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub perm: Option<Permission>,
}

/// `etcdserverpb.AuthRoleRevokePermissionRequest`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleRevokePermissionRequest {
    #[prost(string, tag = "1")]
    pub role: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// `etcdserverpb.AuthEnableResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthEnableResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthDisableResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthDisableResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthStatusResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub enabled: bool,
    #[prost(uint64, tag = "3")]
    pub auth_revision: u64,
}

/// `etcdserverpb.AuthenticateResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub token: String,
}

/// `etcdserverpb.AuthUserAddResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserAddResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthUserGetResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserGetResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, repeated, tag = "2")]
    pub roles: Vec<String>,
}

/// `etcdserverpb.AuthUserDeleteResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserDeleteResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthUserChangePasswordResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserChangePasswordResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthUserGrantRoleResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserGrantRoleResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthUserRevokeRoleResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserRevokeRoleResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthRoleAddResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleAddResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthRoleGetResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleGetResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub perm: Vec<Permission>,
}

/// `etcdserverpb.AuthRoleListResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleListResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, repeated, tag = "2")]
    pub roles: Vec<String>,
}

/// `etcdserverpb.AuthUserListResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthUserListResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, repeated, tag = "2")]
    pub users: Vec<String>,
}

/// `etcdserverpb.AuthRoleDeleteResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleDeleteResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthRoleGrantPermissionResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleGrantPermissionResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.AuthRoleRevokePermissionResponse`.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct AuthRoleRevokePermissionResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `PermissionType`, by its numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum PermissionType {
    Read = 0,
    Write = 1,
    ReadWrite = 2,
}
