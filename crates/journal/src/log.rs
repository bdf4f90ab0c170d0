//! The log of one move: records appended and synced before and after each act. docs/journal.md draws every byte.
//!
//! ```text
//! header  magic 8 | format u32 | sha256 of plan.json 32 | crc32c of the 44 bytes before u32          48 bytes
//! record  length u32 | sequence u64 | crc32c of the 12 bytes before u32 | crc32c of the payload u32   20 bytes
//!         payload: JSON {"at": seconds, "event": ...}
//! ```
//! Integers are little-endian. A record that is cut short by the end of the file, or whose rest is zeros up to there,
//! was being written when power went: it is kept beside and cut off. Anything else that does not fit is damage.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::state::Event;
use crate::system::{Entry, Meta, System, SystemError};

/// The newest format of the log that this program reads and the one it writes.
pub const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"QKMOVE\r\n";
const HEADER: usize = 48;
const HEAD: usize = 20;
/// Longer payloads are never written; a longer length is damage.
const PAYLOAD_MAX: usize = 64 << 10;

/// One record.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Wall clock, seconds since 1970. For people only: nothing is decided by it.
    pub at: u64,
    /// What happened.
    pub event: Event,
}

/// The readable part of a log.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// In order.
    pub records: Vec<Record>,
    /// Bytes up to the end of the last whole record.
    pub length: usize,
    /// Whether a torn record follows.
    pub torn: bool,
}

/// A log that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LogError {
    /// Written by a newer program.
    #[error("the log has format {found}, this program knows up to {FORMAT}")]
    Newer {
        /// What was found.
        found: u32,
    },
    /// Bytes that are neither whole nor a torn end.
    #[error("the log is damaged at byte {at}: {what}")]
    Damaged {
        /// Offset in the file.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The log belongs to another plan.
    #[error("the log at byte 12 names another plan.json than the one beside it")]
    OtherPlan,
}

