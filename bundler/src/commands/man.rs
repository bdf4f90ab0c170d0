//! `man`: the manual pages.

use clap::CommandFactory;
use clap_mangen::Man;
use quantykube_base::{Exit, Failure, Reporter};
use serde_json::json;

use crate::args::{self, Args};

/// Prints the page of one command, or of the whole program.
pub fn run(args: &args::Man, report: &Reporter) -> Result<(), Failure> {
    let mut program = Args::command();
    // Gives each command the options that all have, and its whole name.
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = program.get_subcommands().map(|command| command.get_name()).collect();
            let message = format!("there is no command {name}; there are: {}", known.join(", "));
            Failure::new(Exit::Usage, "command", message)
        })?,
    };
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command)
        .render(&mut page)
        .map_err(|error| Failure::new(Exit::Failed, "man", "cannot write the page").because(error))?;
    let page = String::from_utf8(page).expect("our command line is UTF-8");
    report.result(page.trim_end(), json!({"page": format!("{name}.1"), "text": page}));
    Ok(())
}
