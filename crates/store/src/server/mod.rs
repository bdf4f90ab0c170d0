//! The server around the store: opens the file, serves until it is told to stop or must, closes the file.

mod front;
mod listen;
mod metrics;
mod pages;
mod tls;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quantykube_base::{Exit, Failure};
use quantykube_store_file as store_file;
use quantykube_store_file::{Identity, Options, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use self::front::Front;
use self::metrics::Calls;
use self::pages::Pages;
use self::tls::Certificates;
use crate::args::Config;
use crate::clock;
use crate::engine::Engine;
use crate::log::log;
use crate::mvcc::Limits;
use crate::notify::notify;

/// How often leases that are due are looked for.
const EXPIRE_EVERY: Duration = Duration::from_millis(100);

/// A pause between two groups of leases that end at once.
const EXPIRE_PAUSE: Duration = Duration::from_millis(5);

/// One slice of the file's background work, and the pause after it while more is waiting.
const MAINTAIN_SLICE: Duration = Duration::from_millis(1);
const MAINTAIN_PAUSE: Duration = Duration::from_millis(2);

/// How often the file is asked for background work when there was none.
const MAINTAIN_EVERY: Duration = Duration::from_millis(100);

/// How long requests in flight may take to finish when the server stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Runs the server to its end.
pub fn run(config: &Config) -> Result<(), Failure> {
    // Before any thread is started: they inherit it.
    if let Err(error) = store_file::short_slices() {
        log!(
            info,
            "the kernel gives no short slices, so that commits wait longer beside other work: {error}"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Failed, "runtime", "cannot start").because(error))?;
    runtime.block_on(serve(config))
}

async fn serve(config: &Config) -> Result<(), Failure> {
    let certificates = match &config.tls {
        Some(files) => Some(Arc::new(Certificates::load(files)?)),
        None => None,
    };
    // The addresses before the file: a second server is told apart by its address before it waits for a lock.
    let listener = bind(config.listen)?;
    let metrics_listener = config.listen_metrics.map(bind).transpose()?;
    let store = open(&config.data, config.quota)?;
    if config.request_bytes > store.max_change() {
        let found = format!(
            "--max-request-bytes {} is more than the file takes",
            config.request_bytes
        );
        let hint = format!("give {} at most", store.max_change());
        return Err(Failure::new(Exit::Usage, "usage", found).hint(hint));
    }
    let limits = Limits {
        request_bytes: config.request_bytes,
        quota: config.quota,
        watch_streams: config.watch_streams,
        watches: config.watches,
    };
    let revision = store.revision();
    let engine = Engine::new(store, limits);
    let address = listener
        .local_addr()
        .map_err(|error| bind_failure(config.listen, error))?;
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let pages = Arc::new(Pages {
        engine: Arc::clone(&engine),
        calls: Arc::new(Calls::new()),
    });
    let front = Front::new(&engine, config, vec![format!("{scheme}://{address}")], pages);
    let (stop, stopping) = watch::channel(false);
    let (alive, mut ended) = mpsc::channel(1);
    tokio::spawn(listen::clients(
        listener,
        certificates,
        front.clone(),
        stopping.clone(),
        alive,
    ));
    if let Some(listener) = metrics_listener {
        tokio::spawn(listen::pages(listener, front.clone(), stopping));
    }
    for task in [publish(&engine), expire(&engine), maintain(&engine)] {
        tokio::spawn(task);
    }
    log!(info, "{} at revision {revision}", config.data.display());
    log!(info, "ready to serve client requests on {scheme}://{address}");
    notify("READY=1");

    let mut terminate = signal(SignalKind::terminate()).map_err(signal_failure)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(signal_failure)?;
    let failed = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        why = engine.failed() => Some(why),
    };
    notify("STOPPING=1");
    if let Some(why) = failed {
        return Err(
            Failure::new(Exit::Stuck, "file-failed", format!("the store's file failed: {why}")).hint(format!(
                "nothing was acknowledged after this; look at the disk under {}",
                config.data.display()
            )),
        );
    }
    log!(info, "stopping");
    engine.stop();
    drop(front);
    let _ = stop.send(true);
    let _ = tokio::time::timeout(STOP_MAX, ended.recv()).await;
    let Some(state) = engine.take() else { return Ok(()) };
    state
        .into_store()
        .close()
        .map_err(|error| file_failure(&config.data, error))?;
    log!(info, "stopped");
    Ok(())
}

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn publish(engine: &Arc<Engine>) -> Task {
    let engine = Arc::clone(engine);
    Box::pin(async move { engine.publish().await })
}

