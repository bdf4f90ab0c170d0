//! What comes next, as a table: one row for every state a log can leave and every request.
//!
//! The loop in `run` asks it before each step, so that a live run and one after a crash are the same.

use crate::state::{Heading, Phase};

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Request {
    /// Go on in the direction the move has (`run` and `resume`).
    GoOn,
    /// Walk back.
    Undo,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Observe, keep what stands there, note `Started`, act, note `Done`.
    Start,
    /// Observe; finish what is whole, act again on what is not; note `Done`.
    Settle,
    /// Note `Started` once more, with what was kept at first; then as `Settle`.
    Again,
    /// Note that the move turns back.
    Turn,
    /// Note `UndoStarted`, restore, note `Undone`.
    Undo,
    /// Restore once more, note `Undone`.
    UndoAgain,
    /// Note that the move is done.
    CloseMoved,
    /// Note that the move is put back.
    CloseAsBefore,
    /// No log can lead here: `State::next` refuses the events that would.
    Never,
}

/// One row: heading, phase of the next step in that heading (`None`: no step is left), request, action.
pub type Row = (Heading, Option<Phase>, Request, Action);

use Action as A;
use Heading::{Back, Forward, Onward};
use Phase::{Done, Failed, Started, UndoFailed, Undoing, Undone, Waiting};
use Request::{GoOn, Undo};

/// The whole table.
#[rustfmt::skip]
pub const TABLE: [Row; 48] = [
    // Forward: a failure would have turned it.
    (Forward, Some(Waiting),    GoOn, A::Start),
    (Forward, Some(Waiting),    Undo, A::Turn),
    (Forward, Some(Started),    GoOn, A::Settle),
    (Forward, Some(Started),    Undo, A::Turn),
    (Forward, None,             GoOn, A::CloseMoved),
    (Forward, None,             Undo, A::Turn),
    (Forward, Some(Done),       GoOn, A::Never),
    (Forward, Some(Done),       Undo, A::Never),
    (Forward, Some(Failed),     GoOn, A::Never),
    (Forward, Some(Failed),     Undo, A::Never),
    (Forward, Some(Undoing),    GoOn, A::Never),
    (Forward, Some(Undoing),    Undo, A::Never),
    (Forward, Some(Undone),     GoOn, A::Never),
    (Forward, Some(Undone),     Undo, A::Never),
    (Forward, Some(UndoFailed), GoOn, A::Never),
    (Forward, Some(UndoFailed), Undo, A::Never),
    // Back: what was asked for makes no difference.
    (Back,    Some(Started),    GoOn, A::Undo),
    (Back,    Some(Started),    Undo, A::Undo),
    (Back,    Some(Done),       GoOn, A::Undo),
    (Back,    Some(Done),       Undo, A::Undo),
    (Back,    Some(Failed),     GoOn, A::Undo),
    (Back,    Some(Failed),     Undo, A::Undo),
    (Back,    Some(UndoFailed), GoOn, A::Undo),
    (Back,    Some(UndoFailed), Undo, A::Undo),
    (Back,    Some(Undoing),    GoOn, A::UndoAgain),
    (Back,    Some(Undoing),    Undo, A::UndoAgain),
    (Back,    None,             GoOn, A::CloseAsBefore),
    (Back,    None,             Undo, A::CloseAsBefore),
    (Back,    Some(Waiting),    GoOn, A::Never),
    (Back,    Some(Waiting),    Undo, A::Never),
    (Back,    Some(Undone),     GoOn, A::Never),
    (Back,    Some(Undone),     Undo, A::Never),
    // Onward: there is no way back, so undo finishes too.
    (Onward,  Some(Waiting),    GoOn, A::Start),
    (Onward,  Some(Waiting),    Undo, A::Start),
    (Onward,  Some(Started),    GoOn, A::Settle),
    (Onward,  Some(Started),    Undo, A::Settle),
    (Onward,  Some(Failed),     GoOn, A::Again),
    (Onward,  Some(Failed),     Undo, A::Again),
    (Onward,  None,             GoOn, A::CloseMoved),
    (Onward,  None,             Undo, A::CloseMoved),
    (Onward,  Some(Done),       GoOn, A::Never),
    (Onward,  Some(Done),       Undo, A::Never),
    (Onward,  Some(Undoing),    GoOn, A::Never),
    (Onward,  Some(Undoing),    Undo, A::Never),
    (Onward,  Some(Undone),     GoOn, A::Never),
    (Onward,  Some(Undone),     Undo, A::Never),
    (Onward,  Some(UndoFailed), GoOn, A::Never),
    (Onward,  Some(UndoFailed), Undo, A::Never),
];

