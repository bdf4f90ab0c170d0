//! Recovery of a store file: damage must be told or change nothing; content under right checksums may be anything, and
//! must end neither the process nor its memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use quantykube_store_file::{
    Error, Identity, KeyRange, Lease, Options, RangeEnd, SimDisk, Store, Tuning, Version, check_on,
};
use quantykube_tests::places::root;
use rand::RngExt;
use rand::rngs::SmallRng;

use super::{Judge, Plant, Took, mutate, plant};

// The places of docs/store-file.md.
const PAGE: usize = 4096;
const HEADER_LEN: usize = 128;
const MARK_AT: usize = 8192;
const SLOTS_AT: usize = 65536;
const SEGMENT_HEADER: usize = 64;
const FRAME_HEADER: usize = 32;

/// A store file as it was written.
struct Original {
    bytes: Vec<u8>,
    segment: usize,
    /// Where its frames begin, and the length of their payloads.
    frames: Vec<(usize, usize)>,
    state: State,
}

/// All that can be read of a store.
#[derive(Debug, Eq, PartialEq)]
struct State {
    numbers: [i64; 3],
    leases: Vec<Lease>,
    note: Option<Bytes>,
    /// Key, revision, create revision, version, lease and value, at some revisions.
    content: Vec<(Bytes, [i64; 4], Bytes)>,
}

/// The target.
pub(super) struct Recovery {
    written: Original,
    /// Read when it is first wanted: it has 16 MiB.
    imported: Option<Original>,
}

impl Recovery {
    pub(super) fn new() -> Result<Recovery, String> {
        Ok(Recovery {
            written: Original::new("written.qks")?,
            imported: None,
        })
    }

    fn choose(&mut self, rng: &mut SmallRng) -> Result<&Original, String> {
        // The import has segments of 8 MiB: it takes its time.
        if rng.random_range(0..100) > 0 {
            return Ok(&self.written);
        }
        if self.imported.is_none() {
            self.imported = Some(Original::new("imported.qks")?);
        }
        Ok(self.imported.as_ref().unwrap_or(&self.written))
    }
}

impl Judge for Recovery {
    fn judge(&mut self, rng: &mut SmallRng, planted: Option<Plant>) -> Result<Took, String> {
        plant(planted);
        let original = self.choose(rng)?;
        let mut bytes = original.bytes.clone();
        if planted == Some(Plant::Silent) {
            while bytes == original.bytes {
                change_value(rng, original, &mut bytes);
            }
            return original.judge(bytes, true);
        }
        let damage = rng.random_range(0..3) == 0;
        if damage {
            original.damage(rng, &mut bytes);
        } else {
            for _ in 0..rng.random_range(1..4) {
                original.forge(rng, &mut bytes);
            }
        }
        original.judge(bytes, damage)
    }
}

