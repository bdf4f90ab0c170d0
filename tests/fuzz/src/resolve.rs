//! From steps to requests: names of revisions become numbers.

use std::collections::HashMap;

use quantykube_etcd_api as api;

use crate::names::{Rev, spell};
use crate::step::{Compare, Delete, Op, Put, Range, Txn, Watch};

/// What both servers are known to have.
#[derive(Clone, Debug)]
pub struct Known {
    /// The last revision.
    pub head: i64,
    /// The compacted revision.
    pub compacted: i64,
    /// The revision of each key's last plain put.
    pub put: HashMap<String, i64>,
}

impl Known {
    /// Of fresh servers.
    pub fn fresh() -> Known {
        Known {
            head: 1,
            compacted: 0,
            put: HashMap::new(),
        }
    }

    /// The number of a revision.
    pub fn rev(&self, rev: &Rev) -> i64 {
        match rev {
            Rev::Zero => 0,
            Rev::Raw(number) => *number,
            Rev::Head(by) => self.head + by,
            Rev::Compacted(by) => self.compacted + by,
            Rev::Part(part) => {
                let first = self.compacted.max(1);
                first + (self.head - first) * i64::from(*part) / 100
            }
            Rev::Of(key) => self.put.get(key).copied().unwrap_or(0),
        }
    }

    /// A range request.
    pub fn range(&self, range: &Range) -> api::RangeRequest {
        api::RangeRequest {
            key: spell(&range.key),
            range_end: spell(&range.end),
            limit: range.limit,
            revision: self.rev(&range.rev),
            sort_order: range.order,
            sort_target: range.by,
            serializable: range.serializable,
            keys_only: range.keys_only,
            count_only: range.count_only,
            min_mod_revision: self.rev(&range.min_mod),
            max_mod_revision: self.rev(&range.max_mod),
            min_create_revision: self.rev(&range.min_create),
            max_create_revision: self.rev(&range.max_create),
        }
    }

    /// A put request.
    pub fn put(&self, put: &Put) -> api::PutRequest {
        api::PutRequest {
            key: spell(&put.key),
            value: spell(&put.value),
            lease: put.lease,
            prev_kv: put.prev_kv,
            ignore_value: put.ignore_value,
            ignore_lease: put.ignore_lease,
        }
    }

    /// A delete request.
    pub fn delete(&self, delete: &Delete) -> api::DeleteRangeRequest {
        api::DeleteRangeRequest {
            key: spell(&delete.key),
            range_end: spell(&delete.end),
            prev_kv: delete.prev_kv,
        }
    }

    fn compare(&self, compare: &Compare) -> api::Compare {
        let union = if let Some(version) = compare.version {
            Some(api::TargetUnion::Version(version))
        } else if let Some(rev) = &compare.create {
            Some(api::TargetUnion::CreateRevision(self.rev(rev)))
        } else if let Some(rev) = &compare.modified {
            Some(api::TargetUnion::ModRevision(self.rev(rev)))
        } else if let Some(value) = &compare.value {
            Some(api::TargetUnion::Value(spell(value)))
        } else {
            compare.lease.map(api::TargetUnion::Lease)
        };
        api::Compare {
            result: compare.result,
            target: compare.target,
            key: spell(&compare.key),
            range_end: spell(&compare.end),
            target_union: union,
        }
    }

    /// A transaction.
    pub fn txn(&self, txn: &Txn) -> api::TxnRequest {
        let ops = |ops: &[Op]| {
            ops.iter()
                .map(|op| api::RequestOp {
                    request: match op {
                        Op::Range(range) => Some(api::Request::Range(self.range(range))),
                        Op::Put(put) => Some(api::Request::Put(self.put(put))),
                        Op::Delete(delete) => Some(api::Request::DeleteRange(self.delete(delete))),
                        Op::Txn(txn) => Some(api::Request::Txn(self.txn(txn))),
                        Op::Nothing => None,
                    },
                })
                .collect()
        };
        api::TxnRequest {
            compare: txn.compare.iter().map(|compare| self.compare(compare)).collect(),
            success: ops(&txn.success),
            failure: ops(&txn.failure),
        }
    }

    /// A watch to create.
    pub fn watch(&self, watch: &Watch) -> api::WatchCreateRequest {
        api::WatchCreateRequest {
            key: spell(&watch.key),
            range_end: spell(&watch.end),
            start_revision: self.rev(&watch.start),
            progress_notify: watch.progress,
            filters: watch.filters.clone(),
            prev_kv: watch.prev_kv,
            watch_id: watch.id,
            fragment: watch.fragment,
        }
    }
}
