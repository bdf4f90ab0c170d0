//! How journals and times are told.

use quantykube_journal::{Direction, Status, Summary};
use serde_json::{Value, json};

/// A journal as JSON.
pub fn value(journal: &Summary) -> Value {
    json!({
        "id": journal.id,
        "what": what(journal),
        "status": word(journal.status),
        "began": utc(journal.began),
        "last": utc(journal.last),
        "seconds": journal.last.saturating_sub(journal.began),
        "steps": journal.plan.steps.len(),
        "done": journal.done,
        "version": journal.plan.version,
        "node": journal.plan.binding.node,
        "undoes": journal.plan.undoes,
        "trouble": journal.trouble.iter().map(|t| json!({"step": t.step, "back": t.back, "message": t.message})).collect::<Vec<_>>(),
    })
}

/// What was asked for, as it is typed.
pub fn what(journal: &Summary) -> String {
    match journal.plan.direction {
        Direction::Install => format!("install {}", journal.plan.name),
        Direction::Undo => format!("undo {}", journal.plan.name),
    }
}

/// Where a journal stands, in a word or two.
pub fn word(status: Status) -> &'static str {
    match status {
        Status::Open { .. } => "open",
        Status::Moved => "done",
        Status::AsBefore => "put back",
    }
}

/// Seconds since 1970 as `2026-01-31T12:00:00Z`.
pub fn utc(seconds: u64) -> String {
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
