//! `./run install store` and `undo store` out of an extracted bundle, on a node with real systemd, etcd, API server and
//! kubeadm manifests.

mod acknowledged;
mod bench;
mod guard;
mod ipv6;
mod kills;
mod life;
mod power;
mod process;
mod provoked;
mod provoked_checks;
mod refusals;
mod rehearse;
mod round_trip;
mod signals;
mod store_fails;
