//! `completions`: what a shell needs to complete this command line.

use clap::CommandFactory;
use clap_complete::Shell;
use quantykube_base::{Failure, Reporter};
use serde_json::json;

use crate::args::{Args, Completions};

/// Prints the script of one shell.
pub fn run(args: &Completions, report: &Reporter) -> Result<(), Failure> {
    let script = script(args.shell);
    report.result(
        script.trim_end(),
        json!({"shell": args.shell.to_string(), "script": script}),
    );
    Ok(())
}

/// What a shell reads.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "quantykube-bundle", &mut script);
    let script = String::from_utf8(script).expect("our command line is UTF-8");
    match shell {
        // clap_complete 4.6 writes the hyphen of a program's name in two ways, so that no case of a command is reached.
        Shell::Bash => script.replace("quantykube__subcmd__bundle", "quantykube__bundle"),
        _ => script,
    }
}
