//! `status`: where the data lives, since when, and what is open.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Direction, Status, Summary};
use serde_json::json;

use crate::commands::{Context, version::VERSION};
use crate::moves::store::NAME;

/// Reads the journals only: neither etcd nor an API server is asked.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    context.must_be_root()?;
    let system = &context.machine();
    let journals = context.root.journals();
    let all = journals.list(system).map_err(|error| error.failure())?;
    let open = journals.open_move(system).map_err(|error| error.failure())?;
    let in_force = journals.in_force(system, NAME).map_err(|error| error.failure())?;
    let undone = all.iter().rev().find(|journal| {
        journal.plan.name == NAME && journal.plan.direction == Direction::Undo && journal.status == Status::Moved
    });
    let (data, since) = match (&in_force, undone) {
        (Some(install), _) => ("store", Some(install.last)),
        (None, Some(undo)) => ("etcd", Some(undo.last)),
        (None, None) => ("etcd", None),
    };
    let mut lines = vec![match since {
        Some(since) => format!("the data lives in: {data}, since {}", utc(since)),
        None => format!("the data lives in: {data}, no move was finished on this node"),
    }];
    match &open {
        Some(open) if open.stuck => lines.push(format!(
            "open move: {}, {} of {} steps done; it failed where a person must look, and no boot goes on with it\n\
             hint: cure what the last line of the journal below names, then quantykube resume or quantykube undo store",
            open.id,
            open.done,
            open.plan.steps.len()
        )),
        Some(open) => lines.push(format!(
            "open move: {}, {} of {} steps done\nhint: quantykube resume goes on, quantykube undo store puts back",
            open.id,
            open.done,
            open.plan.steps.len()
        )),
        None => lines.push("open move: none".to_owned()),
    }
    for journal in &all {
        lines.push(format!(
            "{:<16} {:<10} {}",
            journal.id,
            word(journal.status),
            utc(journal.began)
        ));
        lines.extend(
            journal
                .trouble
                .iter()
                .map(|t| format!("{:<16} step {}: {}", "", t.step, t.message)),
        );
    }
    context.reporter.result(
        &lines.join("\n"),
        json!({
            "version": VERSION,
            "data": data,
            "since": since.map(utc),
            "openMove": open.as_ref().map(|open| open.id.clone()),
            "needsPerson": open.as_ref().is_some_and(|open| open.stuck),
            "journals": all.iter().map(value).collect::<Vec<_>>(),
        }),
    );
    Ok(Exit::Done)
}

fn value(journal: &Summary) -> serde_json::Value {
    json!({
        "id": journal.id,
        "status": word(journal.status),
        "began": utc(journal.began),
        "last": utc(journal.last),
        "steps": journal.plan.steps.len(),
        "done": journal.done,
        "version": journal.plan.version,
        "trouble": journal.trouble.iter().map(|t| json!({"step": t.step, "back": t.back, "message": t.message})).collect::<Vec<_>>(),
    })
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Open { .. } => "open",
        Status::Moved => "done",
        Status::AsBefore => "put back",
    }
}

/// Seconds since 1970 as `2026-01-31T12:00:00Z`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 0000-03-01, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (year_of_era + era * 400, month + 3),
        false => (year_of_era + era * 400 + 1, month - 9),
    };
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_read_as_the_calendar_has_them() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_767_225_600), "2026-01-01T00:00:00Z");
        assert_eq!(utc(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
