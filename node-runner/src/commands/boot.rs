//! Hidden: what the two boot units do about a move that the machine stopped in. Nobody is asked; what they say goes to
//! the system journal.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Direction, Ending, Outcome};
use serde_json::json;

use crate::commands::narrator::Narrator;
use crate::commands::outcome::Telling;
use crate::commands::{Context, install, undo};

/// Before the kubelet: by files and units alone.
pub fn recover(context: &Context) -> Result<Exit, Failure> {
    take(context, "recover")
}

/// After the kubelet: to the end.
pub fn resume(context: &Context) -> Result<Exit, Failure> {
    take(context, "resume")
}

fn take(context: &Context, what: &str) -> Result<Exit, Failure> {
    let system = &mut context.machine_to_change()?;
    let journals = context.root.journals();
    let open = journals.open_move(system).map_err(|error| error.failure())?;
    let Some(open) = open else {
        context
            .reporter
            .result("no move is open", json!({"what": what, "changed": false}));
        return Ok(Exit::Done);
    };
    let session = journals.lock(system).map_err(|error| error.failure())?;
    let mut narrator = Narrator::new(context.reporter);
    let outcome = match what {
        "recover" => session.recover_at_boot(system, &mut narrator),
        _ => session.resume_at_boot(system, &mut narrator),
    }
    .map_err(|error| error.failure())?;
    let telling: Telling<'_> = match open.plan.direction {
        Direction::Install => install::TELLING,
        Direction::Undo => undo::TELLING,
    };
    let text = match outcome {
        None => "no move is open".to_owned(),
        Some(Outcome {
            ending: Ending::Moved, ..
        }) => format!("{} was interrupted, and is done: {}", open.id, telling.moved),
        Some(Outcome {
            ending: Ending::AsBefore,
            ..
        }) => format!("{} was interrupted, and was put back: {}", open.id, telling.as_before),
        // What is left needs etcd or an API server.
        Some(Outcome {
            ending: Ending::Open, ..
        }) if what == "recover" => format!("{}: the rest is for quantykube-resume", open.id),
        Some(outcome) => return Err(telling.failure(&outcome)),
    };
    context
        .reporter
        .result(&text, json!({"what": what, "changed": true, "journal": open.id}));
    Ok(Exit::Done)
}
