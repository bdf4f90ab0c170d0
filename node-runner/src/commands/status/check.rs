//! `status --check`: one line for a monitoring system that calls plugins as Nagios does.

use super::look::{Side, State};
use crate::commands::told::utc;

/// Warn at so many days before a certificate ends.
pub const DAYS_WARNING: i64 = 30;
/// And at so few it is critical.
pub const DAYS_CRITICAL: i64 = 7;

/// A level; its number is the exit code.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Level {
    /// All is well.
    Ok = 0,
    /// Somebody should look some time.
    Warning = 1,
    /// Somebody must look now.
    Critical = 2,
    /// It cannot be told.
    Unknown = 3,
}

impl Level {
    /// As the first word of the line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "OK",
            Level::Warning => "WARNING",
            Level::Critical => "CRITICAL",
            Level::Unknown => "UNKNOWN",
        }
    }
}

/// A state, judged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Judged {
    /// The worst of what was found.
    pub level: Level,
    /// Everything that is not well, the worst first.
    pub found: Vec<(Level, String)>,
}

/// Judges a node.
pub fn judge(state: &State) -> Judged {
    let mut found = Vec::new();
    match &state.guard {
        Ok(Some(incident)) => found.push((
            Level::Critical,
            format!(
                "the guard took the API server's manifest out: {}; cure: {}",
                incident.why, incident.cure
            ),
        )),
        Ok(None) => {}
        Err(why) => found.push((Level::Unknown, why.clone())),
    }
    match &state.open {
        Some(open) if open.stuck => {
            found.push((
                Level::Critical,
                format!("the move {} is stuck: a person must look", open.id),
            ));
        }
        Some(open) => found.push((
            Level::Warning,
            format!(
                "the move {} is {}, {} of {} steps done",
                open.id,
                match state.under_way {
                    Ok(true) => "under way",
                    _ => "open",
                },
                open.done,
                open.plan.steps.len()
            ),
        )),
        None => found.extend(at_rest(state)),
    }
    for certificate in &state.certificates {
        let name = format!("certificate {} ({})", certificate.file.display(), certificate.name);
        match certificate.days(state.now) {
            Some(days) if days < DAYS_CRITICAL => found.push((Level::Critical, format!("{name} ends in {days} days"))),
            Some(days) if days < DAYS_WARNING => found.push((Level::Warning, format!("{name} ends in {days} days"))),
            Some(_) => {}
            None => {
                let why = certificate.ends.as_ref().err().map_or("", String::as_str);
                found.push((Level::Critical, format!("{name} is not good: {why}")));
            }
        }
    }
    // Unknown is no worse than what is known to be wrong.
    let rank = |level: Level| match level {
        Level::Critical => 0,
        Level::Unknown => 1,
        Level::Warning => 2,
        Level::Ok => 3,
    };
    found.sort_by_key(|(level, _)| rank(*level));
    Judged {
        level: found.first().map_or(Level::Ok, |(level, _)| *level),
        found,
    }
}

/// What must hold while no move is open.
fn at_rest(state: &State) -> Vec<(Level, String)> {
    let mut found = Vec::new();
    let data = state.data.name();
    match (&state.manifest, state.expected()) {
        (Err(why), _) => found.push((Level::Unknown, format!("the API server's manifest: {why}"))),
        (Ok(None), _) => found.push((Level::Critical, "there is no API server manifest".to_owned())),
        (Ok(Some(named)), Some(expected)) if named != expected => found.push((
            Level::Critical,
            format!("the API server's manifest names {named}, the data lives in {data} ({expected})"),
        )),
        _ => {}
    }
    // What came after it counts more.
    if let (Ok(Some(outcome)), Side::Etcd, None) = (&state.first_boot, state.data, state.since)
        && outcome.outcome == "failed"
    {
        found.push((Level::Warning, format!("the first boot failed: {}", outcome.message)));
    }
    if state.data == Side::Store {
        match &state.store_runs {
            Ok(true) => {}
            Ok(false) => found.push((Level::Critical, "the unit quantykube-store does not run".to_owned())),
            Err(why) => found.push((Level::Unknown, format!("the unit quantykube-store: {why}"))),
        }
    }
    let server = match state.data {
        Side::Store => &state.store,
        Side::Etcd => &state.etcd,
    };
    if let Some(why) = server.as_ref().and_then(|server| server.revision.as_ref().err()) {
        found.push((Level::Critical, format!("{data} does not answer: {why}")));
    }
    found
}

/// The line, with performance data behind the bar.
pub fn line(state: &State, judged: &Judged) -> String {
    let text = match judged.found.is_empty() {
        true => match state.since {
            Some(since) => format!("the data lives in {} since {}", state.data.name(), utc(since)),
            None => format!("the data lives in {}", state.data.name()),
        },
        false => {
            let all: Vec<&str> = judged.found.iter().map(|(_, text)| text.as_str()).collect();
            all.join("; ")
        }
    };
    // Neither a bar nor a line's end may stand in the text.
    let text = text.replace(['|', '\n', '\r'], " ");
    format!("{} - {text} | {}", judged.level.name(), perfdata(state))
}

