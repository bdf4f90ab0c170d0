//! Counts for metrics.

use std::time::Duration;

/// Counts since the start, for metrics.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Syncs done.
    pub syncs: u64,
    /// Sum of the syncs' durations, in seconds.
    pub sync_seconds: f64,
    /// Syncs by duration: `(upper bound in seconds, count at or below it)`, the bounds etcd uses (0.001 * 2^n, 14 of them).
    pub sync_buckets: Vec<(f64, u64)>,
    /// Bytes written to the log.
    pub bytes_written: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
}

impl Stats {
    pub(crate) fn new() -> Stats {
        Stats {
            sync_buckets: (0..14).map(|n| (0.001 * f64::from(1 << n), 0)).collect(),
            ..Stats::default()
        }
    }

    pub(crate) fn add_sync(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        self.syncs += 1;
        self.sync_seconds += seconds;
        for (bound, count) in &mut self.sync_buckets {
            if seconds <= *bound {
                *count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut stats = Stats::new();
        stats.add_sync(Duration::from_micros(1500));
        stats.add_sync(Duration::from_secs(100));
        assert_eq!(stats.sync_buckets.len(), 14);
        assert_eq!((stats.sync_buckets[0].1, stats.sync_buckets[1].1), (0, 1));
        assert_eq!(stats.sync_buckets[13], (8.192, 1));
        assert_eq!(stats.syncs, 2);
    }
}
