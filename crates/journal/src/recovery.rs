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
