//! A move as data: what will be done, step by step, and what undoes it.
//!
//! A plan is made whole before the first step, printed, and written into the journal. It holds no secret: what is
//! written inline is text that anyone may read, and files are named by path and digest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The newest format of `plan.json` that this program reads and the one it writes.
pub const FORMAT: u32 = 1;

/// A whole move.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// What is moved, such as `store`: lower-case letters, digits and dashes.
    #[serde(rename = "move")]
    pub name: String,
    /// Onto our side or back.
    pub direction: Direction,
    /// The version of the program that made the plan.
    pub version: String,
    /// For a plan that undoes an earlier move: the id of that move's journal, such as `1-store`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// The machine, node and cluster that the plan is for.
    pub binding: Binding,
    /// The step from which on there is no way back: once it has started, a failure leaves the move open, to be finished by
    /// a resume. It lies behind the gate, where there is one. What it begins may answer with numbers that the other
    /// side has not reached: that is why it need not be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point_of_no_return: Option<String>,
    /// In the order in which they are taken.
    pub steps: Vec<Step>,
}

/// Onto our side, or back to what was before.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// `install MOVE`.
    Install,
    /// `undo MOVE`, as a plan of its own.
    Undo,
}

/// What a plan is made for. A journal on another machine is refused.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Binding {
    /// The text of `/etc/machine-id`, trimmed.
    pub machine_id: String,
    /// The node's name in its cluster.
    pub node: String,
    /// What tells clusters apart, such as etcd's cluster id in hexadecimal.
    pub cluster: String,
}

/// One reversible operation with its name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    /// Stable, unique within the plan: lower-case letters, digits and dashes.
    pub name: String,
    /// What it does, for people: one line without a final period.
    pub text: String,
    /// When its undo comes on the way back.
    #[serde(default, skip_serializing_if = "Back::is_in_turn")]
    pub back: Back,
    /// What is done.
    pub op: Op,
}

impl Step {
    /// A step that is undone in turn.
    pub fn new(name: impl Into<String>, text: impl Into<String>, op: Op) -> Step {
        Step {
            name: name.into(),
            text: text.into(),
            back: Back::InTurn,
            op,
        }
    }

    /// The same step with another place on the way back.
    pub fn back(mut self, back: Back) -> Step {
        self.back = back;
        self
    }
}

/// A step's place on the way back.
///
/// The way back is: the steps behind the gate in reverse; the gate; the steps marked `First` in reverse; all others in
/// reverse. Where no step behind the gate has started, the gate is not asked.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Back {
    /// In reverse order.
    #[default]
    InTurn,
    /// Before all others that lie before the gate: what brings the service back, by files alone.
    First,
    /// Never: what it made stays. A half-made thing is swept.
    Keep,
}

impl Back {
    fn is_in_turn(&self) -> bool {
        *self == Back::InTurn
    }
}

/// On which way an operation that changes nothing lasting acts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Only when the move goes forward.
    #[default]
    Forward,
    /// Only on the way back.
    Back,
    /// On both.
    Both,
}

impl Way {
    /// Whether it acts when the move goes forward.
    pub fn forward(self) -> bool {
        self != Way::Back
    }

    /// Whether it acts on the way back.
    pub fn back(self) -> bool {
        self != Way::Forward
    }
}

