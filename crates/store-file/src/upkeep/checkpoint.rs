//! A checkpoint in the making: slices of the index, then the lists, then the header.
//!
//! The header's first copy is written only when all slices are synced, the second only when the first is; what the old
//! checkpoint took, and log that neither needs any more, is freed only after that.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::Step;
use crate::checkpoint::{End, KeysPayload, Stream, revisions_payload, segments_payload};
use crate::codec::put_bytes;
use crate::frame::Kind;
use crate::index::Ver;
use crate::layout::{HEADER_AT, Header, end_of_log};
use crate::record::put_lease;
use crate::writer::Job;
use crate::{Error, Store};

/// Leases or segments of one frame.
const LIST_ITEMS: usize = 64;

/// What comes next.
enum Stage {
    /// Keys after the cursor.
    Keys { cursor: Option<Box<[u8]>> },
    /// Revisions from this one on.
    Revisions { next: i64 },
    /// The rest, made at one moment.
    Lists { frames: VecDeque<(Kind, Vec<u8>)> },
    /// A header copy, once everything before is synced.
    Header { copy: usize },
}

/// A checkpoint that is being written.
pub(super) struct Making {
    stream: Stream,
    stage: Stage,
    keys: KeysPayload,
    end: End,
    header: Header,
    /// The last ticket of it in the writer's queue.
    ticket: u64,
    /// Segments of the log to which nothing led when it began: free when it is in force.
    freeable: Vec<u64>,
}

impl Store {
    /// Does a step of the checkpoint in the making, or begins one when it is due.
    pub(super) fn checkpoint_step(&mut self) -> Result<Step, Error> {
        let Some(mut making) = self.upkeep.making.take() else {
            if !self.checkpoint_due() {
                return Ok(Step::Idle);
            }
            self.begin_checkpoint();
            return Ok(Step::Worked);
        };
        if self.background_full() {
            self.upkeep.making = Some(making);
            return Ok(Step::Waits);
        }
        match self.advance(&mut making) {
            Ok(Some(step)) => {
                self.upkeep.making = Some(making);
                Ok(step)
            }
            Ok(None) => Ok(Step::Worked),
            Err(error) => {
                // Given up. What was queued for its slots is written before anything that is queued later; it is tried
                // anew after as much log again.
                self.space.abandon_checkpoint();
                self.upkeep.release_after = Some(making.ticket);
                self.upkeep.replayed_from = self.tail;
                match error {
                    Error::NoSpace { .. } => Ok(Step::Idle),
                    error => Err(error),
                }
            }
        }
    }

    fn checkpoint_due(&self) -> bool {
        let log = self.tail.saturating_sub(self.upkeep.replayed_from);
        let last = u64::from(self.header.checkpoint_segments) * self.space.segment_bytes();
        if log >= self.tuning.checkpoint_log_bytes.max(2 * last) {
            return true;
        }
        let freeable = self.freeable().len() as u64 * self.space.segment_bytes();
        let worth = (2 * self.space.segment_bytes()).max(last).max(self.space.used() / 10);
        freeable >= worth
    }

    /// Segments that a checkpoint made now would not need.
    fn freeable(&self) -> Vec<u64> {
        let (active, _) = end_of_log(self.tail, self.space.segment_bytes());
        self.space.freeable(active, self.floor(), self.tuning.grace)
    }

    fn begin_checkpoint(&mut self) {
        self.upkeep.last_checkpoint += 1;
        self.upkeep.making = Some(Making {
            stream: Stream::new(self.upkeep.last_checkpoint, self.space.segment_bytes() as usize),
            stage: Stage::Keys { cursor: None },
            keys: KeysPayload::default(),
            end: End {
                replay_at: self.tail,
                replay_seq: self.seq + 1,
                ..End::default()
            },
            header: self.header.clone(),
            ticket: 0,
            freeable: self.freeable(),
        });
    }

