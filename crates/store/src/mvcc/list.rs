//! Ranges that are too large to be served in one go: looked for and read in slices, others are served in between. What
//! such a range reads is held, so that it stays whatever is compacted meanwhile.

use bytes::{BufMut, Bytes};
use quantykube_etcd_api::{KeyMeta, KeyValue, RangeRequest, RangeResponse};
use quantykube_store_file::Version;

use super::range::{Found, Search, after};
use super::{Error, Mvcc, check, header};

/// Keys looked at before others get their turn: a fraction of a millisecond's worth.
const SEARCH_SLICE: usize = 2000;

/// A response with more bytes of values than this is not made in memory.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// A range request after its first slice.
pub enum Range {
    /// All of it.
    Whole(RangeResponse),
    /// More keys than one slice: [`Mvcc::list_on`] goes on. [`Mvcc::list_end`] must end it.
    Searching(Box<Search>, i64),
    /// All keys, no values. [`Mvcc::list_end`] must end it.
    Listed(Listed, i64),
}

/// What a large range found, and how far it is read.
pub struct Listed {
    found: Found,
    next: usize,
}

/// A part of a range that is streamed.
pub struct Part {
    /// The keys and values.
    pub kvs: Vec<KeyValue>,
    /// Bytes of the values.
    pub bytes: usize,
    /// Whether there are more keys.
    pub more: bool,
}

impl Listed {
    /// The response without its elements.
    pub fn frame(&self) -> RangeResponse {
        RangeResponse {
            header: header(self.found.current),
            kvs: Vec::new(),
            more: self.found.more,
            count: self.found.count,
        }
    }

    /// Bytes of all elements on the wire.
    pub fn elements_len(&self) -> usize {
        let keys = self.found.keys.iter().zip(&self.found.versions);
        keys.map(|(key, version)| meta(key, version).element_len(self.value_len(version)))
            .sum()
    }

    /// Whether all elements were given out.
    pub fn is_done(&self) -> bool {
        self.next == self.found.keys.len()
    }

    fn value_len(&self, version: &Version) -> usize {
        match self.found.keys_only {
            true => 0,
            false => version.value.len as usize,
        }
    }

    /// The places of the next elements, about `bytes` of them and one at least.
    fn take(&mut self, bytes: usize) -> std::ops::Range<usize> {
        let (from, mut sum) = (self.next, 0);
        while sum < bytes && self.next < self.found.keys.len() {
            let (key, version) = (&self.found.keys[self.next], &self.found.versions[self.next]);
            sum += meta(key, version).element_len(self.value_len(version));
            self.next += 1;
        }
        from..self.next
    }
}

fn meta<'a>(key: &'a Bytes, version: &Version) -> KeyMeta<'a> {
    KeyMeta {
        key,
        create_revision: version.create,
        mod_revision: version.modified.main,
        version: version.version,
        lease: version.lease,
    }
}

impl Mvcc {
    /// Begins a range request: a small one is served, of a large one the first slice.
    pub fn range_begin(&mut self, request: &RangeRequest) -> Result<Range, Error> {
        check::range(request)?;
        self.counts.ranges += 1;
        let mut search = self.view().search(request)?;
        if !self.view().search_on(&mut search, SEARCH_SLICE) {
            return Ok(Range::Searching(Box::new(search), self.store.hold()));
        }
        let found = self.view().found(search)?;
        let bytes: usize = found.versions.iter().map(|version| version.value.len as usize).sum();
        if found.keys_only || bytes <= WHOLE_BYTES_MAX {
            return Ok(Range::Whole(self.view().response(found)?));
        }
        Ok(Range::Listed(Listed { found, next: 0 }, self.store.hold()))
    }

    /// Looks at some more keys; true once all are found.
    pub fn list_on(&self, search: &mut Search) -> bool {
        self.view().search_on(search, SEARCH_SLICE)
    }

    /// All keys are found.
    pub fn list_found(&self, search: Search) -> Result<Listed, Error> {
        let found = self.view().found(search)?;
        Ok(Listed { found, next: 0 })
    }

    /// Reads the next elements, about `bytes` of them, onto `out` as they stand in a `RangeResponse`.
    pub fn list_read(&self, listed: &mut Listed, bytes: usize, out: &mut impl BufMut) -> Result<(), Error> {
        let places = listed.take(bytes);
        self.view()
            .visit(&mut listed.found, places, &mut |key, version, value| {
                meta(key, version).put_element(value, out);
            })
    }

    /// Ends what a range held.
    pub fn list_end(&mut self, held: i64) {
        self.store.release(held);
    }

    /// Begins to stream a range: the revision to read at, the one for the header, and the hold that
    /// [`Mvcc::list_end`] must end.
    pub fn stream_begin(&mut self, request: &RangeRequest) -> Result<(i64, i64, i64), Error> {
        check::range(request)?;
        self.counts.ranges += 1;
        let view = self.view();
        let at = view.read_revision(request.revision)?;
        Ok((at, view.current, self.store.hold()))
    }

    /// Reads the next part of a streamed range: `limit` keys at most. The request's start is set behind them.
    pub fn stream_read(&self, request: &mut RangeRequest, at: i64, limit: usize) -> Result<Part, Error> {
        let view = self.view();
        let range = super::key_range(&request.key, &request.range_end);
        let mut versions = view.versions(&range, at, limit + 1);
        let more = versions.len() > limit;
        versions.truncate(limit);
        let (keys, versions) = versions.into_iter().unzip();
        let response = view.response(Found {
            at,
            current: view.current,
            more,
            count: 0,
            keys,
            versions,
            keys_only: request.keys_only,
        })?;
        if let Some(last) = response.kvs.last() {
            request.key = after(&last.key);
        }
        Ok(Part {
            bytes: response.kvs.iter().map(|kv| kv.key.len() + kv.value.len() + 32).sum(),
            kvs: response.kvs,
            more,
        })
    }

    /// How many keys of a streamed range are left.
    pub fn stream_left(&self, request: &RangeRequest, at: i64) -> u64 {
        self.view()
            .count(&super::key_range(&request.key, &request.range_end), at)
    }
}
