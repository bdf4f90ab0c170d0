//! `status`: where the data lives, since when, what is open, and whether all is well.

mod check;
mod look;

use std::io::Write;

use quantykube_base::{Exit, Failure};
use serde_json::{Value, json};

use crate::commands::told::{self, utc};
use crate::commands::{Context, version::VERSION};
use crate::unit::NAME as UNIT;
use check::{Judged, Level, judge};
use look::{Certificate, Server, Side, State, look};

/// Tells. With `check` in one line, whose first word is the level, for a monitoring system.
pub fn run(context: &Context, check: bool) -> Result<Exit, Failure> {
    let looked = context
        .must_be_root()
        .and_then(|()| look(&context.root, &context.machine(), &context.root.journals()));
    if !check {
        let state = looked?;
        context.reporter.result(&text(&state), value(&state, &judge(&state)));
        return Ok(Exit::Done);
    }
    let (level, line, value) = match looked {
        Ok(state) => {
            let judged = judge(&state);
            (judged.level, check::line(&state, &judged), value(&state, &judged))
        }
        Err(failure) => {
            let text = failure.chain().join(": ").replace(['|', '\n'], " ");
            let value = json!({"check": {"level": Level::Unknown.name(), "code": 3, "found": [text]}});
            (Level::Unknown, format!("{} - {text}", Level::Unknown.name()), value)
        }
    };
    context.reporter.result(&line, value);
    let _ = std::io::stdout().flush();
    // The numbers of a plugin's levels, which mean something else than our own exit codes.
    std::process::exit(level as i32)
}

fn text(state: &State) -> String {
    let mut lines = vec![match state.since {
        Some(since) => format!("the data lives in: {}, since {}", state.data.name(), utc(since)),
        None => format!(
            "the data lives in: {}, no move was finished on this node",
            state.data.name()
        ),
    }];
    lines.push(match (&state.manifest, state.manifest_side()) {
        (Err(why), _) => format!("API server's manifest: {why}"),
        (Ok(None), _) => "API server's manifest: there is none in the kubelet's folder".to_owned(),
        (Ok(Some(url)), Some(side)) => format!("API server's manifest: names {} ({url})", side.name()),
        (Ok(Some(url)), None) => format!("API server's manifest: names {url}"),
    });
    for (name, server) in [(Side::Etcd, &state.etcd), (Side::Store, &state.store)] {
        if let Some(server) = server {
            lines.push(match &server.revision {
                Ok(revision) => format!("{}: revision {revision} at {}", name.name(), server.url),
                Err(why) => format!("{}: does not answer at {}: {why}", name.name(), server.url),
            });
        }
    }
    if let (Some(Ok(etcd)), Some(Ok(store))) = (
        state.etcd.as_ref().map(|server| &server.revision),
        state.store.as_ref().map(|server| &server.revision),
    ) && store > etcd
    {
        lines.push(format!("undo would lift etcd by {} revisions", store + 1 - etcd));
    }
    if state.data == Side::Store {
        lines.push(match &state.store_runs {
            Ok(true) => "unit quantykube-store: runs".to_owned(),
            Ok(false) => "unit quantykube-store: does not run\nhint: journalctl -u quantykube-store".to_owned(),
            Err(why) => format!("unit quantykube-store: {why}"),
        });
    }
    match &state.guard {
        Ok(None) => {}
        Ok(Some(incident)) => lines.push(format!(
            "guard: took {} out at {}: {}\nhint: {}",
            incident.manifest.display(),
            utc(incident.at),
            incident.why,
            incident.cure
        )),
        Err(why) => lines.push(format!("guard: {why}")),
    }
    match &state.first_boot {
        Ok(None) => {}
        Ok(Some(outcome)) => lines.push(format!("first boot: {}: {}", outcome.outcome, outcome.message)),
        Err(why) => lines.push(format!("first boot: {why}")),
    }
    lines.extend(state.certificates.iter().map(|c| certificate(c, state.now)));
    lines.push(open_move(state));
    for journal in &state.journals {
        lines.push(format!(
            "{:<16} {:<10} {}",
            journal.id,
            told::word(journal.status),
            utc(journal.began)
        ));
        lines.extend(
            journal
                .trouble
                .iter()
                .map(|t| format!("{:<16} step {}: {}", "", t.step, t.message)),
        );
    }
    lines.join("\n")
}

fn certificate(certificate: &Certificate, now: u64) -> String {
    let file = certificate.file.display();
    match (&certificate.ends, certificate.days(now)) {
        (Ok(ends), Some(days)) => format!(
            "certificate of {}: {days} days left, until {} ({file})",
            certificate.name,
            utc(*ends)
        ),
        (Err(why), _) => format!("certificate of {}: {why}", certificate.name),
        (Ok(_), None) => format!("certificate of {}: its end cannot be told ({file})", certificate.name),
    }
}

fn open_move(state: &State) -> String {
    match &state.open {
        Some(open) if open.stuck => format!(
            "open move: {}, {} of {} steps done; it failed where a person must look, and no boot goes on with it\n\
             hint: cure what the last line of the journal below names, then quantykube resume or quantykube undo store",
            open.id,
            open.done,
            open.plan.steps.len()
        ),
        Some(open) if state.under_way == Ok(true) => format!(
            "open move: {}, {} of {} steps done, under way now: it goes on by itself\n\
             hint: journalctl -f -u {UNIT} shows each step",
            open.id,
            open.done,
            open.plan.steps.len()
        ),
        Some(open) => format!(
            "open move: {}, {} of {} steps done\nhint: quantykube resume goes on, quantykube undo store puts back",
            open.id,
            open.done,
            open.plan.steps.len()
        ),
        None => "open move: none".to_owned(),
    }
}

fn value(state: &State, judged: &Judged) -> Value {
    let server = |server: &Option<Server>| {
        server.as_ref().map(|server| {
            json!({
                "url": server.url,
                "revision": server.revision.as_ref().ok(),
                "error": server.revision.as_ref().err(),
            })
        })
    };
    json!({
        "version": VERSION,
        "data": state.data.name(),
        "since": state.since.map(utc),
        "manifest": {
            "names": state.manifest.as_ref().ok(),
            "side": state.manifest_side(),
            "expected": state.expected(),
            "error": state.manifest.as_ref().err(),
        },
        "etcd": server(&state.etcd),
        "store": server(&state.store),
        "storeUnitRuns": state.store_runs.as_ref().ok(),
        "guard": state.guard.as_ref().ok(),
        "guardError": state.guard.as_ref().err(),
        "firstBoot": state.first_boot.as_ref().ok(),
        "certificates": state.certificates.iter().map(|c| json!({
            "name": c.name,
            "file": c.file,
            "ends": c.ends.as_ref().ok().copied().map(utc),
            "days": c.days(state.now),
            "error": c.ends.as_ref().err(),
        })).collect::<Vec<_>>(),
        "openMove": state.open.as_ref().map(|open| open.id.clone()),
        "underWay": state.under_way.as_ref().ok(),
        "needsPerson": state.open.as_ref().is_some_and(|open| open.stuck),
        "journals": state.journals.iter().map(told::value).collect::<Vec<_>>(),
        "check": {
            "level": judged.level.name(),
            "code": judged.level as u8,
            "found": judged.found.iter().map(|(_, text)| text).collect::<Vec<_>>(),
        },
    })
}
