//! The program `quantykube-store`: one server, one store file, the etcd v3 API.

mod args;
mod clock;
mod engine;
mod log;
mod mvcc;
mod notify;
mod rpc;
mod server;
mod version;

use std::process::ExitCode;

use clap::Parser;
use quantykube_base::{Exit, Mode, Reporter};

/// Small allocations on a path of a few microseconds: glibc's allocator took a quarter of it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let reporter = Reporter::new(Mode::Plain);
    let config = args::Args::parse().config();
    match config.and_then(|config| server::run(&config)) {
        Ok(()) => Exit::Done.into(),
        Err(failure) => reporter.failure(&failure).into(),
    }
}
