//! The folder of all journals: list them, begin a move, go on with the open one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quantykube_base::Exit;
use sha2::{Digest, Sha256};

use crate::boot::{self, Boot};
use crate::error::Error;
use crate::log::{self, Log, Record};
use crate::plan::{self, Plan, Step};
use crate::recovery::Request;
use crate::run;
use crate::state::{End, Event, Heading, State, Why};
use crate::system::{Entry, Lock, Meta, System, SystemError};

/// What a journal sets aside so that the way back can be noted on a full disk, in bytes.
const RESERVE: usize = 64 << 10;
/// A journal under construction, under the root. Never a move: dropped by the next run.
const UNFINISHED: &str = ".new";

/// All journals of a node, under one folder.
#[derive(Clone, Debug)]
pub struct Journals {
    root: PathBuf,
}

impl Journals {
    /// Where the journals of a node are.
    pub const ROOT: &str = "/var/lib/quantykube/install";

    /// The journals under a folder, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Journals {
        Journals { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All journals, oldest first. Takes no lock: a move may be under way.
    pub fn list(&self, system: &dyn System) -> Result<Vec<Summary>, Error> {
        let mut found = Vec::new();
        for (number, id) in self.names(system)? {
            found.push(Stored::read(system, &self.root.join(&id), &id)?.summary(number)?);
        }
        Ok(found)
    }

    /// The move that is neither done nor put back, if there is one.
    pub fn open_move(&self, system: &dyn System) -> Result<Option<Summary>, Error> {
        Ok(self.list(system)?.into_iter().rev().find(Summary::is_open))
    }

    /// The newest install of a move that is in force: done, and not undone by a later plan.
    pub fn in_force(&self, system: &dyn System, move_name: &str) -> Result<Option<Summary>, Error> {
        Ok(in_force(self.list(system)?, move_name))
    }

    /// The number that the next journal gets.
    pub fn next_number(&self, system: &dyn System) -> Result<u32, Error> {
        Ok(self.names(system)?.last().map_or(0, |(number, _)| *number) + 1)
    }

    /// Takes the lock. [`Error::Locked`] where another process has it.
    pub fn lock(&self, system: &mut dyn System) -> Result<Session, Error> {
        make_root(system, &self.root).map_err(Error::Begin)?;
        let path = self.root.join("lock");
        match system.lock(&path).map_err(Error::Begin)? {
            Some(lock) => Ok(Session {
                journals: self.clone(),
                _lock: lock,
            }),
            None => Err(Error::Locked { path }),
        }
    }

    /// Numbers and names of the journals, in the order of their numbers.
    fn names(&self, system: &dyn System) -> Result<Vec<(u32, String)>, Error> {
        if system.look(&self.root)?.is_none() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for name in system.list(&self.root)? {
            let number = name.split_once('-').and_then(|(number, _)| number.parse().ok());
            names.extend(number.map(|number| (number, name)));
        }
        names.sort();
        Ok(names)
    }
}

/// What [`Journals::in_force`] says, of a list that was read before.
pub fn in_force(list: Vec<Summary>, move_name: &str) -> Option<Summary> {
    let mut newest = list.into_iter().rev();
    newest
        .find(|j| j.plan.name == move_name && j.status == Status::Moved)
        .filter(|j| j.plan.direction == plan::Direction::Install)
}

/// [`Journals::list`] for who asks again and again: what has ended is read once.
#[derive(Debug, Default)]
pub struct Lister {
    /// By name, with the log's length.
    known: BTreeMap<String, (u64, Summary)>,
}

impl Lister {
    /// All journals, oldest first.
    ///
    /// # Errors
    /// As [`Journals::list`].
    pub fn list(&mut self, journals: &Journals, system: &dyn System) -> Result<Vec<Summary>, Error> {
        let mut found = Vec::new();
        let mut known = BTreeMap::new();
        for (number, id) in journals.names(system)? {
            let folder = journals.root.join(&id);
            let length = match system.look(&folder.join("log"))? {
                Some(Entry::File(length, _)) => length,
                _ => 0,
            };
            let summary = match self.known.get(&id) {
                Some((before, summary)) if *before == length => summary.clone(),
                _ => Stored::read(system, &folder, &id)?.summary(number)?,
            };
            // A torn record that is written again has its old length: an open one is always read.
            if !summary.is_open() {
                known.insert(id, (length, summary.clone()));
            }
            found.push(summary);
        }
        self.known = known;
        Ok(found)
    }
}

/// The journals while this process holds their lock. Only here moves are run.
pub struct Session {
    journals: Journals,
    _lock: Lock,
}

impl Session {
    /// The journals, to read.
    pub fn journals(&self) -> &Journals {
        &self.journals
    }