fn perfdata(state: &State) -> String {
    let mut data = vec![format!("on_store={}", u8::from(state.data == Side::Store))];
    for (name, server) in [("etcd_revision", &state.etcd), ("store_revision", &state.store)] {
        if let Some(Ok(revision)) = server.as_ref().map(|server| &server.revision) {
            data.push(format!("{name}={revision}c"));
        }
    }
    data.push(format!("open_moves={}", u8::from(state.open.is_some())));
    let days = state
        .certificates
        .iter()
        .filter_map(|certificate| certificate.days(state.now))
        .min();
    if let Some(days) = days {
        data.push(format!("certificate_days={days};{DAYS_WARNING}:;{DAYS_CRITICAL}:"));
    }
    data.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::look::{Certificate, Server};

    const NOW: u64 = 1_800_000_000;

    fn well() -> State {
        let server = |url: &str, revision| {
            Some(Server {
                url: url.to_owned(),
                revision: Ok(revision),
            })
        };
        State {
            data: Side::Store,
            since: Some(NOW - 1000),
            journals: Vec::new(),
            open: None,
            under_way: Ok(false),
            manifest: Ok(Some("https://127.0.0.1:2479".to_owned())),
            etcd: server("https://127.0.0.1:2379", 10),
            store: server("https://127.0.0.1:2479", 20),
            store_runs: Ok(true),
            guard: Ok(None),
            first_boot: Ok(None),
            certificates: vec![Certificate {
                name: "etcd and store",
                file: "/pki/server.crt".into(),
                ends: Ok(NOW + 364 * 86_400 + 5),
            }],
            now: NOW,
        }
    }

    #[test]
    fn a_good_node_is_one_line_with_its_numbers() {
        let state = well();
        assert_eq!(
            line(&state, &judge(&state)),
            "OK - the data lives in store since 2027-01-15T07:43:20Z | on_store=1 etcd_revision=10c store_revision=20c \
             open_moves=0 certificate_days=364;30:;7:"
        );
    }

    /// What a change of the good node is found as.
    fn found(change: &dyn Fn(&mut State)) -> (Level, String) {
        let mut state = well();
        change(&mut state);
        let judged = judge(&state);
        (judged.level, line(&state, &judged))
    }

    #[test]
    fn each_fault_has_its_level() {
        type Change = dyn Fn(&mut State);
        let cases: [(&Change, Level, &str); 12] = [
            (
                &|s| s.manifest = Ok(Some("https://127.0.0.1:2379".into())),
                Level::Critical,
                "names https://127.0.0.1:2379",
            ),
            (&|s| s.manifest = Ok(None), Level::Critical, "no API server manifest"),
            (&|s| s.manifest = Err("not YAML".into()), Level::Unknown, "not YAML"),
            (&|s| s.store_runs = Ok(false), Level::Critical, "does not run"),
            (&|s| s.store_runs = Err("no bus".into()), Level::Unknown, "no bus"),
            (
                &|s| s.store.as_mut().unwrap().revision = Err("refused".into()),
                Level::Critical,
                "store does not answer: refused",
            ),
            (
                &|s| s.etcd.as_mut().unwrap().revision = Err("refused".into()),
                Level::Ok,
                "the data lives in store",
            ),
            (
                &|s| {
                    let text = r#"{"exit": 3, "name": "extract", "message": "it is damaged", "outcome": "failed"}"#;
                    s.first_boot = Ok(serde_json::from_str(text).unwrap());
                    (s.data, s.since) = (Side::Etcd, None);
                    s.manifest = Ok(Some("https://127.0.0.1:2379".into()));
                },
                Level::Warning,
                "the first boot failed: it is damaged",
            ),
            (
                &|s| s.certificates[0].ends = Ok(NOW + 29 * 86_400),
                Level::Warning,
                "ends in 29 days",
            ),
            (
                &|s| s.certificates[0].ends = Ok(NOW + 6 * 86_400),
                Level::Critical,
                "ends in 6 days",
            ),
            (
                &|s| s.certificates[0].ends = Err("it is over".into()),
                Level::Critical,
                "it is over",
            ),
            (
                &|s| s.guard = Err("cannot read | it\n".into()),
                Level::Unknown,
                "cannot read   it  | on_store",
            ),
        ];
        for (change, level, part) in cases {
            let (is, line) = found(change);
            assert_eq!(is, level, "{line}");
            assert!(line.contains(part), "{line}");
            assert!(
                line.starts_with(level.name()) && line.matches('|').count() == 1,
                "{line}"
            );
        }
    }
}
