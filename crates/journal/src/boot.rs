//! What happens to an open move when the machine has started anew: nobody is there, and no process of the move is left.
//!
//! ```text
//! recover   before the kubelet: by files and units alone, up to the first step that needs more
//! resume    after the kubelet: the rest, which may need etcd or an API server
//! ```
//! Both ask the same table. What can be put back without asking a gate is put back: that needs nothing that is not on
//! this machine, and brings the service back from the side that has it. Past the gate the move goes on, for the service
//! may have begun on the new side.

use crate::plan::{Op, Step};
use crate::state::{Heading, Phase, State};

/// Where a move stood when the machine stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Forward, and no step behind the gate that changes something has started.
    Before,
    /// Forward, behind the gate.
    Past,
    /// On its way back.
    Back,
    /// Forward, with no way back.
    Onward,
    /// A step failed where that leaves the move open.
    Stuck,
}

impl Standing {
    pub(crate) fn of(state: &State) -> Standing {
        match state.heading() {
            _ if state.stuck() => Standing::Stuck,
            Heading::Forward if state.past_gate() => Standing::Past,
            Heading::Forward => Standing::Before,
            Heading::Back => Standing::Back,
            Heading::Onward => Standing::Onward,
        }
    }
}

/// What is done about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Boot {
    /// It turns back.
    TurnBack,
    /// It goes on in the direction it has.
    GoOn,
    /// It is left as it is, and a person is told.
    Person,
    /// No log can lead here.
    Never,
}

/// One row: standing, phase of the next step in the move's direction (`None`: no step is left), what is done.
type Row = (Standing, Option<Phase>, Boot);

use Boot as B;
use Phase::{Done, Failed, Started, UndoFailed, Undoing, Undone, Waiting};
use Standing::{Back, Before, Onward, Past, Stuck};

/// The whole table.
#[rustfmt::skip]
const TABLE: [Row; 40] = [
    (Before, Some(Waiting),    B::TurnBack),
    (Before, Some(Started),    B::TurnBack),
    (Before, None,             B::GoOn),
    (Before, Some(Done),       B::Never),
    (Before, Some(Failed),     B::Never),
    (Before, Some(Undoing),    B::Never),
    (Before, Some(Undone),     B::Never),
    (Before, Some(UndoFailed), B::Never),
    (Past,   Some(Waiting),    B::GoOn),
    (Past,   Some(Started),    B::GoOn),
    (Past,   None,             B::GoOn),
    (Past,   Some(Done),       B::Never),
    (Past,   Some(Failed),     B::Never),
    (Past,   Some(Undoing),    B::Never),
    (Past,   Some(Undone),     B::Never),
    (Past,   Some(UndoFailed), B::Never),
    (Back,   Some(Started),    B::GoOn),
    (Back,   Some(Done),       B::GoOn),
    (Back,   Some(Failed),     B::GoOn),
    (Back,   Some(Undoing),    B::GoOn),
    (Back,   None,             B::GoOn),
    (Back,   Some(Waiting),    B::Never),
    (Back,   Some(Undone),     B::Never),
    (Back,   Some(UndoFailed), B::Never),
    (Onward, Some(Waiting),    B::GoOn),
    (Onward, Some(Started),    B::GoOn),
    (Onward, None,             B::GoOn),
    (Onward, Some(Done),       B::Never),
    (Onward, Some(Failed),     B::Never),
    (Onward, Some(Undoing),    B::Never),
    (Onward, Some(Undone),     B::Never),
    (Onward, Some(UndoFailed), B::Never),
    (Stuck,  Some(Waiting),    B::Person),
    (Stuck,  Some(Failed),     B::Person),
    (Stuck,  Some(UndoFailed), B::Person),
    (Stuck,  Some(Started),    B::Never),
    (Stuck,  Some(Done),       B::Never),
    (Stuck,  Some(Undoing),    B::Never),
    (Stuck,  Some(Undone),     B::Never),
    (Stuck,  None,             B::Never),
];

/// The table's answer for a state.
pub(crate) fn decide(state: &State) -> Boot {
    let phase = state.next_step().and_then(|step| state.phase(step));
    let standing = Standing::of(state);
    TABLE
        .iter()
        .find(|row| row.0 == standing && row.1 == phase)
        .map_or(Boot::Never, |row| row.2)
}

/// Whether `recover` takes a step: one that needs neither etcd nor an API server nor any program of the move. Going
/// forward it starts no unit either: what does not start turns a move back, and for that `resume` has more means.
pub(crate) fn is_local(step: &Step, back: bool) -> bool {
    match &step.op {
        Op::PutLink { .. } | Op::EditString { .. } | Op::Retire { .. } | Op::Return { .. } | Op::MakeDir { .. } => true,
        // Its content may have come from a bundle that is gone; what was kept is in the journal.
        Op::PutFile { .. } | Op::Unit { .. } => back,
        Op::WaitGone { way, .. } | Op::Probe { way, .. } => !(if back { way.back() } else { way.forward() }),
        Op::Run { back: undo, .. } => back && undo.is_none(),
        Op::Gate { .. } => !back,
        Op::Build { .. } | Op::ReloadUnits { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;
    use crate::recovery::tests::{events, plan};

    #[test]
    fn the_table_is_total_and_no_row_comes_twice() {
        let phases = [Waiting, Started, Done, Failed, Undoing, Undone, UndoFailed];
        for standing in [Before, Past, Back, Onward, Stuck] {
            for phase in phases.into_iter().map(Some).chain([None]) {
                let rows = TABLE.iter().filter(|row| (row.0, row.1) == (standing, phase)).count();
                assert_eq!(rows, 1, "{standing:?} {phase:?}");
            }
        }
    }

    /// Every state that any log can leave has an answer, every answer is met, and so is every row that has one.
    #[test]
    fn every_state_that_a_log_can_leave_has_an_answer() {
        let mut met = BTreeMap::new();
        for plan in [plan(None), plan(Some("return"))] {
            let mut seen = BTreeMap::new();
            let mut open = VecDeque::from([State::new(&plan)]);
            while let Some(state) = open.pop_front() {
                let phases: Vec<_> = (0..plan.steps.len()).map(|step| state.phase(step)).collect();
                let key = format!(
                    "{:?} {phases:?} {:?} {} {}",
                    state.heading(),
                    state.end(),
                    state.barred(),
                    state.stuck()
                );
                if seen.insert(key.clone(), ()).is_some() {
                    continue;
                }
                let next = events(plan.steps.len());
                open.extend(next.iter().filter_map(|event| state.next(event).ok()));
                if state.end().is_some() {
                    continue;
                }
                let answer = decide(&state);
                assert_ne!(answer, Boot::Never, "{key}");
                let phase = state.next_step().and_then(|step| state.phase(step));
                met.insert(format!("{:?} {phase:?} {answer:?}", Standing::of(&state)), ());
            }
        }
        let rows = TABLE.iter().filter(|row| row.2 != Boot::Never);
        // A plan with a gate that is behind all its steps without having passed it cannot be.
        let rows = rows.filter(|row| (row.0, row.1) != (Before, None));
        for (standing, phase, answer) in rows {
            let row = format!("{standing:?} {phase:?} {answer:?}");
            assert!(met.contains_key(&row), "{row} is never met: {met:#?}");
        }
    }
}
