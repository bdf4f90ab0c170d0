//! `quantykube-bundle`: builds the one file that is carried to the nodes, and looks into it. It knows templates and
//! inputs, and never a node.

mod args;
mod check;
mod commands;
mod content;
mod download;
mod elf;
mod fetch;
mod files;
mod first_boot;
mod fresh;
mod http;
mod images;
mod inputs;
mod iso;
mod layout;
mod lock;
mod pages;
mod parts;
mod references;
mod registry;
mod render;
mod sbom;
mod signing;
mod spec;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use quantykube_base::{Exit, Reporter};

use args::{Args, Command};

fn main() -> ExitCode {
    quantykube_base::carry(include_bytes!(concat!(env!("OUT_DIR"), "/crates")));
    let args = Args::try_parse().unwrap_or_else(|error| match error.use_stderr() {
        true if let Some(exit) = Reporter::usage(&error.to_string()) => std::process::exit(exit.code().into()),
        _ => error.exit(),
    });
    let report = Reporter::detect(args.json);
    let result = match args.command {
        Command::Build(build) => commands::build::run(&build, &report),
        Command::Lock(lock) => commands::lock::run(&lock, &report),
        Command::Keygen(keygen) => commands::keygen::run(&keygen, &report),
        Command::Init(init) => commands::init::run(&init, &report),
        Command::Completions(completions) => commands::completions::run(&completions, &report),
        Command::Man(man) => commands::man::run(&man, &report),
        Command::Sbom(sbom) => commands::sbom::run(&sbom, &report),
        Command::Schema(schema) => commands::schema::run(&schema, &report),
        Command::Inspect(inspect) => commands::inspect::run(&inspect, &report),
        Command::Verify(verify) => commands::verify::run(&verify, &report),
        Command::Extract(extract) => commands::extract::run(&extract, &report),
        Command::Split(split) => commands::split::run(&split, &report),
        Command::Join(join) => commands::join::run(&join, &report),
        Command::Apply(apply) => commands::apply::run(&apply, &report),
        Command::Diff(diff) => commands::diff::run(&diff, &report),
        Command::Fill(fill) => commands::fill::run(&fill, &report),
        Command::UserData(args) => commands::user_data::run(&args, &report),
        Command::Seed(args) => commands::seed::run(&args, &report),
    };
    match result {
        Ok(()) => Exit::Done.into(),
        Err(failure) => report.failure(&failure).into(),
    }
}
