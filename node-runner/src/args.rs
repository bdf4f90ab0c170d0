//! The command line, in two stages: [`Typed`] is what was typed, [`Command`] is what the program can use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use quantykube_base::{Exit, Failure, Reporter, parse_time};
use quantykube_bundle_format::PublicKey;

use crate::commands::bundle::Meant;
use crate::commands::{first_boot, images, kubeadm_config, migrate};
use crate::first_boot::Role;
use crate::moves::store::READY_TIMEOUT_S;
use crate::unit::Shared;

/// Moves this node's cluster from etcd onto QuantyKube's store, and back.
#[derive(Debug, Parser)]
#[command(name = "quantykube", version, after_help = after_help())]
struct Typed {
    /// Print one JSON event a line on standard output.
    #[arg(long, global = true)]
    json: bool,
    /// The folder shared with the follower (for the move's unit).
    #[arg(long, hide = true, value_name = "FOLDER")]
    inside: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check every bit of a bundle: of the folder this program stands in, or of FILE.
    Verify {
        /// A bundle's .tar.gz, or the folder that was extracted from it.
        file: Option<PathBuf>,
        #[command(flatten)]
        meant: Which,
    },
    /// Print the checks and every step of a move, and change nothing.
    Plan {
        /// What would be moved.
        #[arg(value_name = "MOVE")]
        what: Move,
        /// Plan the way back instead.
        #[arg(long, conflicts_with_all = ["Which", "rehearse"])]
        undo: bool,
        /// Copy the live cluster into a store that is thrown away, start it, and tell what that took.
        #[arg(long)]
        rehearse: bool,
        #[command(flatten)]
        meant: Which,
    },
    /// Make a move: check, print the steps, take them one by one, each written to a journal first.
    Install {
        /// What is moved.
        #[arg(value_name = "MOVE")]
        what: Move,
        #[command(flatten)]
        meant: Which,
        #[command(flatten)]
        patience: Patience,
    },
    /// Bring the node back: an open move is put back, a finished one is undone. Needs no bundle and no API server.
    Undo {
        /// What is brought back.
        #[arg(value_name = "MOVE")]
        what: Move,
        #[command(flatten)]
        patience: Patience,
    },
    /// Go on with an open move in the direction it has.
    Resume {
        /// As the unit quantykube-resume does it at boot: what can be put back is, and what needs a person is left.
        #[arg(long, hide = true)]
        boot: bool,
    },
    /// Look after an open move before the kubelet starts (for the unit quantykube-recover).
    #[command(hide = true)]
    Recover {
        #[arg(long, required = true)]
        boot: bool,
    },
    /// The guard over the API server's manifest.
    Guard {
        #[command(subcommand)]
        what: Guard,
    },
    /// Become what was typed (for the move's unit).
    #[command(hide = true)]
    InUnit { folder: PathBuf },
    /// Say where the cluster's data lives, since when, and whether a move is open.
    Status {
        /// One line for a monitoring system; ends as its plugins do: 0 well, 1 warning, 2 critical, 3 unknown.
        #[arg(long)]
        check: bool,
    },
    /// Verify this bundle, wait for the API server, and move (for cloud-init; see quantykube-bundle user-data).
    FirstBoot {
        /// What the node is meant to be; on one that is something else nothing is done.
        #[arg(long, value_enum, default_value = "control-plane")]
        role: Role,
        /// How long to wait for what the move needs, such as 90s, 30m or 2h.
        #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_time)]
        deadline: Duration,
        /// On a node without a cluster first run kubeadm init with this configuration.
        #[arg(long, value_name = "FILE")]
        kubeadm_config: Option<PathBuf>,
        #[command(flatten)]
        meant: Which,
    },
    /// Tell every move that was made on this node.
    History,
    /// Edit kubeadm's ConfigMap on its way from kubectl to kubectl, so that kubeadm upgrade names the right side.
    KubeadmConfig {
        /// Record the store, or take it out again.
        edit: RememberOrForget,
        /// The store's URL, such as https://127.0.0.1:2479.
        url: String,
    },
    /// Take our units, programs and settings off a node that is back on etcd. Journals and store files stay.
    Remove {
        /// Remove journals and store files, too. Nothing brings them back.
        #[arg(long)]
        purge: bool,
        /// Only list what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Copy an etcd into a store file by hand, with its revisions.
    Migrate(migrate::Args),
    /// The images of the bundle.
    Images(images::Args),
    /// Print the version of this program.
    Version,
    /// Ask an API server whether it is ready (for plans).
    #[command(hide = true)]
    ApiReady {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long)]
        cacert: PathBuf,
        #[arg(long, requires = "key")]
        cert: Option<PathBuf>,
        #[arg(long, requires = "cert")]
        key: Option<PathBuf>,
    },
    /// Ask the store for its revision as the API server would (for plans).
    #[command(hide = true)]
    StoreReady(Etcd),
    /// Succeed only if no other client is connected to etcd (for plans).
    #[command(hide = true)]
    EtcdQuiet {
        #[arg(long)]
        endpoint: String,
    },
    /// Succeed only if nobody has written to a store file since it was copied (for plans).
    #[command(hide = true)]
    GateStore {
        #[arg(long)]
        file: PathBuf,
        #[command(flatten)]
        server: Option<Etcd>,
    },
    /// Lift etcd's revision past the store's (for plans).
    #[command(hide = true)]
    RaiseRevision {
        #[command(flatten)]
        etcd: Etcd,
        #[arg(long)]
        store: String,
    },
    /// Copy a store file into etcd (for plans).
    #[command(hide = true)]
    CopyBack {
        #[command(flatten)]
        etcd: Etcd,
        #[arg(long)]
        file: PathBuf,
    },
}

