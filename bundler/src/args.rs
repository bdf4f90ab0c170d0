//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; nothing was changed
  2  wrong usage, or a mistake in the spec or a template
  3  not verified: a checksum, the signature or the set of files is not what it must be
  4  a check says no: something is missing or is for another machine
  5  no space
  7  the bundle needs a newer version";

/// Build the one file that moves a Kubernetes node onto QuantyKube.
///
/// A bundle is an ordinary .tar.gz. Build it here, copy it to a node by any means, unpack it there with tar, and run
/// what `build` prints at its end.
#[derive(Debug, Parser)]
#[command(name = "quantykube-bundle", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub struct Args {
    /// Say everything as JSON, one event a line
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Init(Init),
    Build(Build),
    Lock(Lock),
    Keygen(Keygen),
    Inspect(Inspect),
    Verify(Verify),
    Extract(Extract),
    Split(Split),
    Join(Join),
    Fill(Fill),
    Apply(Apply),
    Diff(Diff),
    UserData(crate::commands::user_data::Args),
    Seed(crate::commands::seed::Args),
    Sbom(Sbom),
    Schema(Schema),
    Completions(Completions),
    Man(Man),
}

/// Print what a shell needs to complete this command line
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  . <(quantykube-bundle completions bash)
  quantykube-bundle completions zsh > ~/.zfunc/_quantykube-bundle")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Print a manual page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle man | man -l -
  quantykube-bundle man build > quantykube-bundle-build.1")]
pub struct Man {
    /// The command whose page it is; without it that of the whole program
    pub command: Option<String>,
}

/// Write a spec to begin with
///
/// It has every key: those that need something of yours are commented out. Nothing is written over.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// Where to write it
    #[arg(default_value = "quantykube.yaml")]
    pub file: PathBuf,
}

/// Build a bundle
///
/// Renders units, manifests and user-data from templates, takes programs, binaries and images, checks that nothing that
/// is named is missing, and writes one tarball. The same inputs give the same bytes on every machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle build                        the built-in default: QuantyKube's own programs
  quantykube-bundle build site.yaml -o site.tar.gz
  quantykube-bundle build site.yaml --find-images manifests/   what do these name, and what does the spec lack?
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) quantykube-bundle build")]
pub struct Build {
    /// What to pack; without it ./quantykube.yaml if that is there, else the built-in default
    pub spec: Option<PathBuf>,
    /// Where to write the bundle; without it ./NAME-VERSION-linux-ARCHITECTURE.tar.gz
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How many threads read and compress; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// A folder with systemd/, manifests/ and cloud-init/ to use in place of the spec's or the built-in templates
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
    /// Take this optional part of the spec, too
    #[arg(long, value_name = "PART")]
    pub with: Vec<String>,
    /// Leave this optional part of the spec out
    #[arg(long, value_name = "PART")]
    pub without: Vec<String>,
    /// Sign the bundle with this secret key of minisign; its password comes from QUANTYKUBE_SIGN_PASSWORD or the terminal
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,
    /// Who to be to registries: a file in the form of docker's config.json, with auth or username and password
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// Keep what is fetched in this folder, by digest, and do not fetch what is there; without it nothing is kept
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Take every URL and image of a registry as `lock` wrote it down, out of its cache, and ask no server
    #[arg(long, conflicts_with = "credentials")]
    pub locked: bool,
    /// The lock; without it quantykube.lock beside the spec
    #[arg(long, value_name = "FILE", requires = "locked")]
    pub lock_file: Option<PathBuf>,
    /// Write what makes the bundle of this older one, in place of the bundle; `apply` puts the two together
    #[arg(long, value_name = "OLD")]
    pub base: Option<PathBuf>,
    /// Check everything and say what would be in the bundle, and write nothing
    #[arg(long, conflicts_with_all = ["base", "check_reproducible"])]
    pub dry_run: bool,
    /// Build nothing: list the images that these manifests name (YAML or JSON; of a folder all of them), and say which of them
    /// the spec lacks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base", "check_reproducible", "dry_run", "locked", "sign", "output"])]
    pub find_images: Vec<PathBuf>,
    /// Build it a second time, in another order of work, and compare: two builds that differ are a failure
    #[arg(long)]
    pub check_reproducible: bool,
}

/// Write down what every URL and every name of an image stands for now
///
/// Asks each server, fetches everything into a cache, and writes the digests into quantykube.lock beside the spec. From
/// the lock and the cache `build --locked` builds without a network. Optional parts of the spec are all in it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle lock site.yaml && quantykube-bundle build site.yaml --locked
  quantykube-bundle lock site.yaml --check       says in words what changed, and ends with 1 where something did")]
pub struct Lock {
    /// The spec; without it ./quantykube.yaml if that is there
    pub spec: Option<PathBuf>,
    /// Compare with what the servers have now, and write nothing
    #[arg(long)]
    pub check: bool,
    /// The lock; without it quantykube.lock beside the spec
    #[arg(long, value_name = "FILE")]
    pub lock_file: Option<PathBuf>,
    /// Where the bytes are kept; without it content/ in QUANTYKUBE_CACHE or in ~/.cache/quantykube
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub cache: Option<PathBuf>,
    /// Who to be to registries: a file in the form of docker's config.json, with auth or username and password
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
}

/// Make a pair of keys to sign bundles with
///
/// Writes NAME.key, which signs, and NAME.pub, which checks, in minisign's format. Neither is ever written over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle keygen -o site
  quantykube-bundle build --sign site.key")]
