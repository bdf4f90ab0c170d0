//! What all programs share: exit codes, failures as users see them, events and progress, durable file writes.
//!
//! Nothing else belongs here: no knowledge of bundles, nodes, stores or etcd.

pub mod durable;
mod exit;
mod failure;
mod regular;
mod relay;
mod report;

pub use exit::Exit;
pub use failure::Failure;
pub use regular::open_regular;
pub use relay::Relay;
pub use report::{Mode, Progress, Reporter, Unit, human_bytes};
