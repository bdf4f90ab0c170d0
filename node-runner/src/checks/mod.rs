//! What must be true before a move touches anything. Pure: facts in, verdicts out.

mod around;
pub mod store;
pub mod undo_store;

#[cfg(test)]
mod provoked;
#[cfg(test)]
mod rendered;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::facts::certificates::{Good, day};
use crate::facts::{ApiServer, Known, Node, etcd::Etcd};

/// One check.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Check {
    /// A stable name.
    pub name: &'static str,
    /// What came out: `state` in JSON.
    #[serde(rename = "state")]
    pub result: Verdict,
    /// What was found, in one line.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What came out of a check.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Good.
    #[serde(rename = "ok")]
    Pass,
    /// Good enough, but worth a look.
    #[serde(rename = "warning")]
    Warn,
    /// The move must not begin.
    #[serde(rename = "no")]
    Fail,
    /// It could not be looked at, mostly because another check failed. The move must not begin.
    Unknown,
}

impl Verdict {
    /// Whether a move may begin with it.
    pub fn allows(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Warn)
    }

    /// As printed before a check's line.
    pub fn mark(self) -> &'static str {
        match self {
            Verdict::Pass => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "NO",
            Verdict::Unknown => "?",
        }
    }
}

impl Check {
    /// A check that says yes.
    pub fn pass(name: &'static str, found: impl Into<String>) -> Check {
        Check {
            name,
            result: Verdict::Pass,
            found: found.into(),
            hint: None,
        }
    }

    /// A check that says no, and what to do.
    pub fn fail(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
        Check {
            name,
            result: Verdict::Fail,
            found: found.into(),
            hint: Some(hint.into()),
        }
    }

    /// A check that says yes, with something to know and to do.
    pub fn warn(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Check {
        Check {
            result: Verdict::Warn,
            ..Check::fail(name, found, hint)
        }
    }

    /// A check that could not be made.
    pub fn unknown(name: &'static str, why: impl std::fmt::Display) -> Check {
        Check {
            name,
            result: Verdict::Unknown,
            found: format!("not looked at: {why}"),
            hint: None,
        }
    }

    /// What was found and what to do, in one line.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}: {}; {hint}", self.name, self.found),
            None => format!("{}: {}", self.name, self.found),
        }
    }

    /// As people read it: one line, and one more for what to do.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{:>4}  {:<20} {}", self.result.mark(), self.name, self.found)];
        lines.extend(self.hint.iter().map(|hint| format!("      {:<20} -> {hint}", "")));
        lines
    }
}

/// The checks that every move needs.
fn of_node(node: &Node) -> Vec<Check> {
    vec![root(node), identity(node), open_move(node), kubelet(node)]
}

fn root(node: &Node) -> Check {
    match node.uid {
        0 => Check::pass("root", "running as root"),
        uid => Check::fail(
            "root",
            format!("running as user {uid}"),
            "run it as root, such as with sudo",
        ),
    }
}

fn identity(node: &Node) -> Check {
    match (&node.machine_id, &node.name) {
        (Some(machine), Some(name)) => Check::pass("identity", format!("node {name} on machine {machine}")),
        (None, _) => Check::fail(
            "identity",
            "/etc/machine-id is missing or empty",
            "run systemd-machine-id-setup, so that a journal can be bound to this machine",
        ),
        (_, None) => Check::fail("identity", "the node has no name", "give the machine a host name"),
    }
}

fn open_move(node: &Node) -> Check {
    match &node.open_move {
        Ok(None) => Check::pass("open-move", "no move is open"),
        Ok(Some(id)) => Check::fail(
            "open-move",
            format!("the move {id} is open"),
            "finish it with `quantykube resume`, or put everything back with `quantykube undo store`",
        ),
        Err(why) => Check::fail(
            "open-move",
            why,
            "the journals must be readable before another move begins",
        ),
    }
}

fn kubelet(node: &Node) -> Check {
    match &node.kubelet_active {
        Ok(true) => Check::pass("kubelet", "kubelet.service is active"),
        Ok(false) => Check::fail(
            "kubelet",
            "kubelet.service is not active",
            "start it (systemctl start kubelet): it stops and starts the API server",
        ),
        Err(why) => Check::fail("kubelet", why, "systemd must be reachable over D-Bus"),
    }
}

/// What a store reserves ahead of its writes, the journal and the programs, in bytes.
pub const RESERVE_BYTES: u64 = 256 << 20;

