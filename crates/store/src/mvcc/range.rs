//! Reading a range of keys at a revision.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use bytes::Bytes;
use quantykube_etcd_api::{KeyValue, RangeRequest, RangeResponse, SortOrder, SortTarget};
use quantykube_store_file::{self as store_file, KeyRange, RangeEnd, Store, Version};

use super::Error;

/// What a reader sees.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The store, a transaction's own changes included.
    pub store: &'a Store,
    /// The revision that is current for this reader; it goes into headers.
    pub current: i64,
}

/// How many values are asked of the file at once.
const VALUES_AT_ONCE: usize = 512;

/// What a range request asks for, as far as it was looked for in the index.
pub struct Search {
    request: RangeRequest,
    range: KeyRange,
    /// The revision it reads at.
    pub at: i64,
    current: i64,
    limit: usize,
    /// Every key of the range is looked at, not only as many as the limit says.
    whole: bool,
    found: Vec<(Bytes, Version)>,
}

/// What a range request found: its response without the values.
pub struct Found {
    /// The revision it reads at.
    pub at: i64,
    /// The revision for the header.
    pub current: i64,
    /// Whether the limit left some out.
    pub more: bool,
    /// How many there are without the limit.
    pub count: i64,
    /// The keys and their versions, in the order of the response.
    pub keys: Vec<Bytes>,
    /// See `keys`.
    pub versions: Vec<Version>,
    /// Whether the values are left out.
    pub keys_only: bool,
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
        let mut search = self.search(request)?;
        while !self.search_on(&mut search, usize::MAX) {}
        self.response(self.found(search)?)
    }

    /// Begins to look for what a range request asks for.
    pub fn search(&self, request: &RangeRequest) -> Result<Search, Error> {
        let at = self.read_revision(request.revision)?;
        let limit = usize::try_from(request.limit).unwrap_or(0);
        // Only without filters and sorting does the limit hold while looking.
        let whole = is_filtered(request) || request.sort_order != SortOrder::None as i32 || limit == 0;
        Ok(Search {
            range: key_range(&request.key, &request.range_end),
            request: request.clone(),
            at,
            current: self.current,
            limit,
            whole,
            found: Vec::new(),
        })
    }

    /// Looks at `keys` more keys; true once all that is needed were looked at.
    pub fn search_on(&self, search: &mut Search, keys: usize) -> bool {
        if search.request.count_only {
            return true;
        }
        // One key beyond the limit tells whether there are more.
        let wanted = if search.whole { usize::MAX } else { search.limit + 1 };
        let left = keys.min(wanted - search.found.len());
        let more = self.versions(&search.range, search.at, left);
        let done = more.len() < left || search.found.len() + more.len() == wanted;
        if let Some((last, _)) = more.last() {
            search.range.start = after(last);
        }
        // A single key is not looked for after itself.
        let done = done || search.range.end == RangeEnd::Single;
        match search.found.is_empty() {
            true => search.found = more,
            false => search.found.extend(more),
        }
        done
    }

    /// Ends a search: filters, sorts and counts.
    pub fn found(&self, search: Search) -> Result<Found, Error> {
        let Search {
            request,
            at,
            current,
            limit,
            whole,
            mut found,
            ..
        } = search;
        let count = match request.count_only || (!whole && found.len() > limit) {
            true => self.count(&key_range(&request.key, &request.range_end), at),
            false => found.len() as u64,
        };
        if is_filtered(&request) {
            found.retain(|(_, version)| passes(&request, version));
        }
        self.sort(&request, &mut found)?;
        let more = limit != 0 && found.len() > limit;
        if more {
            found.truncate(limit);
        }
        let (keys, versions) = found.into_iter().unzip();
        Ok(Found {
            at,
            current,
            more,
            count: count as i64,
            keys,
            versions,
            keys_only: request.keys_only,
        })
    }

    /// The response to what was found, values and all.
    pub fn response(&self, mut found: Found) -> Result<RangeResponse, Error> {
        let mut kvs = Vec::with_capacity(found.keys.len());
        let len = found.keys.len();
        self.visit(&mut found, 0..len, &mut |key, version, value| {
            kvs.push(KeyValue {
                key: key.clone(),
                create_revision: version.create,
                mod_revision: version.modified.main,
                version: version.version,
                value: Bytes::copy_from_slice(value),
                lease: version.lease,
            });
        })?;
        Ok(RangeResponse {
            header: super::header(found.current),
            kvs,
            more: found.more,
            count: found.count,
        })
    }

    /// Visits some of what was found, with the values.
    pub fn visit(
        &self,
        found: &mut Found,
        places: std::ops::Range<usize>,
        visit: &mut dyn FnMut(&Bytes, &Version, &[u8]),
    ) -> Result<(), Error> {
        if found.keys_only {
            for place in places {
                visit(&found.keys[place], &found.versions[place], &[]);
            }
            return Ok(());
        }
        let mut next = places.start;
        let mut moved = None;
        while next < places.end {
            let end = places.end.min(next + VALUES_AT_ONCE);
            let read = self.store.values(&found.versions[next..end], &mut |place, value| {
                let place = next + place;
                visit(&found.keys[place], &found.versions[place], value);
            });
            let Err((place, error)) = read else {
                next = end;
                continue;
            };
            let place = next + place;
            // A value that was moved since it was found is found again: its version is held.
            let again = match error {
                store_file::Error::Gone if moved != Some(place) => self.store.get(&found.keys[place], found.at),
                error => return Err(error.into()),
            };
            found.versions[place] = again.ok_or(store_file::Error::Gone)?;
            (next, moved) = (place, Some(place));
        }
        Ok(())
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

/// The first key after this one.
pub fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

/// Whether a request names revisions that its keys must lie between.
pub fn is_filtered(request: &RangeRequest) -> bool {
    [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ] != [0; 4]
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
