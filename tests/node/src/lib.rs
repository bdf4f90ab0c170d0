//! A kubeadm control-plane node at native speed, for tests: a Debian 12 root folder booted by systemd-nspawn with its
//! own systemd and D-Bus and no network but lo, the real etcd and kube-apiserver as kubeadm's real manifests describe
//! them, and the stand-in for the kubelet as its `kubelet.service`.
//!
//! ```no_run
//! use std::time::Duration;
//! use quantykube_test_node::{Node, Options};
//!
//! let node = Node::boot(Options::default());
//! node.api_ready(Duration::from_secs(60));
//! println!("{}", node.kubectl(&["get", "namespaces"]));
//! ```
//!
//! Three nodes may run at a time on a machine, each in control groups of its own; [`Node::boot`] waits for a place.
//! Everything here panics with a message that says what to do, as tests do; only root can boot a node.

mod access;
mod boot;
mod group;
mod machine;
mod places;
mod spawned;
mod still;

pub use boot::Options;
pub use machine::Node;
pub use spawned::Spawned;