/// The closed list of operations. Any of our programs can undo any journal of a format it knows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Op {
    /// Makes one folder; what is above it must exist. A folder that is there stays as it is.
    /// Undo: removed if it is empty.
    MakeDir {
        /// Absolute.
        path: PathBuf,
        /// Permission bits, whatever the umask.
        mode: u32,
    },
    /// Puts a file, owned by root, over whatever file is there (kept in the journal).
    /// Undo: the kept file returns, or the file is removed; refused where neither ours nor the old one stands there.
    PutFile {
        /// Absolute.
        path: PathBuf,
        /// Permission bits, whatever the umask.
        mode: u32,
        /// What is in it.
        content: Content,
    },
    /// Puts a symbolic link, over whatever link is there. Undo: the old link, or none.
    PutLink {
        /// Absolute.
        path: PathBuf,
        /// The link's text.
        target: PathBuf,
    },
    /// Replaces the one occurrence of a string in a file; owner, mode and extended attributes stay.
    /// Undo: the reverse, on whatever the file has become, as long as our string is in it exactly once.
    EditString {
        /// Absolute.
        path: PathBuf,
        /// Occurs once before. Neither string may contain the other.
        from: String,
        /// Occurs once after.
        to: String,
    },
    /// Renames a file away to a named place on the same file system. Undo: the reverse.
    Retire {
        /// Absolute; exists before.
        path: PathBuf,
        /// Absolute; must not exist before.
        to: PathBuf,
        /// What somebody runs from the file and ends when it is away. The undo gives it the time to end before it gives
        /// the file back; one that does not end is no error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        runs: Option<Process>,
    },
    /// Renames a file from a named place to where it is in use. Undo: the reverse.
    Return {
        /// Absolute; exists before.
        from: PathBuf,
        /// Absolute; must not exist before.
        to: PathBuf,
    },
    /// Runs a program that makes one new path, whole and synced, by a last rename. One that falls silent is ended.
    /// Undo: renamed to `aside`, or removed where there is none (only for what nothing was served from).
    Build {
        /// Program (absolute) and arguments.
        argv: Vec<String>,
        /// Must not exist before.
        creates: PathBuf,
        /// The program's own temporary names, dropped before each try and on the way back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partial: Vec<PathBuf>,
        /// Where the undo puts it; must not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        aside: Option<PathBuf>,
    },
    /// Runs a program that may be run again at any time (after a kill it is). Exit code 0 is success. One that falls
    /// silent is ended.
    Run {
        /// Program (absolute) and arguments.
        argv: Vec<String>,
        /// What undoes it, if anything must.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        back: Option<Vec<String>>,
    },
    /// Brings a systemd unit to a state and waits for the job's result. Undo: the state before.
    Unit {
        /// With its suffix, such as `quantykube-store.service`.
        name: String,
        /// Started at boot.
        enabled: bool,
        /// Running now. The same as `enabled`: what a restart of the machine undoes is not done.
        active: bool,
    },
    /// Lets systemd read its unit files again.
    ReloadUnits {
        /// When.
        #[serde(default)]
        way: Way,
    },
    /// Waits until no process of a kind is left, nor the group that the one named by its id was in. Never kills; may ask
    /// it to end.
    WaitGone {
        /// Which.
        process: Process,
        /// Seconds until the step fails.
        timeout_s: u32,
        /// Seconds after which it is sent TERM, if ever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        term_after_s: Option<u32>,
        /// How long none must have been seen, in milliseconds: a restart by its keeper may be under way.
        #[serde(default)]
        quiet_ms: u32,
        /// When.
        #[serde(default)]
        way: Way,
    },
    /// Runs a program again and again until it exits with 0.
    Probe {
        /// Program (absolute) and arguments.
        argv: Vec<String>,
        /// Seconds until the step fails; a try under way is ended then.
        timeout_s: u32,
        /// When.
        #[serde(default)]
        way: Way,
    },
    /// Does nothing forward. On the way back its program must exit with 0; else the way back ends here, the steps
    /// behind it are taken again and there is no way back any more: the rule of the acknowledged write.
    Gate {
        /// Program (absolute) and arguments.
        argv: Vec<String>,
        /// Seconds after which the answer counts as no.
        timeout_s: u32,
    },
}

/// What a file holds.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Content {
    /// Text that is no secret.
    Text(String),
    /// The bytes of another file.
    File {
        /// Absolute.
        from: PathBuf,
        /// Lower-case hexadecimal SHA-256 of its bytes; another content fails the step.
        sha256: String,
    },
}

/// A kind of process: all that match `program` and `args`, and the one that `pid` names.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Process {
    /// The last part of the first argument, such as `kube-apiserver`.
    pub program: String,
    /// Each is one whole argument that the process has.
    pub args: Vec<String>,
    /// One that was seen before the move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// The boot in which `pid` and `group` were seen, as `/proc/sys/kernel/random/boot_id` has it: in any other they name
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The control group of the pod that `pid` is in, as an absolute path: it goes when all of the pod has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PathBuf>,
}

/// One process for as long as it lives; its number may be used again by another.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pid {
    /// Process id.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks after boot at which it started.
    pub start: u64,
}

/// A plan that cannot be run as it is. Always an error of the program that made it.
#[derive(Debug, Error, Eq, PartialEq)]
#[error("the plan is not sound: {0}")]
pub struct Unsound(String);

impl Plan {
    /// Refuses plans that could not be undone or whose names are not plain.
    pub fn check(&self) -> Result<(), Unsound> {
        let no = |text: String| Err(Unsound(text));
        if !plain(&self.name) {
            return no(format!("the move's name {:?} is not plain", self.name));
        }
        let mut names = BTreeSet::new();
        for step in &self.steps {
            if !plain(&step.name) || !names.insert(&step.name) {
                return no(format!("the step's name {:?} is not plain or comes twice", step.name));
            }
            step.op
                .check()
                .map_err(|text| Unsound(format!("step {}: {text}", step.name)))?;
        }
        if self.steps.iter().filter(|s| matches!(s.op, Op::Gate { .. })).count() > 1 {
            return no("it has more than one gate".into());
        }
        if let Some(name) = &self.point_of_no_return {
            match self.steps.iter().position(|s| s.name == *name) {
                None => return no(format!("it names no step {name:?} as point of no return")),
                Some(at) if self.gate().is_some_and(|gate| at <= gate) => {
                    return no("its point of no return is not behind its gate".into());
                }
                Some(_) => {}
            }
        }
        if let Some(gate) = self.gate()
            && let Some(step) = self.steps[gate..].iter().find(|s| s.back != Back::InTurn)
        {
            return no(format!("step {} is behind the gate and not undone in turn", step.name));
        }
        Ok(())
    }

    /// The index of the gate.
    pub fn gate(&self) -> Option<usize> {
        self.steps.iter().position(|s| matches!(s.op, Op::Gate { .. }))
    }

