//! One file per verb; here what several of them share.

pub mod api_ready;
pub mod boot;
pub mod copy_back;
pub mod etcd_quiet;
pub mod first_boot;
pub mod gate_store;
pub mod history;
pub mod images;
pub mod install;
pub mod kubeadm_config;
pub mod migrate;
pub mod plan;
pub mod raise_revision;
pub mod remove;
pub mod resume;
pub mod status;
pub mod store_ready;
pub mod undo;
pub mod verify;
pub mod version;

pub mod bundle;
mod layout;
mod narrator;
mod outcome;
mod outlook;
mod rehearse;
mod signals;
mod told;
mod trust;

use quantykube_base::{Exit, Failure, Reporter};
use quantykube_journal::system::host::Host;
use serde_json::json;

use crate::checks::{Check, Verdict};
use crate::facts::Root;

/// What every verb needs.
pub struct Context {
    /// The one door for everything that is said.
    pub reporter: Reporter,
    /// The node.
    pub root: Root,
}

impl Context {
    /// On this node.
    pub fn new(reporter: Reporter) -> Context {
        Context {
            reporter,
            root: Root::new("/"),
        }
    }

    /// The machine, to be looked at.
    pub fn machine(&self) -> Host {
        Host::new()
    }

    /// The machine, to be changed: from now on signals decide how a move ends instead of ending this program.
    pub fn machine_to_change(&self) -> Result<Host, Failure> {
        self.must_be_root()?;
        let host = Host::new();
        signals::listen(host.interrupt_flag())
            .map_err(|error| Failure::new(Exit::Failed, "signals", "cannot listen for signals").because(error))?;
        Ok(host)
    }

    /// What changes a node needs root, and the journals are root's alone.
    pub fn must_be_root(&self) -> Result<(), Failure> {
        match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err(Failure::new(
                Exit::Refused,
                "root",
                format!(
                    "running as user {}, root is needed",
                    rustix::process::geteuid().as_raw()
                ),
            )
            .hint("run it as root, such as with sudo")),
        }
    }
}

/// The checks as JSON.
fn checks_json(checks: &[Check]) -> serde_json::Value {
    json!(checks)
}

/// The failure of a move whose checks say no. `name` is that of the first check that does.
fn refused(what: &str, checks: &[Check]) -> Failure {
    let no: Vec<&Check> = checks.iter().filter(|check| !check.result.allows()).collect();
    let failed: Vec<&&Check> = no.iter().filter(|check| check.result == Verdict::Fail).collect();
    let (first, count) = (
        failed.first().copied().or(no.first()).expect("a check said no"),
        no.len(),
    );
    let mut failure = Failure::new(
        Exit::Refused,
        first.name,
        format!(
            "{what} cannot begin: {count} of {} checks say no, nothing was touched",
            checks.len()
        ),
    );
    let hints: Vec<String> = failed
        .iter()
        .filter_map(|check| Some(format!("{}: {}", check.name, check.hint.as_ref()?)))
        .collect();
    if !hints.is_empty() {
        failure = failure.hint(hints.join("\n"));
    }
    failure
}
