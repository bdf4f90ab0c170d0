//! Whether this kubelet has heard of the API server since it started.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::manifest::PodName;

/// The kubelet deletes no pod before its sources are ready: a node that starts without an API server must not take
/// its silence for an empty list. So a manifest that leaves meanwhile leaves its process running.
pub struct Sources {
    ready: Arc<AtomicBool>,
    told: Mutex<BTreeSet<PodName>>,
}

impl Sources {
    /// Without an API server there is only the folder, which is always ready.
    pub fn watch(api_server: Option<SocketAddr>) -> Sources {
        let ready = Arc::new(AtomicBool::new(api_server.is_none()));
        if let Some(address) = api_server {
            let ready = ready.clone();
            std::thread::spawn(move || {
                while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
                    std::thread::sleep(Duration::from_millis(200));
                }
                eprintln!("kubelet: the API server answers at {address}");
                ready.store(true, Ordering::Release);
            });
        }
        Sources {
            ready,
            told: Mutex::default(),
        }
    }

    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Like [`Sources::ready`], and says once per pod that it is not.
    pub fn may_delete(&self, pod: &PodName) -> bool {
        let ready = self.ready();
        let mut told = self.told.lock().expect("no one panics with it");
        if ready {
            told.remove(pod);
        } else if told.insert(pod.clone()) {
            eprintln!("kubelet: skipping delete of {pod} because sources aren't ready yet");
        }
        ready
    }
}
