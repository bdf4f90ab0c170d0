//! Every key of an etcd, page by page, at one revision.

use etcd_client::{GetOptions, KeyValue, KvClient};

use crate::connect::Connection;
use crate::error::{Error, call_failed};

/// The most bytes of one page, as etcd sends it. Only a page of a single key may be larger.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

/// What the next page aims at: values grow from key to key, and a page that comes out too large is read again.
const PAGE_BYTES_WANTED: u64 = 6 << 20;
/// The first page is small, for nothing is known of the values yet.
const FIRST_LIMIT: i64 = 256;
/// A page grows at most so much from one to the next: etcd builds a whole page in memory before it is refused here.
const GROWTH_MAX: i64 = 8;
/// Keys and values are never smaller than this together with their revisions.
const LIMIT_MAX: i64 = 64 << 10;

/// Keys in order, all as they were at one revision.
pub(crate) struct Page {
    pub records: Vec<KeyValue>,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Reads pages. The revision is etcd's head when the first page is read, or a given one.
pub(crate) struct Pager {
    endpoint: String,
    narrow: KvClient,
    /// For the page that holds one key only, whatever its size.
    wide: KvClient,
    revision: i64,
    start: Vec<u8>,
    limit: i64,
    keys: u64,
    total: Option<u64>,
    done: bool,
    refused: u64,
}

impl Pager {
    /// Reads at the head that the first page finds.
    pub fn at_head(connection: &Connection) -> Pager {
        Self::with_page_bytes(connection, PAGE_BYTES_MAX)
    }

    fn with_page_bytes(connection: &Connection, most: usize) -> Pager {
        let client = connection.client.kv_client();
        Pager {
            endpoint: connection.endpoint.clone(),
            narrow: client.clone().max_decoding_message_size(most),
            wide: client.max_decoding_message_size(i32::MAX as usize),
            revision: 0,
            start: vec![0],
            limit: FIRST_LIMIT,
            keys: 0,
            total: None,
            done: false,
            refused: 0,
        }
    }

    /// The revision that is read; 0 before the first page.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The number of keys at that revision, as etcd counted them; 0 before the first page.
    pub fn total(&self) -> u64 {
        self.total.unwrap_or(0)
    }

    /// The next page, or None after the last. The first page may be empty.
    pub async fn next(&mut self) -> Result<Option<Page>, Error> {
        if self.done {
            return Ok(None);
        }
        loop {
            let mut options = GetOptions::new()
                .with_from_key()
                .with_limit(self.limit)
                .with_revision(self.revision);
            if self.revision != 0 {
                // This member has shown that it has the revision, so it need not ask the others again.
                options = options.with_serializable();
            }
            let client = if self.limit == 1 {
                &mut self.wide
            } else {
                &mut self.narrow
            };
            match client.get(self.start.clone(), Some(options)).await {
                Ok(answer) => return self.take(answer).map(Some),
                Err(error) if self.limit > 1 && is_too_large(&error) => {
                    self.refused += 1;
                    self.limit = (self.limit / 4).max(1);
                }
                Err(error) => return Err(call_failed(&self.endpoint, "reading its keys", self.revision, error)),
            }
        }
    }

    fn take(&mut self, mut answer: etcd_client::GetResponse) -> Result<Page, Error> {
        let records = answer.take_kvs();
        if self.total.is_none() {
            self.revision = answer
                .header()
                .map(etcd_client::ResponseHeader::revision)
                .filter(|revision| *revision > 0)
                .ok_or_else(|| self.impossible("a page without a revision".to_owned()))?;
            self.total = Some(answer.count().max(0) as u64);
        }
        // etcd counts the whole range at that revision with every page: a key it forgot would show here.
        let left = self.total() - self.keys;
        if answer.count() as u64 != left {
            return Err(self.impossible(format!(
                "{} keys are left at revision {}, not {left}",
                answer.count(),
                self.revision
            )));
        }
        let bytes: u64 = records
            .iter()
            .map(|record| (record.key().len() + record.value().len()) as u64)
            .sum();
        self.keys += records.len() as u64;
        self.done = !answer.more();
        match records.last() {
            Some(last) => {
                self.start.clear();
                self.start.extend_from_slice(last.key());
                self.start.push(0);
            }
            None if self.done => {}
            None => return Err(self.impossible("an empty page with more behind it".to_owned())),
        }
        if self.done && self.keys != self.total() {
            return Err(self.impossible(format!("{} keys came, not {}", self.keys, self.total())));
        }
        self.limit = next_limit(self.limit, records.len() as u64, bytes);
        Ok(Page { records, bytes })
    }

    fn impossible(&self, what: String) -> Error {
        Error::Impossible {
            endpoint: self.endpoint.clone(),
            what,
        }
    }
}

/// How many keys the next page asks for after a page of `keys` keys with `bytes` bytes.
fn next_limit(limit: i64, keys: u64, bytes: u64) -> i64 {
    // Revisions, version, lease and the framing around a key: at most this much on the wire.
    const OVERHEAD: u64 = 48;
    let each = bytes.checked_div(keys).unwrap_or(0) + OVERHEAD;
    let wanted = (PAGE_BYTES_WANTED / each) as i64;
    wanted.clamp(1, LIMIT_MAX.min(limit.saturating_mul(GROWTH_MAX)))
}

/// The decoder refuses a message by its length before it reads it.
fn is_too_large(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status)
        if status.code() == tonic::Code::OutOfRange && status.message().contains("message length too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_size_of_values() {
        assert_eq!(next_limit(256, 256, 256 * 300), 2048, "at most eightfold");
        assert!(next_limit(65536, 65536, 65536 * 300) as u64 * 348 <= PAGE_BYTES_WANTED);
        assert_eq!(next_limit(64, 64, 64 << 20), 5);
        assert_eq!(next_limit(5, 5, 50 << 20), 1);
        assert_eq!(next_limit(1, 1, 10 << 20), 1);
        assert_eq!(next_limit(1, 0, 0), 8);
        assert_eq!(next_limit(i64::MAX, 1, 1), LIMIT_MAX);
    }
}
