//! Counts, and the page that shows them under etcd's names wherever the meaning is the same.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use quantykube_etcd_api::{AlarmType, METHODS};
use tonic::Code;

use crate::engine::Engine;
use crate::version::{ETCD_VERSION, OWN_VERSION};

/// gRPC's codes in their numeric order.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

static HEALTHY: AtomicU64 = AtomicU64::new(0);
static UNHEALTHY: AtomicU64 = AtomicU64::new(0);

/// Notes the outcome of a health check.
pub fn health_checked(healthy: bool) {
    let counter = if healthy { &HEALTHY } else { &UNHEALTHY };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts of gRPC calls by method and code.
pub struct Calls {
    rows: Vec<Row>,
}

struct Row {
    path: String,
    service: &'static str,
    method: &'static str,
    kind: &'static str,
    started: AtomicU64,
    handled: [AtomicU64; CODES.len()],
}

impl Calls {
    /// All methods, nothing counted.
    pub fn new() -> Calls {
        let mut rows: Vec<Row> = Vec::new();
        for (service, method, kind) in METHODS {
            rows.push(Row {
                path: format!("/{service}/{method}"),
                service,
                method,
                kind,
                started: AtomicU64::new(0),
                handled: [const { AtomicU64::new(0) }; CODES.len()],
            });
        }
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        Calls { rows }
    }

    /// The method of a path.
    pub fn find(&self, path: &str) -> Option<usize> {
        self.rows.binary_search_by(|row| row.path.as_str().cmp(path)).ok()
    }

    /// Whether there is such a service.
    pub fn has_service(&self, service: &str) -> bool {
        self.rows.iter().any(|row| row.service == service)
    }

    /// Notes that a call began.
    pub fn started(&self, call: usize) {
        self.rows[call].started.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how a call ended; of a stream, how it began.
    pub fn handled(&self, call: usize, code: Code) {
        self.rows[call].handled[code as i32 as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The page.
pub fn text(engine: &Engine, calls: &Calls) -> String {
    let mut page = Page::default();
    let Ok(state) = engine.lock() else {
        page.gauge("etcd_server_has_leader", "Whether the store serves.", 0);
        return page.0;
    };
    let (sizes, stats, counts, figures) = (state.sizes(), state.stats(), state.counts(), state.watch_figures());
    let (visible, compacted, keys, quota) = (state.visible(), state.compacted(), state.keys(), state.limits().quota);
    let durable = state.durable();
    let leases = state.lease_count();
    let alarms = state.alarms();
    drop(state);

    page.gauge(
        "etcd_server_has_leader",
        "Whether a leader exists: 1 while the store serves.",
        1,
    );
    page.gauge("etcd_server_is_leader", "Whether this member is the leader.", 1);
    page.gauge("etcd_server_is_learner", "Whether this member is a learner.", 0);
    page.counter("etcd_server_leader_changes_seen_total", "Leader changes seen.", 1);
    page.counter("etcd_server_proposals_failed_total", "Failed proposals.", 0);
    page.gauge("etcd_server_proposals_pending", "Proposals that wait.", 0);
    page.gauge("etcd_server_proposals_committed_total", "Frames synced.", durable.seq);
    page.gauge("etcd_server_proposals_applied_total", "Frames applied.", durable.seq);
    page.gauge(
        "etcd_server_quota_backend_bytes",
        "The quota in bytes, 0 for none.",
        quota,
    );
    page.counter(
        "etcd_server_health_success",
        "Successful health checks.",
        HEALTHY.load(Ordering::Relaxed),
    );
    page.counter(
        "etcd_server_health_failures",
        "Failed health checks.",
        UNHEALTHY.load(Ordering::Relaxed),
    );
    page.labelled(
        "etcd_server_version",
        "The etcd whose API is served, 1.",
        &format!("server_version=\"{ETCD_VERSION}\""),
        1,
    );
    page.labelled(
        "quantykube_store_version",
        "Our own version, 1.",
        &format!("version=\"{OWN_VERSION}\""),
        1,
    );

    let raised = |kind: AlarmType| u64::from(alarms.iter().any(|alarm| alarm.alarm == kind as i32));
    page.head("quantykube_store_alarm", "Whether an alarm is raised.", "gauge");
    for (name, kind) in [("NOSPACE", AlarmType::NoSpace), ("CORRUPT", AlarmType::Corrupt)] {
        page.row("quantykube_store_alarm", &format!("alarm=\"{name}\""), raised(kind));
    }

    page.gauge(
        "etcd_mvcc_db_total_size_in_bytes",
        "Bytes the file takes.",
        sizes.allocated,
    );
    page.gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "Bytes in use in the file.",
        sizes.in_use,
    );
    page.counter("etcd_mvcc_put_total", "Puts.", counts.puts);
    page.counter("etcd_mvcc_delete_total", "Deletes.", counts.deletes);
    page.counter("etcd_mvcc_range_total", "Ranges.", counts.ranges);
    page.counter("etcd_mvcc_txn_total", "Transactions.", counts.txns);
    page.gauge("etcd_debugging_mvcc_keys_total", "Live keys.", keys);
    page.gauge(
        "etcd_debugging_mvcc_current_revision",
        "The current revision.",
        visible as u64,
    );
    page.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "The compacted revision.",
        compacted as u64,
    );
    page.counter(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        "Bytes of keys and values put.",
        counts.put_bytes,
    );
    page.gauge(
        "etcd_debugging_mvcc_watch_stream_total",
        "Watch streams.",
        figures.streams as u64,
    );
    page.gauge("etcd_debugging_mvcc_watcher_total", "Watches.", figures.watchers as u64);
    page.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Watches that are behind.",
        figures.slow as u64,
    );
    page.counter(
        "etcd_debugging_mvcc_events_total",
        "Events sent to watches.",
        figures.events,
    );
    page.gauge(
        "etcd_debugging_mvcc_pending_events_total",
        "Watch responses that wait.",
        figures.pending as u64,
    );
    page.gauge("etcd_debugging_lease_total", "Leases.", leases as u64);
    page.counter(
        "etcd_debugging_lease_granted_total",
        "Leases granted.",
        counts.leases[0],
    );
    page.counter(
        "etcd_debugging_lease_revoked_total",
        "Leases revoked.",
        counts.leases[1],
    );
    page.counter(
        "etcd_debugging_lease_renewed_total",
        "Leases renewed.",
        counts.leases[2],
    );
    page.counter(
        "etcd_debugging_server_lease_expired_total",
        "Leases ended by time.",
        counts.leases[3],
    );

    // One sync is both the log's and the backend's.
    let buckets = &stats.sync_buckets;
    for name in [
        "etcd_disk_wal_fsync_duration_seconds",
        "etcd_disk_backend_commit_duration_seconds",
    ] {
        page.histogram(name, "Syncs of the file.", buckets, stats.sync_seconds, stats.syncs);
    }
    page.counter(
        "etcd_disk_wal_write_bytes_total",
        "Bytes written to the log.",
        stats.bytes_written,
    );
    page.counter(
        "quantykube_store_checkpoints_total",
        "Checkpoints finished.",
        stats.checkpoints,
    );
    page.calls(calls);
    page.process();
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn labelled(&mut self, name: &str, help: &str, labels: &str, value: u64) {
        self.head(name, help, "gauge");
        self.row(name, labels, value);
    }

    fn row(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: &[(f64, u64)], sum: f64, count: u64) {
        self.head(name, help, "histogram");
        for (bound, below) in buckets {
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(
            self.0,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
        );
    }

    fn calls(&mut self, calls: &Calls) {
        self.head("grpc_server_started_total", "RPCs started.", "counter");
        for row in &calls.rows {
            let (service, method, kind) = (row.service, row.method, row.kind);
            let labels = format!("grpc_method=\"{method}\",grpc_service=\"{service}\",grpc_type=\"{kind}\"");
            let started = row.started.load(Ordering::Relaxed);
            let _ = writeln!(self.0, "grpc_server_started_total{{{labels}}} {started}");
        }
        self.head("grpc_server_handled_total", "RPCs answered, by code.", "counter");
        for row in &calls.rows {
            let (service, method, kind) = (row.service, row.method, row.kind);
            for (code, handled) in CODES.iter().zip(&row.handled) {
                let handled = handled.load(Ordering::Relaxed);
                let _ = writeln!(
                    self.0,
                    "grpc_server_handled_total{{grpc_code=\"{code}\",grpc_method=\"{method}\",\
                     grpc_service=\"{service}\",grpc_type=\"{kind}\"}} {handled}"
                );
            }
        }
    }

    /// What every Prometheus client tells of its process.
    fn process(&mut self) {
        let usage = rustix::process::getpid();
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/stat", usage.as_raw_nonzero())) else {
            return;
        };
        let Some((_, fields)) = status.rsplit_once(") ") else {
            return;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        self.head("process_cpu_seconds_total", "CPU time used, in seconds.", "counter");
        let seconds = (number(11) + number(12)) as f64 / ticks as f64;
        let _ = writeln!(self.0, "process_cpu_seconds_total {seconds}");
        self.gauge(
            "process_resident_memory_bytes",
            "Resident memory.",
            number(21) * rustix::param::page_size() as u64,
        );
        self.gauge("process_virtual_memory_bytes", "Virtual memory.", number(20));
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, |fds| fds.count() as u64);
        self.gauge("process_open_fds", "Open file descriptors.", open);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .current
            .unwrap_or(0);
        self.gauge("process_max_fds", "Most open file descriptors.", limit);
    }
}