    /// The index of the point of no return.
    pub fn no_return(&self) -> Option<usize> {
        let name = self.point_of_no_return.as_ref()?;
        self.steps.iter().position(|s| s.name == *name)
    }

    /// The end of the journal's name: `store` or `undo-store`.
    pub fn slug(&self) -> String {
        match self.direction {
            Direction::Install => self.name.clone(),
            Direction::Undo => format!("undo-{}", self.name),
        }
    }

    /// One line per step, numbered, for people.
    pub fn describe(&self) -> Vec<String> {
        let width = self.steps.len().to_string().len();
        let mut lines = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let note = match step.back {
                Back::Keep => " (stays after an undo)",
                _ => "",
            };
            lines.push(format!("{:>width$}. {}{note}", index + 1, step.text));
            lines.push(format!("{:>width$}  {}", "", step.op.describe()));
        }
        lines
    }
}

impl Op {
    /// What it does, exactly, in one line.
    pub fn describe(&self) -> String {
        let on = |way: &Way| match way {
            Way::Forward => "",
            Way::Back => ", on the way back only",
            Way::Both => ", on the way back too",
        };
        match self {
            Op::MakeDir { path, mode } => format!("folder {} ({mode:04o})", path.display()),
            Op::PutFile { path, mode, content } => match content {
                Content::Text(text) => format!("file {} ({mode:04o}, {} bytes)", path.display(), text.len()),
                Content::File { from, .. } => format!("file {} ({mode:04o}) from {}", path.display(), from.display()),
            },
            Op::PutLink { path, target } => format!("link {} -> {}", path.display(), target.display()),
            Op::EditString { path, from, to } => format!("edit {}: {} -> {}", path.display(), from.trim(), to.trim()),
            Op::Retire { path, to, .. } => format!("rename {} to {}", path.display(), to.display()),
            Op::Return { from, to } => format!("rename {} to {}", from.display(), to.display()),
            Op::Build { argv, creates, .. } => format!("build {} by {}", creates.display(), argv.join(" ")),
            Op::Run { argv, .. } => format!("run {}", argv.join(" ")),
            Op::Unit { name, enabled, active } => format!(
                "unit {name}: {}, {}",
                if *enabled { "enabled" } else { "disabled" },
                if *active { "running" } else { "stopped" }
            ),
            Op::ReloadUnits { way } => format!("systemd reads its units again{}", on(way)),
            Op::WaitGone {
                process,
                timeout_s,
                way,
                ..
            } => {
                format!(
                    "no {} {} is left, within {timeout_s} s{}",
                    process.program,
                    process.args.join(" "),
                    on(way)
                )
            }
            Op::Probe { argv, timeout_s, way } => {
                format!("{} succeeds within {timeout_s} s{}", argv.join(" "), on(way))
            }
            Op::Gate { argv, .. } => format!("the way back passes here only if {} says yes", argv.join(" ")),
        }
    }

    fn check(&self) -> Result<(), String> {
        let path = |path: &Path| match path.is_absolute() && path.file_name().is_some() && plain_path(path) {
            true => Ok(()),
            false => Err(format!("{} is not a plain absolute path", path.display())),
        };
        let argv = |argv: &[String]| match argv.first().map(Path::new) {
            Some(program) => path(program),
            None => Err("no program is named".into()),
        };
        match self {
            Op::MakeDir { path: at, .. } | Op::PutLink { path: at, .. } => path(at),
            Op::PutFile { path: at, content, .. } => {
                if let Content::File { from, sha256 } = content {
                    path(from)?;
                    if sha256.len() != 64 || !sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                        return Err(format!("{sha256:?} is no SHA-256 in lower-case hexadecimal"));
                    }
                }
                path(at)
            }
            Op::EditString { path: at, from, to } => {
                // Which of the two stands in the file could not be told otherwise.
                if from.contains(to.as_str()) || to.contains(from.as_str()) {
                    return Err(format!("of {from:?} and {to:?} one contains the other"));
                }
                path(at)
            }
            Op::Retire { path: from, to, .. } | Op::Return { from, to } => path(from).and(path(to)),
            Op::Build {
                argv: run,
                creates,
                partial,
                aside,
            } => {
                partial.iter().chain(aside).try_for_each(|at| path(at))?;
                path(creates).and(argv(run))
            }
            Op::Run { argv: run, back } => back.iter().try_for_each(|back| argv(back)).and(argv(run)),
            Op::Probe { argv: run, .. } | Op::Gate { argv: run, .. } => argv(run),
            Op::WaitGone { process, .. } if process.args.is_empty() && process.pid.is_none() => {
                Err("a process is known by its program's name alone, and another cluster's may run here".into())
            }
            Op::Unit { enabled, active, .. } if enabled != active => {
                Err("a restart of the machine in the middle of the move would change what it has done".into())
            }
            Op::Unit { .. } | Op::ReloadUnits { .. } | Op::WaitGone { .. } => Ok(()),
        }
    }
}

fn plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn plain_path(path: &Path) -> bool {
    use std::path::Component;
    path.components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}
