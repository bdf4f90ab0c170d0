//! Stands in for the kubelet in the tests' node, where the real one cannot run (it needs cgroup controllers).
//!
//! What it does as the kubelet does:
//! - `staticPodPath` and `fileCheckFrequency` come from the kubelet's configuration file.
//! - The folder is watched with inotify and listed every 20 s; every regular file counts (symlinks are followed)
//!   whose name does not start with a dot, whatever its extension, up to 10 MB. A file that leaves deletes the pod
//!   by the name it had, whichever file holds that name now.
//! - The pod's UID is a hash of the content, the host and the path: the same bytes back at the same path have the
//!   same UID. A pod starts only after the earlier one of its name has ended.
//! - Removal is TERM, then KILL after the grace period (30 s unless the pod says otherwise), then the end of the
//!   pod's slice. A process that ends by itself starts again.
//! - A process runs in a scope below `kubepods-burstable-pod<UID>.slice`, so `/proc/PID/cgroup` shows the pod. It
//!   outlives a restart of this program, which finds it there again.
//! - While `/run/kubelet-forgets` is there, a pod whose manifest has left goes on and is forgotten, as by a kubelet that
//!   was started anew while no API server answered.
//! - After a start, nothing is deleted before the API server has answered once (a connection counts as an answer).
//!
//! What it does not do: the container runtime, images, namespaces, the sandbox process, probes, mirror pods, quality
//! of service other than Burstable, pods of more than one container. Back-off goes from 1 s to 10 s, not to 5 min.

mod cgroup;
mod config;
mod container;
mod folder;
mod manifest;
mod sources;
mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use folder::Folder;
use manifest::PodName;
use sources::Sources;
use worker::Worker;

/// How often the state is looked at when nothing happens.
const TICK: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    match run() {
        Ok(never) => match never {},
        Err(err) => {
            eprintln!("kubelet: {err}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<std::convert::Infallible, config::ConfigError> {
    let config = config::load(std::env::args().skip(1))?;
    eprintln!(
        "kubelet: stand-in on {}, static pods from {}",
        config.node,
        config.static_pods.display()
    );
    let sources = Sources::watch(config.api_server);
    let mut folder = Folder::new(&config.static_pods, &config.node);
    let mut workers: BTreeMap<PodName, Worker> = BTreeMap::new();
    let mut next_list = Instant::now();
    let mut orphans_looked_at = false;
    loop {
        if Instant::now() >= next_list {
            folder.list();
            next_list = Instant::now() + config.check_every;
            reconcile(&folder, &mut workers, &sources);
        }
        // One change at a time: a file that leaves and returns at once must still end its pod.
        for change in folder.wait(TICK) {
            folder.apply(change);
            reconcile(&folder, &mut workers, &sources);
        }
        reconcile(&folder, &mut workers, &sources);
        if !orphans_looked_at && sources.ready() {
            end_orphans(&workers);
            orphans_looked_at = true;
        }
    }
}

/// Tells each pod's worker what the folder holds now.
fn reconcile(folder: &Folder, workers: &mut BTreeMap<PodName, Worker>, sources: &Sources) {
    for (name, pod) in folder.pods() {
        let worker = workers.entry(name.clone()).or_insert_with(|| Worker::new(name));
        if worker.wanted() == Some(&pod.uid) {
            continue;
        }
        // A pod with another UID has to wait until the earlier one of its name is deleted.
        if worker.wanted().is_none() || sources.may_delete(name) {
            worker.want(Some(pod.clone()));
        }
    }
    for (name, worker) in workers {
        if !folder.pods().contains_key(name) && worker.wanted().is_some() && sources.may_delete(name) {
            worker.want(None);
        }
    }
}

/// Ends what an earlier run of this program started and no file has named since.
fn end_orphans(workers: &BTreeMap<PodName, Worker>) {
    for uid in cgroup::pods() {
        if !workers.values().any(|worker| worker.knows(&uid)) {
            eprintln!("kubelet: pod {uid} has no manifest; it ends");
            std::thread::spawn(move || container::end_pod(&uid, Duration::from_secs(30)));
        }
    }
}
