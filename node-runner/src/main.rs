//! The node-runner: `./run` in an extracted bundle, `quantykube` where it is installed.
//!
//! It knows nodes and never templates. Facts are read first, a plan is made from them by a pure function, and the journal
//! takes the plan's steps.

mod args;
mod checks;
mod commands;
mod facts;
#[allow(dead_code)]
mod guard;
mod moves;
#[cfg(test)]
mod testing;

use std::process::ExitCode;

use args::Command;
use commands::Context;
use quantykube_base::{Exit, Failure, Reporter};

fn main() -> ExitCode {
    let (json, command) = args::parse();
    let context = Context::new(Reporter::detect(json));
    let result = command.and_then(|command| run(&context, command));
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => context.reporter.failure(&failure).into(),
    }
}

/// One file per verb.
fn run(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Verify { file, meant } => commands::verify::run(context, file, meant),
        Command::PlanStore { meant } => commands::plan::store(context, &meant),
        Command::PlanUndoStore => commands::plan::undo_store(context),
        Command::InstallStore { meant } => commands::install::run(context, &meant),
        Command::UndoStore => commands::undo::run(context),
        Command::Resume => commands::resume::run(context),
        Command::RecoverAtBoot => commands::boot::recover(context),
        Command::ResumeAtBoot => commands::boot::resume(context),
        Command::Status => commands::status::run(context),
        Command::Migrate(args) => commands::migrate::run(args, &context.reporter),
        Command::Version => commands::version::run(context),
        Command::ApiReady(endpoint) => commands::api_ready::run(context, &endpoint),
        Command::StoreReady(etcd) => commands::store_ready::run(context, &etcd),
        Command::GateStore { file } => commands::gate_store::run(context, &file),
        Command::RaiseRevision { etcd, store } => commands::raise_revision::run(context, &etcd, &store),
        Command::CopyBack { etcd, file } => commands::copy_back::run(context, &etcd, &file),
    }
}
