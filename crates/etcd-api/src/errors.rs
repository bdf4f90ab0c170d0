//! Every error etcd answers, with its exact code and text.
//!
//! Clients compare whole strings: a text that differs by one letter is an unknown error to them.

use tonic::{Code, Status};

/// An error of the API: what a client sees of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ApiError {
    /// The gRPC code.
    pub code: Code,
    /// The whole message.
    pub text: &'static str,
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Status {
        Status::new(error.code, error.text)
    }
}

const fn error(code: Code, text: &'static str) -> ApiError {
    ApiError { code, text }
}

/// `etcdserver: key is not provided`
pub const EMPTY_KEY: ApiError = error(Code::InvalidArgument, "etcdserver: key is not provided");
/// `etcdserver: key not found`
pub const KEY_NOT_FOUND: ApiError = error(Code::InvalidArgument, "etcdserver: key not found");
/// `etcdserver: value is provided`
pub const VALUE_PROVIDED: ApiError = error(Code::InvalidArgument, "etcdserver: value is provided");
/// `etcdserver: lease is provided`
pub const LEASE_PROVIDED: ApiError = error(Code::InvalidArgument, "etcdserver: lease is provided");
/// `etcdserver: too many operations in txn request`
pub const TOO_MANY_OPS: ApiError = error(Code::InvalidArgument, "etcdserver: too many operations in txn request");
/// `etcdserver: duplicate key given in txn request`
pub const DUPLICATE_KEY: ApiError = error(Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
/// `etcdserver: invalid client api version`
pub const INVALID_CLIENT_API_VERSION: ApiError = error(Code::InvalidArgument, "etcdserver: invalid client api version");
/// `etcdserver: invalid sort option`
pub const INVALID_SORT_OPTION: ApiError = error(Code::InvalidArgument, "etcdserver: invalid sort option");
/// `etcdserver: mvcc: required revision has been compacted`
pub const COMPACTED: ApiError = error(
    Code::OutOfRange,
    "etcdserver: mvcc: required revision has been compacted",
);
/// `etcdserver: mvcc: required revision is a future revision`
pub const FUTURE_REV: ApiError = error(
    Code::OutOfRange,
    "etcdserver: mvcc: required revision is a future revision",
);
/// `etcdserver: mvcc: database space exceeded`
pub const NO_SPACE: ApiError = error(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
/// `etcdserver: requested lease not found`
pub const LEASE_NOT_FOUND: ApiError = error(Code::NotFound, "etcdserver: requested lease not found");
/// `etcdserver: lease already exists`
pub const LEASE_EXIST: ApiError = error(Code::FailedPrecondition, "etcdserver: lease already exists");
/// `etcdserver: too large lease TTL`
pub const LEASE_TTL_TOO_LARGE: ApiError = error(Code::OutOfRange, "etcdserver: too large lease TTL");
/// `etcdserver: watch canceled`
pub const WATCH_CANCELED: ApiError = error(Code::Cancelled, "etcdserver: watch canceled");
/// `etcdserver: member ID already exist`
pub const MEMBER_EXIST: ApiError = error(Code::FailedPrecondition, "etcdserver: member ID already exist");
/// `etcdserver: Peer URLs already exists`
pub const PEER_URL_EXIST: ApiError = error(Code::FailedPrecondition, "etcdserver: Peer URLs already exists");
/// `etcdserver: re-configuration failed due to not enough started members`
pub const MEMBER_NOT_ENOUGH_STARTED: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: re-configuration failed due to not enough started members",
);
/// `etcdserver: given member URLs are invalid`
pub const MEMBER_BAD_URLS: ApiError = error(Code::InvalidArgument, "etcdserver: given member URLs are invalid");
/// `etcdserver: member not found`
pub const MEMBER_NOT_FOUND: ApiError = error(Code::NotFound, "etcdserver: member not found");
/// `etcdserver: can only promote a learner member`
pub const MEMBER_NOT_LEARNER: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: can only promote a learner member",
);
/// `etcdserver: can only promote a learner member which is in sync with leader`
pub const LEARNER_NOT_READY: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: can only promote a learner member which is in sync with leader",
);
/// `etcdserver: too many learner members in cluster`
pub const TOO_MANY_LEARNERS: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: too many learner members in cluster",
);
/// `etcdserver: cluster ID mismatch`
pub const CLUSTER_ID_MISMATCH: ApiError = error(Code::FailedPrecondition, "etcdserver: cluster ID mismatch");
/// `etcdserver: request is too large`
pub const REQUEST_TOO_LARGE: ApiError = error(Code::InvalidArgument, "etcdserver: request is too large");
/// `etcdserver: too many requests`
pub const REQUEST_TOO_MANY_REQUESTS: ApiError = error(Code::ResourceExhausted, "etcdserver: too many requests");
/// `etcdserver: root user does not exist`
pub const ROOT_USER_NOT_EXIST: ApiError = error(Code::FailedPrecondition, "etcdserver: root user does not exist");
/// `etcdserver: root user does not have root role`
pub const ROOT_ROLE_NOT_EXIST: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: root user does not have root role",
);
/// `etcdserver: user name already exists`
pub const USER_ALREADY_EXIST: ApiError = error(Code::FailedPrecondition, "etcdserver: user name already exists");
/// `etcdserver: user name is empty`
pub const USER_EMPTY: ApiError = error(Code::InvalidArgument, "etcdserver: user name is empty");
/// `etcdserver: user name not found`
pub const USER_NOT_FOUND: ApiError = error(Code::FailedPrecondition, "etcdserver: user name not found");
/// `etcdserver: role name already exists`
pub const ROLE_ALREADY_EXIST: ApiError = error(Code::FailedPrecondition, "etcdserver: role name already exists");
/// `etcdserver: role name not found`
pub const ROLE_NOT_FOUND: ApiError = error(Code::FailedPrecondition, "etcdserver: role name not found");
/// `etcdserver: role name is empty`
pub const ROLE_EMPTY: ApiError = error(Code::InvalidArgument, "etcdserver: role name is empty");
/// `etcdserver: authentication failed, invalid user ID or password`
pub const AUTH_FAILED: ApiError = error(
    Code::InvalidArgument,
    "etcdserver: authentication failed, invalid user ID or password",
);
/// `etcdserver: permission not given`
pub const PERMISSION_NOT_GIVEN: ApiError = error(Code::InvalidArgument, "etcdserver: permission not given");
/// `etcdserver: permission denied`
pub const PERMISSION_DENIED: ApiError = error(Code::PermissionDenied, "etcdserver: permission denied");
/// `etcdserver: role is not granted to the user`
pub const ROLE_NOT_GRANTED: ApiError = error(Code::FailedPrecondition, "etcdserver: role is not granted to the user");
/// `etcdserver: permission is not granted to the role`
pub const PERMISSION_NOT_GRANTED: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: permission is not granted to the role",
);
/// `etcdserver: authentication is not enabled`
pub const AUTH_NOT_ENABLED: ApiError = error(Code::FailedPrecondition, "etcdserver: authentication is not enabled");
/// `etcdserver: invalid auth token`
pub const INVALID_AUTH_TOKEN: ApiError = error(Code::Unauthenticated, "etcdserver: invalid auth token");
/// `etcdserver: invalid auth management`
pub const INVALID_AUTH_MGMT: ApiError = error(Code::InvalidArgument, "etcdserver: invalid auth management");
/// `etcdserver: revision of auth store is old`
pub const AUTH_OLD_REVISION: ApiError = error(Code::InvalidArgument, "etcdserver: revision of auth store is old");
/// `etcdserver: no leader`
pub const NO_LEADER: ApiError = error(Code::Unavailable, "etcdserver: no leader");
/// `etcdserver: not leader`
pub const NOT_LEADER: ApiError = error(Code::FailedPrecondition, "etcdserver: not leader");
/// `etcdserver: leader changed`
pub const LEADER_CHANGED: ApiError = error(Code::Unavailable, "etcdserver: leader changed");
/// `etcdserver: not capable`
pub const NOT_CAPABLE: ApiError = error(Code::FailedPrecondition, "etcdserver: not capable");
/// `etcdserver: server stopped`
pub const STOPPED: ApiError = error(Code::Unavailable, "etcdserver: server stopped");
/// `etcdserver: request timed out`
pub const TIMEOUT: ApiError = error(Code::Unavailable, "etcdserver: request timed out");
/// `etcdserver: request timed out, possibly due to previous leader failure`
pub const TIMEOUT_DUE_TO_LEADER_FAIL: ApiError = error(
    Code::Unavailable,
    "etcdserver: request timed out, possibly due to previous leader failure",
);
/// `etcdserver: request timed out, possibly due to connection lost`
pub const TIMEOUT_DUE_TO_CONNECTION_LOST: ApiError = error(
    Code::Unavailable,
    "etcdserver: request timed out, possibly due to connection lost",
);
/// `etcdserver: request timed out, waiting for the applied index took too long`
pub const TIMEOUT_WAIT_APPLIED_INDEX: ApiError = error(
    Code::Unavailable,
    "etcdserver: request timed out, waiting for the applied index took too long",
);
/// `etcdserver: unhealthy cluster`
pub const UNHEALTHY: ApiError = error(Code::Unavailable, "etcdserver: unhealthy cluster");
/// `etcdserver: corrupt cluster`
pub const CORRUPT: ApiError = error(Code::DataLoss, "etcdserver: corrupt cluster");
/// `etcdserver: rpc not supported for learner`
pub const NOT_SUPPORTED_FOR_LEARNER: ApiError =
    error(Code::FailedPrecondition, "etcdserver: rpc not supported for learner");
