//! Where a move stands: one pure function takes it from event to event, live and on replay.
//!
//! ```text
//! heading   Forward --Failed, Turned--> Back --Barred--> Onward
//!              \----Started of the point of no return---^
//! a step    Waiting -> Started -> Done | Failed -> Undoing -> Undone | UndoFailed -> Undoing ...
//! ```
//! The order of steps is part of what is legal: an event for any other step than the next one is an error.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::{Back, Op, Plan, Step};
use crate::system::{Meta, UnitState};

/// What stood there before a step: kept with `Started`, it is all that the undo needs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Before {
    /// The operation has nothing to restore.
    Nothing,
    /// Nothing stood there.
    Absent,
    /// What is wanted stood there already, and not by us: the undo leaves it alone.
    Same,
    /// Another file, whose bytes are in the journal under `kept/<step>`.
    File {
        /// Lower-case hexadecimal SHA-256.
        sha256: String,
        /// Its owner, mode and attributes.
        meta: Meta,
    },
    /// A link with this text.
    Link {
        /// The text.
        target: std::path::PathBuf,
    },
    /// A unit in this state.
    Unit {
        /// The state.
        state: UnitState,
    },
}

/// One record of the log.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(
    tag = "event",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Event {
    /// The step will act now. A step that failed where there is no way back starts again with the same `before`.
    Started {
        /// Index of the step, from 0.
        step: usize,
        /// What stood there.
        before: Before,
    },
    /// The step's act is done and durable.
    Done {
        /// Index of the step.
        step: usize,
    },
    /// The step could not be done: the way back begins, where there is one. A step that has not started stays waiting.
    Failed {
        /// Index of the step.
        step: usize,
        /// Why.
        error: String,
        /// The exit code that the cause asks for.
        exit: u8,
    },
    /// The way back begins without a failure.
    Turned {
        /// Why.
        why: Why,
    },
    /// The step will be undone now.
    UndoStarted {
        /// Index of the step.
        step: usize,
    },
    /// The step is undone, durably.
    Undone {
        /// Index of the step.
        step: usize,
    },
    /// The step could not be undone: a person must look, or undo tries again.
    UndoFailed {
        /// Index of the step.
        step: usize,
        /// Why.
        error: String,
    },
    /// The gate said no, or what must hold before it is asked does not hold: from here there is no way back.
    Barred {
        /// Index of the step that said so: the gate or one behind it.
        step: usize,
        /// Why.
        error: String,
    },
    /// The move is over.
    Closed {
        /// How.
        end: End,
    },
    /// The move is over, done but for its probes: a person accepted that.
    Accepted,
}

/// Why a move turns back without a failure.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// INT or TERM.
    Interrupted,
    /// `undo` was asked for.
    Asked,
    /// The machine had stopped in the middle, and has started anew.
    Restarted,
}

/// How a move is over.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All steps are done.
    Moved,
    /// All steps are undone.
    AsBefore,
}

/// Which way a move goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Heading {
    /// Step by step; a failure turns it back.
    Forward,
    /// Undoing.
    Back,
    /// Forward, with no way back any more.
    Onward,
}

/// Where one step stands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// Not begun.
    Waiting,
    /// Its act may or may not have happened.
    Started,
    /// Done.
    Done,
    /// Its act was tried and failed.
    Failed,
    /// Its undo may or may not have happened.
    Undoing,
    /// Undone.
    Undone,
    /// Its undo was tried and failed.
    UndoFailed,
}

/// What of a plan decides which event may follow.
#[derive(Debug)]
struct Shape {
    back: Vec<Back>,
    /// The step does nothing when the move goes forward.
    inert: Vec<bool>,
    probe: Vec<bool>,
    gate: Option<usize>,
    no_return: Option<usize>,
}

/// Where a move stands.
#[derive(Clone, Debug)]
pub struct State {
    shape: Arc<Shape>,
    heading: Heading,
    phases: Vec<Phase>,
    before: Vec<Option<Before>>,
    /// Why the way back began: the failed step's exit code, or the reason given.
    turned: Option<Turned>,
    barred: bool,
    stuck: bool,
    end: Option<End>,
}

/// Why the way back began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turned {
    /// A step failed; the exit code that its cause asks for.
    Failure(u8),
    /// Without a failure.
    Because(Why),
}