/// The table's answer.
pub fn decide(heading: Heading, phase: Option<Phase>, request: Request) -> Action {
    TABLE
        .iter()
        .find(|row| row.0 == heading && row.1 == phase && row.2 == request)
        .map_or(Action::Never, |row| row.3)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;
    use crate::plan::{Back as Place, Binding, Direction, Op, Plan, Process, Step, Way};
    use crate::state::{Before, End, Event, State, Why};

    #[test]
    fn the_table_is_total_and_no_row_comes_twice() {
        let phases = [Waiting, Started, Done, Failed, Undoing, Undone, UndoFailed];
        for heading in [Forward, Back, Onward] {
            for phase in phases.into_iter().map(Some).chain([None]) {
                for request in [GoOn, Undo] {
                    let rows = TABLE
                        .iter()
                        .filter(|row| (row.0, row.1, row.2) == (heading, phase, request))
                        .count();
                    assert_eq!(rows, 1, "{heading:?} {phase:?} {request:?}");
                }
            }
        }
    }

    pub(crate) fn plan(no_return: Option<&str>) -> Plan {
        let process = Process {
            program: "server".into(),
            args: vec!["--one".into()],
            ..Process::default()
        };
        let argv = || vec!["/bin/true".to_owned()];
        let gone = Op::WaitGone {
            process,
            timeout_s: 1,
            term_after_s: None,
            quiet_ms: 0,
            way: Way::Back,
        };
        Plan {
            format: crate::plan::FORMAT,
            name: "store".into(),
            direction: Direction::Install,
            version: "0".into(),
            undoes: None,
            binding: Binding {
                machine_id: "m".into(),
                node: "n".into(),
                cluster: "c".into(),
            },
            point_of_no_return: no_return.map(str::to_owned),
            steps: vec![
                Step::new(
                    "keep",
                    "",
                    Op::MakeDir {
                        path: "/a".into(),
                        mode: 0o755,
                    },
                )
                .back(Place::Keep),
                Step::new(
                    "first",
                    "",
                    Op::Retire {
                        path: "/b".into(),
                        to: "/c".into(),
                        runs: None,
                    },
                )
                .back(Place::First),
                Step::new(
                    "run",
                    "",
                    Op::Run {
                        argv: argv(),
                        back: None,
                    },
                ),
                Step::new(
                    "gate",
                    "",
                    Op::Gate {
                        argv: argv(),
                        timeout_s: 1,
                    },
                ),
                Step::new("gone", "", gone),
                Step::new(
                    "return",
                    "",
                    Op::Return {
                        from: "/c".into(),
                        to: "/b".into(),
                    },
                ),
                Step::new(
                    "probe",
                    "",
                    Op::Probe {
                        argv: argv(),
                        timeout_s: 1,
                        way: Way::Forward,
                    },
                ),
            ],
        }
    }

    /// Every event that could be written, for every step.
    pub(crate) fn events(steps: usize) -> Vec<Event> {
        let mut all = vec![
            Event::Turned { why: Why::Asked },
            Event::Turned { why: Why::Interrupted },
            Event::Turned { why: Why::Restarted },
            Event::Closed { end: End::Moved },
            Event::Closed { end: End::AsBefore },
            Event::Accepted,
        ];
        for step in 0..=steps {
            all.extend([
                Event::Started {
                    step,
                    before: Before::Nothing,
                },
                Event::Done { step },
                Event::Failed {
                    step,
                    error: String::new(),
                    exit: 1,
                },
                Event::UndoStarted { step },
                Event::Undone { step },
                Event::UndoFailed {
                    step,
                    error: String::new(),
                },
                Event::Barred {
                    step,
                    error: String::new(),
                },
            ]);
        }
        all
    }

    /// The events that the loop may write for an action.
    fn written(action: Action, step: usize) -> Vec<Event> {
        let started = Event::Started {
            step,
            before: Before::Nothing,
        };
        let failed = Event::Failed {
            step,
            error: String::new(),
            exit: 1,
        };
        match action {
            A::Start => vec![started, failed],
            A::Again => vec![started],
            A::Settle => vec![Event::Done { step }, failed],
            A::Turn => vec![Event::Turned { why: Why::Asked }],
            A::Undo => vec![Event::UndoStarted { step }],
            A::UndoAgain => vec![
                Event::Undone { step },
                Event::UndoFailed {
                    step,
                    error: String::new(),
                },
            ],
            A::CloseMoved => vec![Event::Closed { end: End::Moved }],
            A::CloseAsBefore => vec![Event::Closed { end: End::AsBefore }],
            A::Never => vec![],
        }
    }

    /// Walks every state that any log can leave: the table has an answer for each, and what it answers may be written.
    #[test]
    fn every_state_that_a_log_can_leave_has_an_answer() {
        let mut met = BTreeMap::new();
        for plan in [plan(None), plan(Some("return"))] {
            let mut seen = BTreeMap::new();
            let mut open = VecDeque::from([State::new(&plan)]);
            while let Some(state) = open.pop_front() {
                let phases: Vec<_> = (0..plan.steps.len()).map(|step| state.phase(step)).collect();
                let key = format!("{:?} {phases:?} {:?} {}", state.heading(), state.end(), state.barred());
                if seen.insert(key.clone(), ()).is_some() {
                    continue;
                }
                for event in events(plan.steps.len()) {
                    match state.next(&event) {
                        Ok(next) => open.push_back(next),
                        Err(error) => assert!(!error.to_string().is_empty()),
                    }
                }
                if state.end().is_some() {
                    assert!(
                        events(plan.steps.len()).iter().all(|event| state.next(event).is_err()),
                        "{key}: over"
                    );
                    continue;
                }
                let step = state.next_step();
                for request in [GoOn, Undo] {
                    let action = decide(state.heading(), step.and_then(|step| state.phase(step)), request);
                    assert_ne!(action, A::Never, "{key}");
                    *met.entry(format!("{action:?}")).or_insert(0) += 1;
                    for event in written(action, step.unwrap_or(0)) {
                        assert!(state.next(&event).is_ok(), "{key}: {action:?} may not write {event:?}");
                    }
                }
            }
            println!("{} states", seen.len());
        }
        assert_eq!(met.len(), 8, "every action but Never is met: {met:?}");
    }

    /// From every state both requests come to an end, if nothing fails any more.
    #[test]
    fn every_state_comes_to_an_end() {
        for plan in [plan(None), plan(Some("return"))] {
            let mut seen = BTreeMap::new();
            let mut open = VecDeque::from([State::new(&plan)]);
            while let Some(state) = open.pop_front() {
                let phases: Vec<_> = (0..plan.steps.len()).map(|step| state.phase(step)).collect();
                let key = format!("{:?} {phases:?} {:?} {}", state.heading(), state.end(), state.barred());
                if seen.insert(key.clone(), ()).is_some() {
                    continue;
                }
                open.extend(
                    events(plan.steps.len())
                        .iter()
                        .filter_map(|event| state.next(event).ok()),
                );
                for request in [GoOn, Undo] {
                    let mut state = state.clone();
                    for _ in 0..100 {
                        if state.end().is_some() {
                            break;
                        }
                        let step = state.next_step();
                        let action = decide(state.heading(), step.and_then(|step| state.phase(step)), request);
                        let event = written(action, step.unwrap_or(0)).swap_remove(0);
                        let event = match (&event, step.and_then(|step| state.before(step))) {
                            (Event::Started { step, .. }, Some(before)) => Event::Started {
                                step: *step,
                                before: before.clone(),
                            },
                            _ => event,
                        };
                        state = state.next(&event).expect("the table's answer may be written");
                    }
                    assert!(state.end().is_some(), "{key}: {request:?} does not end");
                    let onward = state.heading() == Onward;
                    assert!(
                        !(onward && state.end() == Some(End::AsBefore)),
                        "{key}: back from where there is no way"
                    );
                }
            }
        }
    }
}
