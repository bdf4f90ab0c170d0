//! `plan store`: the checks and every step, and nothing is changed.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Plan, System};
use serde_json::json;

use crate::checks::{self, Check};
use crate::commands::bundle::{self, Meant};
use crate::commands::{Context, checks_json, install, refused};
use crate::facts;
use crate::moves;

/// Prints what `install store` would do.
pub fn store(context: &Context, meant: &Meant) -> Result<Exit, Failure> {
    let system = &context.machine();
    if install::already(context, system)? {
        return Ok(Exit::Done);
    }
    let planned = for_store(context, system, meant)?;
    print(context, "install store", &planned.checks, planned.plan.as_ref())
}

/// Prints what `undo store` would do.
pub fn undo_store(context: &Context) -> Result<Exit, Failure> {
    let system = &context.machine();
    let (checks, plan) = for_undo_store(context, system);
    print(context, "undo store", &checks, plan.as_ref())
}

/// What came out of looking at the node.
pub struct Planned {
    /// Every check.
    pub checks: Vec<Check>,
    /// The plan, where the checks allow it.
    pub plan: Option<Plan>,
    /// The number that the plan's journal must get: another one means that somebody else was here.
    pub number: Option<u32>,
}

/// Checks and, where they allow it, the plan of `install store`. The bundle is verified first: nothing it says is used
/// before.
pub fn for_store(context: &Context, system: &dyn System, meant: &Meant) -> Result<Planned, Failure> {
    let (verified, key) = bundle::verify(context, None, meant)?;
    let bundle = bundle::for_store(&verified)?;
    let facts = facts::store(&context.root, system);
    let (mut checks, ready) = checks::store::judge(&facts, verified.manifest().architecture.name());
    let signed = key.map(|key| format!(", signed by {key}")).unwrap_or_default();
    checks.insert(
        0,
        Check::pass("bundle", format!("verified, id {}{signed}", verified.id())),
    );
    Ok(Planned {
        checks,
        number: ready.as_ref().map(|ready| ready.number),
        plan: ready.map(|ready| moves::store::plan(&bundle, &ready)),
    })
}

/// Checks and, where they allow it, the plan of `undo store`.
pub fn for_undo_store(context: &Context, system: &dyn System) -> (Vec<Check>, Option<Plan>) {
    let facts = facts::undo_store(&context.root, system, None);
    let (checks, ready) = checks::undo_store::judge(&facts);
    (checks, ready.map(|ready| moves::undo_store::plan(&ready)))
}

fn print(context: &Context, what: &str, checks: &[Check], plan: Option<&Plan>) -> Result<Exit, Failure> {
    let mut lines = vec![format!("checks of {what}:")];
    lines.extend(checks.iter().flat_map(Check::lines));
    if let Some(plan) = plan {
        lines.push(format!("\nsteps of {what}:"));
        lines.extend(plan.describe());
        lines.push("\nnothing was changed".to_owned());
    }
    context.reporter.result(
        &lines.join("\n"),
        json!({"what": what, "changed": false, "allowed": plan.is_some(), "checks": checks_json(checks), "plan": plan}),
    );
    match plan {
        Some(_) => Ok(Exit::Done),
        None => Err(refused(what, checks)),
    }
}
