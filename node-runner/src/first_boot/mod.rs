//! What `quantykube first-boot` does next: a pure function of what is seen. It is called again after each step and each
//! wait until it says how it ends; every wait ends at the deadline.

mod outcome;
mod seen;

use quantykube_base::Exit;

use crate::facts::Known;

pub use outcome::{Outcome, OutcomeFile, folders};
pub use seen::{failure, look, note_init};

/// What the node is meant to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Role {
    /// It runs an API server
    ControlPlane,
    /// It runs none
    Worker,
}

/// The cluster, as far as this node has a part in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Cluster {
    /// None yet.
    None,
    /// This node has joined one, and runs no API server.
    Worker,
    /// This node is made a control-plane node: its API server's manifest is not there yet.
    Rising,
    /// The API server's manifest is there; whether it answers.
    ControlPlane(Known<()>),
}

/// A `kubeadm init` of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Init {
    /// No configuration was given.
    NotAsked,
    /// It was not begun.
    Asked,
    /// It was begun, and its end was not noted.
    Begun,
    /// It ended well.
    Done,
}

/// An open move.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Open {
    /// Its journal.
    pub id: String,
    /// A person must look.
    pub stuck: bool,
}

/// Everything that the decision needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seen {
    /// What the node is meant to be.
    pub role: Role,
    /// The cluster.
    pub cluster: Cluster,
    /// kubeadm's part.
    pub init: Init,
    /// Whether the container runtime takes calls.
    pub runtime: bool,
    /// An install is in force: its journal.
    pub installed: Option<String>,
    /// An open move.
    pub open: Option<Open>,
    /// How often `install store` was refused by a check so far.
    pub refusals: u32,
    /// The deadline is over.
    pub late: bool,
}

/// What is done next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Next {
    /// Look again a little later; why.
    Wait(String),
    /// `kubeadm init`.
    Init,
    /// `install store`.
    Move,
    /// This is the outcome.
    End(Outcome),
}

/// A check that says no just after a boot may say yes a little later: nothing was touched, so it is asked so often.
pub const REFUSALS_MAX: u32 = 3;

/// Decides.
pub fn next(seen: &Seen) -> Next {
    if let Some(open) = &seen.open {
        return match open.stuck {
            true => failed(
                Exit::Stuck,
                "stuck",
                format!("the move {} is stuck: a person must look (quantykube status)", open.id),
            ),
            // quantykube-resume ends what an earlier boot left.
            false => wait(seen, Exit::Interrupted, format!("the move {} is open", open.id)),
        };
    }
    if let Some(id) = &seen.installed {
        return done(format!("the data lives in the store (journal {id})"));
    }
    match (&seen.cluster, seen.role) {
        (Cluster::ControlPlane(_) | Cluster::Rising, Role::Worker) => nothing(
            "this is a control-plane node, and it was to be a worker: another node was meant, and nothing was done"
                .into(),
        ),
        (Cluster::Worker, Role::ControlPlane) => {
            nothing("this node is a worker: it has no kube-apiserver manifest; nothing is to be moved here".into())
        }
        (Cluster::None | Cluster::Worker, Role::Worker) => {
            nothing("this node is to be a worker: the bundle is good, and nothing is to be moved here".into())
        }
        (Cluster::None, Role::ControlPlane) => match seen.init {
            Init::NotAsked => wait(seen, Exit::Refused, "there is no cluster on this node".into()),
            Init::Asked if !seen.runtime => wait(seen, Exit::Refused, "the container runtime does not answer".into()),
            Init::Asked => Next::Init,
            Init::Begun => init_cut(),
            Init::Done => wait(
                seen,
                Exit::Failed,
                "kubeadm init ended, and no kube-apiserver manifest is there".into(),
            ),
        },
        // Ours runs as a child of this program: it is over when this is asked.
        (_, Role::ControlPlane) if seen.init == Init::Begun => init_cut(),
        (Cluster::Rising, Role::ControlPlane) => wait(
            seen,
            Exit::Refused,
            "the cluster on this node has no kube-apiserver manifest yet".into(),
        ),
        (Cluster::ControlPlane(Err(why)), Role::ControlPlane) => {
            wait(seen, Exit::Refused, format!("the API server is not ready: {why}"))
        }
        (Cluster::ControlPlane(Ok(())), Role::ControlPlane) => match seen.refusals {
            0 => Next::Move,
            tries if tries < REFUSALS_MAX && !seen.late => Next::Move,
            _ => failed(
                Exit::Refused,
                "refused",
                "the checks before install store say no; nothing was touched: journalctl -u quantykube-first-boot"
                    .into(),
            ),
        },
    }
}

fn wait(seen: &Seen, exit: Exit, why: String) -> Next {
    match seen.late {
        false => Next::Wait(why),
        true => failed(
            exit,
            "deadline",
            format!("the deadline is over: {why}; nothing was moved"),
        ),
    }
}

fn init_cut() -> Next {
    failed(
        Exit::Stuck,
        "init-cut",
        "kubeadm init was cut short: kubeadm reset, then run first-boot again".into(),
    )
}

fn failed(exit: Exit, name: &str, message: String) -> Next {
    Next::End(Outcome {
        outcome: "failed".into(),
        exit: exit.code(),
        name: name.into(),
        message,
    })
}

