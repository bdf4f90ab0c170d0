//! `install store`.

use quantykube_base::{Exit, Failure};
use quantykube_journal::System;
use serde_json::json;

use crate::checks::Verdict;
use crate::commands::bundle::Meant;
use crate::commands::narrator::Narrator;
use crate::commands::outcome::{Telling, is_done};
use crate::commands::plan::Planned;
use crate::commands::{Context, kubeadm_config, plan, refused};
use crate::moves::store::NAME;

/// How its end is told.
pub const TELLING: Telling<'static> = Telling {
    what: "install store",
    moved: "the data lives in the store",
    as_before: "the API server is back on etcd",
};

/// Verifies, checks, and makes the move; the API server has `ready_s` seconds until it is ready.
pub fn run(context: &Context, meant: &Meant, ready_s: u32) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    let journals = context.root.journals();
    if already(context, system)? {
        return Ok(Exit::Done);
    }
    let Planned { checks, plan, number } = plan::for_store(context, system, meant, ready_s)?;
    for check in checks.iter().filter(|check| check.result != Verdict::Pass) {
        match check.result {
            Verdict::Warn => context.reporter.warning(check.name, &check.sentence()),
            _ => context.reporter.step(check.name, &check.lines().join("\n")),
        }
    }
    let Some(plan) = plan else {
        return Err(refused(TELLING.what, &checks));
    };
    context
        .reporter
        .step("checks", &format!("{} checks, none says no", checks.len()));
    let session = journals.lock(system).map_err(|error| error.failure())?;
    if Some(journals.next_number(system).map_err(|error| error.failure())?) != number {
        return Err(Failure::new(
            Exit::Refused,
            "meanwhile",
            "another move was made while this one was planned; nothing was touched",
        )
        .hint("run it again"));
    }
    let mut narrator = Narrator::new(context.reporter);
    let outcome = session
        .run(&plan, system, &mut narrator)
        .map_err(|error| error.failure())?;
    if !is_done(&outcome) {
        return Err(TELLING.failure(&outcome));
    }
    let kubeadm = kubeadm_config::remember(&plan);
    let mut value = TELLING.value(&outcome, narrator.away());
    value["kubeadmConfig"] = json!(kubeadm);
    context.reporter.result(
        &format!(
            "done: {}, the API server was away for {:.1} s; etcd keeps running, untouched\n{}\nback with: quantykube undo store",
            TELLING.moved,
            narrator.away().unwrap_or_default().as_secs_f64(),
            kubeadm_config::said(kubeadm.as_deref()),
        ),
        value,
    );
    Ok(Exit::Done)
}

/// Whether an install is in force and no move is open; then says so.
pub fn already(context: &Context, system: &dyn System) -> Result<bool, Failure> {
    let journals = context.root.journals();
    let open = journals.open_move(system).map_err(|error| error.failure())?;
    let done = journals.in_force(system, NAME).map_err(|error| error.failure())?;
    let (None, Some(done)) = (open, done) else {
        return Ok(false);
    };
    context.reporter.result(
        &format!("already so: {} (journal {})", TELLING.moved, done.id),
        json!({"what": TELLING.what, "changed": false, "journal": done.id, "state": TELLING.moved}),
    );
    Ok(true)
}
