//! `migrate`: copy an etcd into a store file, by hand or as a step of a plan.

use std::path::PathBuf;

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_migrate::{Options, Outcome, Source, copy_with};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

/// Where from and where to.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// etcd's client URLs, separated by commas; literal addresses. The first that answers is read.
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    endpoints: Vec<String>,
    /// The client certificate, such as /etc/kubernetes/pki/apiserver-etcd-client.crt.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The authority of etcd's certificate, such as /etc/kubernetes/pki/etcd/ca.crt.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The store file to make; it must not exist, its folder must.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Fail, without a file, if another client writes to etcd meanwhile.
    #[arg(long, hide = true)]
    refuse_writes: bool,
}

/// Copies, says what was copied, and warns where etcd moved on under the copy.
pub fn run(args: Args, reporter: &Reporter) -> Result<Exit, Failure> {
    // Two threads: one receives and decodes pages; a blocking one beside them writes and hashes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::new(Exit::Failed, "runtime", "cannot start the runtime of connections").because(error)
        })?;
    let source = Source {
        endpoints: args.endpoints,
        cert: args.cert,
        key: args.key,
        cacert: args.cacert,
    };
    let options = Options {
        refuse_writes: args.refuse_writes,
    };
    let copied = runtime.block_on(async {
        tokio::select! {
            biased;
            name = stopped() => Err(interrupted(name?)),
            copied = copy_with(&source, &args.to, reporter, options) => copied.map_err(Failure::from),
        }
    });
    // Waits for the writing thread, which removes its temporary file when the copy was given up.
    drop(runtime);
    let outcome = copied?;
    if outcome.movement.written_to() {
        reporter.warning("etcd-written-to", &written_to(&outcome));
    }
    reporter.result(&text(&outcome, &args.to), value(&outcome, &args.to));
    Ok(Exit::Done)
}

/// Ends with the name of the first signal that asks this program to stop.
pub(super) async fn stopped() -> Result<&'static str, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::new(Exit::Failed, "signals", "cannot listen for signals").because(error))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    })
}

fn interrupted(signal: &str) -> Failure {
    Failure::new(
        Exit::Failed,
        "interrupted",
        format!("{signal} came before the copy was whole; nothing was left behind"),
    )
    .hint("run the same command again")
}

fn written_to(outcome: &Outcome) -> String {
    let movement = &outcome.movement;
    let changes = match movement.unknown {
        true => "changes that cannot be told any more".to_owned(),
        false => format!("{} changes by clients", movement.writes),
    };
    format!(
        "etcd went from revision {} to {} while it was copied, with {changes}: the store file does not hold them.\n\
         Stop what writes to etcd (the API server) and copy again if the store is to take its place",
        outcome.head, movement.head_after
    )
}

fn text(outcome: &Outcome, to: &std::path::Path) -> String {
    format!(
        "{}: {} keys, {}, {} leases at revision {}, compared with etcd {} at {} in {:.1} s\nsha256 of all records: {}",
        to.display(),
        outcome.keys,
        human_bytes(outcome.bytes),
        outcome.leases,
        outcome.head,
        outcome.version,
        outcome.endpoint,
        outcome.took.as_secs_f64(),
        hex(&outcome.digest),
    )
}

fn value(outcome: &Outcome, to: &std::path::Path) -> serde_json::Value {
    json!({
        "name": "migrate",
        "changed": true,
        "file": to.display().to_string(),
        "endpoint": outcome.endpoint,
        "etcdVersion": outcome.version.to_string(),
        "clusterId": format!("{:x}", outcome.cluster_id),
        "revision": outcome.head,
        "keys": outcome.keys,
        "bytes": outcome.bytes,
        "leases": outcome.leases,
        "leasesEnded": outcome.leases_ended,
        "digest": hex(&outcome.digest),
        "revisionAfter": outcome.movement.head_after,
        "writesMeanwhile": outcome.movement.writes,
        "writesUnknown": outcome.movement.unknown,
        "seconds": outcome.took.as_secs_f64(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quantykube_migrate::Error;

    #[test]
    fn an_error_becomes_a_failure_with_its_exit_code_and_what_to_do() {
        let failure = Failure::from(Error::TargetExists {
            path: "/store.qks".into(),
        });
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(failure.name, "target-exists");
        assert!(failure.message.contains("/store.qks"));
        assert!(failure.hint.is_some());
    }
}
