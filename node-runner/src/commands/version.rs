//! `version`.

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::commands::Context;

/// The version of this program, which is that of the bundle it came with.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints it.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    context
        .reporter
        .result(&format!("quantykube {VERSION}"), json!({"version": VERSION}));
    Ok(Exit::Done)
}