/// Whether there is room for what an etcd holds, twice: for the copy and for what compaction of it needs.
fn space(etcd: &Known<Etcd>, free: Option<u64>, folder: &str) -> Check {
    let (Ok(etcd), Some(free)) = (etcd, free) else {
        return Check::unknown("space", "the size of etcd's data or the free space is not known");
    };
    let in_use = match etcd.status.db_size_in_use {
        0 => etcd.status.db_size,
        known => known,
    };
    let needed = in_use.saturating_mul(2).saturating_add(RESERVE_BYTES);
    let human = quantykube_base::human_bytes;
    let found = format!("{} free below {folder}, {} needed", human(free), human(needed));
    match free >= needed {
        true => Check::pass("space", found),
        false => Check::fail("space", found, format!("make room on the file system of {folder}")),
    }
}

/// Whether etcd answers, in a version that was tried.
fn etcd(etcd: &Known<Etcd>) -> Check {
    match etcd {
        Err(why) => Check::fail(
            "etcd",
            why,
            "the API server's etcd must answer with the API server's own certificate",
        ),
        Ok(etcd) => match etcd.status.version {
            Some(version) if version.supported() => Check::pass(
                "etcd",
                format!(
                    "etcd {version} at {}, revision {}",
                    etcd.status.endpoint, etcd.status.revision
                ),
            ),
            _ => Check::fail(
                "etcd",
                format!(
                    "etcd at {} is version {}",
                    etcd.status.endpoint, etcd.status.version_text
                ),
                "versions 3.4 to 3.7 are known",
            ),
        },
    }
}

/// Alarms: a full etcd can still be read, a corrupt one must not be.
fn alarms(etcd: &Known<Etcd>) -> Check {
    let Ok(etcd) = etcd else {
        return Check::unknown("alarms", "etcd does not answer");
    };
    let alarms = &etcd.status.alarms;
    if alarms.is_empty() {
        return Check::pass("alarms", "etcd has no alarm set");
    }
    let found = format!("etcd has set {}", alarms.join(" "));
    match alarms.iter().all(|alarm| alarm == "NOSPACE") {
        true => Check::warn(
            "alarms",
            found,
            "its data is whole and is copied; the alarm itself is not",
        ),
        false => Check::fail("alarms", found, "its data may be damaged: repair or restore etcd first"),
    }
}

fn members(etcd: &Known<Etcd>) -> Check {
    let Ok(etcd) = etcd else {
        return Check::unknown("members", "etcd does not answer");
    };
    let names: Vec<String> = etcd
        .status
        .members
        .iter()
        .map(|member| {
            let name = if member.name.is_empty() {
                "(not started yet)"
            } else {
                &member.name
            };
            format!("{name}{}", if member.learner { " (learner)" } else { "" })
        })
        .collect();
    match etcd.status.members.as_slice() {
        [member] if !member.learner => Check::pass("members", format!("one member, {}", names.join(" "))),
        members => Check::fail(
            "members",
            format!("{} members: {}", members.len(), names.join(" ")),
            "clusters with one control-plane node are supported",
        ),
    }
}

fn api_server(fact: &Known<Option<ApiServer>>) -> Result<&ApiServer, String> {
    fact.as_ref()
        .map_err(String::clone)?
        .as_ref()
        .ok_or_else(|| "there is no API server manifest".to_owned())
}

/// Certificates that end within this time are told of, in seconds.
const ENDS_SOON_S: u64 = 30 * 86_400;

/// A set of files of one side of TLS. `renew` is the command that helps.
fn certificates(name: &'static str, what: &str, fact: &Known<Good>, now: u64, renew: &str) -> Check {
    let good = match fact {
        Ok(good) => good,
        Err(why) => return Check::fail(name, why, renew),
    };
    let found = format!("{what} is valid until {}", day(good.ends));
    if good.ends.saturating_sub(now) < ENDS_SOON_S {
        return Check::warn(name, found, format!("that is soon: {renew}"));
    }
    if good.ca_ends.saturating_sub(now) < ENDS_SOON_S {
        let found = format!(
            "its authority {} is valid until {}",
            good.ca.display(),
            day(good.ca_ends)
        );
        return Check::warn(
            name,
            found,
            "that is soon: kubeadm does not renew authorities, replace it in time",
        );
    }
    Check::pass(name, found)
}
