//! Leases: granting, keeping alive, revoking, ending.

use quantykube_etcd_api::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseLeasesResponse, LeaseStatus, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
};
use quantykube_store_file::Lease;

use super::lease::{Now, TTL_MAX_S, TTL_MIN_S};
use super::{Applied, Error, Mvcc, QUOTA_LEASE_BYTES, header};

/// Most leases ended in one go, so that many that end at once hold nobody up.
const EXPIRE_AT_ONCE: usize = 16;

/// Index into [`super::Counts::leases`].
const GRANTED: usize = 0;
const REVOKED: usize = 1;
const RENEWED: usize = 2;
const EXPIRED: usize = 3;

impl Mvcc {
    /// Grants a lease. `fresh` is the id to use when the client names none.
    pub fn lease_grant(
        &mut self,
        request: &LeaseGrantRequest,
        fresh: i64,
        now: Now,
    ) -> Result<Applied<LeaseGrantResponse>, Error> {
        self.check_quota(QUOTA_LEASE_BYTES)?;
        self.check_alarms(true)?;
        let id = if request.id == 0 { fresh } else { request.id };
        if request.ttl > TTL_MAX_S {
            return Err(Error::TtlTooLarge);
        }
        if self.store.lease(id).is_some() {
            return Err(Error::LeaseExists);
        }
        let ttl = request.ttl.max(TTL_MIN_S);
        let wait = self.keep_lease(id, ttl, now)?;
        self.counts.leases[GRANTED] += 1;
        let response = LeaseGrantResponse {
            header: header(self.store.revision()),
            id,
            ttl,
            error: String::new(),
        };
        Ok(self.applied(wait, response))
    }

    /// Renews a lease: its TTL, or 0 when there is no such lease (also once its deadline has passed).
    pub fn lease_renew(&mut self, id: i64, now: Now) -> Result<Applied<i64>, Error> {
        let Some(lease) = self.store.lease(id) else {
            return Ok(self.applied(self.queued, 0));
        };
        if self.is_due(id, now) {
            return Ok(self.applied(self.queued, 0));
        }
        let wait = self.keep_lease(id, lease.granted_ttl, now)?;
        self.counts.leases[RENEWED] += 1;
        Ok(self.applied(wait, lease.granted_ttl))
    }

    /// Revokes a lease and deletes its keys, in order and in one revision. Gives the revision after it.
    pub fn lease_revoke(&mut self, id: i64) -> Result<Applied<i64>, Error> {
        self.check_alarms(false)?;
        let wait = self.end_lease(id)?;
        self.counts.leases[REVOKED] += 1;
        let revision = self.store.revision();
        Ok(self.applied(wait, revision))
    }

    /// How long a lease still lasts; None when there is no such lease.
    pub fn lease_time_to_live(
        &mut self,
        request: &LeaseTimeToLiveRequest,
        now: Now,
    ) -> Result<Applied<Option<LeaseTimeToLiveResponse>>, Error> {
        let found = self.store.lease(request.id).map(|lease| {
            let left = self.deadlines.get(request.id).map_or(0, |at| (at - now.steady).max(0));
            LeaseTimeToLiveResponse {
                header: header(self.visible),
                id: request.id,
                ttl: left / 1000,
                granted_ttl: lease.granted_ttl,
                keys: if request.keys {
                    self.store.lease_keys(request.id)
                } else {
                    Vec::new()
                },
            }
        });
        Ok(self.applied(self.queued, found))
    }

    /// All leases, the next to end first.
    pub fn lease_list(&mut self) -> Applied<LeaseLeasesResponse> {
        let leases = self.deadlines.ids().into_iter().map(|id| LeaseStatus { id }).collect();
        let response = LeaseLeasesResponse {
            header: header(self.visible),
            leases,
        };
        self.applied(self.queued, response)
    }

    /// Ends some of the leases that are due; true while more are. After an import nothing ends before the first write
    /// of a client: the revision must not move without one, or the way back to the old store would be closed.
    pub fn expire_leases(&mut self, now: Now) -> Result<bool, Error> {
        if self.store.untouched_import().is_some() {
            return Ok(false);
        }
        let due = self.deadlines.due(now.steady, EXPIRE_AT_ONCE);
        for id in &due {
            match self.end_lease(*id) {
                Ok(_) => self.counts.leases[EXPIRED] += 1,
                // No room even in the spare: try again later.
                Err(Error::NoSpace) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(due.len() == EXPIRE_AT_ONCE)
    }

    fn is_due(&self, id: i64, now: Now) -> bool {
        self.deadlines.get(id).is_none_or(|at| at <= now.steady)
    }

    fn keep_lease(&mut self, id: i64, granted_ttl: i64, now: Now) -> Result<u64, Error> {
        let whole = granted_ttl.saturating_mul(1000);
        let lease = Lease {
            id,
            granted_ttl,
            deadline_ms: now.wall.saturating_add(whole),
        };
        let queued = match self.store.put_lease(lease) {
            Err(quantykube_store_file::Error::NoSpace { .. }) => {
                self.raise_no_space()?;
                return Err(Error::NoSpace);
            }
            queued => queued?,
        };
        self.queued = self.queued.max(queued.seq);
        self.deadlines.set(id, now.steady.saturating_add(whole));
        Ok(queued.seq)
    }

    fn end_lease(&mut self, id: i64) -> Result<u64, Error> {
        if self.store.lease(id).is_none() {
            self.deadlines.remove(id);
            return Err(Error::LeaseNotFound);
        }
        let (keys, bytes) = self.store.lease_size(id);
        let ((), wait) = self.write(keys + 1, bytes, true, |writer| {
            writer.end_lease(id);
            Ok(())
        })?;
        self.deadlines.remove(id);
        Ok(wait)
    }
}
