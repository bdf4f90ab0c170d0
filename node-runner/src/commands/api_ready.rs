//! Hidden: asks an API server once whether it is ready. Plans call it again and again.

use std::time::Duration;

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::commands::Context;
use crate::facts::api_server::{self, Endpoint};
use crate::facts::chain;

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Succeeds where `/readyz` answers 200. That it does not yet is no error: a plan waits for it.
pub fn run(context: &Context, endpoint: &Endpoint) -> Result<Exit, Failure> {
    if let Err(error) = api_server::ready(&context.root, endpoint, TIMEOUT) {
        context
            .reporter
            .step("not-ready", &format!("not ready yet: {}", chain(&error)));
        return Ok(Exit::Failed);
    }
    let text = format!("the API server at {} is ready", endpoint.address);
    context
        .reporter
        .result(&text, json!({"ready": true, "address": endpoint.address.to_string()}));
    Ok(Exit::Done)
}