/// `etcdserver: bad leader transferee`
pub const BAD_LEADER_TRANSFEREE: ApiError = error(Code::FailedPrecondition, "etcdserver: bad leader transferee");
/// `etcdserver: wrong downgrade target version format`
pub const WRONG_DOWNGRADE_VERSION_FORMAT: ApiError = error(
    Code::InvalidArgument,
    "etcdserver: wrong downgrade target version format",
);
/// `etcdserver: invalid downgrade target version`
pub const INVALID_DOWNGRADE_TARGET_VERSION: ApiError =
    error(Code::InvalidArgument, "etcdserver: invalid downgrade target version");
/// `etcdserver: cluster version not found during downgrade`
pub const CLUSTER_VERSION_UNAVAILABLE: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: cluster version not found during downgrade",
);
/// `etcdserver: cluster has a downgrade job in progress`
pub const DOWNGRADE_IN_PROCESS: ApiError = error(
    Code::FailedPrecondition,
    "etcdserver: cluster has a downgrade job in progress",
);
/// `etcdserver: no inflight downgrade job`
pub const NO_INFLIGHT_DOWNGRADE: ApiError = error(Code::FailedPrecondition, "etcdserver: no inflight downgrade job");
/// `etcdserver: request canceled`
pub const CANCELED: ApiError = error(Code::Cancelled, "etcdserver: request canceled");
/// `etcdserver: context deadline exceeded`
pub const DEADLINE_EXCEEDED: ApiError = error(Code::DeadlineExceeded, "etcdserver: context deadline exceeded");
