//! `plan store`: the checks and every step, and nothing is changed.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Plan, System};
use serde_json::json;

use crate::checks::{self, Check};
use crate::commands::bundle::{self, Meant};
use crate::commands::outlook::{self, Outlook};
use crate::commands::{Context, checks_json, install, refused, rehearse};
use crate::facts;
use crate::moves;
use crate::moves::store::READY_TIMEOUT_S;

/// Copies the live cluster into a store that is thrown away, and tells what that took. The checks come first.
pub fn rehearse(context: &Context, meant: &Meant) -> Result<Exit, Failure> {
    let system = &context.machine();
    context.must_be_root()?;
    if install::already(context, system)? {
        return Ok(Exit::Done);
    }
    let (checks, bundle, ready) = look(context, system, meant)?;
    let Some(ready) = ready else {
        let lines: Vec<String> = checks.iter().flat_map(Check::lines).collect();
        context.reporter.step("checks", &lines.join("\n"));
        return Err(refused("install store", &checks));
    };
    context
        .reporter
        .step("checks", &format!("{} checks, none says no", checks.len()));
    rehearse::run(context, &bundle, &ready)
}

/// Prints what `install store` would do.
pub fn store(context: &Context, meant: &Meant) -> Result<Exit, Failure> {
    let system = &context.machine();
    if install::already(context, system)? {
        return Ok(Exit::Done);
    }
    let planned = for_store(context, system, meant, READY_TIMEOUT_S)?;
    print(context, "install store", &planned.checks, planned.plan.as_ref(), None)
}

/// Prints what `undo store` would do.
pub fn undo_store(context: &Context) -> Result<Exit, Failure> {
    let system = &context.machine();
    let facts = facts::undo_store(&context.root, system, None);
    let (checks, ready) = checks::undo_store::judge(&facts);
    let outlook = outlook::of(&context.root, &facts);
    let plan = ready.map(|ready| moves::undo_store::plan(&ready, READY_TIMEOUT_S));
    print(context, "undo store", &checks, plan.as_ref(), Some(&outlook))
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
/// before. The API server will have `ready_s` seconds until it is ready.
pub fn for_store(context: &Context, system: &dyn System, meant: &Meant, ready_s: u32) -> Result<Planned, Failure> {
    let (checks, bundle, ready) = look(context, system, meant)?;
    Ok(Planned {
        checks,
        number: ready.as_ref().map(|ready| ready.number),
        plan: ready.map(|ready| moves::store::plan(&bundle, &ready, ready_s)),
    })
}

/// Verifies the bundle and looks at the node: the checks, what of the bundle the move needs, and the node where every
/// check says yes.
fn look(
    context: &Context,
    system: &dyn System,
    meant: &Meant,
) -> Result<(Vec<Check>, moves::store::Bundle, Option<moves::store::Ready>), Failure> {
    let (verified, key) = bundle::verify(context, None, meant)?;
    let bundle = bundle::for_store(&verified)?;
    let facts = facts::store(&context.root, system);
    let (mut checks, ready) = checks::store::judge(&facts, verified.manifest().architecture.name());
    let signed = key.map(|key| format!(", signed by {key}")).unwrap_or_default();
    checks.insert(
        0,
        Check::pass("bundle", format!("verified, id {}{signed}", verified.id())),
    );
    Ok((checks, bundle, ready))
}

/// Checks and, where they allow it, the plan of `undo store`. The API server will have `ready_s` seconds until it is ready.
pub fn for_undo_store(context: &Context, system: &dyn System, ready_s: u32) -> (Vec<Check>, Option<Plan>) {
    let facts = facts::undo_store(&context.root, system, None);
    let (checks, ready) = checks::undo_store::judge(&facts);
    (checks, ready.map(|ready| moves::undo_store::plan(&ready, ready_s)))
}

fn print(
    context: &Context,
    what: &str,
    checks: &[Check],
    plan: Option<&Plan>,
    outlook: Option<&Outlook>,
) -> Result<Exit, Failure> {
    let mut lines = vec![format!("checks of {what}:")];
    lines.extend(checks.iter().flat_map(Check::lines));
    if let Some(plan) = plan {
        lines.push(format!("\nsteps of {what}:"));
        lines.extend(plan.describe());
        if let Some(outlook) = outlook {
            lines.push("\nwhat it will cost:".to_owned());
            lines.extend(outlook.lines());
        }
        lines.push("\nnothing was changed".to_owned());
    }
    context.reporter.result(
        &lines.join("\n"),
        json!({"what": what, "changed": false, "allowed": plan.is_some(), "checks": checks_json(checks), "plan": plan, "outlook": outlook}),
    );
    match plan {
        Some(_) => Ok(Exit::Done),
        None => Err(refused(what, checks)),
    }
}
