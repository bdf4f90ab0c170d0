//! Which requests are refused before anything is looked up: the checks etcd makes on the request alone.

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message;
use quantykube_etcd_api::{
    DeleteRangeRequest, PutRequest, RangeRequest, Request, RequestOp, SortOrder, SortTarget, TxnRequest,
};
use quantykube_store_file::{KeyRange, RangeEnd};

use super::Error;

/// Most operations of a transaction, nested ones included on their path.
pub const OPS_MAX: usize = 128;

/// What etcd adds to a write before it compares its size with the limit: the raft request's header.
const RAFT_HEADER_BYTES: usize = 14;

/// Checks a range request.
pub fn range(request: &RangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if SortOrder::try_from(request.sort_order).is_err() || SortTarget::try_from(request.sort_target).is_err() {
        return Err(Error::InvalidSort);
    }
    Ok(())
}

/// Checks a put request.
pub fn put(request: &PutRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

/// Checks a delete request.
pub fn delete_range(request: &DeleteRangeRequest) -> Result<(), Error> {
    if request.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    Ok(())
}

/// Checks a transaction: its shape first, then that no key is written twice.
pub fn txn(request: &TxnRequest) -> Result<(), Error> {
    txn_shape(request, OPS_MAX)?;
    intervals(&request.success)?;
    intervals(&request.failure)?;
    Ok(())
}

/// Refuses a write larger than `limit` bytes, counted as etcd counts it.
pub fn size(request: &impl Message, limit: usize) -> Result<(), Error> {
    let bytes = request.encoded_len();
    let framed = RAFT_HEADER_BYTES + 1 + prost::length_delimiter_len(bytes) + bytes;
    if framed > limit {
        Err(Error::RequestTooLarge)
    } else {
        Ok(())
    }
}

fn txn_shape(request: &TxnRequest, ops_max: usize) -> Result<(), Error> {
    let ops = request
        .compare
        .len()
        .max(request.success.len())
        .max(request.failure.len());
    if ops > ops_max {
        return Err(Error::TooManyOps);
    }
    if request.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(Request::Range(request)) => range(request)?,
            Some(Request::Put(request)) => put(request)?,
            Some(Request::DeleteRange(request)) => delete_range(request)?,
            Some(Request::Txn(request)) => txn_shape(request, ops_max - ops)?,
            None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// The keys put and the ranges deleted by one list of operations and the transactions nested in it.
#[derive(Default)]
struct Touched {
    puts: BTreeSet<Bytes>,
    deletes: Vec<KeyRange>,
}

impl Touched {
    fn deletes(&self, key: &[u8]) -> bool {
        self.deletes.iter().any(|range| range.contains(key))
    }
}

/// Finds a key that is put twice or both put and deleted, in etcd's order: the deletes of this level, then the nested
/// transactions (their two branches exclude each other), then the puts of this level.
fn intervals(ops: &[RequestOp]) -> Result<Touched, Error> {
    let mut touched = Touched::default();
    for op in ops {
        if let Some(Request::DeleteRange(request)) = &op.request {
            // The end "\0" (all keys from the start on) is no special case here: etcd takes it for a key below the
            // start, so that such a delete collides with no put, and the operations simply follow each other.
            let end = match request.range_end.is_empty() {
                true => RangeEnd::Single,
                false => RangeEnd::Before(request.range_end.clone()),
            };
            touched.deletes.push(KeyRange {
                start: request.key.clone(),
                end,
            });
        }
    }
    for op in ops {
        let Some(Request::Txn(request)) = &op.request else {
            continue;
        };
        let success = intervals(&request.success)?;
        let failure = intervals(&request.failure)?;
        for key in &success.puts {
            if touched.puts.contains(key) || touched.deletes(key) {
                return Err(Error::DuplicateKey);
            }
        }
        for key in &failure.puts {
            if touched.puts.contains(key) || touched.deletes(key) {
                return Err(Error::DuplicateKey);
            }
        }
        touched.puts.extend(success.puts);
        touched.puts.extend(failure.puts);
        touched.deletes.extend(success.deletes);
        touched.deletes.extend(failure.deletes);
    }
    for op in ops {
        let Some(Request::Put(request)) = &op.request else {
            continue;
        };
        if touched.deletes(&request.key) || !touched.puts.insert(request.key.clone()) {
            return Err(Error::DuplicateKey);
        }
    }
    Ok(touched)
}
