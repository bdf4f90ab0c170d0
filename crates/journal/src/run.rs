//! The only loop: it runs, resumes, undoes and walks back, one step at a time, as the table says.

use std::time::Duration;

use quantykube_base::Exit;

use crate::boot;
use crate::error::Error;
use crate::journals::{Ending, Journal, Observer, Outcome, Trouble as Noted};
use crate::ops::{self, Context, Trouble};
use crate::plan::Op;
use crate::recovery::{Action, Request, decide};
use crate::state::{Before, End, Event, Heading, Turned, Why};
use crate::system::{Heed, Interrupt, System};

/// A longer text in a record is cut: the whole of what a program said is in `out/`.
const ERROR_LENGTH_MAX: usize = 2000;

/// Whether the loop goes on.
enum Next {
    Step,
    /// A step was done or undone.
    Done,
    /// A step failed where that leaves the move open: it is tried again at once, and after that a person must look.
    Again,
    /// The same, of a step that has waited and tried for as long as it may.
    Stuck,
}

/// How often a step is tried whose failure leaves the move open.
const TRIES: u32 = 3;
/// Between two tries.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// How the loop is to go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub request: Request,
    /// What is noted where the request turns the move.
    pub why: Why,
    /// Stop before the first step that is not [`boot::is_local`].
    pub only_local: bool,
}

impl From<Request> for Order {
    fn from(request: Request) -> Order {
        Order {
            request,
            why: Why::Asked,
            only_local: false,
        }
    }
}

/// Goes on with a move until it is over, stuck, or interrupted.
pub(crate) fn go(
    journal: &mut Journal,
    order: impl Into<Order>,
    system: &mut dyn System,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let Order {
        request,
        why,
        only_local,
    } = order.into();
    // Before anything is taken away: a number that is used again must not pass for the process that had it.
    for step in &journal.plan.steps {
        if let Op::WaitGone { process, .. } = &step.op {
            system.hold(process)?;
        }
    }
    let mut tries = 1;
    while journal.state.end().is_none() {
        let next = journal.state.next_step();
        let phase = next.and_then(|step| journal.state.phase(step));
        let action = decide(journal.state.heading(), phase, request);
        if only_local && action != Action::Turn {
            let back = journal.state.heading() == Heading::Back;
            let step = next.map(|step| &journal.plan.steps[step]);
            if !step.is_some_and(|step| boot::is_local(step, back)) {
                return Ok(outcome(journal, request, Some(Exit::Interrupted)));
            }
        }
        if next.is_some() && action != Action::Turn {
            match heed(journal, system, observer)? {
                Heeded::No => {}
                Heeded::Turned => continue,
                Heeded::Leave => return Ok(outcome(journal, request, Some(Exit::Interrupted))),
            }
        }
        let next = match (action, next) {
            (Action::Start, Some(step)) => start(journal, step, system, observer)?,
            (Action::Settle, Some(step)) => settle(journal, step, system, observer)?,
            (Action::Again, Some(step)) => {
                let before = journal.state.before(step).cloned().unwrap_or(Before::Nothing);
                journal.note(system, &Event::Started { step, before })?;
                settle(journal, step, system, observer)?
            }
            (Action::Turn, _) => {
                observer.turn(match why {
                    Why::Restarted => "the machine stopped in the middle of the move: putting everything back",
                    _ => "going back, as asked",
                });
                journal.note(system, &Event::Turned { why })?;
                Next::Step
            }
            (Action::Undo, Some(step)) => {
                journal.note(system, &Event::UndoStarted { step })?;
                undo(journal, step, system, observer)?
            }
            (Action::UndoAgain, Some(step)) => undo(journal, step, system, observer)?,
            (Action::CloseMoved, None) => {
                journal.note(system, &Event::Closed { end: End::Moved })?;
                Next::Step
            }
            (Action::CloseAsBefore, None) => {
                journal.note(system, &Event::Closed { end: End::AsBefore })?;
                Next::Step
            }
            (action, next) => unreachable!("the table answers {action:?} for step {next:?}"),
        };
        match next {
            Next::Step => {}
            Next::Again if tries < TRIES => {
                tries += 1;
                system.sleep(BETWEEN_TRIES);
            }
            Next::Again | Next::Stuck => return Ok(outcome(journal, request, Some(Exit::Stuck))),
            Next::Done => tries = 1,
        }
    }
    Ok(outcome(journal, request, None))
}

