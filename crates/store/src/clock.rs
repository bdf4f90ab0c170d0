//! The clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::mvcc::Now;

/// This moment, by the wall clock and by the clock that counts on through sleep and never jumps.
pub fn now() -> Now {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64);
    let boot = clock_gettime(ClockId::Boottime);
    Now {
        wall,
        steady: boot.tv_sec * 1000 + boot.tv_nsec / 1_000_000,
    }
}