/// Ends leases as they become due, a few at a time.
fn expire(engine: &Arc<Engine>) -> Task {
    let engine = Arc::clone(engine);
    Box::pin(async move {
        loop {
            let outcome = engine.lock().and_then(|mut state| state.expire_leases(clock::now()));
            match outcome {
                Ok(true) => tokio::time::sleep(EXPIRE_PAUSE).await,
                Ok(false) => tokio::time::sleep(EXPIRE_EVERY).await,
                Err(error) => return engine.fail(&error),
            }
        }
    })
}

/// Lets the file work in the background, in slices between requests.
fn maintain(engine: &Arc<Engine>) -> Task {
    let engine = Arc::clone(engine);
    Box::pin(async move {
        loop {
            let outcome = engine.lock().and_then(|mut state| state.maintain(MAINTAIN_SLICE));
            match outcome {
                Ok(true) => tokio::time::sleep(MAINTAIN_PAUSE).await,
                Ok(false) => tokio::time::sleep(MAINTAIN_EVERY).await,
                // Background work may wait for space; writes tell the client.
                Err(crate::mvcc::Error::File(store_file::Error::NoSpace { .. })) => {
                    tokio::time::sleep(MAINTAIN_EVERY).await;
                }
                Err(error) => return engine.fail(&error),
            }
        }
    })
}

/// Opens the file; makes it if it is not there.
fn open(path: &Path, quota: u64) -> Result<Store, Failure> {
    let options = Options {
        quota,
        identity: Identity {
            cluster_id: rand::random_range(1..=u64::MAX),
            member_id: rand::random_range(1..=u64::MAX),
            raft_term: 2,
        },
    };
    let opened = match Store::open(path, options.clone()) {
        Err(store_file::Error::Missing { .. }) => {
            log!(info, "{} does not exist: a new, empty store is made", path.display());
            Store::create(path, options)
        }
        opened => opened,
    };
    opened.map_err(|error| file_failure(path, error))
}

fn file_failure(path: &Path, error: store_file::Error) -> Failure {
    let (exit, name, hint) = match &error {
        store_file::Error::Locked { .. } => (Exit::Refused, "file-locked", "another quantykube-store serves it"),
        store_file::Error::Newer { .. } => (Exit::NeedsNewer, "file-newer", "use the quantykube-store that wrote it"),
        store_file::Error::Foreign { .. } => (
            Exit::NotVerified,
            "not-a-store",
            "give --data a store file, or a path where nothing stands: a new store is made there",
        ),
        store_file::Error::NoSpace { .. } => (Exit::NoSpace, "no-space", "make room on the disk"),
        store_file::Error::Damaged { .. } => (
            Exit::Stuck,
            "file-damaged",
            "keep the file as it is, and restore the last snapshot elsewhere",
        ),
        _ => (Exit::Failed, "file-failed", "check the path and its permissions"),
    };
    Failure::new(exit, name, format!("{} cannot be served", path.display()))
        .because(error)
        .hint(hint)
}

fn bind(address: std::net::SocketAddr) -> Result<tokio::net::TcpListener, Failure> {
    listen::bind(address).map_err(|error| bind_failure(address, error))
}

fn bind_failure(address: std::net::SocketAddr, error: std::io::Error) -> Failure {
    Failure::new(Exit::Refused, "address", format!("cannot listen on {address}"))
        .because(error)
        .hint("see what holds the port: ss -ltnp")
}

fn signal_failure(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "signals", "cannot listen for signals").because(error)
}
