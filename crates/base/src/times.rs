//! Times as users type them.

use std::time::Duration;

/// A time as `30m`, `90s` or `2h`, of 1 s to 24 h.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => return Err(format!("{other:?} is no unit: expected s, m or h, as in 30m")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is no number"))?;
    match number.checked_mul(unit) {
        Some(seconds) if (1..=24 * 3600).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a time from 1s to 24h".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_ends() {
        assert_eq!(
            (
                parse_time("30m").map(|time| time.as_secs()),
                parse_time("90s").map(|time| time.as_secs()),
                parse_time("2h").map(|time| time.as_secs()),
            ),
            (Ok(1800), Ok(90), Ok(7200))
        );
        for bad in ["30", "0s", "25h", "m", "1d", "-1s", "99999999999999999999s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
