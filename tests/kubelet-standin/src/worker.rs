//! One thread per pod name: it runs what the folder wants, one process after the other.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::container::{self, Container};
use crate::manifest::{Pod, PodName};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LAST_BACKOFF: Duration = Duration::from_secs(10);
/// A process that ran this long has not crashed in a row.
const STABLE: Duration = Duration::from_secs(60);

/// While this file is there, a pod whose manifest has left is not stopped: it is no longer known to a kubelet that was
/// started anew while no API server answered.
const FORGETS: &str = "/run/kubelet-forgets";

enum Message {
    Want(Option<Pod>),
    Ended(String),
}

/// The handle that the main loop keeps.
pub struct Worker {
    wanted: Option<String>,
    /// Every UID that was ever wanted.
    known: BTreeSet<String>,
    messages: Sender<Message>,
}

impl Worker {
    pub fn new(name: &PodName) -> Worker {
        let (messages, inbox) = channel();
        let state = State {
            name: name.clone(),
            inbox,
            sender: messages.clone(),
            wanted: None,
        };
        std::thread::spawn(move || state.run());
        Worker {
            wanted: None,
            known: BTreeSet::new(),
            messages,
        }
    }

    /// The UID of the pod that was wanted last.
    pub fn wanted(&self) -> Option<&String> {
        self.wanted.as_ref()
    }

    /// Whether this worker runs the pod of that UID or once did.
    pub fn knows(&self, uid: &str) -> bool {
        self.known.contains(uid)
    }

    pub fn want(&mut self, pod: Option<Pod>) {
        self.wanted = pod.as_ref().map(|pod| pod.uid.clone());
        self.known.extend(self.wanted.clone());
        self.messages
            .send(Message::Want(pod))
            .expect("a worker runs as long as its handle");
    }
}

struct State {
    name: PodName,
    inbox: Receiver<Message>,
    sender: Sender<Message>,
    wanted: Option<Pod>,
}

impl State {
    /// Each round is the life of one pod: from being wanted to having ended without a trace.
    fn run(mut self) {
        loop {
            match self.wanted.clone() {
                Some(pod) => self.keep_running(&pod),
                None => self.receive(None),
            }
        }
    }

    /// Runs the pod, again and again, until it is wanted no more.
    fn keep_running(&mut self, pod: &Pod) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let begun = Instant::now();
            let outcome = match self.start(pod) {
                Ok(container) => match self.watch(pod, &container) {
                    Some(status) => status,
                    None => return,
                },
                Err(err) => err,
            };
            container::clear_pod(&pod.uid);
            if begun.elapsed() >= STABLE {
                backoff = FIRST_BACKOFF;
            }
            eprintln!(
                "kubelet: {} ended ({outcome}); again in {} s",
                self.name,
                backoff.as_secs()
            );
            let until = Instant::now() + backoff;
            while Instant::now() < until {
                self.receive(Some(until.saturating_duration_since(Instant::now())));
                if !self.still_wants(pod) {
                    return;
                }
            }
            backoff = (backoff * 2).min(LAST_BACKOFF);
        }
    }

    fn start(&mut self, pod: &Pod) -> Result<Container, String> {
        let (mut container, how) = match Container::find(&pod.uid) {
            Some(container) => (container, "found"),
            None => (Container::start(pod).map_err(|err| err.to_string())?, "started"),
        };
        eprintln!(
            "kubelet: {} {how} as process {} (pod {})",
            self.name,
            container.pid.as_raw_nonzero(),
            pod.uid
        );
        let waiter = container.waiter().map_err(|err| err.to_string())?;
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            let _ = sender.send(Message::Ended(waiter.wait()));
        });
        Ok(container)
    }

    /// Returns how the process ended by itself; none if it was made to end because the pod is wanted no more.
    fn watch(&mut self, pod: &Pod, container: &Container) -> Option<String> {
        loop {
            match self.inbox.recv().expect("this worker holds a sender itself") {
                Message::Ended(status) => return Some(status),
                Message::Want(wanted) => self.wanted = wanted,
            }
            // From here on there is no way back: a pod that returns with the same UID starts anew afterwards.
            if !self.still_wants(pod) {
                self.end(pod, container);
                return None;
            }
        }
    }

    fn end(&mut self, pod: &Pod, container: &Container) {
        let begun = Instant::now();
        if std::path::Path::new(FORGETS).exists() {
            return self.forget(pod);
        }
        eprintln!("kubelet: {} has to end (pod {})", self.name, pod.uid);
        container.ask_to_end();
        let mut status = format!("killed after {} s", pod.grace.as_secs());
        loop {
            match self.inbox.recv_timeout(pod.grace.saturating_sub(begun.elapsed())) {
                Ok(Message::Ended(how)) => {
                    status = how;
                    break;
                }
                Ok(Message::Want(wanted)) => self.wanted = wanted,
                Err(_) => break,
            }
        }
        container::clear_pod(&pod.uid);
        if status.starts_with("killed after") {
            // The message about that end must not reach the next process's watch.
            while let Ok(message) = self.inbox.recv_timeout(Duration::from_secs(10)) {
                match message {
                    Message::Ended(_) => break,
                    Message::Want(wanted) => self.wanted = wanted,
                }
            }
        }
        eprintln!(
            "kubelet: {} ended after {:.1} s ({status})",
            self.name,
            begun.elapsed().as_secs_f64()
        );
    }

    /// Does not stop the process, and does not start it again when somebody else has ended it.
    fn forget(&mut self, pod: &Pod) {
        eprintln!("kubelet: {} is forgotten and goes on (pod {})", self.name, pod.uid);
        loop {
            match self.inbox.recv().expect("this worker holds a sender itself") {
                Message::Ended(status) => {
                    eprintln!("kubelet: {} was forgotten and has ended ({status})", self.name);
                    break;
                }
                Message::Want(wanted) => self.wanted = wanted,
            }
        }
        container::clear_pod(&pod.uid);
    }

    fn still_wants(&self, pod: &Pod) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.uid == pod.uid)
    }

    /// Takes one message, if one comes in time, while no process runs.
    fn receive(&mut self, limit: Option<Duration>) {
        let message = match limit {
            Some(limit) => match self.inbox.recv_timeout(limit) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => unreachable!("this worker holds a sender itself"),
            },
            None => self.inbox.recv().expect("this worker holds a sender itself"),
        };
        if let Message::Want(wanted) = message {
            self.wanted = wanted;
        }
    }
}
