//! etcd's room while the filler writes: its database against its quota.
//!
//! etcd refuses writes once the size of its database file, holes included, reaches the quota, and stays so until the
//! alarm is disarmed. A compaction makes holes, only a defragmentation makes the file smaller. So the writers stop before
//! that, and room is made: compact, defragment. Where etcd said no nevertheless (an etcd older than 3.6 does not tell its
//! quota), the same is done and the alarm disarmed, as etcd's manual has it, but only where the filler has filled it.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions, GetOptions};
use quantykube_base::{Reporter, human_bytes};

use crate::FILLER_KEY;
use crate::connect::Connection;
use crate::error::{Error, is_compacted};

/// What etcd takes by default, where it does not tell.
const QUOTA_DEFAULT: u64 = 2 << 30;
/// A database that is this small needs no defragmentation to be had.
const HOLES_MIN: u64 = 1 << 20;
/// An etcd that leaves less than this below its quota has no room to work in.
const ROOM_MIN: u64 = 1 << 20;

/// etcd's database as its status tells it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// The file.
    pub file: u64,
    /// What of it is no hole.
    pub used: u64,
    /// The quota, where it is told.
    pub quota: Option<u64>,
}

/// Watches the size, and makes room.
pub(super) struct Space {
    /// At this size of the file the writers stop.
    mark: u64,
    quota: u64,
    /// Whether `quota` was told or has shown itself.
    known: bool,
    /// Where etcd stood when it was last full.
    last_full: Option<i64>,
    pub compactions: u64,
    pub defragmentations: u64,
    pub disarmed: u64,
}

impl Space {
    /// Refuses an etcd that was full before, and not by an earlier filler: what to do about it is for a person to decide.
    pub async fn begin(connection: &Connection) -> Result<Space, Error> {
        let size = size(connection).await?;
        let quota = size.quota.unwrap_or(QUOTA_DEFAULT);
        let space = Space {
            mark: first_mark(quota),
            quota,
            known: size.quota.is_some(),
            last_full: None,
            compactions: 0,
            defragmentations: 0,
            disarmed: 0,
        };
        if !full_members(connection).await?.is_empty() && !filled_by_us(connection).await? {
            return Err(space.no_room(connection, size));
        }
        Ok(space)
    }

    /// Whether the writers must stop for room to be made.
    pub fn is_short(&self, size: Size) -> bool {
        size.file >= self.mark
    }

    /// Compacts and defragments; no writer may be at work. `revision` is etcd's.
    pub async fn make_room(
        &mut self,
        connection: &Connection,
        revision: i64,
        reporter: &Reporter,
    ) -> Result<Size, Error> {
        let before = size(connection).await?;
        compact(connection, revision, true).await?;
        self.compactions += 1;
        let mut now = size(connection).await?;
        if now.file - now.used.min(now.file) >= HOLES_MIN.max(now.file / 8) {
            connection
                .client
                .maintenance_client()
                .defragment()
                .await
                .map_err(|error| connection.failed("defragmenting it", error))?;
            self.defragmentations += 1;
            now = size(connection).await?;
        }
        reporter.step(
            "etcd-room",
            &format!(
                "etcd's database had {}, its quota is {}{}: compacted and defragmented, it has {} now",
                human_bytes(before.file),
                if self.known { "" } else { "taken for " },
                human_bytes(self.quota),
                human_bytes(now.file)
            ),
        );
        if now.file >= self.mark && self.known && now.file + ROOM_MIN >= self.quota {
            return Err(self.no_room(connection, now));
        }
        self.mark = next_mark(self.mark, now.file, self.quota);
        Ok(now)
    }

    /// etcd has set its alarm. Where the filler has filled it: makes room and disarms it.
    pub async fn full(&mut self, connection: &Connection, revision: i64, reporter: &Reporter) -> Result<(), Error> {
        let there = size(connection).await?;
        // Twice at the same place: nothing of ours is left that could go.
        if self.last_full.is_some_and(|last| revision <= last + 1) {
            return Err(self.no_room(connection, there));
        }
        self.last_full = Some(revision);
        if !self.known {
            // It has shown itself.
            self.quota = there.file;
            self.known = true;
            self.mark = first_mark(self.quota);
        }
        let now = self.make_room(connection, revision, reporter).await?;
        if now.file + ROOM_MIN > self.quota {
            return Err(self.no_room(connection, now));
        }
        // An alarm is one member's; without its id nothing is disarmed, and etcd says nothing.
        for member in full_members(connection).await? {
            let mut options = AlarmOptions::new();
            options.with_member(member);
            let mut client = connection.client.maintenance_client();
            client
                .alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(options))
                .await
                .map_err(|error| connection.failed("disarming its alarm", error))?;
        }
        self.disarmed += 1;
        reporter.step(
            "etcd-room",
            "etcd's alarm NOSPACE, which the filler had caused, was disarmed",
        );
        Ok(())
    }

    fn no_room(&self, connection: &Connection, size: Size) -> Error {
        Error::NoRoom {
            endpoint: connection.endpoint.clone(),
            file: size.file,
            used: size.used,
            quota: self.quota,
        }
    }
}