pub struct Keygen {
    /// What to call the two files
    #[arg(short, long, value_name = "NAME", default_value = "quantykube")]
    pub output: PathBuf,
    /// Do not protect the secret key with a password; else it comes from QUANTYKUBE_SIGN_PASSWORD or the terminal
    #[arg(long)]
    pub no_password: bool,
}

/// Which bundle is meant, and whose
#[derive(Debug, clap::Args)]
pub struct Meant {
    /// The id that the bundle must have, as `build` printed it
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The key that the bundle must be signed with: the file NAME.pub, or the line in it that begins with RW
    #[arg(long, value_name = "FILE|KEY")]
    pub public_key: Option<String>,
}

/// List what a bundle claims to hold, without reading all of it
#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// The bundle
    pub file: PathBuf,
}

/// Check every bit of a bundle
///
/// Of a bundle that was split give one part, and the others are looked for in its folder; or give all of them.
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// The bundle, or parts of it
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub meant: Meant,
    /// How many threads read and check; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// Check a bundle and unpack it, or some of it, into a new folder
///
/// Makes DIR/NAME-VERSION-linux-ARCHITECTURE, which must not be there yet. It has this name only once every bit was
/// right; after an error nothing of it is left. With PATHs only their bytes are read and checked, against bundle.json;
/// --id or --public-key says whether that is the right one.
#[derive(Debug, clap::Args)]
pub struct Extract {
    /// The bundle
    pub file: PathBuf,
    /// Where to make the folder
    pub dir: PathBuf,
    /// What to unpack, as `inspect` names it, such as bin/quantykube-store or systemd; without it everything
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
    #[command(flatten)]
    pub meant: Meant,
    /// How many threads read and check; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// A number of bytes, as 4G.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            "T" | "TiB" => 40,
            other => return Err(format!("{other:?} is no unit: expected K, M, G or T (of 1024)")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is no number"))?;
        let bytes = number.checked_shl(shift).filter(|bytes| bytes >> shift == number);
        bytes
            .filter(|bytes| *bytes > 0)
            .map(Size)
            .ok_or("it is no possible size".into())
    }
}

/// Cut a bundle into parts for a carrier that takes no large files
///
/// Each part is smaller than SIZE, says which bundle it is of, which part of how many it is, and has its own checksum.
/// `cat` of all parts in order is a file that tar opens, too. The bundle stays, and nothing is written over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  quantykube-bundle split site.tar.gz --size 4G        for FAT32, whose files are smaller than 4 GiB
  quantykube-bundle split site.tar.gz --size 650M -o /media/stick")]
pub struct Split {
    /// The bundle
    pub file: PathBuf,
    /// What each part is smaller than, in bytes or with K, M, G or T
    #[arg(long, value_name = "SIZE")]
    pub size: Size,
    /// The folder for the parts; without it that of the bundle
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// How many threads read and check; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// Put the parts of a bundle together
///
/// Every part that is missing, bad, there twice or of another bundle is named, and nothing is written. Names and order do
/// not matter: each part says itself which one it is. The parts stay.
#[derive(Debug, clap::Args)]
pub struct Join {
    /// One part, with the others in its folder; or all parts
    #[arg(required = true, value_name = "PART")]
    pub parts: Vec<PathBuf>,
    /// Where to write the bundle; without it ./NAME-VERSION-linux-ARCHITECTURE.tar.gz
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub meant: Meant,
}

/// Complete a half-copied bundle from another copy
///
/// What is whole in FILE stays and is not read again of OTHER. FILE is completed in its place, after it was proven that
/// it is a copy of OTHER, and is verified at the end. OTHER may be parts.
#[derive(Debug, clap::Args)]
pub struct Fill {
    /// The half-copied bundle
    pub file: PathBuf,
    /// A whole copy
    pub other: PathBuf,
    #[command(flatten)]
    pub meant: Meant,
    /// How many threads read and check; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// Make a bundle from an older one and a delta
///
/// The delta comes from `build --base`. BASE is the older bundle, or the folder that was extracted from it; it is verified
/// first. What comes out are the very bytes that a whole build has, or nothing.
#[derive(Debug, clap::Args)]
pub struct Apply {
    /// The delta
    pub delta: PathBuf,
    /// The older bundle or its folder
    pub base: PathBuf,
    /// Where to write the bundle; without it ./NAME-VERSION-linux-ARCHITECTURE.tar.gz
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub meant: Meant,
    /// How many threads work; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// Say in words what differs between two bundles
///
/// Reads only what they say of themselves.
#[derive(Debug, clap::Args)]
pub struct Diff {
    /// The older bundle
    pub old: PathBuf,
    /// The newer bundle
    pub new: PathBuf,
}

/// Print what a bundle is made of, for programs that look for known weaknesses
///
/// Every file with its digest, every image, and the crates that QuantyKube's programs were built from, as the programs
/// say it.
#[derive(Debug, clap::Args)]
pub struct Sbom {
    /// The bundle
    pub file: PathBuf,
    /// SPDX 2.3, as it is in the bundle, or CycloneDX 1.6
    #[arg(long, value_enum, default_value_t = SbomFormat::Spdx)]
    pub format: SbomFormat,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum SbomFormat {
    /// SPDX 2.3
    Spdx,
    /// CycloneDX 1.6
    Cyclonedx,
}

/// Print the JSON Schema of a spec, for editors, or of events
#[derive(Debug, clap::Args)]
pub struct Schema {
    /// That of the events which --json prints, in place of it
    #[arg(long)]
    pub events: bool,
}

/// One thread for each core, unless said.
pub fn jobs(asked: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    asked.map_or_else(cores, usize::from)
}
