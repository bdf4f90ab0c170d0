//! Hidden: asks an API server once whether it is ready. Plans call it again and again.

use std::time::Duration;

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::commands::Context;
use crate::facts::api_server::{self, Endpoint};
use crate::facts::chain;

/// How long one answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Succeeds where `/readyz` answers 200.
pub fn run(context: &Context, endpoint: &Endpoint) -> Result<Exit, Failure> {
    api_server::ready(&context.root, endpoint, TIMEOUT).map_err(|error| {
        Failure::new(
            Exit::Failed,
            "api-server",
            format!("the API server is not ready: {}", chain(&error)),
        )
    })?;
    let text = format!("the API server at {} is ready", endpoint.address);
    context
        .reporter
        .result(&text, json!({"ready": true, "address": endpoint.address.to_string()}));
    Ok(Exit::Done)
}
