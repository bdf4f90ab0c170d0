//! `etcdserverpb.Auth`: who may connect is decided by certificates; users and roles are not kept.

use std::sync::Arc;

use quantykube_etcd_api::auth_server::Auth;
use quantykube_etcd_api::*;
use tonic::{Request, Response, Status};

use super::status;
use crate::engine::Engine;

/// The service.
pub struct AuthService(pub Arc<Engine>);

macro_rules! not_enabled {
    ($($name:ident($request:ty) -> $response:ty;)*) => {
        #[tonic::async_trait]
        impl Auth for AuthService {
            async fn auth_status(&self, _: Request<AuthStatusRequest>) -> Result<Response<AuthStatusResponse>, Status> {
                let revision = self.0.lock().map_err(status)?.visible();
                Ok(Response::new(AuthStatusResponse {
                    header: self.0.header_at(revision),
                    enabled: false,
                    // What an etcd says whose users were never touched.
                    auth_revision: 1,
                }))
            }
            $(
                async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
                    Err(errors::AUTH_NOT_ENABLED.into())
                }
            )*
        }
    };
}

not_enabled! {
    auth_enable(AuthEnableRequest) -> AuthEnableResponse;
    auth_disable(AuthDisableRequest) -> AuthDisableResponse;
    authenticate(AuthenticateRequest) -> AuthenticateResponse;
    user_add(AuthUserAddRequest) -> AuthUserAddResponse;
    user_get(AuthUserGetRequest) -> AuthUserGetResponse;
    user_list(AuthUserListRequest) -> AuthUserListResponse;
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse;
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse;
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse;
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse;
    role_add(AuthRoleAddRequest) -> AuthRoleAddResponse;
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse;
    role_list(AuthRoleListRequest) -> AuthRoleListResponse;
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse;
    role_grant_permission(AuthRoleGrantPermissionRequest) -> AuthRoleGrantPermissionResponse;
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse;
}
