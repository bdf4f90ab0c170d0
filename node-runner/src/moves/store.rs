//! `install store`: from etcd onto the store.
//!
//! ```text
//! programs, settings, units     stay after an undo: undo needs them
//! answers                       (way back only) the API server answers again
//! retire, gone                  no API server writes to etcd any more
//! quiet                         nor does anybody else
//! copy                          the store's file is made, whole
//! unit, serves, edit            the store runs; the waiting manifest names it
//! ---- gate: the way back passes only while the file is at the copied revision
//! left                          (way back only) no API server writes to the store any more
//! return, ready                 the API server runs on the store
//! ```
//!
//! `edit` and `retire` come first on the way back: by files alone the API server is back on etcd. Until the manifest that
//! names the store stands nobody can have written to the store, so nothing is asked before it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use quantykube_journal::{Back, Binding, Content, Direction, Op, Pid, Plan, Process, Step, Way, plan};

use crate::facts::api_server::Endpoint;
use crate::facts::certificates::Files;
use crate::facts::process;
use crate::moves::etcd_servers::Edit;
use crate::moves::places;

/// What of a verified bundle the move needs.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Its version.
    pub version: String,
    /// The node-runner.
    pub runner: File,
    /// The store.
    pub store: File,
    /// The store's unit.
    pub unit: File,
    /// The unit that looks after an open move before the kubelet starts.
    pub recover: File,
    /// The unit that ends it after the kubelet has started.
    pub resume: File,
    /// The unit that guards the API server's manifest.
    pub guard: File,
}

/// A file of the bundle.
#[derive(Clone, Debug)]
pub struct File {
    /// Where it stands now.
    pub path: PathBuf,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// A node of which every check said yes.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Machine, node and cluster.
    pub binding: Binding,
    /// The kubelet's folder of static pods.
    pub static_pods: PathBuf,
    /// What the API server is started with.
    pub api_server_argv: Vec<String>,
    /// The API server as it runs.
    pub api_server: process::Process,
    /// Where it answers.
    pub endpoint: Endpoint,
    /// The etcd it uses.
    pub etcd: String,
    /// The API server's side of the connection to etcd.
    pub client: Files,
    /// etcd's side of it.
    pub server: Files,
    /// What the store takes over of etcd's own flags: names without dashes, and values.
    pub settings: Vec<(&'static str, String)>,
    /// Where the store will listen.
    pub store: SocketAddr,
    /// The edit of the API server's manifest.
    pub edit: Edit,
    /// The number of the next journal.
    pub number: u32,
}

/// The name of the move.
pub const NAME: &str = "store";
/// How long the end of the API server may take, in seconds: the kubelet's own list every 20 s, 30 s of grace, and where that
/// has not ended it, 30 s after TERM.
pub const GONE_TIMEOUT_S: u32 = 90;
/// After this time without any sign of the kubelet, the API server is asked to end, in seconds.
pub const TERM_AFTER_S: u32 = 60;
/// How long another client of etcd may be connected, in seconds: one that only looked is gone by then.
const QUIET_TIMEOUT_S: u32 = 15;
/// How long no process must have been seen, in milliseconds.
const QUIET_MS: u32 = 1_000;
/// How long the API server may take until it is ready where nobody says otherwise, in seconds. The kubelet itself gives it
/// 250 s to start.
pub const READY_TIMEOUT_S: u32 = 300;
/// How long the store may take to answer over TLS once systemd says that it runs, in seconds.
const SERVES_TIMEOUT_S: u32 = 30;
/// How long reading the store's file may take on the way back, in seconds.
const GATE_TIMEOUT_S: u32 = 600;

/// The plan of the move. The API server has `ready_s` seconds until it is ready.
pub fn plan(bundle: &Bundle, node: &Ready, ready_s: u32) -> Plan {
    let mut steps = programs(bundle, node);
    let manifest = node.static_pods.join(places::API_SERVER_MANIFEST);
    let waiting = places::retired(&node.static_pods, places::API_SERVER_MANIFEST);
    let runner = Runner::of(&bundle.version);
    let file = Path::new(places::STORE_FILE);
    let ready = runner.api_ready(&node.endpoint);
    let store = places::store_url(node.store);
    let mut copy = runner.call("migrate", and(tls(&node.etcd, &node.client), "to", places::STORE_FILE));
    copy.push("--refuse-writes".to_owned());
    let on_store = on_other_store(&node.api_server_argv, &node.etcd, &store);
    steps.extend([
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
                path: manifest.clone(),
                to: waiting.clone(),
                runs: Some(process_of(&node.api_server_argv, Some(&node.api_server))),
            },
        )
        .back(Back::First),
        Step::new(
            "gone",
            "Wait until no process of the API server is left",
            wait_gone(&node.api_server_argv, Some(&node.api_server), Way::Forward),
        ),
        Step::new(
            "quiet",
            "See that no other client is connected to etcd",
            Op::Probe {
                argv: runner.call("etcd-quiet", vec![("endpoint", node.etcd.clone())]),
                timeout_s: QUIET_TIMEOUT_S,
                way: Way::Forward,
            },
        ),
        Step::new(
            "copy",
            "Copy etcd into the store's file, with its revisions",
            Op::Build {
                argv: copy,
                creates: file.to_owned(),
                partial: partial(file),
                aside: Some(places::store_file_aside(node.number)),
            },
        ),
        Step::new(
            "unit",
            "Start the store",
            Op::Unit {
                name: places::STORE_UNIT.to_owned(),
                enabled: true,
                active: true,
            },
        ),
        Step::new(
            "serves",
            "Ask the store as the API server will",
            Op::Probe {
                argv: runner.call("store-ready", tls(&store, &node.client)),
                timeout_s: SERVES_TIMEOUT_S,
                way: Way::Forward,
            },
        ),
        Step::new(
            "edit",
            "Name the store in the API server's manifest",
            Op::EditString {
                path: waiting.clone(),
                from: node.edit.from.clone(),
                to: node.edit.to.clone(),
            },
        )
        .back(Back::First),
        Step::new(
            "untouched",
            "From here on only a store that nobody has written to is given up",
            Op::Gate {
                argv: runner.call("gate-store", and(tls(&store, &node.client), "file", places::STORE_FILE)),
                timeout_s: GATE_TIMEOUT_S,
            },
        ),
        Step::new(
            "left",
            "Wait until no API server is left on the store",
            wait_gone(&on_store, None, Way::Back),
        ),
        Step::new(
            "return",
            "Give the manifest back to the kubelet",
            Op::Return {
                from: waiting,
                to: manifest,
            },
        ),
        Step::new(
            "ready",
            "Wait until the API server is ready on the store",
            Op::Probe {
                argv: ready,
                timeout_s: ready_s,
                way: Way::Forward,
            },
        ),
    ]);
    Plan {
        format: plan::FORMAT,
        name: NAME.to_owned(),
        direction: Direction::Install,
        version: bundle.version.clone(),
        undoes: None,
        binding: node.binding.clone(),
        point_of_no_return: None,
        steps,
    }
}

