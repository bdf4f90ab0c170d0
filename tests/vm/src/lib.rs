//! A kubeadm control-plane node under software emulation, for tests: Debian 12 with containerd, the real kubelet and a
//! cluster that `kubeadm init` made, in a virtual machine without a network. `scripts/vm bake` makes it once.
//!
//! ```no_run
//! use quantykube_test_vm::Vm;
//!
//! let mut vm = Vm::resume();
//! println!("{}", vm.sh("kubectl get nodes"));
//! vm.cut();
//! vm.power_on();
//! ```
//!
//! [`Vm::resume`] goes on from the memory of a machine on which the cluster runs, within seconds; [`Vm::boot`] is a cold
//! boot, which takes minutes. Neither changes what was baked: disks are copy-on-write. One machine runs at a time.
//! Everything here panics with a message that says what to do, as tests do; only root can run a machine (for `nice`).

mod agent;
pub mod bake;
mod carry;
mod hardware;
mod machine;
mod places;
mod qmp;

pub use agent::Output;
pub use machine::{Disk, Vm};
