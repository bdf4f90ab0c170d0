//! The reader of etcd's databases: whatever the bytes are, it ends with an answer or an error, in little memory; and a
//! snapshot whose sum does not fit is told.

use quantykube_etcd_api::{LeaseGrantRequest, SnapshotRequest};
use quantykube_etcd_files::ReadError;
use quantykube_etcd_files::etcd::Database;
use quantykube_tests::places::root;
use rand::RngExt;
use rand::rngs::SmallRng;
use sha2::{Digest, Sha256};

use super::{Judge, Plant, Took, mutate, plant};
use crate::answer::Call;
use crate::generate;
use crate::resolve::Known;
use crate::side::{Kind, Side};
use crate::step::Step;

const PAGE: usize = 4096;
const PAGE_HEADER: usize = 16;
const ELEMENT: usize = 16;
/// Length of the sum at a snapshot's end.
const SUM: usize = 32;
/// Steps of the generator that fill the etcd whose snapshot is taken.
const STEPS: usize = 400;

/// The target.
pub(super) struct Bbolt {
    /// Snapshots: one that this program's store wrote, one of a real etcd, which has free pages and pages of every kind.
    originals: Vec<Vec<u8>>,
}

impl Bbolt {
    pub(super) fn new() -> Result<Bbolt, String> {
        let path = root().join("tests/store_file/format-1/snapshot.db.gz");
        let packed = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut ours = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut ours)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let real = runtime
            .map_err(|error| format!("a runtime: {error}"))?
            .block_on(real())?;
        let originals = vec![ours, real];
        for original in &originals {
            match read(original) {
                Ok(read) if read.records > 100 && original.len() % PAGE == SUM => {}
                Ok(read) => {
                    return Err(format!(
                        "a snapshot of {} bytes has {} records",
                        original.len(),
                        read.records
                    ));
                }
                Err(error) => return Err(format!("an undamaged snapshot: {error}")),
            }
        }
        Ok(Bbolt { originals })
    }
}

/// What a real etcd gives as its snapshot after some random requests. Its ids differ from run to run.
async fn real() -> Result<Vec<u8>, String> {
    let side = Side::fresh(Kind::Etcd, &std::env::temp_dir()).await?;
    let mut clients = side.clients.clone();
    let mut known = Known::fresh();
    for step in generate::steps(1, 0, STEPS) {
        let call = match &step {
            Step::Put(put) => Call::Put(known.put(put)),
            Step::Delete(delete) => Call::Delete(known.delete(delete)),
            Step::Txn(txn) => Call::Txn(known.txn(txn)),
            Step::Grant(grant) => Call::Grant(LeaseGrantRequest {
                id: grant.id,
                ttl: grant.ttl,
            }),
            _ => continue,
        };
        if let Some(revision) = clients.send(&call).await.revision() {
            known.head = revision;
        }
    }
    let told = |status: tonic::Status| format!("etcd's snapshot: {status}");
    let stream = clients.maintenance.snapshot(SnapshotRequest::default()).await;
    let mut stream = stream.map_err(told)?.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = stream.message().await.map_err(told)? {
        bytes.extend_from_slice(&part.blob);
    }
    Ok(bytes)
}

impl Judge for Bbolt {
    fn judge(&mut self, rng: &mut SmallRng, planted: Option<Plant>) -> Result<Took, String> {
        plant(planted);
        let original = &self.originals[rng.random_range(0..self.originals.len())];
        let mut bytes = original.clone();
        if planted == Some(Plant::Silent) {
            // Where nothing stands: the pages stay sound, so that the sum alone could tell.
            bytes[PAGE - 1] ^= 1;
        } else {
            for _ in 0..rng.random_range(1..5) {
                change(rng, &mut bytes);
            }
        }
        let sum_fits = rng.random() || planted == Some(Plant::Silent);
        if sum_fits && bytes.len() > SUM {
            let end = bytes.len() - SUM;
            let sum = Sha256::digest(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum);
        }
        let damage = bytes != *original && (!sum_fits || planted == Some(Plant::Silent));
        match read(&bytes) {
            Err(_) => Ok(Took::Refused),
            Ok(_) if bytes == *original => Ok(Took::Same),
            Ok(read) if damage && read.sum => Err("a snapshot with another sum was accepted in silence".to_owned()),
            Ok(_) => Ok(Took::Other),
        }
    }
}

/// One change to the file.
fn change(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    let pages = (bytes.len() / PAGE).max(1);
    let page = rng.random_range(0..pages) * PAGE;
    match rng.random_range(0..12) {
        // A meta page, with its checksum.
        0 | 1 => {
            let page = rng.random_range(0..2) * PAGE;
            let (at, len) = [(8, 4), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8)][rng.random_range(0..6)];
            mutate::field(rng, bytes, page + PAGE_HEADER + at, len);
            fix_meta(bytes, page);
        }
        2 | 3 => {
            let (at, len) = [(0, 8), (8, 2), (10, 2), (12, 4)][rng.random_range(0..4)];
            mutate::field(rng, bytes, page + at, len);
        }
        4..=6 => {
            let element = page + PAGE_HEADER + rng.random_range(0..40) * ELEMENT;
            let (at, len) = [(0, 4), (4, 4), (8, 4), (12, 4), (8, 8)][rng.random_range(0..5)];
            mutate::field(rng, bytes, element + at, len);
        }
        7 => {
            let from = rng.random_range(0..pages) * PAGE;
            if bytes.len() >= from.max(page) + PAGE {
                bytes.copy_within(from..from + PAGE, page);
            }
        }
        8 => bytes.truncate(rng.random_range(0..=bytes.len())),
        _ => {
            let len = bytes.len();
            mutate::spot(rng, bytes, page.min(len)..(page + PAGE).min(len));
        }
    }
}

/// FNV-1a of a meta page's contents up to the sum.
fn fix_meta(bytes: &mut [u8], page: usize) {
    if let Some(meta) = bytes.get_mut(page + PAGE_HEADER..page + PAGE_HEADER + 64) {
        let sum = meta[..56].iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        meta[56..].copy_from_slice(&sum.to_le_bytes());
    }
}

struct Read {
    records: usize,
    /// It has a sum, and it fits.
    sum: bool,
}

/// Everything that our programs ask of such a file, in their order: the pages first, for that bounds the time of all else.
fn read(bytes: &[u8]) -> Result<Read, ReadError> {
    let database = Database::open(bytes)?;
    // Sound pages or not, a single look must end.
    let (meta, revision) = (database.meta(), database.revision());
    let report = database.check()?;
    let sum = database.verify_sum();
    if !report.is_sound() {
        let problem = &report.problems[0];
        return Err(ReadError::Damaged {
            page: problem.page,
            offset: problem.offset,
            what: problem.what.clone(),
        });
    }
    meta?;
    revision?;
    // A wrong sum is told last, so that what lies behind it is read in any case.
    let found = content(&database);
    let sum = sum?;
    Ok(Read { records: found?, sum })
}

fn content(database: &Database<&[u8]>) -> Result<usize, ReadError> {
    database.compact_revision()?;
    database.alarms()?;
    database.cluster()?;
    database.members()?;
    database.removed_members()?;
    database.auth()?;
    let live = database.live(None)?;
    database.dangling_leases(&live)?;
    let mut records = 0;
    for record in live.records(database)? {
        record?;
        records += 1;
    }
    for record in database.records(Default::default())? {
        record?;
        records += 1;
    }
    database.hash_kv(None)?;
    database.status()?;
    Ok(records)
}