/// What is asked of the guard.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Guard {
    /// Give back a manifest that the guard took out of the kubelet's folder, edited so that it names where the data lives.
    Release,
    /// Watch the kubelet's folder (for the unit quantykube-guard).
    #[command(hide = true)]
    Watch,
}

/// How long a move waits.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Patience {
    /// How long the API server may take until it is ready; then the move goes back, as far as it can. Slow nodes need more.
    #[arg(long, value_name = "SECONDS", default_value_t = READY_TIMEOUT_S, value_parser = clap::value_parser!(u32).range(10..=7200))]
    ready_timeout: u32,
}

/// Which bundle is meant, and whose.
#[derive(Clone, Debug, clap::Args)]
pub struct Which {
    /// The id that quantykube-bundle printed when it built the bundle; another one is refused.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The key the bundle must be signed with, in place of /etc/quantykube/trusted-keys/*.pub: a file or the key itself.
    #[arg(long, value_name = "FILE|KEY")]
    public_key: Option<String>,
}

impl Which {
    /// Reads the id and the key.
    pub fn check(self) -> Result<Meant, Failure> {
        let given = |text: String| {
            PublicKey::given(&text).map_err(|error| {
                Failure::new(Exit::Usage, "public-key", "--public-key names no key")
                    .because(error)
                    .hint("give the file NAME.pub that keygen wrote, or the line in it that begins with RW")
            })
        };
        Ok(Meant {
            id: self.id.map(|id| Id::parse(&id)).transpose()?,
            key: self.public_key.map(given).transpose()?,
        })
    }
}

/// An etcd or a store, as a client sees it.
#[derive(Clone, Debug, clap::Args)]
pub struct Etcd {
    /// Its URL.
    #[arg(long)]
    pub endpoints: String,
    /// The client's certificate.
    #[arg(long)]
    pub cert: PathBuf,
    /// Its key.
    #[arg(long)]
    pub key: PathBuf,
    /// The CA of the server's certificate.
    #[arg(long)]
    pub cacert: PathBuf,
}

/// What can be moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Move {
    /// The cluster's data: etcd or the store.
    Store,
}