    /// One step; None when the checkpoint is in force.
    fn advance(&mut self, making: &mut Making) -> Result<Option<Step>, Error> {
        match &mut making.stage {
            Stage::Keys { cursor } => {
                let (next, payloads) =
                    self.keys_slice(cursor.as_deref(), &mut making.keys, making.stream.frame_target());
                making.stage = match next {
                    Some(key) => Stage::Keys { cursor: Some(key) },
                    None => Stage::Revisions { next: 0 },
                };
                for payload in payloads {
                    self.write_frame(making, Kind::Keys, &payload)?;
                }
            }
            Stage::Revisions { next } => {
                let (first, addresses) = self.revisions.run(*next, making.stream.frame_target() / 10);
                let count = addresses.len() as i64;
                let payload = revisions_payload(first, addresses);
                if count == 0 {
                    making.end.head = self.head;
                    making.end.compacted = self.compacted;
                    making.end.entries = making.keys.entries();
                    making.stage = Stage::Lists {
                        frames: self.lists(making),
                    };
                } else {
                    making.stage = Stage::Revisions { next: first + count };
                    self.write_frame(making, Kind::Revisions, &payload)?;
                }
            }
            Stage::Lists { frames } => match frames.pop_front() {
                Some((kind, payload)) => self.write_frame(making, kind, &payload)?,
                None => making.stage = Stage::Header { copy: 0 },
            },
            Stage::Header { copy } => {
                let copy = *copy;
                if self.writer.shared().jobs_synced() < making.ticket {
                    return Ok(Some(Step::Waits));
                }
                if copy == HEADER_AT.len() {
                    self.install(making);
                    return Ok(None);
                }
                self.write_header_copy(making, copy);
                making.stage = Stage::Header { copy: copy + 1 };
            }
        }
        Ok(Some(Step::Worked))
    }

    /// Some entries of the index, as payloads: one, unless a key has very many versions.
    fn keys_slice(
        &self,
        cursor: Option<&[u8]>,
        keys: &mut KeysPayload,
        target: usize,
    ) -> (Option<Box<[u8]>>, Vec<Vec<u8>>) {
        let mut payloads = Vec::new();
        let mut versions: Vec<Ver> = Vec::new();
        let next = self.index.walk(cursor, &mut |entry| {
            versions.clear();
            versions.extend(entry.versions());
            keys.add(entry.key(), &versions, target, &mut payloads);
            if payloads.is_empty() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        let rest = keys.take();
        if !rest.is_empty() {
            payloads.push(rest);
        }
        (next, payloads)
    }

    fn lists(&self, making: &Making) -> VecDeque<(Kind, Vec<u8>)> {
        let mut frames = VecDeque::new();
        for leases in self.leases().chunks(LIST_ITEMS) {
            let mut payload = Vec::new();
            leases.iter().for_each(|lease| put_lease(&mut payload, lease));
            frames.push_back((Kind::Leases, payload));
        }
        for (name, value) in &self.notes {
            let mut payload = Vec::new();
            put_bytes(&mut payload, name.as_bytes());
            put_bytes(&mut payload, value);
            frames.push_back((Kind::Notes, payload));
        }
        let needed = |sequence: &u64| making.freeable.binary_search(sequence).is_err();
        let segments: Vec<_> = self
            .space
            .log()
            .iter()
            .filter(|(sequence, _)| needed(sequence))
            .collect();
        for segments in segments.chunks(LIST_ITEMS) {
            frames.push_back((Kind::Segments, segments_payload(segments.iter().copied())));
        }
        frames.push_back((Kind::End, making.end.encode()));
        frames
    }

    fn write_frame(&mut self, making: &mut Making, kind: Kind, payload: &[u8]) -> Result<(), Error> {
        let space = &mut self.space;
        let (at, bytes) = making.stream.frame(kind, payload, &mut || {
            let slot = space.begin_checkpoint_segment()?;
            Ok(space.slot_at(slot))
        })?;
        making.ticket = self.queue_background(Job::Write { at, bytes });
        Ok(())
    }

    fn write_header_copy(&mut self, making: &mut Making, copy: usize) {
        if copy == 0 {
            making.header = Header {
                generation: self.header.generation + 1,
                checkpoint: making.stream.id(),
                checkpoint_segments: making.stream.segments(),
                durable_seq: self.durable().seq,
                ..self.header.clone()
            };
        }
        making.ticket = self.queue_background(Job::Write {
            at: HEADER_AT[copy],
            bytes: Bytes::from(making.header.encode()),
        });
    }

    fn install(&mut self, making: &Making) {
        self.header = making.header.clone();
        self.upkeep.replayed_from = making.end.replay_at;
        self.space.install_checkpoint();
        for sequence in &making.freeable {
            self.space.free_segment(*sequence);
        }
        self.upkeep.release_after = Some(making.ticket);
        self.writer.shared().count_checkpoint();
    }
}
