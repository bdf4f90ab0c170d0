//! What `scripts/kubeadm.sh` runs.

fn main() {}
