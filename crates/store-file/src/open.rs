//! Making and opening a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Overlay, create_temporary, publish_temporary};
use crate::layout::{
    HEADER_AT, Header, SEGMENT_HEADER_LEN, SLOTS_AT, SegmentHeader, SegmentKind, end_of_log, fresh_tag,
};
use crate::recovery::{Recovered, recover};
use crate::store::Open;
use crate::upkeep::Upkeep;
use crate::writer::Writer;
use crate::{Disk, Durable, Error, FileDisk, Identity, Options, Store, Tuning};

impl Store {
    /// Makes a new file (parent folder synced) at revision 1 with no keys.
    pub fn create(path: &Path, options: Options) -> Result<Store, Error> {
        let (disk, temporary) = create_temporary(path)?;
        let made = Store::create_on(Arc::new(disk), options, Tuning::default())
            .and_then(|store| publish_temporary(&temporary, path).map(|()| store));
        if made.is_err() {
            // The error is told; a temporary file that stays is replaced by the next try.
            let _ = std::fs::remove_file(&temporary);
        }
        made
    }

    /// Opens and recovers: newest valid checkpoint, then the log after it; a torn tail is cut.
    pub fn open(path: &Path, options: Options) -> Result<Store, Error> {
        let disk = FileDisk::open(path)?;
        Store::open_on(Arc::new(disk), options, Tuning::default())
    }

    /// Opens a closed file to look at it with all means of a store. Nothing in the file is changed: whatever would be
    /// written stays in memory. Refuses a file that a server holds.
    pub fn look(path: &Path) -> Result<Store, Error> {
        let below = FileDisk::open_frozen(path)?;
        let overlay = Overlay::new(below).map_err(Error::io("reading the store file's length"))?;
        // The identity is the file's; no quota, for nothing grows.
        let identity = Identity {
            cluster_id: 0,
            member_id: 0,
            raft_term: 1,
        };
        Store::open_on(Arc::new(overlay), Options { quota: 0, identity }, Tuning::default())
    }

    /// Makes a new store on an empty medium.
    pub fn create_on(disk: Arc<dyn Disk>, options: Options, tuning: Tuning) -> Result<Store, Error> {
        let header = Header {
            generation: 1,
            segment_bytes: tuning.segment_bytes,
            identity: options.identity,
            imported: 0,
            checkpoint: 0,
            checkpoint_segments: 0,
            durable_seq: 0,
        };
        disk.allocate(SLOTS_AT, u64::from(tuning.segment_bytes))
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::StorageFull => Error::NoSpace {
                    needed: SLOTS_AT + u64::from(tuning.segment_bytes),
                },
                _ => Error::Io {
                    what: "reserving space",
                    source,
                },
            })?;
        let first = SegmentHeader {
            kind: SegmentKind::Log {
                sequence: 1,
                first_seq: 1,
            },
            tag: fresh_tag(),
        };
        write_header(&*disk, &header, &[(SLOTS_AT, &first.encode())])?;
        Store::open_on(disk, options, tuning)
    }

    /// Opens and recovers a store on any medium. The segment size is the file's.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options, tuning: Tuning) -> Result<Store, Error> {
        let recovered = recover(&disk, options.quota)?;
        clean(&*disk, &recovered)?;
        Store::from_recovered(disk, recovered, tuning)
    }

    fn from_recovered(disk: Arc<dyn Disk>, recovered: Recovered, tuning: Tuning) -> Result<Store, Error> {
        let durable = Durable {
            seq: recovered.seq,
            revision: recovered.head,
        };
        let writer = Writer::start(Arc::clone(&disk), durable, tuning.threaded, tuning.idle)?;
        let upkeep = Upkeep::new(&recovered);
        let mut space = recovered.space;
        let mut tail = recovered.tail;
        let (sequence, _) = end_of_log(tail, space.segment_bytes());
        if !space.reserve_again(sequence)? {
            // Left as it is: the next frame begins a new segment, in space that is reserved.
            tail = (sequence + 1) * space.segment_bytes();
        }
        space.reserve_spare()?;
        let mut lease_keys: HashMap<i64, BTreeSet<Box<[u8]>>> = HashMap::new();
        for entry in recovered.index.entries() {
            if entry.latest().lease != 0 {
                let keys = lease_keys.entry(entry.latest().lease).or_default();
                keys.insert(entry.key().into());
            }
        }
        Ok(Store {
            disk,
            writer,
            tuning,
            header: recovered.header,
            index: recovered.index,
            space,
            recent: Default::default(),
            revisions: recovered.revisions,
            head: recovered.head,
            compacted: recovered.compacted,
            holds: BTreeMap::new(),
            seq: recovered.seq,
            tail,
            tag: recovered.tag,
            open: Open::default(),
            leases: recovered.leases,
            lease_keys,
            notes: recovered.notes,
            upkeep,
        })
    }
}

/// Writes both header copies and what else a new file needs, and syncs.
pub(crate) fn write_header(
    disk: &dyn Disk,
    header: &Header,
    more: &[(u64, &[u8; SEGMENT_HEADER_LEN])],
) -> Result<(), Error> {
    let page = header.encode();
    for at in HEADER_AT {
        disk.write_at(at, &page).map_err(Error::io("writing the header"))?;
    }
    for (at, bytes) in more {
        disk.write_at(*at, &bytes[..])
            .map_err(Error::io("writing the header"))?;
    }
    disk.sync_data().map_err(Error::io("syncing the header"))
}

/// Zeroes what stands behind the tail. Synced before the first new frame: otherwise a frame that was never acknowledged
/// could follow a new one of the same number.
fn clean(disk: &dyn Disk, recovered: &Recovered) -> Result<(), Error> {
    for (at, len) in &recovered.clean {
        disk.write_at(*at, &vec![0; *len as usize])
            .map_err(Error::io("cutting the torn tail"))?;
    }
    // Synced in any case: what was read may be in the kernel's memory only, after a kill of the process before.
    disk.sync_data().map_err(Error::io("syncing the store file"))?;
    if recovered.stale_headers.is_empty() {
        return Ok(());
    }
    let page = recovered.header.encode();
    for at in &recovered.stale_headers {
        disk.write_at(*at, &page).map_err(Error::io("writing the header"))?;
    }
    disk.sync_data().map_err(Error::io("syncing the header"))
}
