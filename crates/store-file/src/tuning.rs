//! Sizes and times that tests want smaller.

use std::time::Duration;

/// What the store may be told beyond its options. The defaults are for production; tests take smaller ones.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Bytes of a segment, a multiple of 4096; fixed when the file is made.
    pub segment_bytes: u32,
    /// Bytes of written frames kept in memory for reads.
    pub recent_bytes: usize,
    /// Bytes of log after which a checkpoint is due (or twice the last checkpoint's size, if that is more).
    pub checkpoint_log_bytes: u64,
    /// Bytes of background work that may wait for the writer at once.
    pub background_bytes: usize,
    /// How long a version that was given out stays readable after its value was moved, while space is not short.
    pub grace: Duration,
    /// How long the writer is idle before it leaves a mark.
    pub idle: Duration,
    /// A writer thread; without one nothing is written before [`crate::Store::sync`] (for tests that need an order).
    pub threaded: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            segment_bytes: 8 << 20,
            recent_bytes: 16 << 20,
            checkpoint_log_bytes: 64 << 20,
            background_bytes: 512 << 10,
            grace: Duration::from_secs(20),
            idle: Duration::from_millis(200),
            threaded: true,
        }
    }
}

impl Tuning {
    /// Small segments, early checkpoints, no thread: everything happens within a few kilobytes and in a fixed order.
    pub fn small() -> Tuning {
        Tuning {
            segment_bytes: 8192,
            recent_bytes: 4096,
            checkpoint_log_bytes: 16384,
            background_bytes: 4096,
            grace: Duration::ZERO,
            idle: Duration::from_millis(1),
            threaded: false,
        }
    }
}