    /// Begins a move and runs it to its end: moved, as before, open or stuck.
    /// An error means that nothing was begun, or that the journal itself cannot be used.
    pub fn run(&self, plan: &Plan, system: &mut dyn System, observer: &mut dyn Observer) -> Result<Outcome, Error> {
        plan.check()?;
        is_this_machine(system, plan)?;
        if let Some(open) = self.journals.open_move(system)? {
            return Err(Error::OpenMove { id: open.id });
        }
        let mut journal = self.begin(plan, system)?;
        run::go(&mut journal, Request::GoOn, system, observer)
    }

    /// Goes on with the open move in the direction it has. [`Error::NoOpenMove`] where there is none.
    pub fn resume(&self, system: &mut dyn System, observer: &mut dyn Observer) -> Result<Outcome, Error> {
        let mut journal = self.reopen(system)?;
        run::go(&mut journal, Request::GoOn, system, observer)
    }

    /// Walks the open move back. Where there is no way back any more the move is finished instead, and the outcome says
    /// so. [`Error::NoOpenMove`] where there is none: what is done is undone by a plan of its own.
    pub fn undo(&self, system: &mut dyn System, observer: &mut dyn Observer) -> Result<Outcome, Error> {
        let mut journal = self.reopen(system)?;
        run::go(&mut journal, Request::Undo, system, observer)
    }

    /// After the machine has started, before the kubelet does: what brings the service back by files and units alone, or
    /// nothing. The rest is left to [`Session::resume_at_boot`], and the move open. `None` where no move is open.
    pub fn recover_at_boot(
        &self,
        system: &mut dyn System,
        observer: &mut dyn Observer,
    ) -> Result<Option<Outcome>, Error> {
        self.at_boot(true, system, observer)
    }

    /// After the machine has started and the kubelet too: brings the open move to its end, but for one that a person must
    /// look at. `None` where no move is open.
    pub fn resume_at_boot(
        &self,
        system: &mut dyn System,
        observer: &mut dyn Observer,
    ) -> Result<Option<Outcome>, Error> {
        self.at_boot(false, system, observer)
    }

    fn at_boot(
        &self,
        only_local: bool,
        system: &mut dyn System,
        observer: &mut dyn Observer,
    ) -> Result<Option<Outcome>, Error> {
        let mut journal = match self.reopen(system) {
            Err(Error::NoOpenMove) => return Ok(None),
            other => other?,
        };
        let request = match boot::decide(&journal.state) {
            Boot::TurnBack => Request::Undo,
            Boot::GoOn => Request::GoOn,
            Boot::Person => return Ok(Some(run::outcome(&journal, Request::GoOn, Some(Exit::Stuck)))),
            Boot::Never => unreachable!("the table has an answer for every state that a log can leave"),
        };
        let order = run::Order {
            request,
            why: Why::Restarted,
            only_local,
        };
        run::go(&mut journal, order, system, observer).map(Some)
    }

    /// Closes a stuck move as moved whose way back is barred and of which only probes are missing, so that a plan of
    /// its own can undo it. [`Error::NotAcceptable`] on any other.
    pub fn accept(&self, system: &mut dyn System) -> Result<Outcome, Error> {
        let mut journal = self.reopen(system)?;
        if !journal.state.acceptable() {
            return Err(Error::NotAcceptable { id: journal.id });
        }
        journal.note(system, &Event::Accepted)?;
        Ok(run::outcome(&journal, Request::GoOn, None))
    }

    /// The instant a move exists is the rename of its folder, whole and synced, to its name.
    fn begin(&self, plan: &Plan, system: &mut dyn System) -> Result<Journal, Error> {
        let root = &self.journals.root;
        let id = format!("{}-{}", self.journals.next_number(system)?, plan.slug());
        let text = serde_json::to_vec_pretty(plan).expect("a plan is plain data");
        let digest: [u8; 32] = Sha256::digest(&text).into();
        let folder = root.join(&id);
        build(system, root, &folder, text, &digest).map_err(Error::Begin)?;
        system.sync_dir(root)?;
        let (log, _) = Log::open(system, &folder.join("log"), &digest)?;
        Ok(Journal {
            id,
            folder,
            plan: plan.clone(),
            state: State::new(plan),
            log,
            trouble: Vec::new(),
        })
    }

