//! `seed`: a disk image from which cloud-init takes user-data, with the bundle on it.

use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;

use quantykube_base::{Exit, Failure, Reporter, human_bytes, open_regular};
use quantykube_bundle_format::Digest;
use serde_json::json;

use crate::commands::user_data::{self, Common};
use crate::first_boot::{self, Platform};
use crate::fresh::{self, Fresh, cannot_write};
use crate::iso;

/// The label by which cloud-init knows a seed.
pub const LABEL: &str = "cidata";
/// The bundle's name on it.
pub const BUNDLE: &str = "bundle.tar.gz";
/// cloud-init then leaves the node's network as it is, and waits for none.
const NO_NETWORK: &str = "version: 1\nconfig: disabled\n";

/// Write a NoCloud seed: a disk image with user-data and the bundle, for a node without a network
///
/// An ISO 9660 image with the label cidata: attach it as a CD-ROM, or write it to a stick. The same inputs give the
/// same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle seed --bundle site.tar.gz --public-key site.pub --no-network -o seed.iso
  quantykube-bundle seed --id ID --bundle-path /srv/site.tar.gz -o seed.iso     for a bundle that is on the node")]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    /// Have cloud-init leave the node's network as it is
    #[arg(long)]
    pub no_network: bool,
    /// Where to write it; nothing is written over
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Writes it.
pub fn run(args: &Args, report: &Reporter) -> Result<(), Failure> {
    fresh::absent(&args.output)?;
    let common = &args.common;
    let elsewhere = common.label.is_some() || common.bundle_path.is_some();
    // A bundle that is said to be elsewhere is only named; else it lies on the seed.
    let carried = common.bundle.as_deref().filter(|_| !elsewhere);
    if carried.is_none() && !elsewhere {
        return Err(Failure::new(
            Exit::Usage,
            "which-bundle",
            "the seed would hold no bundle and name no place of one",
        )
        .hint("give the bundle (--bundle FILE), or its place on the node (--bundle-path, --label)"));
    }
    let request = user_data::request(common, user_data::place(common), report)?;
    let text = first_boot::user_data(&request, Platform::Nocloud)?;
    // Other inputs are another instance, on which cloud-init runs anew.
    let instance = format!("quantykube-{}", &Digest::of(text.as_bytes()).to_string()[..16]);
    let meta = format!("instance-id: {instance}\n");
    let mut small = vec![("user-data", text), ("meta-data", meta)];
    if args.no_network {
        small.push(("network-config", NO_NETWORK.to_owned()));
    }
    let mut files: Vec<iso::File<Box<dyn Read>>> = Vec::new();
    let mut needed = 1 << 20;
    for (name, text) in small {
        files.push(iso::File {
            name: name.to_owned(),
            length: text.len() as u64,
            content: Box::new(std::io::Cursor::new(text.into_bytes())),
        });
    }
    if let Some(path) = carried {
        let cannot =
            |error| Failure::new(Exit::Failed, "read", format!("cannot read {}", path.display())).because(error);
        let file = open_regular(path).map_err(cannot)?;
        let length = file.metadata().map_err(cannot)?.len();
        if length > iso::FILE_MAX {
            let message = format!(
                "{} has {length} bytes, a seed holds files of at most {}",
                path.display(),
                iso::FILE_MAX
            );
            return Err(Failure::new(Exit::Refused, "too-large", message)
                .hint("put the bundle on another disk, and name that with --label and --bundle-path"));
        }
        needed += length;
        files.push(iso::File {
            name: BUNDLE.to_owned(),
            length,
            content: Box::new(file),
        });
    }
    fresh::space(args.output.parent().unwrap_or(std::path::Path::new("")), needed)?;
    let fresh = Fresh::make(&args.output)?;
    // kubeadm's configuration may hold secrets.
    let mode = if request.kubeadm.is_some() { 0o600 } else { 0o644 };
    let cannot = cannot_write(&args.output);
    fresh
        .file
        .set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
        .map_err(&cannot)?;
    let mut out = BufWriter::with_capacity(1 << 20, &fresh.file);
    let size = iso::write(&mut out, LABEL, files).map_err(&cannot)?;
    out.flush().map_err(&cannot)?;
    drop(out);
    fresh.finish()?;
    let file = args.output.display().to_string();
    let value = json!({
        "file": file,
        "size": size,
        "label": LABEL,
        "instanceId": instance,
        "id": request.id.map(|id| id.to_string()),
        "sha256": request.sha256.map(|sha256| sha256.to_string()),
        "holdsBundle": carried.is_some(),
    });
    let with = if carried.is_some() {
        ", with the bundle on it"
    } else {
        ""
    };
    report.result(
        &format!(
            "{file}  {}, label {LABEL}, instance {instance}{with}; afterwards, on the node: cloud-init status --long",
            human_bytes(size)
        ),
        value,
    );
    Ok(())
}