impl Original {
    /// A file of `tests/store_file/format-1`.
    fn new(name: &str) -> Result<Original, String> {
        let path = root().join("tests/store_file/format-1").join(format!("{name}.gz"));
        let packed = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut bytes)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if name == "written.qks" {
            bytes = closed(bytes).map_err(|error| format!("{name}: {error}"))?;
        }
        let state = read(SimDisk::with_bytes(bytes.clone())).map_err(|error| format!("{name}: {error}"))?;
        let segment = u32_at(&bytes, 20) as usize;
        let frames = frames(&bytes, segment);
        let (count, records) = (frames.len(), state.content.len());
        if count < 3 || records < 50 {
            return Err(format!("{name} holds {count} frames, {records} records"));
        }
        Ok(Original {
            bytes,
            segment,
            frames,
            state,
        })
    }

    fn judge(&self, bytes: Vec<u8>, damage: bool) -> Result<Took, String> {
        let checked = check_on(Arc::new(SimDisk::with_bytes(bytes.clone())));
        match read(SimDisk::with_bytes(bytes)) {
            Err(_) => Ok(Took::Refused),
            Ok(state) if state == self.state => match checked {
                // Whoever can be opened can be checked.
                Err(error) => Err(format!("it opens, and check refuses it: {error}")),
                Ok(_) => Ok(Took::Same),
            },
            Ok(state) if damage => Err(format!(
                "damage was accepted in silence: {:?} of {:?}, {} of {} records",
                state.numbers,
                self.state.numbers,
                state.content.len(),
                self.state.content.len()
            )),
            Ok(_) => Ok(Took::Other),
        }
    }

    /// Damage at one place, or a file that ends early: a synced frame is never explained away by it.
    fn damage(&self, rng: &mut SmallRng, bytes: &mut Vec<u8>) {
        match rng.random_range(0..10) {
            0 => mutate::spot(rng, bytes, 0..HEADER_LEN),
            1 => mutate::spot(rng, bytes, PAGE..PAGE + HEADER_LEN),
            2 => mutate::spot(rng, bytes, MARK_AT..MARK_AT + 32),
            3 => bytes.truncate(rng.random_range(0..bytes.len())),
            4 => {
                let slot = self.slot(rng);
                mutate::spot(rng, bytes, slot..slot + SEGMENT_HEADER);
            }
            5 => mutate::spot(rng, bytes, 0..self.bytes.len()),
            _ => {
                let (at, len) = self.frames[rng.random_range(0..self.frames.len())];
                mutate::spot(rng, bytes, at..at + FRAME_HEADER + len);
            }
        }
    }

    fn slot(&self, rng: &mut SmallRng) -> usize {
        SLOTS_AT + rng.random_range(0..(self.bytes.len() - SLOTS_AT) / self.segment) * self.segment
    }

    /// A change with its checksums made right.
    fn forge(&self, rng: &mut SmallRng, bytes: &mut [u8]) {
        match rng.random_range(0..12) {
            0 | 1 => {
                let (at, len) = [(20, 4), (24, 8), (56, 8), (64, 8), (72, 4), (80, 8)][rng.random_range(0..6)];
                mutate::field(rng, bytes, at, len);
                fix(bytes, 0, HEADER_LEN);
                if rng.random() {
                    bytes.copy_within(0..PAGE, PAGE);
                }
            }
            2 => {
                mutate::field(rng, bytes, MARK_AT + 8, 8);
                fix(bytes, MARK_AT, 32);
            }
            3 | 4 => {
                let slot = self.slot(rng);
                let (at, len) = [(8, 4), (12, 4), (16, 8), (24, 8)][rng.random_range(0..4)];
                mutate::field(rng, bytes, slot + at, len);
                fix(bytes, slot, SEGMENT_HEADER);
            }
            5 => {
                let (from, to) = (self.slot(rng), self.slot(rng));
                bytes.copy_within(from..from + self.segment, to);
            }
            6 | 7 => {
                let (at, _) = self.frames[rng.random_range(0..self.frames.len())];
                let (field, len) = [(4, 4), (8, 8), (16, 8), (24, 4), (28, 1), (29, 1)][rng.random_range(0..6)];
                mutate::field(rng, bytes, at + field, len);
                fix_frame(bytes, at);
            }
            8 => change_value(rng, self, bytes),
            _ => self.forge_payload(rng, bytes),
        }
    }

    /// Other content in a frame. One of another length ends where the next frame begins, or covers it.
    fn forge_payload(&self, rng: &mut SmallRng, bytes: &mut [u8]) {
        let (at, len) = self.frames[rng.random_range(0..self.frames.len())];
        let begins = at + FRAME_HEADER;
        let mut payload = bytes[begins..begins + len].to_vec();
        mutate::text(rng, &mut payload);
        payload.truncate(bytes.len() - begins);
        bytes[begins..begins + payload.len()].copy_from_slice(&payload);
        bytes[at + 4..at + 8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        fix_frame(bytes, at);
    }
}