/// Which way kubeadm's ConfigMap is edited.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum RememberOrForget {
    /// kubeadm names the store.
    Remember,
    /// kubeadm names its own etcd.
    Forget,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Check a bundle: a file or folder, or the folder this program stands in.
    Verify {
        /// Which; else this program's own folder.
        file: Option<PathBuf>,
        /// Its id and key.
        meant: Meant,
    },
    /// Print what `install store` would do.
    PlanStore {
        /// The id and key of the bundle.
        meant: Meant,
    },
    /// Copy into a store that is thrown away.
    RehearseStore {
        /// The id and key of the bundle.
        meant: Meant,
    },
    /// Print what `undo store` would do.
    PlanUndoStore,
    /// Onto the store.
    InstallStore {
        /// The id and key of the bundle.
        meant: Meant,
        /// How long the API server may take until it is ready, in seconds.
        ready_s: u32,
    },
    /// Back into etcd.
    UndoStore {
        /// How long the API server may take until it is ready, in seconds.
        ready_s: u32,
    },
    /// Go on.
    Resume,
    /// In the move's unit: become what was typed.
    InUnit(Shared),
    /// After a boot, before the kubelet.
    RecoverAtBoot,
    /// After a boot, and the kubelet.
    ResumeAtBoot,
    /// Tell.
    Status {
        /// In one line, as a monitoring system's plugin.
        check: bool,
    },
    /// At a first boot.
    FirstBoot(first_boot::Request),
    /// Tell all moves.
    History,
    /// Edit kubeadm's ConfigMap.
    KubeadmConfig(kubeadm_config::Edit),
    /// Take our things off the node.
    Remove {
        /// The data, too.
        purge: bool,
        /// Only list.
        dry_run: bool,
    },
    /// By hand.
    Migrate(migrate::Args),
    /// The bundle's images into containerd.
    LoadImages(images::Load),
    /// Tell the version.
    Version,
    /// For plans: is the API server ready?
    ApiReady(crate::facts::api_server::Endpoint),
    /// For plans: does the store answer?
    StoreReady(Etcd),
    /// For the guard's unit.
    GuardWatch,
    /// Give back what the guard took.
    GuardRelease,
    /// For plans: is anybody else connected to etcd?
    EtcdQuiet {
        /// Its URL.
        endpoint: String,
    },
    /// For plans: is a store file as it was copied?
    GateStore {
        /// The store's file.
        file: PathBuf,
        /// The store, which may run.
        server: Option<Etcd>,
    },
    /// For plans: etcd's revision past the store's.
    RaiseRevision {
        /// Which etcd; the same certificates are good for the store.
        etcd: Etcd,
        /// The store's URL.
        store: String,
    },
    /// For plans: the store's file into etcd.
    CopyBack {
        /// Where to.
        etcd: Etcd,
        /// From where.
        file: PathBuf,
    },
}

impl Command {
    /// Whether it is a move, which runs in a unit of its own.
    pub fn is_move(&self) -> bool {
        matches!(
            self,
            Command::InstallStore { .. } | Command::UndoStore { .. } | Command::Resume
        )
    }
}

/// What was typed, as far as it can be told without looking at the node.
#[derive(Debug)]
pub struct Line {
    /// Whether a program reads the output.
    pub json: bool,
    /// In the move's unit: the folder shared with the follower.
    pub inside: Option<Shared>,
    /// What is to be done.
    pub command: Result<Command, Failure>,
}

/// A bundle's id: 64 hexadecimal digits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Id(String);

impl Id {
    /// Reads an id, with or without `sha256:` before it.
    fn parse(text: &str) -> Result<Id, Failure> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase();
        match digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Id(digits)),
            false => Err(Failure::new(
                Exit::Usage,
                "id",
                format!(
                    "--id {text} is no bundle id: 64 hexadecimal digits are expected, {} characters were given",
                    digits.len()
                ),
            )
            .hint("the id is printed by quantykube-bundle build and quantykube-bundle inspect")),
        }
    }

    /// The digits.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Reads the command line. Prints and ends the process on `--help` and wrong usage, as clap does.
pub fn parse() -> Line {
    let typed = Typed::try_parse().unwrap_or_else(|error| match error.use_stderr() {
        true if let Some(exit) = Reporter::usage(&error.to_string()) => std::process::exit(exit.code().into()),
        _ => error.exit(),
    });
    Line {
        json: typed.json,
        inside: typed.inside.map(Shared::at),
        command: check(typed.verb),
    }
}

/// The whole definition, for what is made of it: manual pages and completions.
#[cfg(test)]
pub fn definition() -> clap::Command {
    use clap::CommandFactory;
    Typed::command()
}

