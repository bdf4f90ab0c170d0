//! `schema`: the JSON Schema of a spec.

use quantykube_base::{Failure, Reporter};
use serde_json::json;

use crate::args::Schema;
use crate::spec;

/// Prints it: with `--json` as a field of the result, else as a file that editors read.
pub fn run(_: &Schema, report: &Reporter) -> Result<(), Failure> {
    let schema = spec::schema();
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    report.result(&text, json!({"schema": schema}));
    Ok(())
}