enum Heeded {
    No,
    Turned,
    Leave,
}

/// Between two steps: what an interrupt means here.
fn heed(journal: &mut Journal, system: &mut dyn System, observer: &mut dyn Observer) -> Result<Heeded, Error> {
    let files_suffice = journal.state.heading() == Heading::Forward && !journal.state.past_gate();
    match system.interrupt() {
        None => Ok(Heeded::No),
        Some(Interrupt::PutBack) if files_suffice => {
            observer.turn("interrupted: putting everything back");
            journal.note(system, &Event::Turned { why: Why::Interrupted })?;
            Ok(Heeded::Turned)
        }
        Some(Interrupt::PutBack) if journal.state.heading() == Heading::Back => Ok(Heeded::No),
        Some(_) => Ok(Heeded::Leave),
    }
}

fn start(
    journal: &mut Journal,
    step: usize,
    system: &mut dyn System,
    observer: &mut dyn Observer,
) -> Result<Next, Error> {
    let heed = Heed::All;
    let plan = journal.plan.clone();
    let of = plan.steps.len();
    observer.begin(true, step + 1, of, &plan.steps[step]);
    let folder = journal.folder.clone();
    let mut context = Context {
        system,
        observer,
        folder: &folder,
        index: step,
        step: &plan.steps[step],
        heed,
    };
    let observed = ops::observe(&mut context);
    match observed {
        Ok(before) => {
            journal.note(
                &mut *context.system,
                &Event::Started {
                    step,
                    before: before.clone(),
                },
            )?;
            let acted = ops::act(&mut context, &before);
            acted_on(journal, step, acted, system, observer)
        }
        // Noted without a start: nothing was changed, so there is nothing to undo.
        Err(trouble) => acted_on(journal, step, Err(trouble), system, observer),
    }
}

fn settle(
    journal: &mut Journal,
    step: usize,
    system: &mut dyn System,
    observer: &mut dyn Observer,
) -> Result<Next, Error> {
    let plan = journal.plan.clone();
    let of = plan.steps.len();
    observer.begin(true, step + 1, of, &plan.steps[step]);
    let before = journal.state.before(step).cloned().unwrap_or(Before::Nothing);
    let folder = journal.folder.clone();
    let mut context = Context {
        system,
        observer,
        folder: &folder,
        index: step,
        step: &plan.steps[step],
        heed: Heed::All,
    };
    let acted = ops::act(&mut context, &before);
    acted_on(journal, step, acted, system, observer)
}

fn acted_on(
    journal: &mut Journal,
    step: usize,
    acted: Result<(), Trouble>,
    system: &mut dyn System,
    observer: &mut dyn Observer,
) -> Result<Next, Error> {
    let plan = journal.plan.clone();
    match acted {
        Ok(()) => {
            journal.note(system, &Event::Done { step })?;
            observer.end(true, &plan.steps[step], Ok(()));
            Ok(Next::Done)
        }
        // The step stays started; what the interrupt means is decided before the next one.
        Err(Trouble::Interrupted) => {
            observer.end(true, &plan.steps[step], Err("interrupted"));
            Ok(Next::Step)
        }
        Err(Trouble::Failed { message, exit }) => {
            observer.end(true, &plan.steps[step], Err(&message));
            journal.note(
                system,
                &Event::Failed {
                    step,
                    error: cut(message),
                    exit: exit.code(),
                },
            )?;
            if journal.state.heading() == Heading::Onward {
                return Ok(again(&plan.steps[step].op));
            }
            observer.turn("that failed: putting everything back");
            Ok(Next::Step)
        }
        Err(Trouble::Barred(_)) => unreachable!("a gate is asked on the way back only"),
    }
}

/// What a failure means that leaves the move open. A rename that failed once may well go through a moment later.
fn again(op: &Op) -> Next {
    match op {
        Op::Build { .. } | Op::Run { .. } | Op::WaitGone { .. } | Op::Probe { .. } => Next::Stuck,
        _ => Next::Again,
    }
}