/// Everything about arguments that can fail without looking at the node.
fn check(verb: Verb) -> Result<Command, Failure> {
    Ok(match verb {
        Verb::Verify { file, meant } => Command::Verify {
            file,
            meant: meant.check()?,
        },
        Verb::Plan {
            what: Move::Store,
            rehearse: true,
            meant,
            ..
        } => Command::RehearseStore { meant: meant.check()? },
        Verb::Plan {
            what: Move::Store,
            undo: false,
            meant,
            ..
        } => Command::PlanStore { meant: meant.check()? },
        Verb::Plan {
            what: Move::Store,
            undo: true,
            ..
        } => Command::PlanUndoStore,
        Verb::Install {
            what: Move::Store,
            meant,
            patience,
        } => Command::InstallStore {
            meant: meant.check()?,
            ready_s: patience.ready_timeout,
        },
        Verb::Undo {
            what: Move::Store,
            patience,
        } => Command::UndoStore {
            ready_s: patience.ready_timeout,
        },
        Verb::Resume { boot: false } => Command::Resume,
        Verb::Resume { boot: true } => Command::ResumeAtBoot,
        Verb::InUnit { folder } => Command::InUnit(Shared::at(folder)),
        Verb::Recover { boot: _ } => Command::RecoverAtBoot,
        Verb::Status { check } => Command::Status { check },
        Verb::FirstBoot {
            role,
            deadline,
            kubeadm_config,
            meant,
        } => Command::FirstBoot(first_boot::Request {
            role,
            deadline,
            kubeadm: kubeadm_config,
            id: meant.id.clone(),
            meant: meant.check()?,
        }),
        Verb::History => Command::History,
        Verb::KubeadmConfig { edit, url } => Command::KubeadmConfig(match edit {
            RememberOrForget::Remember => kubeadm_config::Edit::Remember(url),
            RememberOrForget::Forget => kubeadm_config::Edit::Forget(url),
        }),
        Verb::Remove { purge, dry_run } => Command::Remove { purge, dry_run },
        Verb::Migrate(args) => Command::Migrate(args),
        Verb::Images(args) => Command::LoadImages(args.check()?),
        Verb::Version => Command::Version,
        Verb::ApiReady {
            address,
            cacert,
            cert,
            key,
        } => Command::ApiReady(crate::facts::api_server::Endpoint {
            address,
            ca: cacert,
            client: cert.zip(key),
        }),
        Verb::StoreReady(etcd) => Command::StoreReady(etcd),
        Verb::Guard { what: Guard::Release } => Command::GuardRelease,
        Verb::Guard { what: Guard::Watch } => Command::GuardWatch,
        Verb::EtcdQuiet { endpoint } => Command::EtcdQuiet { endpoint },
        Verb::GateStore { file, server } => Command::GateStore { file, server },
        Verb::RaiseRevision { etcd, store } => Command::RaiseRevision { etcd, store },
        Verb::CopyBack { etcd, file } => Command::CopyBack { etcd, file },
    })
}

/// What `--help` ends with.
fn after_help() -> String {
    let mut text = String::from(
        "In this order, from the folder of an extracted bundle, as root:\n\
         \n\
         \x20 ./run verify --id ID     is the bundle whole, and the one that was built?\n\
         \x20 ./run plan store         what would be done? (changes nothing)\n\
         \x20 ./run install store      do it; a failure puts everything back\n\
         \x20 ./run images load        put the bundle's images into containerd\n\
         \x20 quantykube status        where does the data live?\n\
         \x20 quantykube undo store    bring it back into etcd\n\
         \n\
         Undo works from the journal alone, without the bundle, the API server or a network. A move that was killed is put \
         back by it, one that lost its power by the next boot itself; a finished one is undone: what was written meanwhile is copied into etcd first, and \
         the store's file is kept under a new name. Programs and units stay on the node.\n\
         \n\
         Exit codes:\n",
    );
    for exit in Exit::ALL {
        text.push_str(&format!("  {}  {}\n", exit.code(), exit.meaning()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Typed::command().debug_assert();
    }

    #[test]
    fn an_id_is_checked_before_anything_is_read() {
        let id = "A".repeat(64);
        assert_eq!(Id::parse(&format!("sha256:{id}")).unwrap().text(), "a".repeat(64));
        for bad in ["", "abc", &"g".repeat(64), &"a".repeat(63)] {
            assert_eq!(Id::parse(bad).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn every_verb_of_a_plan_is_understood() {
        let typed = |line: &str| Typed::try_parse_from(line.split(' ')).map(|typed| check(typed.verb).unwrap());
        assert!(matches!(typed("q plan store"), Ok(Command::PlanStore { .. })));
        assert!(matches!(
            typed("q --json undo store"),
            Ok(Command::UndoStore { ready_s: 300 })
        ));
        assert!(matches!(
            typed("q undo store --json"),
            Ok(Command::UndoStore { ready_s: 300 })
        ));
        let patient = typed("q install store --ready-timeout 900");
        assert!(matches!(patient, Ok(Command::InstallStore { ready_s: 900, .. })));
        assert!(typed("q install store --ready-timeout 5").is_err());
        assert!(matches!(typed("q verify"), Ok(Command::Verify { file: None, .. })));
        assert!(typed("q install runtime").is_err());
        assert!(typed("q plan store --undo --id 1").is_err());
        assert!(typed("q api-ready --address name:1 --cacert c").is_err());
        assert!(matches!(typed("q resume"), Ok(Command::Resume)));
        assert!(matches!(typed("q resume --boot"), Ok(Command::ResumeAtBoot)));
        assert!(matches!(typed("q recover --boot"), Ok(Command::RecoverAtBoot)));
        assert!(typed("q recover").is_err(), "nobody types it by mistake");
    }
}