/// The steps that put our programs, settings and unit on the node. Undo leaves them there.
fn programs(bundle: &Bundle, node: &Ready) -> Vec<Step> {
    let version = &bundle.version;
    let folder = |name: &str, path: &Path, mode| {
        Step::new(
            name,
            format!("Make the folder {}", path.display()),
            Op::MakeDir {
                path: path.to_owned(),
                mode,
            },
        )
    };
    let file = |name: &str, text: &str, path: PathBuf, mode, file: &File| {
        let content = Content::File {
            from: file.path.clone(),
            sha256: file.sha256.clone(),
        };
        Step::new(name, text, Op::PutFile { path, mode, content })
    };
    let runner = places::runner(version);
    [
        folder("programs", Path::new(places::PROGRAMS), 0o755),
        folder("version", &places::programs(version), 0o755),
        file(
            "runner",
            "Put the node-runner on the node",
            runner.clone(),
            0o755,
            &bundle.runner,
        ),
        file(
            "store",
            "Put the store on the node",
            places::programs(version).join("quantykube-store"),
            0o755,
            &bundle.store,
        ),
        Step::new(
            "link",
            "Let the node-runner be called quantykube",
            Op::PutLink {
                path: places::LINK.into(),
                target: runner,
            },
        ),
        file(
            "recover-unit",
            "Put the unit on the node that looks after an open move before the kubelet starts",
            Path::new(places::UNITS).join(places::RECOVER_UNIT),
            0o644,
            &bundle.recover,
        ),
        file(
            "resume-unit",
            "Put the unit on the node that ends an open move after a boot",
            Path::new(places::UNITS).join(places::RESUME_UNIT),
            0o644,
            &bundle.resume,
        ),
        file(
            "guard-unit",
            "Put the unit on the node that guards the API server's manifest",
            Path::new(places::UNITS).join(places::GUARD_UNIT),
            0o644,
            &bundle.guard,
        ),
        folder("boot-units", Path::new(places::BOOT_UNITS), 0o755),
        at_boot("recover-link", places::RECOVER_UNIT),
        at_boot("resume-link", places::RESUME_UNIT),
        folder("settings", Path::new(places::SETTINGS), 0o755),
        Step::new(
            "store-env",
            "Write the store's settings",
            Op::PutFile {
                path: places::STORE_ENV.into(),
                mode: 0o644,
                content: Content::Text(store_env(node)),
            },
        ),
        file(
            "store-unit",
            "Put the store's unit on the node",
            Path::new(places::UNITS).join(places::STORE_UNIT),
            0o644,
            &bundle.unit,
        ),
        Step::new(
            "reload",
            "Let systemd read the units",
            Op::ReloadUnits { way: Way::Forward },
        ),
        Step::new(
            "guard",
            "Start the guard, now and at every boot",
            Op::Unit {
                name: places::GUARD_UNIT.to_owned(),
                enabled: true,
                active: true,
            },
        ),
        folder("data", Path::new(places::DATA), 0o755),
        folder("store-folder", Path::new(places::STORE_FOLDER), 0o700),
        folder("waiting", &places::retired_folder(&node.static_pods), 0o700),
    ]
    .into_iter()
    .map(|step| step.back(Back::Keep))
    .collect()
}