fn undo(
    journal: &mut Journal,
    step: usize,
    system: &mut dyn System,
    observer: &mut dyn Observer,
) -> Result<Next, Error> {
    let plan = journal.plan.clone();
    let of = plan.steps.len();
    observer.begin(false, step + 1, of, &plan.steps[step]);
    let before = journal.state.before(step).cloned().unwrap_or(Before::Nothing);
    let ask = journal.state.past_gate();
    let folder = journal.folder.clone();
    let mut context = Context {
        system,
        observer,
        folder: &folder,
        index: step,
        step: &plan.steps[step],
        heed: Heed::Stop,
    };
    let undone = match plan.steps[step].back {
        crate::plan::Back::Keep => ops::sweep(&mut context),
        _ => ops::undo(&mut context, &before, ask),
    };
    match undone {
        Ok(()) => {
            journal.note(system, &Event::Undone { step })?;
            observer.end(false, &plan.steps[step], Ok(()));
            Ok(Next::Done)
        }
        Err(Trouble::Interrupted) => {
            observer.end(false, &plan.steps[step], Err("interrupted"));
            Ok(Next::Step)
        }
        Err(Trouble::Failed { message, .. }) => {
            observer.end(false, &plan.steps[step], Err(&message));
            journal.note(
                system,
                &Event::UndoFailed {
                    step,
                    error: cut(message),
                },
            )?;
            Ok(again(&plan.steps[step].op))
        }
        Err(Trouble::Barred(message)) => {
            observer.end(false, &plan.steps[step], Err(&message));
            journal.note(
                system,
                &Event::Barred {
                    step,
                    error: cut(message),
                },
            )?;
            observer.turn("there is no way back from here: going forward again");
            Ok(Next::Step)
        }
    }
}

pub(crate) fn outcome(journal: &Journal, request: Request, left: Option<Exit>) -> Outcome {
    let (ending, exit) = match (journal.state.end(), left) {
        (Some(End::Moved), _) if request == Request::Undo => (Ending::Moved, Exit::Failed),
        (Some(End::Moved), _) => (Ending::Moved, Exit::Done),
        (Some(End::AsBefore), _) if request == Request::Undo => (Ending::AsBefore, Exit::Done),
        (Some(End::AsBefore), _) => (Ending::AsBefore, put_back(journal.state.turned())),
        (None, Some(Exit::Stuck)) => (Ending::Stuck, Exit::Stuck),
        (None, _) => (Ending::Open, Exit::Interrupted),
    };
    Outcome {
        id: journal.id.clone(),
        ending,
        exit,
        gate_refused: journal.state.barred(),
        trouble: journal.trouble.clone(),
    }
}

/// The exit code of a move that was put back without being asked now. "A check before the start says no" is none: it had
/// started.
fn put_back(turned: Option<Turned>) -> Exit {
    match turned {
        Some(Turned::Because(Why::Asked)) => Exit::Done,
        Some(Turned::Failure(code)) => Exit::ALL
            .into_iter()
            .find(|exit| exit.code() == code)
            .filter(|exit| !matches!(exit, Exit::Done | Exit::Refused | Exit::Interrupted | Exit::Stuck))
            .unwrap_or(Exit::Failed),
        Some(Turned::Because(Why::Interrupted | Why::Restarted)) | None => Exit::Failed,
    }
}

fn cut(mut message: String) -> String {
    if message.len() > ERROR_LENGTH_MAX {
        let end = (0..=ERROR_LENGTH_MAX)
            .rev()
            .find(|at| message.is_char_boundary(*at))
            .unwrap_or(0);
        message.truncate(end);
    }
    message
}

/// A failure as it is noted, for people.
pub(crate) fn noted(plan: &crate::plan::Plan, event: &Event) -> Option<Noted> {
    let (step, back, message) = match event {
        Event::Failed { step, error, .. } => (step, false, error),
        Event::UndoFailed { step, error } | Event::Barred { step, error } => (step, true, error),
        _ => return None,
    };
    let step = plan.steps.get(*step).map(|s| s.name.clone()).unwrap_or_default();
    Some(Noted {
        step,
        back,
        message: message.clone(),
    })
}