/// The header of a new log.
pub fn header(plan_sha256: &[u8; 32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend(plan_sha256);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The bytes of one record.
pub fn encode(sequence: u64, record: &Record) -> Vec<u8> {
    let payload = serde_json::to_vec(record).expect("a record is plain data");
    assert!(payload.len() <= PAYLOAD_MAX, "texts are cut before they are noted");
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend(crc32c::crc32c(&payload).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// The byte at which a record of a whole log begins.
pub(crate) fn offset(records: &[Record], number: usize) -> usize {
    HEADER
        + records[..number]
            .iter()
            .map(|record| encode(0, record).len())
            .sum::<usize>()
}

/// Reads a log. Pure.
pub fn decode(bytes: &[u8], plan_sha256: &[u8; 32]) -> Result<Decoded, LogError> {
    let damaged = |at: usize, what: &'static str| Err(LogError::Damaged { at, what });
    // The header was synced before the journal existed: it cannot be torn.
    let Some(head) = bytes.get(..HEADER) else {
        return damaged(bytes.len(), "the header is cut short");
    };
    if head[..8] != MAGIC {
        return damaged(0, "this is no log of a move");
    }
    // The header keeps this shape in every format.
    if word(head, 44) != crc32c::crc32c(&head[..44]) {
        return damaged(0, "the header's checksum differs");
    }
    let format = word(head, 8);
    if format > FORMAT {
        return Err(LogError::Newer { found: format });
    }
    if head[12..44] != plan_sha256[..] {
        return Err(LogError::OtherPlan);
    }
    let mut decoded = Decoded {
        records: Vec::new(),
        length: HEADER,
        torn: false,
    };
    while decoded.length < bytes.len() {
        let at = decoded.length;
        let rest = &bytes[at..];
        match whole(rest, decoded.records.len() as u64) {
            Ok((record, length)) => {
                decoded.records.push(record);
                decoded.length += length;
            }
            Err(_) if is_torn(rest) => {
                decoded.torn = true;
                return Ok(decoded);
            }
            Err(what) => return damaged(at, what),
        }
    }
    Ok(decoded)
}

fn whole(rest: &[u8], sequence: u64) -> Result<(Record, usize), &'static str> {
    let head = rest.get(..HEAD).ok_or("a record's head is cut short")?;
    if word(head, 12) != crc32c::crc32c(&head[..12]) {
        return Err("the checksum of a record's head differs");
    }
    let length = word(head, 0) as usize;
    if length > PAYLOAD_MAX {
        return Err("a record is longer than any that is written");
    }
    if head[4..12] != sequence.to_le_bytes() {
        return Err("a record is missing before this one");
    }
    let payload = rest.get(HEAD..HEAD + length).ok_or("a record is cut short")?;
    if word(head, 16) != crc32c::crc32c(payload) {
        return Err("the checksum of a record differs");
    }
    let record = serde_json::from_slice(payload).map_err(|_| "a record cannot be understood")?;
    Ok((record, HEAD + length))
}

/// Whether what does not fit is the end of an append that power interrupted: short, or zeros from somewhere to the end.
fn is_torn(rest: &[u8]) -> bool {
    if rest.iter().rposition(|b| *b != 0).is_none_or(|last| last + 1 < HEAD) {
        return true; // also every rest that is shorter than a head
    }
    let head_holds = word(rest, 12) == crc32c::crc32c(&rest[..12]);
    let end = HEAD + word(rest, 0) as usize;
    // A payload is JSON text and never ends with a zero.
    head_holds && end <= HEAD + PAYLOAD_MAX && (rest.len() < end || (rest.len() == end && rest.ends_with(&[0])))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A log open for appending.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    reserve: PathBuf,
    sequence: u64,
    /// After an append or a sync that failed nothing may follow: what is on the disk is not known.
    failed: bool,
}

impl Log {
    /// Reads a log for looking only.
    pub fn read(system: &dyn System, path: &Path, plan_sha256: &[u8; 32]) -> Result<Decoded, crate::Error> {
        let bytes = system.read(path)?;
        decode(&bytes, plan_sha256).map_err(|source| crate::Error::Log {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads a log for appending: a torn end is kept as `log.broken` and cut off.
    pub fn open(
        system: &mut dyn System,
        path: &Path,
        plan_sha256: &[u8; 32],
    ) -> Result<(Log, Vec<Record>), crate::Error> {
        let decoded = Log::read(system, path, plan_sha256)?;
        if decoded.torn {
            let bytes = system.read(path)?;
            let broken = path.with_file_name("log.broken");
            if system.look(&broken)?.is_some() {
                system.remove(&broken)?;
            }
            system.create(&broken, &bytes[decoded.length..], &Meta::mode(0o600))?;
            system.sync(&broken)?;
            if let Some(folder) = path.parent() {
                system.sync_dir(folder)?;
            }
            system.truncate(path, decoded.length as u64)?;
        }
        // After a kill the last record may be in memory only; what is built on it must not outlive it.
        system.sync(path)?;
        let reserve = path.with_file_name("reserve");
        let log = Log {
            path: path.to_owned(),
            reserve,
            sequence: decoded.records.len() as u64,
            failed: false,
        };
        Ok((log, decoded.records))
    }

    /// Appends a record; it is durable when this returns.
    pub fn append(&mut self, system: &mut dyn System, event: &Event) -> Result<(), SystemError> {
        if self.failed {
            let error = std::io::Error::other("an earlier write of it failed");
            return Err(SystemError::at("append to", &self.path)(error));
        }
        self.failed = true;
        let record = Record {
            at: system.wall_clock(),
            event: event.clone(),
        };
        let bytes = encode(self.sequence, &record);
        let length = match system.look(&self.path)? {
            Some(Entry::File(length, _)) => length,
            _ => 0,
        };
        match system.append(&self.path, &bytes).and_then(|()| system.sync(&self.path)) {
            // The way back must be noted on a full disk too: that is what the reserve is for.
            Err(error) if error.no_space() && system.look(&self.reserve)?.is_some() => {
                system.remove(&self.reserve)?;
                system.truncate(&self.path, length)?;
                system.append(&self.path, &bytes)?;
                system.sync(&self.path)?;
            }
            other => other?,
        }
        self.sequence += 1;
        self.failed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::state::{Before, End};

    const PLAN: [u8; 32] = [7; 32];

    fn records() -> Vec<Record> {
        let events = [
            Event::Started {
                step: 0,
                before: Before::Absent,
            },
            Event::Done { step: 0 },
            Event::Started {
                step: 1,
                before: Before::File {
                    sha256: "ab".repeat(32),
                    meta: Meta::mode(0o644),
                },
            },
            Event::Failed {
                step: 1,
                error: "it said \"no\"\n  twice".into(),
                exit: 5,
            },
            Event::UndoStarted { step: 1 },
            Event::Undone { step: 1 },
            Event::Closed { end: End::AsBefore },
        ];
        events
            .into_iter()
            .enumerate()
            .map(|(number, event)| Record {
                at: 1000 + number as u64,
                event,
            })
            .collect()
    }

    fn log() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = header(&PLAN);
        let mut ends = vec![bytes.len()];
        for (sequence, record) in records().iter().enumerate() {
            bytes.extend(encode(sequence as u64, record));
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn a_whole_log_reads_back() {
        let (bytes, ends) = log();
        let decoded = decode(&bytes, &PLAN).unwrap();
        assert_eq!(
            decoded,
            Decoded {
                records: records(),
                length: bytes.len(),
                torn: false
            }
        );
        for (number, end) in ends.iter().enumerate() {
            assert_eq!(offset(&records(), number), *end);
        }
    }

    #[test]
    fn every_prefix_opens_with_its_whole_records() {
        let (bytes, ends) = log();
        for length in 0..bytes.len() {
            let decoded = decode(&bytes[..length], &PLAN);
            let Some(whole) = ends.iter().rposition(|end| *end <= length) else {
                assert!(
                    matches!(decoded, Err(LogError::Damaged { .. })),
                    "a header of {length} bytes"
                );
                continue;
            };
            let decoded = decoded.unwrap();
            assert_eq!(decoded.records, records()[..whole], "{length} bytes");
            assert_eq!(
                (decoded.length, decoded.torn),
                (ends[whole], ends[whole] != length),
                "{length} bytes"
            );
        }
    }

    /// A file system may have given the file its length before its bytes.
    #[test]
    fn every_record_that_ends_in_zeros_is_torn() {
        let (bytes, ends) = log();
        for (number, pair) in ends.windows(2).enumerate() {
            for written in pair[0]..pair[1] {
                let mut torn = bytes[..pair[1]].to_vec();
                torn[written..].fill(0);
                let decoded = decode(&torn, &PLAN).unwrap();
                assert_eq!(
                    (decoded.records.len(), decoded.length, decoded.torn),
                    (number, pair[0], true)
                );
            }
        }
    }

    #[test]
    fn every_flipped_bit_stops_and_names_the_byte() {
        let (bytes, ends) = log();
        let mut flips = 0;
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let start = ends.iter().rfind(|end| **end <= at).copied().unwrap_or(0);
                match decode(&flipped, &PLAN) {
                    Err(LogError::Damaged { at: named, .. }) => assert_eq!(named, start, "byte {at} bit {bit}"),
                    other => panic!("byte {at} bit {bit}: {other:?}"),
                }
                flips += 1;
            }
        }
        println!("{flips} flips");
    }

    #[test]
    fn every_changed_byte_stops_or_is_the_torn_end() {
        let (bytes, ends) = log();
        let last = ends[ends.len() - 2];
        for at in 0..bytes.len() {
            for value in (0..=255).filter(|value| *value != bytes[at]) {
                let mut changed = bytes.clone();
                changed[at] = value;
                match decode(&changed, &PLAN) {
                    Err(_) => {}
                    Ok(decoded) => assert!(decoded.torn && at >= last && value == 0, "byte {at} as {value}"),
                }
            }
        }
    }

    #[test]
    fn a_missing_a_swapped_and_a_repeated_record_are_damage() {
        let (bytes, ends) = log();
        let part = |from: usize, to: usize| &bytes[ends[from]..ends[to]];
        let head = &bytes[..ends[0]];
        for parts in [
            [part(1, 2), part(2, 3)],
            [part(1, 2), part(0, 1)],
            [part(0, 1), part(0, 1)],
        ] {
            let bytes = [head, parts[0], parts[1]].concat();
            assert!(matches!(decode(&bytes, &PLAN), Err(LogError::Damaged { .. })));
        }
    }

    #[test]
    fn a_newer_format_and_another_plan_are_told_apart() {
        let mut newer = header(&PLAN);
        newer[8] = 2;
        let sum = crc32c::crc32c(&newer[..44]).to_le_bytes();
        newer[44..].copy_from_slice(&sum);
        assert!(matches!(decode(&newer, &PLAN), Err(LogError::Newer { found: 2 })));
        assert!(matches!(decode(&header(&PLAN), &[8; 32]), Err(LogError::OtherPlan)));
    }

    #[test]
    fn noise_never_panics() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (bytes, ends) = log();
        for _ in 0..2000 {
            let mut noise = bytes[..ends[random.random_range(0..ends.len())]].to_vec();
            let length = random.random_range(0..200);
            noise.extend((0..length).map(|_| random.random::<u8>()));
            if let Ok(decoded) = decode(&noise, &PLAN) {
                assert!(decoded.length <= noise.len());
            }
        }
    }
}
