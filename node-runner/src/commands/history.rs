//! `history`: every move that was made on this node, as its journal tells it.

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Status, Summary};
use serde_json::json;

use crate::commands::Context;
use crate::commands::told::{self, utc, what, word};

/// Tells all of them, the oldest first.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    context.must_be_root()?;
    let all = context
        .root
        .journals()
        .list(&context.machine())
        .map_err(|error| error.failure())?;
    let text = match all.is_empty() {
        true => "no move was ever begun on this node".to_owned(),
        false => all.iter().flat_map(lines).collect::<Vec<_>>().join("\n"),
    };
    let journals: Vec<_> = all.iter().map(told::value).collect();
    context
        .reporter
        .result(&text, json!({"what": "history", "journals": journals}));
    Ok(Exit::Done)
}

fn lines(journal: &Summary) -> Vec<String> {
    let took = match journal.status {
        Status::Open { .. } => "goes on or waits".to_owned(),
        Status::Moved | Status::AsBefore => format!("{} s", journal.last.saturating_sub(journal.began)),
    };
    let mut lines = vec![format!(
        "{:<16} {}  {:<14} {:<9} {}, {} of {} steps, version {}{}",
        journal.id,
        utc(journal.began),
        what(journal),
        word(journal.status),
        took,
        journal.done,
        journal.plan.steps.len(),
        journal.plan.version,
        if journal.stuck { ", a person must look" } else { "" },
    )];
    lines.extend(journal.trouble.iter().map(|trouble| {
        let way = if trouble.back { " on the way back" } else { "" };
        format!("{:<16} step {}{way}: {}", "", trouble.step, trouble.message)
    }));
    lines
}
