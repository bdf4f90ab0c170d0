//! Background work, in slices between requests: compacting the index, checkpoints, copying forward, giving space back.
//!
//! All of it goes through the writer like any commit, a little at a time: no more than a fixed number of bytes of it
//! waits there, so that no commit waits behind it.

mod checkpoint;
mod collect;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::recovery::Recovered;
use crate::space::{Release, weight};
use crate::writer::Job;
use crate::{Error, Store};

use checkpoint::Making;
use collect::Collecting;

/// What is going on in the background.
#[derive(Default)]
pub(crate) struct Upkeep {
    /// Where the compaction of the index goes on; None when it is done.
    compact_from: Option<Box<[u8]>>,
    making: Option<Making>,
    collecting: Option<Collecting>,
    /// A segment that could not be emptied, so that it is not tried again and again.
    skip: Option<u64>,
    /// Background bytes in the writer's queue, by ticket.
    queued: VecDeque<(u64, usize)>,
    queued_bytes: usize,
    /// Where the checkpoint in force has the log replayed from.
    replayed_from: u64,
    last_checkpoint: u64,
    /// Versions copied forward since the start.
    pub(crate) copied: u64,
    /// Free slots may be given back once this ticket is synced.
    release_after: Option<u64>,
}

/// What a slice of work came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// Nothing to do.
    Idle,
    /// Something was done; there may be more.
    Worked,
    /// What is to be done waits for the writer.
    Waits,
}

impl Upkeep {
    pub(crate) fn new(recovered: &Recovered) -> Upkeep {
        Upkeep {
            compact_from: (recovered.compacted > 0).then(Box::default),
            replayed_from: recovered.replayed_from,
            last_checkpoint: recovered.last_checkpoint,
            ..Upkeep::default()
        }
    }

    /// A compaction was logged: the index is gone through from its start.
    pub(crate) fn compact_from_start(&mut self) {
        self.compact_from = Some(Box::default());
    }
}

impl Store {
    /// Does a slice of background work (index compaction, copying forward, checkpoints) for about `budget`; true while
    /// more is waiting. The owner calls it between requests.
    pub fn maintain(&mut self, budget: Duration) -> Result<bool, Error> {
        self.writer.shared().check()?;
        let started = Instant::now();
        let over = move || started.elapsed() >= budget;
        loop {
            let steps = [
                self.compact_index(&over),
                self.checkpoint_step()?,
                self.collect_step()?,
                self.release_step()?,
            ];
            if !steps.contains(&Step::Worked) {
                return Ok(steps.contains(&Step::Waits));
            }
            if over() {
                return Ok(true);
            }
        }
    }

    /// Drops versions that neither the compacted revision nor a held one keeps, leaf by leaf.
    fn compact_index(&mut self, over: &dyn Fn() -> bool) -> Step {
        let Some(from) = self.upkeep.compact_from.take() else {
            return Step::Idle;
        };
        let floor = self.floor();
        let space = &mut self.space;
        let mut dropped = |key: &[u8], ver: &crate::index::Ver| {
            if !ver.is_tombstone() {
                space.weigh(ver.address, weight(key.len(), ver.len), false);
            }
        };
        self.upkeep.compact_from = self.index.compact(&from, floor, &mut dropped, &mut || !over());
        Step::Worked
    }

    /// Queues background bytes.
    fn queue_background(&mut self, job: Job) -> u64 {
        let bytes = match &job {
            Job::Frame { bytes, .. } | Job::Write { bytes, .. } => bytes.len(),
        };
        let ticket = self.writer.queue([job]);
        self.note_background(ticket, bytes);
        ticket
    }

    fn note_background(&mut self, ticket: u64, bytes: usize) {
        self.upkeep.queued.push_back((ticket, bytes));
        self.upkeep.queued_bytes += bytes;
    }

    /// Whether the writer has as much background work as it may.
    fn background_full(&mut self) -> bool {
        let synced = self.writer.shared().jobs_synced();
        while let Some((ticket, bytes)) = self.upkeep.queued.front()
            && *ticket <= synced
        {
            self.upkeep.queued_bytes -= bytes;
            self.upkeep.queued.pop_front();
        }
        self.upkeep.queued_bytes >= self.tuning.background_bytes
    }

    /// Gives back the space of free slots, once nothing that is queued concerns them.
    fn release_step(&mut self) -> Result<Step, Error> {
        let Some(ticket) = self.upkeep.release_after else {
            return Ok(Step::Idle);
        };
        if self.writer.shared().jobs_synced() < ticket {
            return Ok(Step::Waits);
        }
        match self.space.release() {
            None => {
                self.upkeep.release_after = None;
                return Ok(Step::Idle);
            }
            Some(Release::Cut { len }) => self.disk.set_len(len),
            Some(Release::Punch { at, len }) => self.disk.punch_hole(at, len).map(|_| ()),
        }
        .map_err(Error::io("giving space back"))?;
        Ok(Step::Worked)
    }
}