/// Three quarters of the quota.
fn first_mark(quota: u64) -> u64 {
    quota - quota / 4
}

/// The mark after room was made: as before, or half way to the quota where what is left in the database is above that.
fn next_mark(mark: u64, file: u64, quota: u64) -> u64 {
    match file + ROOM_MIN <= mark {
        true => mark,
        false => file + (quota.saturating_sub(file) / 2).max(ROOM_MIN),
    }
}

pub(super) async fn size(connection: &Connection) -> Result<Size, Error> {
    let status = connection
        .client
        .maintenance_client()
        .status()
        .await
        .map_err(|error| connection.failed("asking for its status", error))?;
    let bytes = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(Size {
        file: bytes(status.db_size()),
        used: bytes(status.raft_used_db_size()),
        quota: u64::try_from(status.db_size_quota()).ok().filter(|quota| *quota > 0),
    })
}

/// The members that have set the alarm NOSPACE.
async fn full_members(connection: &Connection) -> Result<Vec<u64>, Error> {
    let answer = connection
        .client
        .maintenance_client()
        .alarm(AlarmAction::Get, AlarmType::None, None)
        .await
        .map_err(|error| connection.failed("listing its alarms", error))?;
    let full = answer
        .alarms()
        .iter()
        .filter(|alarm| alarm.alarm() == AlarmType::Nospace);
    Ok(full.map(etcd_client::AlarmMember::member_id).collect())
}

/// Whether an earlier filler, which was interrupted, made most of the revisions since it began.
async fn filled_by_us(connection: &Connection) -> Result<bool, Error> {
    let Some((key, head)) = filler(connection).await? else {
        return Ok(false);
    };
    let since = head - key.create + 1;
    Ok(key.version * 10 >= since * 9)
}

/// The filler key as it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filler {
    pub create: i64,
    pub version: i64,
}

/// The filler key, if it is there, and etcd's revision.
pub(super) async fn filler(connection: &Connection) -> Result<Option<(Filler, i64)>, Error> {
    let options = GetOptions::new().with_keys_only();
    let answer = connection
        .client
        .kv_client()
        .get(FILLER_KEY, Some(options))
        .await
        .map_err(|error| connection.failed("reading the filler key", error))?;
    let head = answer
        .header()
        .map(etcd_client::ResponseHeader::revision)
        .ok_or_else(|| connection.impossible("an answer without a header"))?;
    Ok(answer.kvs().first().map(|found| {
        let key = Filler {
            create: found.create_revision(),
            version: found.version(),
        };
        (key, head)
    }))
}

/// Compacts: every read below `revision` is refused from now on. Already compacted there is as good. With `wait` it
/// ends only when what was compacted is gone from the database.
pub(super) async fn compact(connection: &Connection, revision: i64, wait: bool) -> Result<(), Error> {
    let options = wait.then(|| CompactionOptions::new().with_physical());
    match connection.client.kv_client().compact(revision, options).await {
        Ok(_) => Ok(()),
        Err(etcd_client::Error::GRpcStatus(status)) if is_compacted(&status) => Ok(()),
        Err(error) => Err(connection.failed("compacting", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_below_the_quota_and_above_what_is_there() {
        const MIB: u64 = 1 << 20;
        assert_eq!(first_mark(16 * MIB), 12 * MIB);
        assert_eq!(next_mark(12 * MIB, 2 * MIB, 16 * MIB), 12 * MIB, "room was made");
        assert_eq!(
            next_mark(12 * MIB, 12 * MIB, 16 * MIB),
            14 * MIB,
            "half way to the quota"
        );
        assert_eq!(next_mark(12 * MIB, 15 * MIB, 16 * MIB), 16 * MIB, "the last step");
        assert_eq!(
            next_mark(12 * MIB, 40 * MIB, 16 * MIB),
            41 * MIB,
            "a quota that is none"
        );
    }
}
