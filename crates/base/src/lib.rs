//! What all programs share: exit codes, failures as users see them, events and progress, durable file writes.
//!
//! Nothing else belongs here: no knowledge of bundles, nodes, stores or etcd.

pub mod durable;
mod exit;
mod failure;
mod regular;
mod relay;
mod report;
mod times;

/// Keeps the list of crates that `crate-list.rs` made in the program, where a bill of materials is made of it.
pub fn carry(list: &'static [u8]) {
    std::hint::black_box(list);
}

pub use exit::Exit;
pub use failure::Failure;
pub use regular::open_regular;
pub use relay::Relay;
pub use report::{Mode, Progress, Reporter, Unit, human_bytes};
pub use times::parse_time;
