//! `install store`.

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::args::Id;
use crate::commands::narrator::Narrator;
use crate::commands::outcome::{Telling, is_done};
use crate::commands::{Context, plan, refused};
use crate::moves::store::NAME;

/// How its end is told.
pub const TELLING: Telling<'static> = Telling {
    what: "install store",
    moved: "the data lives in the store",
    as_before: "the API server is back on etcd",
};

/// Verifies, checks, and makes the move.
pub fn run(context: &Context, id: Option<Id>) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    let journals = context.root.journals();
    if let Some(done) = journals.in_force(system, NAME).map_err(|error| error.failure())? {
        context.reporter.result(
            &format!("already so: {} (journal {})", TELLING.moved, done.id),
            json!({"what": TELLING.what, "changed": false, "journal": done.id, "state": TELLING.moved}),
        );
        return Ok(Exit::Done);
    }
    let (checks, plan) = plan::for_store(context, system, id.as_ref())?;
    for check in checks
        .iter()
        .filter(|check| check.hint.is_some() || !check.result.allows())
    {
        context.reporter.step(check.name, &check.lines().join("\n"));
    }
    let Some(plan) = plan else {
        return Err(refused(TELLING.what, &checks));
    };
    context
        .reporter
        .step("checks", &format!("{} checks, all say yes", checks.len()));
    let session = journals.lock(system).map_err(|error| error.failure())?;
    let outcome = session
        .run(&plan, system, &mut Narrator::new(context.reporter))
        .map_err(|error| error.failure())?;
    if !is_done(&outcome) {
        return Err(TELLING.failure(&outcome));
    }
    context.reporter.result(
        &format!(
            "done: {}; etcd keeps running, untouched since the move\nback with: quantykube undo store",
            TELLING.moved
        ),
        TELLING.value(&outcome, true),
    );
    Ok(Exit::Done)
}
