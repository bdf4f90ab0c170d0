//! `man`: the manual pages.

use clap::{Command, CommandFactory};
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
    let (name, page) = page(&command);
    report.result(page.trim_end(), json!({"page": name, "text": page}));
    Ok(())
}

/// The name and the text of a command's page. All of the command line must have been built.
pub fn page(command: &Command) -> (String, String) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut page = Vec::new();
    Man::new(command.clone())
        .render(&mut page)
        .expect("a page fits into memory");
    let page = String::from_utf8(page).expect("our command line is UTF-8");
    (format!("{name}.1"), page)
}
