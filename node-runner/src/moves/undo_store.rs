//! `undo store`: from the store back into etcd, as a plan of its own.
//!
//! ```text
//! raise                    etcd's revision is lifted past the store's, while the API server still runs on the store
//! answers                  (way back only) the API server answers again, on the store
//! retire, gone             no API server writes to the store any more
//! unit                     the store stops; its file is closed
//! copy-back                etcd holds what the store held
//! edit                     the waiting manifest names etcd
//! return, ready            the API server runs on etcd; no way back from the return on
//! keep                     the store's file is kept under a new name
//! ```
//!
//! `edit`, `unit` and `retire` come first on the way back: they need nothing that is not on the node, also at boot.
//! Until the return begins, a failure puts the API server back on the store, which has not changed. Then there is only
//! forward: an API server on etcd shows revisions past the store's, even if nobody writes. Today's manifest is edited, so
//! that what others changed in it since the install stays.

use std::path::{Path, PathBuf};

use quantykube_journal::{Back, Binding, Direction, Op, Plan, Step, Way, plan};

use crate::facts::api_server::Endpoint;
use crate::facts::certificates::Files;
use crate::facts::manifest::Flags;
use crate::facts::process;
use crate::moves::etcd_servers::Edit;
use crate::moves::places;
use crate::moves::store::{self, Runner, and, process_of, tls, wait_gone};

/// What the journal of an install says about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Installed {
    /// The journal's id.
    pub id: String,
    /// The version whose programs are on the node.
    pub version: String,
    /// Machine, node and cluster.
    pub binding: Binding,
    /// The manifest's place in the kubelet's folder.
    pub manifest: PathBuf,
    /// Where it waits while it is out of it.
    pub waiting: PathBuf,
    /// The etcd that was left.
    pub etcd: String,
    /// The store's URL.
    pub store: String,
}

/// A journal whose plan is not one of ours.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("the plan of journal {id} has no step {step:?} as this version writes it")]
pub struct Unknown {
    /// The journal.
    pub id: String,
    /// The step.
    pub step: &'static str,
}

impl Installed {
    /// Reads the plan of an install.
    pub fn of(id: &str, plan: &Plan) -> Result<Installed, Unknown> {
        let op = |step: &'static str| {
            let found = plan.steps.iter().find(|s| s.name == step).map(|s| &s.op);
            found.ok_or(Unknown {
                id: id.to_owned(),
                step,
            })
        };
        let unknown = |step| Unknown {
            id: id.to_owned(),
            step,
        };
        let endpoint = |argv: &[String]| Flags::parse(argv).last("endpoints").map(str::to_owned);
        let Op::Retire { path, to, .. } = op("retire")? else {
            return Err(unknown("retire"));
        };
        let Op::Build { argv: copy, .. } = op("copy")? else {
            return Err(unknown("copy"));
        };
        let Op::Probe { argv: serves, .. } = op("serves")? else {
            return Err(unknown("serves"));
        };
        Ok(Installed {
            id: id.to_owned(),
            version: plan.version.clone(),
            binding: plan.binding.clone(),
            manifest: path.clone(),
            waiting: to.clone(),
            etcd: endpoint(copy).ok_or(unknown("copy"))?,
            store: endpoint(serves).ok_or(unknown("serves"))?,
        })
    }
}

/// A moved node of which every check said yes.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The install that is undone.
    pub installed: Installed,
    /// What the API server is started with today.
    pub api_server_argv: Vec<String>,
    /// The API server as it runs, if it does.
    pub api_server: Option<process::Process>,
    /// Where it answers.
    pub endpoint: Endpoint,
    /// The API server's side of the connection to etcd.
    pub client: Files,
    /// The edit of today's manifest.
    pub edit: Edit,
    /// The number of the next journal.
    pub number: u32,
}

/// The plan of the way back. The API server has `ready_s` seconds until it is ready.
pub fn plan(node: &Ready, ready_s: u32) -> Plan {
    let installed = &node.installed;
    let runner = Runner::of(&installed.version);
    let ready = runner.api_ready(&node.endpoint);
    let steps = vec![
        Step::new(
            "raise",
            "Lift etcd's revision past the store's, while the API server still runs",
            Op::Run {
                argv: runner.call(
                    "raise-revision",
                    and(tls(&installed.etcd, &node.client), "store", &installed.store),
                ),
                back: None,
            },
        ),
        Step::new(
            "answers",
            "Wait until the API server answers again",
            Op::Probe {
                argv: ready.clone(),
                timeout_s: ready_s,
                way: Way::Back,
            },
        ),
        Step::new(
            "retire",
            "Take the API server's manifest out of the kubelet's folder",
            Op::Retire {
                path: installed.manifest.clone(),
                to: installed.waiting.clone(),
                runs: Some(process_of(&node.api_server_argv, node.api_server.as_ref())),
            },
        )
        .back(Back::First),
        Step::new(
            "gone",
            "Wait until no process of the API server is left",
            wait_gone(&node.api_server_argv, node.api_server.as_ref(), Way::Forward),
        ),
        Step::new(
            "unit",
            "Stop the store",
            Op::Unit {
                name: places::STORE_UNIT.to_owned(),
                enabled: false,
                active: false,
            },
        )
        .back(Back::First),
        Step::new(
            "copy-back",
            "Copy what the store holds into etcd",
            Op::Run {
                argv: runner.call(
                    "copy-back",
                    and(tls(&installed.etcd, &node.client), "file", places::STORE_FILE),
                ),
                back: None,
            },
        ),
        Step::new(
            "edit",
            "Name etcd in the API server's manifest",
            Op::EditString {
                path: installed.waiting.clone(),
                from: node.edit.from.clone(),
                to: node.edit.to.clone(),
            },
        )
        .back(Back::First),
        Step::new(
            "return",
            "Give the manifest back to the kubelet",
            Op::Return {
                from: installed.waiting.clone(),
                to: installed.manifest.clone(),
            },
        ),
        Step::new(
            "ready",
            "Wait until the API server is ready on etcd",
            Op::Probe {
                argv: ready,
                timeout_s: ready_s,
                way: Way::Forward,
            },
        ),
        Step::new(
            "keep",
            "Keep the store's file under a new name",
            Op::Retire {
                path: Path::new(places::STORE_FILE).to_owned(),
                to: places::store_file_aside(node.number),
                runs: None,
            },
        ),
    ];
    Plan {
        format: plan::FORMAT,
        name: store::NAME.to_owned(),
        direction: Direction::Undo,
        version: installed.version.clone(),
        undoes: Some(installed.id.clone()),
        binding: installed.binding.clone(),
        point_of_no_return: Some("return".to_owned()),
        steps,
    }
}