    fn reopen(&self, system: &mut dyn System) -> Result<Journal, Error> {
        let Some(open) = self.journals.open_move(system)? else {
            return Err(Error::NoOpenMove);
        };
        is_this_machine(system, &open.plan)?;
        // After a kill the rename that made the move may be in memory only.
        system.sync_dir(&self.journals.root)?;
        let stored = Stored::read(system, &open.folder, &open.id)?;
        let (log, records) = Log::open(system, &open.folder.join("log"), &stored.digest)?;
        let (state, trouble) = replay(&stored.plan, &records, &open.folder)?;
        Ok(Journal {
            id: open.id,
            folder: open.folder,
            plan: stored.plan,
            state,
            log,
            trouble,
        })
    }
}

/// The move under way.
pub(crate) struct Journal {
    pub id: String,
    pub folder: PathBuf,
    pub plan: Plan,
    pub state: State,
    pub trouble: Vec<Trouble>,
    log: Log,
}

impl Journal {
    /// Takes the state over an event and notes it; it is durable when this returns.
    pub fn note(&mut self, system: &mut dyn System, event: &Event) -> Result<(), Error> {
        let state = self
            .state
            .next(event)
            .expect("the loop does only what the state allows");
        self.log.append(system, event)?;
        self.state = state;
        self.trouble.extend(run::noted(&self.plan, event));
        Ok(())
    }
}

/// A journal as it was read.
struct Stored {
    id: String,
    folder: PathBuf,
    plan: Plan,
    digest: [u8; 32],
    records: Vec<Record>,
}

impl Stored {
    fn read(system: &dyn System, folder: &Path, id: &str) -> Result<Stored, Error> {
        let path = folder.join("plan.json");
        let text = system.read(&path)?;
        let unreadable = |source| Error::Plan {
            path: path.clone(),
            source,
        };
        // The format first: the rest of a newer plan may look different.
        let outline: serde_json::Value = serde_json::from_slice(&text).map_err(unreadable)?;
        let format = outline.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if format > u64::from(plan::FORMAT) {
            return Err(Error::NewerPlan { path, found: format });
        }
        let plan: Plan = serde_json::from_slice(&text).map_err(unreadable)?;
        plan.check()?;
        let digest = Sha256::digest(&text).into();
        let records = Log::read(system, &folder.join("log"), &digest)?.records;
        Ok(Stored {
            id: id.to_owned(),
            folder: folder.to_owned(),
            plan,
            digest,
            records,
        })
    }

