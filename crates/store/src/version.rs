//! Versions: our own, and the etcd whose API and behaviour this server has.

/// Our own version.
pub const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What etcd's clients are told: they choose features by it.
pub const ETCD_VERSION: &str = "3.6.14";

/// The cluster version as /version names it: without the patch.
pub const ETCD_CLUSTER_VERSION: &str = "3.6.0";

/// The version of etcd's storage that a status names.
pub const ETCD_STORAGE_VERSION: &str = "3.6.0";

/// The cluster version as an answer about downgrades names it.
pub const ETCD_MINOR_VERSION: &str = "3.6";
