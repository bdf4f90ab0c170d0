//! The program `quantykube-store`: one server, one store file, the etcd v3 API.

mod args;
mod clock;
mod commands;
mod engine;
mod log;
mod mvcc;
mod notify;
mod restore;
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
    quantykube_base::carry(include_bytes!(concat!(env!("OUT_DIR"), "/crates")));
    let args = args::Args::parse();
    let (reporter, done) = match &args.command {
        Some(command) => {
            let reporter = Reporter::detect(command.json());
            (reporter, command.run(&reporter))
        }
        None => {
            let done = args.config().and_then(|config| server::run(&config));
            (Reporter::new(Mode::Plain), done)
        }
    };
    match done {
        Ok(()) => Exit::Done.into(),
        Err(failure) => reporter.failure(&failure).into(),
    }
}