/// Lets every boot start a unit: by its link, as `systemctl enable` makes it.
fn at_boot(name: &str, unit: &str) -> Step {
    Step::new(
        name,
        format!("Let every boot start {unit}"),
        Op::PutLink {
            path: Path::new(places::BOOT_UNITS).join(unit),
            target: Path::new(places::UNITS).join(unit),
        },
    )
}

/// The settings of the store: where it listens, etcd's own certificate, and what etcd was set to.
fn store_env(node: &Ready) -> String {
    let files = &node.server;
    let mut lines = vec![
        ("listen", node.store.to_string()),
        ("data", places::STORE_FILE.to_owned()),
        ("cert-file", files.cert.display().to_string()),
        ("key-file", files.key.display().to_string()),
        ("trusted-ca-file", files.ca.display().to_string()),
        ("client-cert-auth", "true".to_owned()),
        ("listen-metrics", places::STORE_METRICS.to_string()),
    ];
    lines.extend(node.settings.iter().cloned());
    lines
        .iter()
        .map(|(name, value)| {
            let name = name.to_ascii_uppercase().replace('-', "_");
            format!("QUANTYKUBE_STORE_{name}={}\n", quoted(value))
        })
        .collect()
}

/// A value as systemd's environment files take it literally.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._:-[]".contains(c);
    match value.chars().all(plain) {
        true => value.to_owned(),
        false => format!(
            "\"{}\"",
            value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('$', "\\$")
                .replace('`', "\\`")
        ),
    }
}

/// The installed node-runner's verbs, as plans call them.
pub(super) struct Runner(PathBuf);

/// Arguments of a call: names without dashes, and values.
type Arguments = Vec<(&'static str, String)>;

impl Runner {
    /// Of one version.
    pub(super) fn of(version: &str) -> Runner {
        Runner(places::runner(version))
    }

    /// `VERB --NAME VALUE ...`
    pub(super) fn call(&self, verb: &str, arguments: Arguments) -> Vec<String> {
        let mut argv = vec![self.0.display().to_string(), verb.to_owned()];
        for (name, value) in arguments {
            argv.extend([format!("--{name}"), value]);
        }
        argv
    }

    /// Asks the API server whether it is ready.
    pub(super) fn api_ready(&self, endpoint: &Endpoint) -> Vec<String> {
        let mut arguments = vec![
            ("address", endpoint.address.to_string()),
            ("cacert", endpoint.ca.display().to_string()),
        ];
        if let Some((cert, key)) = &endpoint.client {
            arguments.push(("cert", cert.display().to_string()));
            arguments.push(("key", key.display().to_string()));
        }
        self.call("api-ready", arguments)
    }
}

/// Arguments that name an etcd (or the store), as a client sees it.
pub(super) fn tls(url: &str, files: &Files) -> Arguments {
    vec![
        ("endpoints", url.to_owned()),
        ("cert", files.cert.display().to_string()),
        ("key", files.key.display().to_string()),
        ("cacert", files.ca.display().to_string()),
    ]
}

/// The same arguments with one more.
pub(super) fn and(mut arguments: Arguments, name: &'static str, value: &str) -> Arguments {
    arguments.push((name, value.to_owned()));
    arguments
}

/// An API server that is started with `argv`.
pub(super) fn process_of(argv: &[String], seen: Option<&process::Process>) -> Process {
    let program = argv.first().and_then(|program| Path::new(program).file_name());
    Process {
        program: program
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        args: process::telling_items(argv),
        pid: seen.map(|process| Pid {
            pid: process.pid,
            start: process.start,
        }),
        boot_id: seen.and_then(|process| process.boot_id.clone()),
        group: seen.and_then(|process| process.group.clone()),
    }
}

/// Waits for the end of an API server that is started with `argv`.
pub(super) fn wait_gone(argv: &[String], seen: Option<&process::Process>, way: Way) -> Op {
    Op::WaitGone {
        process: process_of(argv, seen),
        timeout_s: GONE_TIMEOUT_S,
        term_after_s: Some(TERM_AFTER_S),
        quiet_ms: QUIET_MS,
        way,
    }
}

/// The same command line with another store.
fn on_other_store(argv: &[String], from: &str, to: &str) -> Vec<String> {
    argv.iter()
        .map(|item| match item.strip_suffix(from) {
            Some(flag) if flag.is_empty() || process::names(flag, "etcd-servers") => format!("{flag}{to}"),
            _ => item.clone(),
        })
        .collect()
}

/// The temporary names that stand beside a store file while it is made.
fn partial(file: &Path) -> Vec<PathBuf> {
    quantykube_base::durable::temporary_name(file).into_iter().collect()
}
