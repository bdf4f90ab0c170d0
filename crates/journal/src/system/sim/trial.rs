//! Runs a plan through every crash: as before or moved, never between.
//!
//! A trial takes a machine on which a plan is about to run. It runs the plan once to count its effects, then crashes at
//! each one, and lets `resume` and `undo` put the machine right. It panics with the whole story where they do not.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quantykube_base::Exit;

use super::{How, Sim, When};
use crate::error::Error;
use crate::journals::{Ending, Journals, Observer, Outcome};
use crate::plan::{Back, Op, Plan, Step};
use crate::system::Entry;

/// Long enough for the kubelet to do all it wants.
const SETTLES_IN: Duration = Duration::from_secs(10);

/// What a trial tries.
pub struct Trial<'a> {
    /// For messages.
    pub name: &'a str,
    /// The machine before the plan, settled.
    pub machine: &'a Sim,
    /// The plan.
    pub plan: &'a Plan,
    /// The second crash comes at every so many effects of the recovery; 0 for none.
    pub second_every: u64,
}

/// How often what was tried.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Effects of the plan without a crash.
    pub effects: u64,
    /// Runs with one crash.
    pub single: u64,
    /// Runs with a second crash during the recovery.
    pub double: u64,
    /// Ends that were moved, and as before.
    pub moved: u64,
    /// Ends that were as before.
    pub as_before: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} effects, {} single crashes, {} double crashes; ended {} moved, {} as before",
            self.effects, self.single, self.double, self.moved, self.as_before
        )
    }
}

/// How moves with one failed effect ended.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Failures {
    /// As before.
    pub put_back: u64,
    /// Moved.
    pub moved: u64,
    /// Open, and moved by a resume.
    pub finished_later: u64,
    /// The effects whose failure left no API server until the resume.
    pub down: Vec<String>,
}

/// How machines ended on which the power went in the middle and nobody was there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reboots {
    /// Effects of the plan without a crash.
    pub effects: u64,
    /// Runs with one power cut.
    pub single: u64,
    /// Runs with a second one while the boot units ran.
    pub double: u64,
    /// Ends before the boot units were on the machine: nothing touched.
    pub untouched: u64,
    /// Ends that were moved.
    pub moved: u64,
    /// Ends that were as before.
    pub as_before: u64,
    /// Boots in which a manifest stood when the kubelet started.
    pub at_once: u64,
    /// Boots in which it had to wait.
    pub later: u64,
}

/// Every crash that a machine can have: a kill loses nothing.
pub const CRASHES: [(When, How); 5] = [
    (When::Before, How::Kill),
    (When::After, How::Kill),
    (When::Before, How::Reboot),
    (When::After, How::Reboot),
    (When::AfterLost, How::Reboot),
];