/// An event that may not follow.
#[derive(Debug, Error, Eq, PartialEq)]
#[error("{event} may not follow here: heading {heading:?}, step {phase:?}, over: {over}")]
pub struct IllegalEvent {
    event: String,
    heading: Heading,
    phase: Option<Phase>,
    over: bool,
}

impl State {
    /// Before the first event.
    pub fn new(plan: &Plan) -> State {
        let of = |test: fn(&Step) -> bool| plan.steps.iter().map(test).collect();
        let shape = Shape {
            back: plan.steps.iter().map(|s| s.back).collect(),
            inert: of(|s| match &s.op {
                Op::Gate { .. } => true,
                Op::WaitGone { way, .. } | Op::Probe { way, .. } | Op::ReloadUnits { way } => !way.forward(),
                _ => false,
            }),
            probe: of(|s| matches!(s.op, Op::Probe { .. })),
            gate: plan.gate(),
            no_return: plan.no_return(),
        };
        State {
            shape: Arc::new(shape),
            heading: Heading::Forward,
            phases: vec![Phase::Waiting; plan.steps.len()],
            before: vec![None; plan.steps.len()],
            turned: None,
            barred: false,
            stuck: false,
            end: None,
        }
    }

    /// The state after an event, or why the event may not follow. Pure: the only place that knows what is legal.
    pub fn next(&self, event: &Event) -> Result<State, IllegalEvent> {
        use Heading::*;
        use Phase::*;
        let mut after = self.clone();
        after.stuck = match event {
            Event::UndoFailed { .. } => true,
            Event::Failed { .. } => self.heading == Onward,
            _ => false,
        };
        let legal = match event {
            _ if self.end.is_some() => false,
            Event::Started { step, before } => {
                after.set(*step, Started);
                if let Some(slot) = after.before.get_mut(*step) {
                    *slot = Some(before.clone());
                }
                if self.shape.no_return == Some(*step) {
                    after.heading = Onward;
                }
                match (self.heading, self.phase(*step)) {
                    (Forward | Onward, Some(Waiting)) => self.next_forward() == Some(*step),
                    (Onward, Some(Failed)) => {
                        self.next_forward() == Some(*step) && self.before[*step].as_ref() == Some(before)
                    }
                    _ => false,
                }
            }
            Event::Done { step } => {
                after.set(*step, Done);
                self.heading != Back && self.is_next_forward(*step, &[Started])
            }
            Event::Failed { step, exit, .. } => {
                // One that had not started has changed nothing.
                if self.phase(*step) == Some(Started) {
                    after.set(*step, Failed);
                }
                if self.heading == Forward {
                    after.heading = Back;
                    after.turned = Some(Turned::Failure(*exit));
                }
                self.heading != Back && self.is_next_forward(*step, &[Waiting, Started])
            }
            Event::Turned { why } => {
                after.heading = Back;
                after.turned = Some(Turned::Because(*why));
                self.heading == Forward
            }
            Event::UndoStarted { step } => {
                after.set(*step, Undoing);
                self.is_next_back(*step, &[Started, Done, Failed, UndoFailed])
            }
            Event::Undone { step } => {
                after.set(*step, Undone);
                self.is_next_back(*step, &[Undoing])
            }
            Event::UndoFailed { step, .. } => {
                after.set(*step, UndoFailed);
                self.is_next_back(*step, &[Undoing])
            }
            Event::Barred { step, .. } => {
                let gate = self.shape.gate.unwrap_or(usize::MAX);
                after.heading = Onward;
                after.barred = true;
                // What was undone behind the gate is taken again, each with what it noted at first.
                for index in gate..self.phases.len() {
                    after.phases[index] = match self.phases[index] {
                        Waiting => Waiting,
                        Done => Done,
                        _ => Started,
                    };
                }
                *step >= gate && self.past_gate() && self.is_next_back(*step, &[Undoing])
            }
            Event::Closed { end } => {
                after.end = Some(*end);
                match end {
                    End::Moved => self.heading != Back && self.next_forward().is_none(),
                    End::AsBefore => self.heading == Back && self.next_back().is_none(),
                }
            }
            Event::Accepted => {
                after.end = Some(End::Moved);
                self.acceptable()
            }
        };
        if legal { Ok(after) } else { Err(self.illegal(event)) }
    }

