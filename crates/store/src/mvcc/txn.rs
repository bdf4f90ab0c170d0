//! Transactions: comparing, checking everything before anything is applied, then applying.

use bytes::Bytes;
use quantykube_etcd_api::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, Request,
    RequestOp, Response, ResponseHeader, ResponseOp, TargetUnion, TxnRequest, TxnResponse,
};
use quantykube_store_file::{Queued, Revision, Store, Transaction, Version};

use super::watch::{Pending, What};
use super::{Error, View, key_range};

/// Whether a transaction can change nothing, as etcd judges it: every operation is a range.
pub fn is_read_only(request: &TxnRequest) -> bool {
    let mut ops = request.success.iter().chain(&request.failure);
    ops.all(|op| matches!(op.request, Some(Request::Range(_))))
}

/// Which branch each transaction takes: its own first, then those nested in the branch taken, in order. All compares
/// see the store as it was before the whole transaction.
pub struct Path(Vec<bool>);

impl Path {
    /// Compares.
    pub fn of(view: View<'_>, request: &TxnRequest) -> Result<Path, Error> {
        let mut taken = Vec::new();
        take(view, request, &mut taken)?;
        Ok(Path(taken))
    }

    /// Walks a transaction along the path.
    fn walk(&self) -> Walk<'_> {
        Walk(self.0.iter())
    }
}

fn take(view: View<'_>, request: &TxnRequest, taken: &mut Vec<bool>) -> Result<(), Error> {
    let mut holds = true;
    for compare in &request.compare {
        if !compare_range(view, compare)? {
            holds = false;
            break;
        }
    }
    taken.push(holds);
    for op in if holds { &request.success } else { &request.failure } {
        if let Some(Request::Txn(nested)) = &op.request {
            take(view, nested, taken)?;
        }
    }
    Ok(())
}

/// The choices of a [`Path`], handed out in the order in which transactions are met.
struct Walk<'a>(std::slice::Iter<'a, bool>);

impl Walk<'_> {
    fn enter<'r>(&mut self, request: &'r TxnRequest) -> (bool, &'r [RequestOp]) {
        let succeeded = *self.0.next().expect("a path has a choice for every transaction on it");
        (succeeded, if succeeded { &request.success } else { &request.failure })
    }
}

fn compare_range(view: View<'_>, compare: &Compare) -> Result<bool, Error> {
    let range = key_range(&compare.key, &compare.range_end);
    let found = view.versions(&range, view.current, 0);
    let by_value = compare.target == CompareTarget::Value as i32;
    if found.is_empty() {
        // A key that is not there has no value at all, and zeros for the rest.
        return Ok(!by_value && holds(compare, None, &[]));
    }
    for (_, version) in &found {
        let value = if by_value {
            view.store.value(version)?
        } else {
            Bytes::new()
        };
        if !holds(compare, Some(version), &value) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn holds(compare: &Compare, version: Option<&Version>, value: &[u8]) -> bool {
    let number = |found: fn(&Version) -> i64| version.map(found).unwrap_or(0);
    let union = compare.target_union.as_ref();
    let ordering = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Value) => value.cmp(match union {
            Some(TargetUnion::Value(wanted)) => &wanted[..],
            _ => &[],
        }),
        Ok(CompareTarget::Version) => number(|v| v.version).cmp(match union {
            Some(TargetUnion::Version(wanted)) => wanted,
            _ => &0,
        }),
        Ok(CompareTarget::Create) => number(|v| v.create).cmp(match union {
            Some(TargetUnion::CreateRevision(wanted)) => wanted,
            _ => &0,
        }),
        Ok(CompareTarget::Mod) => number(|v| v.modified.main).cmp(match union {
            Some(TargetUnion::ModRevision(wanted)) => wanted,
            _ => &0,
        }),
        Ok(CompareTarget::Lease) => number(|v| v.lease).cmp(match union {
            Some(TargetUnion::Lease(wanted)) => wanted,
            _ => &0,
        }),
        Err(_) => std::cmp::Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => ordering.is_eq(),
        Ok(CompareResult::NotEqual) => ordering.is_ne(),
        Ok(CompareResult::Greater) => ordering.is_gt(),
        Ok(CompareResult::Less) => ordering.is_lt(),
        Err(_) => true,
    }
}