/// Changes the lower case letters of a frame that is long enough to hold values, with its checksums. A value's own
/// checksum stands before it.
fn change_value(rng: &mut SmallRng, original: &Original, bytes: &mut [u8]) {
    let (_, _, value) = &original.state.content[rng.random_range(0..original.state.content.len())];
    let mut stored = crc32c::crc32c(value).to_le_bytes().to_vec();
    stored.extend_from_slice(value);
    let places: Vec<usize> = (SLOTS_AT..bytes.len() - stored.len())
        .filter(|at| bytes[*at] == stored[0] && bytes[*at..].starts_with(&stored))
        .collect();
    for at in places {
        let (value_at, end) = (at + 4, at + stored.len());
        bytes[value_at..end].fill(b'#');
        let sum = crc32c::crc32c(&bytes[value_at..end]);
        bytes[at..value_at].copy_from_slice(&sum.to_le_bytes());
        let frame = original.frames.iter().rfind(|(frame, _)| *frame < at);
        if let Some((frame, _)) = frame {
            fix_frame(bytes, *frame);
        }
    }
}

fn options() -> Options {
    let identity = Identity {
        cluster_id: 1,
        member_id: 1,
        raft_term: 1,
    };
    Options { quota: 0, identity }
}

/// One more frame, and an end in order: the mark says then that all was synced. Without it damage to the last frame
/// cannot be told from a torn tail, which is cut.
fn closed(bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
    let disk = SimDisk::with_bytes(bytes);
    let mut store = Store::open_on(Arc::new(disk.clone()), options(), Tuning::small())?;
    store.put_note("fixture", b"another note")?;
    store.sync()?;
    store.close()?;
    Ok(disk.bytes())
}

/// Opens a store and reads all of it.
fn read(disk: SimDisk) -> Result<State, Error> {
    let store = Store::open_on(Arc::new(disk), options(), Tuning::small())?;
    let (head, compacted) = (store.revision(), store.compacted());
    let everything = KeyRange {
        start: Bytes::new(),
        end: RangeEnd::Unbounded,
    };
    let mut content = Vec::new();
    let middle = compacted.midpoint(head);
    for at in [compacted.max(1), middle, head] {
        let mut found: Vec<(Bytes, Version)> = Vec::new();
        store.scan(&everything, at, &mut |key, version| {
            found.push((key.clone(), *version));
            ControlFlow::Continue(())
        });
        let _ = store.count(&everything, at);
        for (key, version) in found {
            let numbers = [version.modified.main, version.create, version.version, version.lease];
            content.push((key, numbers, store.value(&version)?));
        }
    }
    Ok(State {
        numbers: [head, compacted, store.untouched_import().unwrap_or(0)],
        leases: store.leases(),
        note: store.note("fixture"),
        content,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |field| u32::from_le_bytes(field.try_into().expect("four bytes")))
}

/// Puts the checksum of a header of `len` bytes at its end.
fn fix(bytes: &mut [u8], at: usize, len: usize) {
    let sum = crc32c::crc32c(&bytes[at..at + len - 4]);
    bytes[at + len - 4..at + len].copy_from_slice(&sum.to_le_bytes());
}

fn fix_frame(bytes: &mut [u8], at: usize) {
    let end = at + FRAME_HEADER + u32_at(bytes, at + 4) as usize;
    if let Some(frame) = bytes.get(at + 4..end) {
        let sum = crc32c::crc32c(frame);
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// All whole frames of all slots.
fn frames(bytes: &[u8], segment: usize) -> Vec<(usize, usize)> {
    let mut frames = Vec::new();
    for slot in (SLOTS_AT..bytes.len()).step_by(segment) {
        let mut at = slot + SEGMENT_HEADER;
        while at + FRAME_HEADER <= (slot + segment).min(bytes.len()) {
            let len = u32_at(bytes, at + 4) as usize;
            let whole = bytes
                .get(at + 4..at + FRAME_HEADER + len)
                .is_some_and(|frame| u32_at(bytes, at + 24) != 0 && crc32c::crc32c(frame) == u32_at(bytes, at));
            if !whole {
                break;
            }
            frames.push((at, len));
            at += (FRAME_HEADER + len).next_multiple_of(8);
        }
    }
    frames
}
