//! When leases end.
//!
//! The file holds each lease's deadline by the wall clock, so that it survives a restart. While the server runs, time
//! is counted by a clock that never jumps (it is handed in as [`Instant`]), so that a wall clock set forward ends
//! nothing at once.

use std::collections::{BTreeSet, HashMap};

use quantykube_store_file::Lease;

/// Milliseconds of a clock that counts on through sleep and never jumps.
pub type Instant = i64;

/// The shortest TTL, in seconds: what etcd makes of its default election timeout.
pub const TTL_MIN_S: i64 = 2;

/// The longest TTL, in seconds.
pub const TTL_MAX_S: i64 = 9_000_000_000;

/// A moment on both clocks, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Since the Unix epoch.
    pub wall: i64,
    /// By the clock that never jumps.
    pub steady: Instant,
}

/// The deadlines of all leases by the steady clock.
#[derive(Default)]
pub struct Deadlines {
    of: HashMap<i64, Instant>,
    order: BTreeSet<(Instant, i64)>,
}

impl Deadlines {
    /// Takes over the leases of a file that was just opened. A deadline that passed while the server was down is due
    /// now; none is further away than the whole TTL, however wrong the wall clock was or is.
    pub fn recover(leases: &[Lease], now: Now) -> Deadlines {
        let mut deadlines = Deadlines::default();
        for lease in leases {
            let whole = lease.granted_ttl.saturating_mul(1000);
            let remaining = lease.deadline_ms.saturating_sub(now.wall).clamp(0, whole);
            deadlines.set(lease.id, now.steady.saturating_add(remaining));
        }
        deadlines
    }

    /// Sets or moves a deadline.
    pub fn set(&mut self, id: i64, at: Instant) {
        self.remove(id);
        self.of.insert(id, at);
        self.order.insert((at, id));
    }

    /// Forgets a lease.
    pub fn remove(&mut self, id: i64) {
        if let Some(at) = self.of.remove(&id) {
            self.order.remove(&(at, id));
        }
    }

    /// When a lease ends.
    pub fn get(&self, id: i64) -> Option<Instant> {
        self.of.get(&id).copied()
    }

    /// The leases that are due, the longest due first, `limit` at most.
    pub fn due(&self, now: Instant, limit: usize) -> Vec<i64> {
        self.order
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(limit)
            .map(|(_, id)| *id)
            .collect()
    }

    /// All leases, the next to end first.
    pub fn ids(&self) -> Vec<i64> {
        self.order.iter().map(|(_, id)| *id).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: i64, granted_ttl: i64, deadline_ms: i64) -> Lease {
        Lease {
            id,
            granted_ttl,
            deadline_ms,
        }
    }

    #[test]
    fn a_deadline_survives_a_restart_and_a_wrong_wall_clock_adds_no_time() {
        let now = Now {
            wall: 1_000_000,
            steady: 50,
        };
        let leases = [lease(1, 10, 1_004_000), lease(2, 10, 900_000), lease(3, 10, 9_000_000)];
        let deadlines = Deadlines::recover(&leases, now);
        assert_eq!(deadlines.get(1), Some(4_050), "6 s had passed before the restart");
        assert_eq!(deadlines.get(2), Some(50), "ended while the server was down");
        assert_eq!(deadlines.get(3), Some(10_050), "never more than the whole TTL");
        assert_eq!(deadlines.due(4_050, 9), [2, 1]);
        assert_eq!(deadlines.due(4_050, 1), [2]);
        assert_eq!(deadlines.ids(), [2, 1, 3]);
    }

    #[test]
    fn a_moved_deadline_is_due_once() {
        let mut deadlines = Deadlines::default();
        deadlines.set(7, 100);
        deadlines.set(7, 200);
        assert!(deadlines.due(150, 9).is_empty());
        assert_eq!(deadlines.due(200, 9), [7]);
        deadlines.remove(7);
        assert_eq!(deadlines.len(), 0);
        assert!(deadlines.due(i64::MAX, 9).is_empty());
    }
}
