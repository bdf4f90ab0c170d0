//! Every key of an etcd, page by page, at one revision.

use etcd_client::{GetOptions, KeyValue, KvClient};

use crate::connect::Connection;
use crate::error::{Error, call_failed};

/// The most bytes of one page, as etcd sends it. Only a page of a single key may be larger.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

/// What the next page aims at: values grow from key to key, and a page that comes out too large is read again.
const PAGE_BYTES_WANTED: u64 = 7 << 20;
/// Where nothing is known of the values yet, a page is small: etcd builds it whole in memory, whatever comes of it.
const FIRST_LIMIT: i64 = 64;
/// A page grows at most so much from one to the next.
const GROWTH_MAX: i64 = 8;
/// Keys and values are never smaller than this together with their revisions.
const LIMIT_MAX: i64 = 64 << 10;

/// Keys in order, all as they were at one revision.
pub(crate) struct Page {
    pub records: Vec<KeyValue>,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Reads pages at the revision that etcd has when the first one is read.
///
/// A page ends where the kind of its keys ends (`/registry/pods/`): values of one kind are of one size, and etcd counts
/// every key up to the end of what is asked for with every page.
pub(crate) struct Pager {
    endpoint: String,
    narrow: KvClient,
    /// For the page that holds one key only, whatever its size.
    wide: KvClient,
    revision: i64,
    start: Vec<u8>,
    /// Where the kind that is being read ends; None to read on into whatever comes.
    bound: Option<Vec<u8>>,
    limit: i64,
    keys: u64,
    total: Option<u64>,
    done: bool,
}

impl Pager {
    /// Begins before the first key.
    pub fn at_head(connection: &Connection) -> Pager {
        let client = connection.client.kv_client();
        Pager {
            endpoint: connection.endpoint.clone(),
            narrow: client.clone().max_decoding_message_size(PAGE_BYTES_MAX),
            wide: client.max_decoding_message_size(i32::MAX as usize),
            revision: 0,
            start: vec![0],
            bound: None,
            limit: FIRST_LIMIT,
            keys: 0,
            total: None,
            done: false,
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

    /// The next page, or None after the last. Only the first page may be empty.
    pub async fn next(&mut self) -> Result<Option<Page>, Error> {
        while !self.done {
            let page = self.read().await?;
            if !page.records.is_empty() || self.done {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<Page, Error> {
        loop {
            let options = GetOptions::new().with_limit(self.limit).with_revision(self.revision);
            let options = match &self.bound {
                Some(end) => options.with_range(end.clone()),
                None => options.with_from_key(),
            };
            let options = match self.revision {
                0 => options,
                // This member has shown that it has the revision, so it need not ask the others again.
                _ => options.with_serializable(),
            };
            let client = if self.limit == 1 {
                &mut self.wide
            } else {
                &mut self.narrow
            };
            match client.get(self.start.clone(), Some(options)).await {
                Ok(answer) => return self.take(answer),
                Err(error) => match refused_bytes(&error) {
                    Some(found) if self.limit > 1 => self.limit = smaller_limit(self.limit, found),
                    _ => return Err(call_failed(&self.endpoint, "reading its keys", self.revision, error)),
                },
            }
        }
    }

    fn take(&mut self, mut answer: etcd_client::GetResponse) -> Result<Page, Error> {
        let records = answer.take_kvs();
        let count = answer.count().max(0) as u64;
        if self.total.is_none() {
            self.revision = answer
                .header()
                .map(etcd_client::ResponseHeader::revision)
                .filter(|revision| *revision > 0)
                .ok_or_else(|| self.impossible("a page without a revision".to_owned()))?;
            self.total = Some(count);
        }
        let left = self.total().saturating_sub(self.keys);
        if count > left || (self.bound.is_none() && count < left) {
            return Err(self.impossible(format!(
                "{count} keys are left at revision {}, not {left}",
                self.revision
            )));
        }
        let bytes: u64 = records
            .iter()
            .map(|record| (record.key().len() + record.value().len()) as u64)
            .sum();
        self.keys += records.len() as u64;
        self.limit = next_limit(self.limit, records.len() as u64, bytes);
        match (answer.more(), records.last()) {
            (true, Some(last)) => {
                self.start.clear();
                self.start.extend_from_slice(last.key());
                self.start.push(0);
                self.bound = kind_end(last.key());
            }
            (true, None) => return Err(self.impossible("an empty page with more behind it".to_owned())),
            (false, _) => match self.bound.take() {
                Some(end) => {
                    self.start = end;
                    self.limit = self.limit.min(FIRST_LIMIT);
                    self.done = self.keys == self.total();
                }
                None => self.done = true,
            },
        }
        if self.done && self.keys != self.total() {
            return Err(self.impossible(format!("{} keys came, not {}", self.keys, self.total())));
        }
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

/// How many keys are asked for after a page of `limit` keys came to `found` bytes, too many.
fn smaller_limit(limit: i64, found: u64) -> i64 {
    let fits = (limit as u128 * u128::from(PAGE_BYTES_WANTED) / u128::from(found.max(1))) as i64;
    fits.clamp(1, (limit / 2).max(1))
}

/// The end of the keys that begin as `key` does up to its third slash; None for a key without a kind.
fn kind_end(key: &[u8]) -> Option<Vec<u8>> {
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let (last, _) = slashes.take(3).last()?;
    let mut end = key[..last].to_vec();
    // The byte after the slash: the first key that does not begin so.
    end.push(b'/' + 1);
    Some(end)
}

/// The size of a message that was refused by its length, before it was read; None for any other error.
fn refused_bytes(error: &etcd_client::Error) -> Option<u64> {
    let etcd_client::Error::GRpcStatus(status) = error else {
        return None;
    };
    let (_, found) = status.message().split_once("message length too large: found ")?;
    let digits = found.split(' ').next().unwrap_or_default();
    // The number is a help only: without it the page is halved.
    Some(digits.parse().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_size_of_values() {
        assert_eq!(next_limit(64, 64, 64 * 300), 512, "at most eightfold");
        assert!(next_limit(65536, 65536, 65536 * 300) as u64 * 348 <= PAGE_BYTES_WANTED);
        assert_eq!(next_limit(64, 64, 64 << 20), 6);
        assert_eq!(next_limit(5, 5, 50 << 20), 1);
        assert_eq!(next_limit(1, 1, 10 << 20), 1);
        assert_eq!(next_limit(1, 0, 0), 8);
        assert_eq!(next_limit(i64::MAX, 1, 1), LIMIT_MAX);
    }

    #[test]
    fn a_refused_page_shrinks_to_what_fits() {
        assert_eq!(smaller_limit(64, 64 << 20), 7);
        assert_eq!(smaller_limit(1000, (8 << 20) + 1), 500, "at least to its half");
        assert_eq!(smaller_limit(2, 1 << 40), 1);
        assert_eq!(smaller_limit(3, 1), 1);
        let refused = tonic::Status::out_of_range(
            "Error, decoded message length too large: found 9000000 bytes, the limit is: 8388608 bytes",
        );
        assert_eq!(refused_bytes(&etcd_client::Error::GRpcStatus(refused)), Some(9_000_000));
        let other = tonic::Status::out_of_range("etcdserver: mvcc: required revision has been compacted");
        assert_eq!(refused_bytes(&etcd_client::Error::GRpcStatus(other)), None);
    }

    #[test]
    fn the_kind_of_a_key_is_its_first_two_names() {
        let end = |key: &str| kind_end(key.as_bytes()).map(|end| String::from_utf8(end).unwrap());
        assert_eq!(end("/registry/pods/kube-system/etcd").unwrap(), "/registry/pods0");
        assert_eq!(end("/registry/pods/").unwrap(), "/registry/pods0");
        assert_eq!(end("/registry/pods").unwrap(), "/registry0");
        assert_eq!(end("/registry").unwrap(), "0");
        assert_eq!(end("a/b").unwrap(), "a0");
        assert_eq!(end("compact_rev_key"), None);
        assert_eq!(end(""), None);
    }
}