    fn summary(self, number: u32) -> Result<Summary, Error> {
        let (state, trouble) = replay(&self.plan, &self.records, &self.folder)?;
        let status = match state.end() {
            Some(End::Moved) => Status::Moved,
            Some(End::AsBefore) => Status::AsBefore,
            None => Status::Open {
                way_back: state.heading() != Heading::Onward,
            },
        };
        Ok(Summary {
            number,
            id: self.id,
            folder: self.folder,
            status,
            going_back: state.heading() == Heading::Back,
            gate_refused: state.barred(),
            acceptable: state.acceptable(),
            stuck: state.stuck(),
            done: state.done(),
            trouble,
            began: self.records.first().map_or(0, |r| r.at),
            last: self.records.last().map_or(0, |r| r.at),
            plan: self.plan,
        })
    }
}

fn replay(plan: &Plan, records: &[Record], folder: &Path) -> Result<(State, Vec<Trouble>), Error> {
    let mut state = State::new(plan);
    let mut trouble = Vec::new();
    for (number, record) in records.iter().enumerate() {
        state = state.next(&record.event).map_err(|source| Error::OutOfOrder {
            path: folder.join("log"),
            at: log::offset(records, number),
            source,
        })?;
        trouble.extend(run::noted(plan, &record.event));
    }
    Ok((state, trouble))
}

fn is_this_machine(system: &dyn System, plan: &Plan) -> Result<(), Error> {
    let found = system.read(Path::new("/etc/machine-id"))?;
    let found = String::from_utf8_lossy(&found).trim().to_owned();
    match found == plan.binding.machine_id {
        true => Ok(()),
        false => Err(Error::OtherMachine {
            found,
            expected: plan.binding.machine_id.clone(),
        }),
    }
}

/// Builds a journal's folder under a temporary name and gives it its own by a rename. A failure leaves no move.
fn build(
    system: &mut dyn System,
    root: &Path,
    folder: &Path,
    plan: Vec<u8>,
    digest: &[u8; 32],
) -> Result<(), SystemError> {
    let new = root.join(UNFINISHED);
    drop_tree(system, &new)?;
    system.make_dir(&new, 0o700)?;
    for (name, bytes) in [
        ("plan.json", plan),
        ("log", log::header(digest)),
        ("reserve", vec![b'\n'; RESERVE]),
    ] {
        system.create(&new.join(name), &bytes, &Meta::mode(0o600))?;
        system.sync(&new.join(name))?;
    }
    for name in ["kept", "out"] {
        system.make_dir(&new.join(name), 0o700)?;
        system.sync_dir(&new.join(name))?;
    }
    system.sync_dir(&new)?;
    system.rename_new(&new, folder)
}

/// Makes the root and what is missing above it. The root is for root alone: kept files may hold secrets.
fn make_root(system: &mut dyn System, root: &Path) -> Result<(), SystemError> {
    let mut missing: Vec<&Path> = Vec::new();
    for path in root.ancestors() {
        if system.look(path)?.is_some() {
            break;
        }
        missing.push(path);
    }
    for path in missing.into_iter().rev() {
        system.make_dir(path, if path == root { 0o700 } else { 0o755 })?;
        system.sync_dir(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(())
}

fn drop_tree(system: &mut dyn System, path: &Path) -> Result<(), SystemError> {
    match system.look(path)? {
        None => Ok(()),
        Some(Entry::Dir(_)) => {
            for name in system.list(path)? {
                drop_tree(system, &path.join(name))?;
            }
            system.remove_dir(path)
        }
        Some(_) => system.remove(path),
    }
}

/// Told of progress while a move runs. Decides nothing.
pub trait Observer {
    /// A step begins. `forward` is false on the way back. `number` counts from 1.
    fn begin(&mut self, forward: bool, number: usize, of: usize, step: &Step);
    /// A step ended; `Err` is why it failed.
    fn end(&mut self, forward: bool, step: &Step, result: Result<(), &str>);
    /// A line that a program of a step said.
    fn line(&mut self, step: &Step, line: &str);
    /// The direction changes: a sentence that says why.
    fn turn(&mut self, why: &str);
}

/// How a move ended for now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The journal's id, such as `1-store`.
    pub id: String,
    /// Where the node stands.
    pub ending: Ending,
    /// The exit code that goes with it.
    pub exit: Exit,
    /// The gate said no: what was moved holds acknowledged writes.
    pub gate_refused: bool,
    /// Every step that failed, in order, also on the way back.
    pub trouble: Vec<Trouble>,
}

/// Where a move leaves the node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// All steps are done.
    Moved,
    /// Everything was put back.
    AsBefore,
    /// Stopped between two steps; resume or undo goes on.
    Open,
    /// A person must look; resume or undo tries again.
    Stuck,
}

/// A step that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trouble {
    /// The step's name.
    pub step: String,
    /// Whether it failed on the way back.
    pub back: bool,
    /// What went wrong, with its causes.
    pub message: String,
}

/// One journal as it stands.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Its number.
    pub number: u32,
    /// Its folder's name, such as `1-store`.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What was planned.
    pub plan: Plan,
    /// Where it stands.
    pub status: Status,
    /// It is, or was when it ended, on its way back.
    pub going_back: bool,
    /// The gate said no: what was moved holds acknowledged writes.
    pub gate_refused: bool,
    /// [`Session::accept`] would close it.
    pub acceptable: bool,
    /// The last step failed and left it open: a person must look, and no boot goes on with it.
    pub stuck: bool,
    /// How many steps are done now.
    pub done: usize,
    /// Every failure noted.
    pub trouble: Vec<Trouble>,
    /// Wall clock of the first record, seconds since 1970; 0 where there is none yet.
    pub began: u64,
    /// Wall clock of the last record; 0 where there is none yet.
    pub last: u64,
}

impl Summary {
    /// Whether it is neither done nor put back.
    pub fn is_open(&self) -> bool {
        matches!(self.status, Status::Open { .. })
    }
}

/// Where a journal stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// Neither done nor put back: blocks every other move. `way_back` says whether undo can still walk back.
    Open {
        /// False behind the point of no return or a gate that said no.
        way_back: bool,
    },
    /// Done.
    Moved,
    /// Put back.
    AsBefore,
}