    /// Which way it goes.
    pub fn heading(&self) -> Heading {
        self.heading
    }

    /// How it is over, if it is.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Why the way back began, if it did.
    pub fn turned(&self) -> Option<Turned> {
        self.turned
    }

    /// The gate said no.
    pub fn barred(&self) -> bool {
        self.barred
    }

    /// The last thing that happened is a failure that leaves the move open: a person must look.
    pub fn stuck(&self) -> bool {
        self.stuck
    }

    /// Where a step stands; `None` where there is no such step.
    pub fn phase(&self, step: usize) -> Option<Phase> {
        self.phases.get(step).copied()
    }

    /// What stood there before a step that has started.
    pub fn before(&self, step: usize) -> Option<&Before> {
        self.before.get(step)?.as_ref()
    }

    /// How many steps are done.
    pub fn done(&self) -> usize {
        self.phases.iter().filter(|p| **p == Phase::Done).count()
    }

    /// The step to take next when going forward.
    pub fn next_forward(&self) -> Option<usize> {
        self.phases.iter().position(|p| *p != Phase::Done)
    }

    /// The step to undo next: behind the gate in reverse, the gate, what comes first in reverse, the rest in reverse.
    pub fn next_back(&self) -> Option<usize> {
        let gate = self.shape.gate;
        let behind = gate.unwrap_or(self.phases.len());
        let first = |index: &usize| self.shape.back[*index] == Back::First;
        let order = (behind..self.phases.len()).rev();
        let order = order.chain((0..behind).rev().filter(first));
        let order = order.chain((0..behind).rev().filter(|index| !first(index)));
        order.into_iter().find(|index| !self.is_back(*index))
    }

    /// The step that decides what comes next in the direction it has.
    pub fn next_step(&self) -> Option<usize> {
        match self.heading {
            Heading::Back => self.next_back(),
            _ => self.next_forward(),
        }
    }

    /// Whether a step behind the gate that changes something has ever started: the gate must be asked then.
    pub fn past_gate(&self) -> bool {
        let Some(gate) = self.shape.gate else { return false };
        (gate + 1..self.phases.len()).any(|i| !self.shape.inert[i] && self.phases[i] != Phase::Waiting)
    }

    /// Nothing is missing but probes, and there is no way back.
    pub fn acceptable(&self) -> bool {
        let missing = |i: &usize| self.phases[*i] != Phase::Done && !self.shape.probe[*i];
        self.end.is_none() && self.heading == Heading::Onward && !(0..self.phases.len()).any(|i| missing(&i))
    }

    fn is_back(&self, step: usize) -> bool {
        let unasked = !self.past_gate() && self.shape.gate.is_some_and(|gate| step >= gate) && self.shape.inert[step];
        match self.phases[step] {
            Phase::Waiting | Phase::Undone => true,
            Phase::Done => unasked || self.shape.back[step] == Back::Keep,
            _ => unasked,
        }
    }

    fn is_next_forward(&self, step: usize, phases: &[Phase]) -> bool {
        self.next_forward() == Some(step) && phases.contains(&self.phases[step])
    }

    fn is_next_back(&self, step: usize, phases: &[Phase]) -> bool {
        self.heading == Heading::Back && self.next_back() == Some(step) && phases.contains(&self.phases[step])
    }

    fn set(&mut self, step: usize, phase: Phase) {
        if let Some(slot) = self.phases.get_mut(step) {
            *slot = phase;
        }
    }

    fn illegal(&self, event: &Event) -> IllegalEvent {
        let step = match event {
            Event::Started { step, .. }
            | Event::Done { step }
            | Event::Failed { step, .. }
            | Event::UndoStarted { step }
            | Event::Undone { step }
            | Event::UndoFailed { step, .. }
            | Event::Barred { step, .. } => Some(*step),
            Event::Turned { .. } | Event::Closed { .. } | Event::Accepted => None,
        };
        let name = format!("{event:?}");
        let name = name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        IllegalEvent {
            event: step.map_or_else(|| name.to_owned(), |step| format!("{name} of step {step}")),
            heading: self.heading,
            phase: step.and_then(|step| self.phase(step)),
            over: self.end.is_some(),
        }
    }
}
