//! The node-runner: `./run` in an extracted bundle, `quantykube` where it is installed.
//!
//! It knows nodes and never templates. Facts are read first, a plan is made from them by a pure function, and the journal
//! takes the plan's steps.

mod args;
mod checks;
mod commands;
mod containerd;
mod facts;
mod first_boot;
mod guard;
mod moves;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod testing;
mod unit;

use std::process::ExitCode;

use args::Command;
use commands::Context;
use quantykube_base::{Exit, Failure, Reporter};

fn main() -> ExitCode {
    quantykube_base::carry(include_bytes!(concat!(env!("OUT_DIR"), "/crates")));
    let args::Line { json, inside, command } = args::parse();
    let context = Context::new(match &inside {
        Some(_) => unit::reporter(),
        None => Reporter::detect(json),
    });
    let result = command.and_then(|command| match &inside {
        Some(shared) => run(&context, go_on(&context, shared, command)?),
        // A move must not end with the terminal that it was typed at.
        None if command.is_move() => {
            if let Command::InstallStore { meant, .. } = &command {
                commands::bundle::prove_before_start(&context, meant)?;
            }
            unit::follow(&context)
        }
        None => run(&context, command),
    });
    let exit = result.unwrap_or_else(|failure| context.reporter.failure(&failure));
    if let Some(shared) = inside {
        shared.end(exit);
    }
    exit.into()
}

/// What a move's process does: what was typed, or, where an earlier one was killed in the middle, the rest of it. The
/// other verbs go on from an open move by themselves.
fn go_on(context: &Context, shared: &unit::Shared, command: Command) -> Result<Command, Failure> {
    if !shared.begin() {
        return Ok(command);
    }
    context.reporter.warning(
        "restarted",
        "the move's process was ended from outside; it goes on from its journal",
    );
    let open = context.root.journals().open_move(&context.machine());
    match (command, open.map_err(|error| error.failure())?) {
        (Command::InstallStore { .. }, Some(_)) => Ok(Command::Resume),
        (command, _) => Ok(command),
    }
}

/// One file per verb.
fn run(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Verify { file, meant } => commands::verify::run(context, file, meant),
        Command::PlanStore { meant } => commands::plan::store(context, &meant),
        Command::RehearseStore { meant } => commands::plan::rehearse(context, &meant),
        Command::PlanUndoStore => commands::plan::undo_store(context),
        Command::InstallStore { meant, ready_s } => commands::install::run(context, &meant, ready_s),
        Command::UndoStore { ready_s } => commands::undo::run(context, ready_s),
        Command::Resume => commands::resume::run(context),
        Command::InUnit(shared) => Err(unit::become_what_was_typed(&shared)),
        Command::RecoverAtBoot => commands::boot::recover(context),
        Command::ResumeAtBoot => commands::boot::resume(context),
        Command::Status { check } => commands::status::run(context, check),
        Command::FirstBoot(request) => commands::first_boot::run(context, &request),
        Command::History => commands::history::run(context),
        Command::KubeadmConfig(edit) => commands::kubeadm_config::run(&edit),
        Command::Remove { purge, dry_run } => commands::remove::run(context, purge, dry_run),
        Command::Migrate(args) => commands::migrate::run(args, &context.reporter),
        Command::LoadImages(load) => commands::images::run(context, &load),
        Command::Version => commands::version::run(context),
        Command::ApiReady(endpoint) => commands::api_ready::run(context, &endpoint),
        Command::StoreReady(etcd) => commands::store_ready::run(context, &etcd),
        Command::GuardWatch => guard::watch(context),
        Command::GuardRelease => guard::release(context),
        Command::EtcdQuiet { endpoint } => commands::etcd_quiet::run(context, &endpoint),
        Command::GateStore { file, server } => commands::gate_store::run(context, &file, server.as_ref()),
        Command::RaiseRevision { etcd, store } => commands::raise_revision::run(context, &etcd, &store),
        Command::CopyBack { etcd, file } => commands::copy_back::run(context, &etcd, &file),
    }
}