impl Trial<'_> {
    /// Whether the plan, run to its end, leaves anything that can be seen.
    pub fn does_something(&self) -> bool {
        let mut whole = self.machine.clone();
        self.go(&mut whole, Do::Run).expect("the plan runs");
        whole.pass(SETTLES_IN);
        self.picture(&whole) != self.picture(self.machine)
    }

    /// Tries every crash. Panics where the machine ends between.
    pub fn every_crash(&self) -> Counts {
        let before = self.picture(self.machine);
        let mut whole = self.machine.clone();
        let from = whole.effects();
        let outcome = self.go(&mut whole, Do::Run).expect("the plan runs");
        assert_eq!(outcome.ending, Ending::Moved, "{}: {outcome:?}", self.name);
        let effects = whole.effects() - from;
        whole.pass(SETTLES_IN);
        assert_eq!(
            whole.node.violations,
            Vec::<String>::new(),
            "{}: without any crash",
            self.name
        );
        let moved = self.picture(&whole);
        assert_ne!(before, moved, "{}: the plan does nothing that can be seen", self.name);

        let mut counts = Counts {
            effects,
            ..Counts::default()
        };
        for at in 1..=effects {
            for (when, how) in CRASHES {
                let mut crashed = self.machine.clone();
                self.crash(&mut crashed, at, when, how, Do::Run);
                for request in [Do::Resume, Do::Undo] {
                    let mut story = Story {
                        trial: self,
                        steps: vec![(at, when, how, Do::Run)],
                    };
                    let mut sim = crashed.clone();
                    let from = sim.effects();
                    counts.single += 1;
                    self.recover(&mut sim, request, &story, &before, &moved, &mut counts);
                    if self.second_every == 0 {
                        continue;
                    }
                    // The second crash wanders, so that over all first ones every place of the recovery is met.
                    let recovery = sim.effects() - from;
                    let mut second = 1 + at % self.second_every;
                    while second <= recovery {
                        let (when, how) = CRASHES[((at + second) % CRASHES.len() as u64) as usize];
                        let mut sim = crashed.clone();
                        self.crash(&mut sim, second, when, how, request);
                        story.steps.truncate(1);
                        story.steps.push((second, when, how, request));
                        let last = if (at + second).is_multiple_of(2) {
                            Do::Resume
                        } else {
                            Do::Undo
                        };
                        counts.double += 1;
                        self.recover(&mut sim, last, &story, &before, &moved, &mut counts);
                        second += self.second_every;
                    }
                }
            }
        }
        counts
    }

    /// Lets the power go at every effect and the machine start again with the two boot units and nobody there: `recover`,
    /// then the kubelet, then `resume`. `enabled` says whether the units' links are on the machine yet; where they are
    /// not, the move must not have touched the service. With `second_every`, the power goes again while they run.
    /// Panics where the machine ends between.
    pub fn every_reboot(&self, enabled: &dyn Fn(&Sim) -> bool) -> Reboots {
        let before = self.picture(self.machine);
        let mut whole = self.machine.clone();
        let from = whole.effects();
        self.go(&mut whole, Do::Run).expect("the plan runs");
        let effects = whole.effects() - from;
        whole.pass(SETTLES_IN);
        let moved = self.picture(&whole);
        let mut reboots = Reboots {
            effects,
            ..Reboots::default()
        };
        for at in 1..=effects {
            for when in [When::Before, When::After, When::AfterLost] {
                let mut crashed = self.machine.clone();
                self.cut_power(&mut crashed, at, when, |sim| self.go(sim, Do::Run).map(Some));
                let effect = whole.trace[(from + at - 1) as usize].clone();
                let story = format!("{}: the power goes {when:?} effect {at} ({effect})", self.name);
                reboots.single += 1;
                let mut sim = crashed.clone();
                let taken = self.boot(&mut sim, &story, enabled, (&before, &moved), &mut reboots);
                if self.second_every == 0 || taken == 0 {
                    continue;
                }
                let mut second = 1 + at % self.second_every;
                while second <= taken {
                    let again = [When::Before, When::After, When::AfterLost][((at + second) % 3) as usize];
                    let mut sim = crashed.clone();
                    self.cut_power(&mut sim, second, again, |sim| self.take_units(sim).1);
                    let story = format!("{story}, and again {again:?} effect {second} of the boot units");
                    reboots.double += 1;
                    self.boot(&mut sim, &story, enabled, (&before, &moved), &mut reboots);
                    second += self.second_every;
                }
            }
        }
        reboots
    }

    fn cut_power(
        &self,
        sim: &mut Sim,
        at: u64,
        when: When,
        work: impl FnOnce(&mut Sim) -> Result<Option<Outcome>, Error>,
    ) {
        sim.crash_at(at, when);
        let outcome = work(sim);
        assert!(
            sim.has_crashed(),
            "{}: the crash {when:?} effect {at} has not come: {outcome:?}",
            self.name
        );
        sim.power_on(How::Reboot);
    }

    /// What the boot units do on a machine that was just powered on: the manifest that `recover` left, and the end.
    fn take_units(&self, sim: &mut Sim) -> (Option<&'static str>, Result<Option<Outcome>, Error>) {
        let recovered = (|| {
            Journals::at(Journals::ROOT)
                .lock(sim)?
                .recover_at_boot(sim, &mut Silent)
        })();
        let stands = sim.manifest_names();
        sim.start_kubelet();
        if sim.has_crashed() {
            return (stands, recovered);
        }
        sim.pass(SETTLES_IN);
        let resumed = (|| Journals::at(Journals::ROOT).lock(sim)?.resume_at_boot(sim, &mut Silent))();
        (stands, resumed)
    }

    /// One boot without a person, from [`Sim::power_on`] on. Returns how many effects the boot units had.
    fn boot(
        &self,
        sim: &mut Sim,
        story: &str,
        enabled: &dyn Fn(&Sim) -> bool,
        (before, moved): (&Picture, &Picture),
        reboots: &mut Reboots,
    ) -> u64 {
        if !enabled(sim) {
            sim.start_kubelet();
            sim.pass(SETTLES_IN);
            assert_eq!(sim.serving(), self.machine.serving(), "{story}");
            assert_eq!(sim.node.violations, Vec::<String>::new(), "{story}");
            // What is half made is swept as soon as somebody undoes it.
            let undone = self.go(sim, Do::Undo);
            let picture = self.picture(sim);
            assert!(
                picture == *before,
                "{story}: {undone:?}\n{}",
                differences(before, &picture)
            );
            reboots.untouched += 1;
            return 0;
        }
        let from = sim.effects();
        let (stands, outcome) = self.take_units(sim);
        let taken = sim.effects() - from;
        match stands {
            Some(_) => reboots.at_once += 1,
            None => reboots.later += 1,
        }
        sim.pass(SETTLES_IN);
        let picture = self.picture(sim);
        let expected = match outcome {
            Ok(None) if picture == *before => before,
            Ok(None) => moved,
            Ok(Some(outcome)) if matches!(outcome.ending, Ending::AsBefore) => before,
            Ok(Some(outcome)) if matches!(outcome.ending, Ending::Moved) => moved,
            other => panic!("{story}: {other:?}"),
        };
        assert!(picture == *expected, "{story}:\n{}", differences(expected, &picture));
        assert_eq!(sim.node.violations, Vec::<String>::new(), "{story}");
        match std::ptr::eq(expected, moved) {
            true => reboots.moved += 1,
            false => reboots.as_before += 1,
        }
        let again = self.go(sim, Do::Resume);
        assert!(
            matches!(again, Err(Error::NoOpenMove)),
            "{story}, then a resume: {again:?}"
        );
        taken
    }

    /// Lets every effect fail once, with an error and with a full disk. Panics where the machine ends between, or where a
    /// move that is left open cannot be resumed.
    pub fn every_failure(&self) -> Failures {
        let before = self.picture(self.machine);
        let mut whole = self.machine.clone();
        let outcome = self.go(&mut whole, Do::Run).expect("the plan runs");
        assert_eq!(outcome.ending, Ending::Moved, "{}: {outcome:?}", self.name);
        let effects = whole.effects();
        whole.pass(SETTLES_IN);
        let moved = self.picture(&whole);
        let mut failures = Failures::default();
        for at in self.machine.effects() + 1..=effects {
            for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
                let mut sim = self.machine.clone();
                sim.fail_at = Some((at, kind));
                let outcome = self.go(&mut sim, Do::Run);
                let effect = &whole.trace[at as usize - 1];
                let story = format!("{}: {effect} fails with {kind:?}", self.name);
                assert!(sim.has_failed(), "{story}: it has not");
                sim.pass(SETTLES_IN);
                let outcome = match outcome {
                    // The log could not be written: it is not known what it holds.
                    Err(Error::System(_)) => self.go(&mut sim, Do::Resume),
                    outcome => outcome,
                };
                sim.pass(SETTLES_IN);
                let expected = match outcome {
                    Err(Error::Begin(_) | Error::NoOpenMove) if self.picture(&sim) == before => &before,
                    Err(Error::NoOpenMove) => &moved,
                    Ok(outcome) => match (outcome.ending, outcome.exit) {
                        (Ending::AsBefore, Exit::Failed | Exit::NoSpace) => {
                            let full = outcome.exit == Exit::NoSpace;
                            assert_eq!(full, kind == ErrorKind::StorageFull, "{story}: {outcome:?}");
                            failures.put_back += 1;
                            &before
                        }
                        (Ending::Moved, Exit::Done) => {
                            failures.moved += 1;
                            &moved
                        }
                        (Ending::Stuck, Exit::Stuck) => {
                            if sim.serving().is_none() && !failures.down.contains(effect) {
                                failures.down.push(effect.clone());
                            }
                            failures.finished_later += 1;
                            let resumed = self.go(&mut sim, Do::Resume).expect("it is open");
                            assert_eq!(resumed.ending, Ending::Moved, "{story}: {outcome:?}, then {resumed:?}");
                            sim.pass(SETTLES_IN);
                            &moved
                        }
                        other => panic!("{story}: {other:?} {outcome:?}"),
                    },
                    Err(error) => panic!("{story}: {error:?}"),
                };
                let found = self.picture(&sim);
                assert!(found == *expected, "{story}:\n{}", differences(expected, &found));
                assert_eq!(sim.node.violations, Vec::<String>::new(), "{story}");
            }
        }
        failures
    }

    fn crash(&self, sim: &mut Sim, at: u64, when: When, how: How, what: Do) {
        sim.crash_at(at, when);
        let outcome = self.go(sim, what);
        assert!(
            sim.has_crashed(),
            "{}: the crash {when:?} effect {at} has not come: {outcome:?}",
            self.name
        );
        sim.restart(how);
    }

    fn recover(
        &self,
        sim: &mut Sim,
        request: Do,
        story: &Story<'_>,
        before: &Picture,
        moved: &Picture,
        counts: &mut Counts,
    ) {
        let outcome = self.go(sim, request);
        sim.pass(SETTLES_IN);
        let picture = self.picture(sim);
        let end = match &outcome {
            // Nothing was begun, or all was over before the crash.
            Err(Error::NoOpenMove) if picture == *before => Ending::AsBefore,
            Err(Error::NoOpenMove) => Ending::Moved,
            Ok(outcome) => outcome.ending,
            Err(error) => panic!("{story}, then {request:?}: {error:?}"),
        };
        let expected = match end {
            Ending::AsBefore => before,
            Ending::Moved => moved,
            end => panic!("{story}, then {request:?}: ends {end:?}: {outcome:?}"),
        };
        if picture != *expected {
            panic!(
                "{story}, then {request:?}: said {end:?}, but\n{}",
                differences(expected, &picture)
            );
        }
        if !sim.node.violations.is_empty() {
            panic!("{story}, then {request:?}: {:?}", sim.node.violations);
        }
        match end {
            Ending::Moved => counts.moved += 1,
            _ => counts.as_before += 1,
        }
        let again = self.go(sim, request);
        assert!(
            matches!(again, Err(Error::NoOpenMove)),
            "{story}, then {request:?} twice: {again:?}"
        );
    }

    fn go(&self, sim: &mut Sim, what: Do) -> Result<Outcome, Error> {
        let session = Journals::at(Journals::ROOT).lock(sim)?;
        match what {
            Do::Run => session.run(self.plan, sim, &mut Silent),
            Do::Resume => session.resume(sim, &mut Silent),
            Do::Undo => session.undo(sim, &mut Silent),
        }
    }

    /// All that a person could see, without the journals and what an undo leaves on purpose.
    fn picture(&self, sim: &Sim) -> Picture {
        let mut left: Vec<&Path> = vec![Path::new(Journals::ROOT)];
        for step in &self.plan.steps {
            match &step.op {
                Op::MakeDir { path, .. } | Op::PutFile { path, .. } | Op::PutLink { path, .. }
                    if step.back == Back::Keep =>
                {
                    left.push(path);
                }
                Op::Build { aside: Some(aside), .. } => left.push(aside),
                _ => {}
            }
        }
        let mut picture = Picture::new();
        for (path, entry) in sim.tree.walk() {
            let above = matches!(entry, Entry::Dir(_)) && left.iter().any(|left| left.starts_with(&path));
            if above || left.iter().any(|left| path.starts_with(left)) {
                continue;
            }
            let text = match entry {
                Entry::File(_, meta) => {
                    let bytes = sim.tree.read(&path).expect("it was just seen");
                    let store = serde_json::from_slice::<super::Data>(&bytes).is_ok();
                    let text = if store {
                        "a store".into()
                    } else {
                        String::from_utf8_lossy(&bytes).into_owned()
                    };
                    format!("file {:o} {}:{} {text}", meta.mode, meta.uid, meta.gid)
                }
                Entry::Dir(meta) => format!("folder {:o}", meta.mode),
                Entry::Link(target) => format!("link to {}", target.display()),
                Entry::Other => "other".into(),
            };
            picture.insert(path, text);
        }
        let kept: Vec<&String> = self
            .plan
            .steps
            .iter()
            .filter(|step| step.back == Back::Keep)
            .filter_map(|step| match &step.op {
                Op::Unit { name, .. } => Some(name),
                _ => None,
            })
            .collect();
        for (name, state) in sim.node.units().into_iter().filter(|(name, _)| !kept.contains(&name)) {
            // That systemd has read a unit's file follows from the file.
            let state = format!("enabled {}, active {}", state.enabled, state.active);
            if state != "enabled false, active false" {
                picture.insert(PathBuf::from(name), state);
            }
        }
        picture.insert("the API server".into(), format!("serves from {:?}", sim.serving()));
        picture
    }
}

