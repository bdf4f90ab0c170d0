//! `resume`: goes on with the open move.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Direction, Ending};
use serde_json::json;

use crate::commands::narrator::Narrator;
use crate::commands::outcome::Telling;
use crate::commands::{Context, install, undo};

/// Goes on in the direction the move has.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    let journals = context.root.journals();
    let Some(open) = journals.open_move(system).map_err(|error| error.failure())? else {
        context.reporter.result(
            "already so: no move is open",
            json!({"what": "resume", "changed": false}),
        );
        return Ok(Exit::Done);
    };
    let telling: Telling<'_> = match open.plan.direction {
        Direction::Install => install::TELLING,
        Direction::Undo => undo::TELLING,
    };
    let session = journals.lock(system).map_err(|error| error.failure())?;
    let outcome = session
        .resume(system, &mut Narrator::new(context.reporter))
        .map_err(|error| error.failure())?;
    if outcome.exit != Exit::Done {
        return Err(telling.failure(&outcome));
    }
    let state = if outcome.ending == Ending::AsBefore {
        telling.as_before
    } else {
        telling.moved
    };
    context.reporter.result(
        &format!("done: {state}"),
        json!({"what": telling.what, "changed": true, "journal": outcome.id, "state": state}),
    );
    Ok(Exit::Done)
}
