//! Black-box tests that drive the built programs. What they share: where programs and peers are, ports, real servers.

pub mod places;
pub mod ports;
pub mod server;

pub use places::{cloud_init, docker_registry, peer, program, promtool};
pub use ports::free_port;
pub use server::Server;

/// Says loudly that a test cannot run here; `scripts/test` counts and repeats such lines.
pub fn skipped(test: &str, reason: &str) {
    println!("SKIPPED {test}: {reason}");
}
