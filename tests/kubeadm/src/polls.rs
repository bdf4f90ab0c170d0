//! What a client saw that asked the API server all the time.

/// One question to the API server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Poll {
    /// When, on the machine's clock, in milliseconds.
    pub at: u64,
    /// Whether it was answered.
    pub answered: bool,
    /// The resourceVersion of a list, where it was answered.
    pub version: u64,
    /// Whether the node was ready; `None` where nobody said.
    pub ready: Option<bool>,
}

/// Reads the poller's lines, in order.
pub fn parse(notes: &str) -> Vec<Poll> {
    let poll = |line: &str| {
        let mut words = line.strip_prefix("poll ")?.split(' ');
        let at = words.next()?.parse().ok()?;
        let answered = words.next()? == "200";
        let version = words.next()?.parse().unwrap_or(0);
        let ready = match words.next()? {
            "True" => Some(true),
            "False" | "Unknown" => Some(false),
            _ => None,
        };
        Some(Poll {
            at,
            answered,
            version,
            ready,
        })
    };
    notes.lines().filter_map(poll).collect()
}

/// The longest time between two answers that both lie at or after `from`, in milliseconds: how long the API server was away.
pub fn away(polls: &[Poll], from: u64) -> u64 {
    let answers: Vec<u64> = polls
        .iter()
        .filter(|p| p.answered && p.at >= from)
        .map(|p| p.at)
        .collect();
    answers.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// How long the node was not ready at or after `from`, as far as the API server said so, in milliseconds.
pub fn not_ready(polls: &[Poll], from: u64) -> u64 {
    let mut sum = 0;
    let mut since = None;
    for poll in polls.iter().filter(|poll| poll.at >= from) {
        match (poll.ready, since) {
            (Some(false), None) => since = Some(poll.at),
            (Some(true), Some(begun)) => {
                sum += poll.at - begun;
                since = None;
            }
            _ => {}
        }
    }
    sum + since.map_or(0, |begun| polls.last().map_or(0, |last| last.at - begun))
}

/// The first answer whose resourceVersion is lower than one before it.
pub fn went_back(polls: &[Poll]) -> Option<String> {
    let mut highest = 0;
    for poll in polls.iter().filter(|poll| poll.answered && poll.version > 0) {
        if poll.version < highest {
            return Some(format!("{} after {highest} at {}", poll.version, poll.at));
        }
        highest = poll.version;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{away, not_ready, parse, went_back};

    const NOTES: &str = "poll 1000 200 5 True\nack a 1\npoll 2000 200 6 True\npoll 3000 000 - -\npoll 7000 200 9 False\n\
                         poll 8000 200 9 True\n";

    #[test]
    fn times_are_read() {
        let polls = parse(NOTES);
        assert_eq!(
            (polls.len(), away(&polls, 0), away(&polls, 7000), not_ready(&polls, 0)),
            (5, 5000, 1000, 1000)
        );
    }

    #[test]
    fn a_lower_version_is_found() {
        assert_eq!(went_back(&parse(NOTES)), None);
        assert!(went_back(&parse("poll 1 200 5 True\npoll 2 200 4 True\n")).is_some());
    }
}
