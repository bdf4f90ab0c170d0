//! `user-data`: what cloud-init gives to a node, so that it verifies a bundle and runs it at its first boot.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use quantykube_base::{Exit, Failure, Reporter, parse_time};
use quantykube_bundle_format::{Digest, Hasher, PublicKey, Unverified};
use serde_json::json;

use crate::args::{self, Meant};
use crate::check::Expected;
use crate::files;
use crate::first_boot::{self, Place, Platform, Request, Role};
use crate::fresh::absent;
use crate::watch::{Shown, Stop};

/// The longest configuration of kubeadm, in bytes.
const KUBEADM_MAX: u64 = 256 << 10;

/// What is made when the node boots.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Move {
    /// The cluster's data onto the store
    Store,
}

/// What both ways to hand user-data to a node share.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// What is moved
    #[arg(long = "move", value_name = "MOVE", default_value = "store")]
    pub what: Move,
    /// What the node is meant to be; on a node that is something else nothing is done
    #[arg(long, value_name = "ROLE", default_value = "control-plane")]
    pub role: Role,
    /// How long the node waits for its API server
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_time)]
    pub deadline: Duration,
    /// The bundle: its checksum and id are compared on the node before anything of it runs
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    pub meant: Meant,
    /// On a node without a cluster first run `kubeadm init` with this configuration, with the bundle's kubeadm and images
    #[arg(long, value_name = "FILE")]
    pub kubeadm_config: Option<PathBuf>,
    /// Where the bundle is: a path on the disk with --label, else an absolute one on the node
    #[arg(long, value_name = "PATH")]
    pub bundle_path: Option<String>,
    /// The label of the disk that the bundle is on
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
}

/// Write user-data that makes a node verify a bundle and run it at its first boot
///
/// The node needs cloud-init and no network. What it did is shown by `cloud-init status --long` and by
/// `quantykube status` on it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle user-data --platform ec2 --bundle site.tar.gz --bundle-path /srv/site.tar.gz -o user-data
  quantykube-bundle user-data --platform vsphere --bundle site.tar.gz --label carrier --bundle-path site.tar.gz \\
      --public-key site.pub -o user-data")]
pub struct Args {
    /// Who hands it to the node; its size is checked against what that takes
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Platform,
    #[command(flatten)]
    pub common: Common,
    /// Where to write it; nothing is written over
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Writes it.
pub fn run(args: &Args, report: &Reporter) -> Result<(), Failure> {
    absent(&args.output)?;
    let request = request(&args.common, place(&args.common), report)?;
    let text = first_boot::user_data(&request, args.platform)?;
    // kubeadm's configuration may hold secrets.
    files::make(
        &args.output,
        &text,
        if request.kubeadm.is_some() { 0o600 } else { 0o644 },
    )?;
    let file = args.output.display().to_string();
    let value = json!({
        "file": file,
        "size": text.len(),
        "most": args.platform.bytes_max(),
        "id": request.id.map(|id| id.to_string()),
        "sha256": request.sha256.map(|sha256| sha256.to_string()),
    });
    let of = args
        .platform
        .bytes_max()
        .map(|most| format!(" of {most}"))
        .unwrap_or_default();
    report.result(
        &format!(
            "{file}  {}{of} bytes; afterwards, on the node: cloud-init status --long",
            text.len()
        ),
        value,
    );
    Ok(())
}

/// Where the user says that the bundle is; else on a NoCloud seed.
pub fn place(common: &Common) -> Place {
    match (&common.label, &common.bundle_path) {
        (None, Some(path)) => Place {
            label: None,
            path: path.clone(),
        },
        (label, path) => Place {
            label: Some(label.clone().unwrap_or_else(|| super::seed::LABEL.to_owned())),
            path: path.clone().unwrap_or_else(|| super::seed::BUNDLE.to_owned()),
        },
    }
}

/// Reads what was typed. The bundle is verified: a bad one must not travel.
pub fn request(common: &Common, place: Place, report: &Reporter) -> Result<Request, Failure> {
    let Move::Store = common.what;
    let expected = Expected::read(&common.meant)?;
    if common.bundle.is_none() && !expected.is_any() {
        let message = "nothing says which bundle is meant: the node would run whatever it finds";
        return Err(Failure::new(Exit::Usage, "which-bundle", message).hint(
            "give the bundle (--bundle FILE), its id (--id ID) or the key it is signed with (--public-key FILE)",
        ));
    }
    let kubeadm = match &common.kubeadm_config {
        Some(path) => Some(files::read_text(path, KUBEADM_MAX)?),
        None => None,
    };
    let (id, sha256) = match &common.bundle {
        Some(path) => {
            let stop = Stop::on_signals();
            let bundle = Unverified::open(path)?;
            expected.compare(&bundle)?;
            let id = bundle.id();
            let mut shown = Shown::new(report, "verifying", &stop);
            bundle.verify(args::jobs(None), &mut shown)?;
            shown.finish();
            (Some(id), Some(sha256_of(path)?))
        }
        None => (
            common.meant.id.as_deref().and_then(|id| id.parse::<Digest>().ok()),
            None,
        ),
    };
    let key = common.meant.public_key.as_deref().map(PublicKey::given).transpose();
    Ok(Request {
        place,
        role: common.role,
        deadline: common.deadline.as_secs(),
        sha256,
        id,
        key: key
            .map_err(|error| Failure::new(Exit::Usage, "public-key", "--public-key names no key").because(error))?,
        kubeadm,
    })
}

fn sha256_of(path: &Path) -> Result<Digest, Failure> {
    let cannot = |error| Failure::new(Exit::Failed, "read", format!("cannot read {}", path.display())).because(error);
    let mut file = quantykube_base::open_regular(path).map_err(cannot)?;
    let mut hash = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(cannot)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok(hash.finish())
}