/// What the operations on a path may change at most.
#[derive(Default)]
pub struct Bounds {
    /// Changes of keys.
    pub changes: usize,
    /// Bytes of their keys and values.
    pub bytes: usize,
    /// Whether there is a put among them.
    pub puts: bool,
}

/// Checks every operation on the path against the store before the transaction, so that none can fail once one has
/// been applied.
pub fn check(view: View<'_>, first: i64, request: &TxnRequest, path: &Path) -> Result<Bounds, Error> {
    let mut bounds = Bounds::default();
    check_ops(view, first, request, &mut path.walk(), &mut bounds)?;
    if bounds.puts {
        // A delete later in the transaction may meet the keys put before it.
        bounds.changes *= 2;
    }
    Ok(bounds)
}

fn check_ops(
    view: View<'_>,
    first: i64,
    request: &TxnRequest,
    walk: &mut Walk<'_>,
    bounds: &mut Bounds,
) -> Result<(), Error> {
    let (_, ops) = walk.enter(request);
    for op in ops {
        match &op.request {
            Some(Request::Range(range)) => {
                if range.revision > view.current {
                    return Err(Error::FutureRevision);
                }
                if range.revision != 0 && range.revision < first {
                    return Err(Error::Compacted);
                }
            }
            Some(Request::Put(put)) => {
                check_put(view, put)?;
                bounds.puts = true;
                bounds.changes += 1;
                // An ignored value is written again, and a later delete names the key again.
                let value = match put.ignore_value {
                    true => view
                        .store
                        .get(&put.key, view.current)
                        .map_or(0, |v| v.value.len as usize),
                    false => put.value.len(),
                };
                bounds.bytes += 2 * put.key.len() + value;
            }
            Some(Request::DeleteRange(delete)) => {
                let range = key_range(&delete.key, &delete.range_end);
                for (key, _) in view.versions(&range, view.current, 0) {
                    bounds.changes += 1;
                    bounds.bytes += key.len();
                }
            }
            Some(Request::Txn(nested)) => check_ops(view, first, nested, walk, bounds)?,
            None => {}
        }
    }
    Ok(())
}

/// Checks a put against the store: what it wants to keep must be there, and so must its lease.
pub fn check_put(view: View<'_>, request: &PutRequest) -> Result<(), Error> {
    if (request.ignore_value || request.ignore_lease) && view.store.get(&request.key, view.current).is_none() {
        return Err(Error::KeyNotFound);
    }
    if request.lease != 0 && view.store.lease(request.lease).is_none() {
        return Err(Error::LeaseNotFound);
    }
    Ok(())
}

/// A transaction being applied: what it changes in the store, and the events it makes.
pub struct Writer<'a, 'e> {
    transaction: Transaction<'a>,
    base: i64,
    changes: u32,
    events: &'e mut Vec<Pending>,
}

impl<'a, 'e> Writer<'a, 'e> {
    /// Begins; `spare` allows the space that is kept for deleting.
    pub fn begin(
        store: &'a mut Store,
        changes: usize,
        bytes: usize,
        spare: bool,
        events: &'e mut Vec<Pending>,
    ) -> Result<Writer<'a, 'e>, Error> {
        let base = store.revision();
        let transaction = store.begin(changes, bytes, spare).map_err(|error| match error {
            quantykube_store_file::Error::NoSpace { .. } => Error::NoSpace,
            error => Error::File(error),
        })?;
        Ok(Writer {
            transaction,
            base,
            changes: 0,
            events,
        })
    }