fn nothing(message: String) -> Next {
    Next::End(Outcome {
        outcome: "nothing".into(),
        exit: 0,
        name: "other-role".into(),
        message,
    })
}

fn done(message: String) -> Next {
    Next::End(Outcome {
        outcome: "done".into(),
        exit: 0,
        name: "done".into(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen {
            role: Role::ControlPlane,
            cluster: Cluster::ControlPlane(Ok(())),
            init: Init::NotAsked,
            runtime: true,
            installed: None,
            open: None,
            refusals: 0,
            late: false,
        }
    }

    #[test]
    fn every_state_has_its_next_step() {
        type Change = fn(&mut Seen);
        let down = || Cluster::ControlPlane(Err("refused".into()));
        let cases: &[(&str, Change, &str)] = &[
            ("a cluster that answers", |_| {}, "move"),
            ("no cluster", |s| s.cluster = Cluster::None, "wait"),
            (
                "no cluster, and kubeadm",
                |s| (s.cluster, s.init) = (Cluster::None, Init::Asked),
                "init",
            ),
            (
                "kubeadm, and no runtime yet",
                |s| (s.cluster, s.init, s.runtime) = (Cluster::None, Init::Asked, false),
                "wait",
            ),
            (
                "kubeadm cut short",
                |s| (s.cluster, s.init) = (Cluster::None, Init::Begun),
                "8 init-cut",
            ),
            ("kubeadm cut short late", |s| s.init = Init::Begun, "8 init-cut"),
            ("kubeadm is done", |s| s.init = Init::Done, "move"),
            ("kubeadm given, cluster there", |s| s.init = Init::Asked, "move"),
            ("a cluster that rises", |s| s.cluster = Cluster::Rising, "wait"),
            ("a worker", |s| s.cluster = Cluster::Worker, "0 other-role"),
            ("meant as worker", |s| s.role = Role::Worker, "0 other-role"),
            (
                "a worker that was meant",
                |s| (s.cluster, s.role) = (Cluster::Worker, Role::Worker),
                "0 other-role",
            ),
            ("moved already", |s| s.installed = Some("1-store".into()), "0 done"),
            (
                "moved, and the API server is away",
                |s| (s.installed, s.cluster) = (Some("1-store".into()), Cluster::Rising),
                "0 done",
            ),
            (
                "an open move",
                |s| {
                    s.open = Some(Open {
                        id: "1-store".into(),
                        stuck: false,
                    })
                },
                "wait",
            ),
            (
                "an open move, late",
                |s| {
                    (s.open, s.late) = (
                        Some(Open {
                            id: "1-store".into(),
                            stuck: false,
                        }),
                        true,
                    )
                },
                "6 deadline",
            ),
            (
                "a stuck move",
                |s| {
                    s.open = Some(Open {
                        id: "1-store".into(),
                        stuck: true,
                    })
                },
                "8 stuck",
            ),
            ("refused once", |s| s.refusals = 1, "move"),
            ("refused thrice", |s| s.refusals = 3, "4 refused"),
            ("refused, late", |s| (s.refusals, s.late) = (1, true), "4 refused"),
            (
                "no cluster, late",
                |s| (s.cluster, s.late) = (Cluster::None, true),
                "4 deadline",
            ),
            ("answers at the last moment", |s| s.late = true, "move"),
        ];
        let told = |next: Next| match next {
            Next::Wait(_) => "wait".to_owned(),
            Next::Init => "init".to_owned(),
            Next::Move => "move".to_owned(),
            Next::End(outcome) => format!("{} {}", outcome.exit, outcome.name),
        };
        for (name, change, expected) in cases {
            let mut seen = seen();
            change(&mut seen);
            assert_eq!(told(next(&seen)), *expected, "{name}");
        }
        let mut cluster_down = Seen {
            cluster: down(),
            ..seen()
        };
        assert_eq!(told(next(&cluster_down)), "wait");
        cluster_down.late = true;
        assert_eq!(told(next(&cluster_down)), "4 deadline");
    }

    #[test]
    fn nothing_waits_once_the_deadline_is_over() {
        let clusters = [
            Cluster::None,
            Cluster::Worker,
            Cluster::Rising,
            Cluster::ControlPlane(Ok(())),
            Cluster::ControlPlane(Err("down".into())),
        ];
        let opens = [None, Some(false), Some(true)];
        for cluster in clusters {
            for init in [Init::NotAsked, Init::Asked, Init::Begun, Init::Done] {
                for (role, runtime) in [
                    (Role::ControlPlane, true),
                    (Role::ControlPlane, false),
                    (Role::Worker, true),
                ] {
                    for open in opens {
                        for refusals in 0..=REFUSALS_MAX {
                            let open = open.map(|stuck| Open {
                                id: "1-store".into(),
                                stuck,
                            });
                            let cluster = cluster.clone();
                            let seen = Seen {
                                role,
                                cluster,
                                init,
                                runtime,
                                open,
                                refusals,
                                late: true,
                                ..seen()
                            };
                            assert!(!matches!(next(&seen), Next::Wait(_)), "{seen:?}");
                        }
                    }
                }
            }
        }
    }
}
