//! The versions of one key.

use crate::layout::Address;
use crate::{Revision, ValueRef, Version};

/// One version of a key; a tombstone has version 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ver {
    pub(crate) create: i64,
    pub(crate) main: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) address: Address,
    pub(crate) sub: u32,
    pub(crate) len: u32,
}

impl Ver {
    pub(crate) fn tombstone(revision: Revision) -> Ver {
        Ver {
            create: 0,
            main: revision.main,
            version: 0,
            lease: 0,
            address: 0,
            sub: revision.sub,
            len: 0,
        }
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision {
            main: self.main,
            sub: self.sub,
        }
    }

    pub(crate) fn public(&self) -> Version {
        Version {
            create: self.create,
            modified: self.revision(),
            version: self.version,
            lease: self.lease,
            value: ValueRef {
                offset: self.address,
                len: self.len,
            },
        }
    }
}

/// Versions before the latest, oldest first. Boxed: most keys have none.
#[derive(Debug)]
struct Older(Vec<Ver>);

/// The versions of a key; never empty.
#[derive(Debug)]
pub(super) struct Versions {
    latest: Ver,
    older: Option<Box<Older>>,
}

/// A key and its versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(super) key: &'a [u8],
    pub(super) versions: &'a Versions,
}

impl<'a> Entry<'a> {
    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    pub(crate) fn latest(&self) -> &'a Ver {
        &self.versions.latest
    }

    /// All versions, oldest first.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &'a Ver> + use<'a> {
        let older = self.versions.older.iter().flat_map(|older| older.0.iter());
        older.chain(std::iter::once(&self.versions.latest))
    }

    /// The version a read at `at` sees, if the key is there then.
    pub(crate) fn at(&self, at: i64) -> Option<&'a Ver> {
        self.versions.at(at)
    }
}

impl Versions {
    pub(super) fn new(latest: Ver) -> Versions {
        Versions { latest, older: None }
    }

    pub(super) fn with_older(latest: Ver, older: &[Ver]) -> Versions {
        Versions {
            latest,
            older: (!older.is_empty()).then(|| Box::new(Older(older.to_vec()))),
        }
    }

    pub(super) fn latest(&self) -> &Ver {
        &self.latest
    }

    pub(super) fn at(&self, at: i64) -> Option<&Ver> {
        let seen = if self.latest.main <= at {
            &self.latest
        } else {
            let older = &self.older.as_ref()?.0;
            let after = older.partition_point(|ver| ver.main <= at);
            &older[after.checked_sub(1)?]
        };
        (!seen.is_tombstone()).then_some(seen)
    }

    pub(super) fn version_mut(&mut self, revision: Revision) -> Option<&mut Ver> {
        if self.latest.revision() == revision {
            return Some(&mut self.latest);
        }
        let older = &mut self.older.as_mut()?.0;
        let found = older.binary_search_by_key(&revision, Ver::revision).ok()?;
        Some(&mut older[found])
    }

    pub(super) fn append(&mut self, ver: Ver) {
        debug_assert!(self.latest.revision() < ver.revision());
        let before = std::mem::replace(&mut self.latest, ver);
        match &mut self.older {
            Some(older) => older.0.push(before),
            None => self.older = Some(Box::new(Older(vec![before]))),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        !self.latest.is_tombstone()
    }

    /// Drops what a compaction at `revision` does not keep; true if nothing is left. The last version at or before it
    /// is kept if it is a put, or a tombstone of that very revision (a watch from there still sees the delete).
    pub(super) fn compact(&mut self, key: &[u8], revision: i64, dropped: &mut dyn FnMut(&[u8], &Ver)) -> bool {
        let kept = |ver: &Ver| !ver.is_tombstone() || ver.main == revision;
        if self.latest.main <= revision {
            if let Some(older) = self.older.take() {
                older.0.iter().for_each(|ver| dropped(key, ver));
            }
            if !kept(&self.latest) {
                dropped(key, &self.latest);
                return true;
            }
            return false;
        }
        let Some(older) = &mut self.older else {
            return false;
        };
        let mut first = older.0.partition_point(|ver| ver.main <= revision);
        if first > 0 && kept(&older.0[first - 1]) {
            first -= 1;
        }
        older.0.drain(..first).for_each(|ver| dropped(key, &ver));
        if older.0.is_empty() {
            self.older = None;
        } else if first > 0 {
            older.0.shrink_to_fit();
        }
        false
    }
}