    /// What the operations of this transaction see: its own changes too.
    pub fn view(&self) -> View<'_> {
        View {
            store: self.transaction.store(),
            current: self.revision(),
        }
    }

    /// The revision that responses name: the next one as soon as something has changed.
    pub fn revision(&self) -> i64 {
        if self.changes == 0 { self.base } else { self.base + 1 }
    }

    /// Queues what was changed.
    pub fn commit(self) -> Result<Queued, Error> {
        Ok(self.transaction.commit()?)
    }

    /// Ends a lease together with its keys, in order.
    pub fn end_lease(&mut self, id: i64) {
        let (events, changes) = (&mut *self.events, &mut self.changes);
        self.transaction.end_lease_and_keys(id, &mut |key, revision| {
            *changes += 1;
            events.push(Pending {
                key,
                revision,
                what: What::Delete,
            });
        });
    }

    fn next_revision(&mut self) -> Revision {
        let sub = self.changes;
        self.changes += 1;
        Revision {
            main: self.base + 1,
            sub,
        }
    }

    fn delete(&mut self, key: &Bytes) -> bool {
        let deleted = self.transaction.delete(key);
        if deleted {
            let revision = self.next_revision();
            self.events.push(Pending {
                key: key.clone(),
                revision,
                what: What::Delete,
            });
        }
        deleted
    }

    /// Applies a put that was checked.
    pub fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Error> {
        let view = self.view();
        let previous = match request.prev_kv || request.ignore_value || request.ignore_lease {
            true => view.store.get(&request.key, view.current),
            false => None,
        };
        let prev_kv = match (&previous, request.prev_kv || request.ignore_value) {
            (Some(version), true) => Some(view.key_value(request.key.clone(), version)?),
            _ => None,
        };
        let value = match (&prev_kv, request.ignore_value) {
            (Some(kept), true) => kept.value.clone(),
            _ => request.value.clone(),
        };
        let lease = match (&previous, request.ignore_lease) {
            (Some(version), true) => version.lease,
            _ => request.lease,
        };
        let version = self.transaction.put(request.key.clone(), value.clone(), lease);
        let revision = self.next_revision();
        self.events.push(Pending {
            key: request.key.clone(),
            revision,
            what: What::Put { value, version },
        });
        Ok(PutResponse {
            header: header(self.revision()),
            prev_kv: prev_kv.filter(|_| request.prev_kv),
        })
    }

    /// Applies a delete.
    pub fn delete_range(&mut self, request: &DeleteRangeRequest) -> Result<DeleteRangeResponse, Error> {
        let view = self.view();
        let range = key_range(&request.key, &request.range_end);
        let found = view.versions(&range, view.current, 0);
        let mut prev_kvs = Vec::new();
        if request.prev_kv {
            for (key, version) in &found {
                prev_kvs.push(view.key_value(key.clone(), version)?);
            }
        }
        for (key, _) in &found {
            self.delete(key);
        }
        Ok(DeleteRangeResponse {
            header: header(self.revision()),
            deleted: found.len() as i64,
            prev_kvs,
        })
    }

    /// Applies a transaction that was checked, along its path. An error after the first change cannot be taken back.
    pub fn txn(&mut self, request: &TxnRequest, path: &Path) -> Result<TxnResponse, Error> {
        let mut response = self.ops(request, &mut path.walk())?;
        response.header = header(self.revision());
        Ok(response)
    }

    /// Whether something has changed.
    pub fn changed(&self) -> bool {
        self.changes != 0
    }

    fn ops(&mut self, request: &TxnRequest, walk: &mut Walk<'_>) -> Result<TxnResponse, Error> {
        let (succeeded, ops) = walk.enter(request);
        let mut responses = Vec::with_capacity(ops.len());
        for op in ops {
            let response = match &op.request {
                Some(Request::Range(range)) => Some(Response::Range(self.view().range(range)?)),
                Some(Request::Put(put)) => Some(Response::Put(self.put(put)?)),
                Some(Request::DeleteRange(delete)) => Some(Response::DeleteRange(self.delete_range(delete)?)),
                Some(Request::Txn(nested)) => Some(Response::Txn(self.ops(nested, walk)?)),
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse {
            header: Some(ResponseHeader::default()),
            succeeded,
            responses,
        })
    }
}

/// Serves a transaction that only reads.
pub fn read(view: View<'_>, request: &TxnRequest, path: &Path) -> Result<TxnResponse, Error> {
    let (succeeded, ops) = path.walk().enter(request);
    let mut responses = Vec::with_capacity(ops.len());
    for op in ops {
        if let Some(Request::Range(range)) = &op.request {
            responses.push(ResponseOp {
                response: Some(Response::Range(view.range(range)?)),
            });
        }
    }
    Ok(TxnResponse {
        header: header(view.current),
        succeeded,
        responses,
    })
}

/// A header with a revision; the rest is filled in at the border.
pub fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader {
        revision,
        ..Default::default()
    })
}
