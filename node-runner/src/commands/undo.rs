//! `undo store`: an open move is put back, a finished one is undone by a plan of its own.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Direction, Ending, Outcome, Session, Summary, System};
use serde_json::json;

use crate::checks::Check;
use crate::commands::narrator::Narrator;
use crate::commands::outcome::{Telling, is_done};
use crate::commands::{Context, install, kubeadm_config, plan, refused};
use crate::moves::store::NAME;

/// How its end is told.
pub const TELLING: Telling<'static> = Telling {
    what: "undo store",
    moved: "the data lives in etcd",
    as_before: "the API server is back on the store",
};

/// Brings the node back, from wherever it stands; where it is a move of its own, the API server has `ready_s` seconds until
/// it is ready.
pub fn run(context: &Context, ready_s: u32) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    let journals = context.root.journals();
    let nothing_to_do = journals.open_move(system).map_err(|error| error.failure())?.is_none()
        && journals
            .in_force(system, NAME)
            .map_err(|error| error.failure())?
            .is_none();
    if nothing_to_do {
        context.reporter.result(
            &format!("already so: {}, no install is in force", TELLING.moved),
            json!({"what": TELLING.what, "changed": false, "state": TELLING.moved}),
        );
        return Ok(Exit::Done);
    }
    let session = journals.lock(system).map_err(|error| error.failure())?;
    if let Some(open) = journals.open_move(system).map_err(|error| error.failure())?
        && let Some(exit) = end_open(context, &session, system, &open)?
    {
        return Ok(exit);
    }
    let (checks, plan) = plan::for_undo_store(context, system, ready_s);
    for check in checks.iter().filter(|check| !check.result.allows()) {
        context.reporter.step(check.name, &check.lines().join("\n"));
    }
    let Some(plan) = plan else {
        return Err(refused(TELLING.what, &checks));
    };
    say_checks(context, &checks);
    let mut narrator = Narrator::new(context.reporter);
    let outcome = session
        .run(&plan, system, &mut narrator)
        .map_err(|error| error.failure())?;
    tell(context, &outcome, &narrator)
}

/// Brings an open move to its end. `None` where an install could not be put back any more and stands finished: its own
/// undo follows.
fn end_open(
    context: &Context,
    session: &Session,
    system: &mut dyn System,
    open: &Summary,
) -> Result<Option<Exit>, Failure> {
    let mut narrator = Narrator::new(context.reporter);
    if open.plan.direction == Direction::Undo {
        context
            .reporter
            .step("open-move", &format!("the move {} is open and goes on", open.id));
        let outcome = session.resume(system, &mut narrator).map_err(|error| error.failure())?;
        // Put back as it was asked to, it is begun anew.
        if outcome.ending == Ending::AsBefore && outcome.exit == Exit::Done {
            return Ok(None);
        }
        return tell(context, &outcome, &narrator).map(Some);
    }
    context
        .reporter
        .step("open-move", &format!("the move {} is open and is put back", open.id));
    let outcome = session.undo(system, &mut narrator).map_err(|error| error.failure())?;
    match outcome.ending {
        Ending::AsBefore => {
            context.reporter.result(
                &format!("done: {} was put back, {}", outcome.id, install::TELLING.as_before),
                json!({"what": TELLING.what, "changed": true, "journal": outcome.id, "state": TELLING.moved}),
            );
            Ok(Some(Exit::Done))
        }
        Ending::Moved => Ok(None),
        // Only the API server's answer is missing: the undo needs none.
        Ending::Stuck if session.accept(system).is_ok() => Ok(None),
        Ending::Open | Ending::Stuck => Err(install::TELLING.failure(&outcome)),
    }
}

fn say_checks(context: &Context, checks: &[Check]) {
    context
        .reporter
        .step("checks", &format!("{} checks, all say yes", checks.len()));
}

fn tell(context: &Context, outcome: &Outcome, narrator: &Narrator) -> Result<Exit, Failure> {
    if !is_done(outcome) {
        return Err(TELLING.failure(outcome));
    }
    let away = narrator.away();
    let away_text = away.map_or(String::new(), |away| {
        format!(", the API server was away for {:.1} s", away.as_secs_f64())
    });
    let kubeadm = kubeadm_config::forget(context);
    let mut value = TELLING.value(outcome, away);
    value["kubeadmConfig"] = json!(kubeadm);
    context.reporter.result(
        &format!(
            "done: {}{away_text}; the store's file is kept beside its old place\n{}",
            TELLING.moved,
            kubeadm_config::said(kubeadm.as_deref()),
        ),
        value,
    );
    Ok(Exit::Done)
}