#[derive(Clone, Copy, Debug)]
enum Do {
    Run,
    Resume,
    Undo,
}

type Picture = BTreeMap<PathBuf, String>;

fn differences(expected: &Picture, found: &Picture) -> String {
    let mut text = String::new();
    for path in expected
        .keys()
        .chain(found.keys().filter(|path| !expected.contains_key(*path)))
    {
        let (expected, found) = (expected.get(path), found.get(path));
        if expected != found {
            text += &format!("{}: expected {expected:?}, found {found:?}\n", path.display());
        }
    }
    text
}

struct Story<'a> {
    trial: &'a Trial<'a>,
    steps: Vec<(u64, When, How, Do)>,
}

impl fmt::Display for Story<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.trial.name)?;
        let mut sim = self.trial.machine.clone();
        for (at, when, how, what) in &self.steps {
            let from = sim.effects();
            self.trial.crash(&mut sim, *at, *when, *how, *what);
            let effect = sim.trace.get((from + at - 1) as usize).cloned().unwrap_or_default();
            write!(out, ", {what:?} with a {how:?} {when:?} effect {at} ({effect})")?;
        }
        Ok(())
    }
}

/// An observer that tells nobody.
pub struct Silent;

impl Observer for Silent {
    fn begin(&mut self, _forward: bool, _number: usize, _of: usize, _step: &Step) {}
    fn end(&mut self, _forward: bool, _step: &Step, _result: Result<(), &str>) {}
    fn line(&mut self, _step: &Step, _line: &str) {}
    fn turn(&mut self, _why: &str) {}
}
