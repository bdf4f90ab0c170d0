//! `schema`: the JSON Schema of a spec.

use quantykube_base::{Failure, Reporter};
use serde_json::json;

use crate::args::Schema;
use crate::spec;

/// The schema of what every program of ours prints with `--json`, one object a line.
const EVENTS: &str = include_str!("../events.schema.json");

/// Prints it: with `--json` as a field of the result, else as a file that editors read.
pub fn run(args: &Schema, report: &Reporter) -> Result<(), Failure> {
    let schema = match args.events {
        true => serde_json::from_str(EVENTS).expect("the schema of events is JSON"),
        false => spec::schema(),
    };
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    report.result(&text, json!({"schema": schema}));
    Ok(())
}
