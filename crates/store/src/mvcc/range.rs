//! Reading a range of keys at a revision.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use bytes::Bytes;
use quantykube_etcd_api::{KeyValue, RangeRequest, RangeResponse, ResponseHeader, SortOrder, SortTarget};
use quantykube_store_file::{KeyRange, RangeEnd, Store, Version};

use super::Error;

/// What a reader sees.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The store, a transaction's own changes included.
    pub store: &'a Store,
    /// The revision that is current for this reader; it goes into headers.
    pub current: i64,
}

/// What a value costs to read however short it is, in the currency of [`View::read`]'s budget.
const READ_OVERHEAD: usize = 512;

/// A range request on its way: what was found, and the response with the values read so far.
pub struct Reading {
    /// The revision it reads at.
    pub at: i64,
    /// The response.
    pub response: RangeResponse,
    found: std::vec::IntoIter<(Bytes, Version)>,
    keys_only: bool,
}

impl Reading {
    fn new(at: i64, found: Vec<(Bytes, Version)>, response: RangeResponse, keys_only: bool) -> Reading {
        Reading {
            at,
            response,
            found: found.into_iter(),
            keys_only,
        }
    }
}

/// A range as requests spell it: no end is one key, the end "\0" is all keys from the start on.
pub fn key_range(key: &Bytes, range_end: &Bytes) -> KeyRange {
    let end = match &range_end[..] {
        [] => RangeEnd::Single,
        [0] => RangeEnd::Unbounded,
        _ => RangeEnd::Before(range_end.clone()),
    };
    KeyRange {
        start: key.clone(),
        end,
    }
}

/// Whether a range can hold no key at all: its end is not above its start.
pub fn is_empty(range: &KeyRange) -> bool {
    matches!(&range.end, RangeEnd::Before(end) if end <= &range.start)
}

impl View<'_> {
    /// The revision to read at for a request that names `asked` (0 and below: the current one).
    pub fn read_revision(&self, asked: i64) -> Result<i64, Error> {
        if asked > self.current {
            return Err(Error::FutureRevision);
        }
        let at = if asked <= 0 { self.current } else { asked };
        if at < self.store.compacted() {
            return Err(Error::Compacted);
        }
        Ok(at)
    }

    /// The live keys of a range, in key order, `limit` at most (0: all).
    pub fn versions(&self, range: &KeyRange, at: i64, limit: usize) -> Vec<(Bytes, Version)> {
        let mut found = Vec::new();
        if let RangeEnd::Single = range.end {
            found.extend(
                self.store
                    .get(&range.start, at)
                    .map(|version| (range.start.clone(), version)),
            );
        } else if !is_empty(range) {
            self.store.scan(range, at, &mut |key, version| {
                found.push((key.clone(), *version));
                match limit != 0 && found.len() == limit {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
        }
        found
    }

    /// The number of live keys of a range.
    pub fn count(&self, range: &KeyRange, at: i64) -> u64 {
        if is_empty(range) {
            0
        } else {
            self.store.count(range, at)
        }
    }

    /// A key with its value.
    pub fn key_value(&self, key: Bytes, version: &Version) -> Result<KeyValue, Error> {
        Ok(KeyValue {
            key,
            create_revision: version.create,
            mod_revision: version.modified.main,
            version: version.version,
            value: self.store.value(version)?,
            lease: version.lease,
        })
    }

    /// Serves a range request.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        let mut reading = self.find(request)?;
        while !self.read(&mut reading, usize::MAX)? {}
        Ok(reading.response)
    }

    /// Finds what a range request asks for, without the values.
    pub fn find(&self, request: &RangeRequest) -> Result<Reading, Error> {
        let at = self.read_revision(request.revision)?;
        let range = key_range(&request.key, &request.range_end);
        let header = Some(ResponseHeader {
            revision: self.current,
            ..Default::default()
        });
        if request.count_only {
            let response = RangeResponse {
                header,
                count: self.count(&range, at) as i64,
                ..Default::default()
            };
            return Ok(Reading::new(at, Vec::new(), response, true));
        }
        let limit = usize::try_from(request.limit).unwrap_or(0);
        let filtered = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ] != [0; 4];
        // Only without filters and sorting does the limit hold while reading; one key more tells whether there are more.
        let whole = filtered || request.sort_order != SortOrder::None as i32 || limit == 0;
        let mut found = self.versions(&range, at, if whole { 0 } else { limit + 1 });
        let count = match whole || found.len() <= limit {
            true => found.len() as u64,
            false => self.count(&range, at),
        };
        if filtered {
            found.retain(|(_, version)| passes(request, version));
        }
        self.sort(request, &mut found)?;
        let more = limit != 0 && found.len() > limit;
        if more {
            found.truncate(limit);
        }
        let response = RangeResponse {
            header,
            kvs: Vec::with_capacity(found.len()),
            more,
            count: count as i64,
        };
        Ok(Reading::new(at, found, response, request.keys_only))
    }

    /// Reads about `budget` bytes of values for what was found; true once all are read.
    pub fn read(&self, reading: &mut Reading, budget: usize) -> Result<bool, Error> {
        let mut bytes = 0;
        for (key, version) in reading.found.by_ref() {
            bytes += key.len() + version.value.len as usize + READ_OVERHEAD;
            let kv = match reading.keys_only {
                false => self.key_value(key, &version)?,
                true => KeyValue {
                    key,
                    create_revision: version.create,
                    mod_revision: version.modified.main,
                    version: version.version,
                    value: Bytes::new(),
                    lease: version.lease,
                },
            };
            reading.response.kvs.push(kv);
            if bytes >= budget {
                break;
            }
        }
        Ok(reading.found.len() == 0)
    }

    fn sort(&self, request: &RangeRequest, found: &mut Vec<(Bytes, Version)>) -> Result<(), Error> {
        let target = SortTarget::try_from(request.sort_target).map_err(|_| Error::InvalidSort)?;
        let order = match SortOrder::try_from(request.sort_order).map_err(|_| Error::InvalidSort)? {
            SortOrder::None if target != SortTarget::Key => SortOrder::Ascend,
            order => order,
        };
        let descend = match order {
            SortOrder::None => return Ok(()),
            SortOrder::Ascend => false,
            SortOrder::Descend => true,
        };
        let directed = |ordering: Ordering| if descend { ordering.reverse() } else { ordering };
        match target {
            SortTarget::Key if !descend => {}
            SortTarget::Key => found.reverse(),
            SortTarget::Version => found.sort_by(|a, b| directed(a.1.version.cmp(&b.1.version))),
            SortTarget::Create => found.sort_by(|a, b| directed(a.1.create.cmp(&b.1.create))),
            SortTarget::Mod => found.sort_by(|a, b| directed(a.1.modified.main.cmp(&b.1.modified.main))),
            SortTarget::Value => {
                let mut valued = Vec::with_capacity(found.len());
                for (key, version) in found.drain(..) {
                    valued.push((self.store.value(&version)?, (key, version)));
                }
                valued.sort_by(|a, b| directed(a.0.cmp(&b.0)));
                found.extend(valued.into_iter().map(|(_, entry)| entry));
            }
        }
        Ok(())
    }
}

/// The revision filters; a bound of 0 is none.
fn passes(request: &RangeRequest, version: &Version) -> bool {
    let within = |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    within(
        version.modified.main,
        request.min_mod_revision,
        request.max_mod_revision,
    ) && within(version.create, request.min_create_revision, request.max_create_revision)
}
