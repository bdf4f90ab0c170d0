//! Drives an unmodified kube-apiserver on a real etcd, moves what it wrote onto the store, and compares everything.
//!
//! `scripts/migrate.sh` runs it. With `--control` the data stays on etcd: that run proves the driver on the reference.

mod api;
mod checks;
mod each;
mod etcd;
mod fill;
mod judge;
mod kinds;
mod note;
mod pki;
mod process;
mod run;
mod servers;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// What was typed.
#[derive(Debug, Parser)]
#[command(about = "Moves what a real kube-apiserver wrote from etcd onto the store and compares everything")]
pub struct Args {
    /// The folder with the real programs etcd and kube-apiserver
    #[arg(long)]
    peers: PathBuf,
    /// An empty folder for data, certificates and logs
    #[arg(long)]
    work: PathBuf,
    /// How many objects stay in the end
    #[arg(long, default_value_t = 5000)]
    objects: usize,
    /// Only restart the servers on the same etcd
    #[arg(long)]
    control: bool,
    /// Change one key behind the driver's back before anything is compared: the run must fail
    #[arg(long)]
    spoil: bool,
    /// The node-runner that migrates
    #[arg(long, required_unless_present = "control")]
    run: Option<PathBuf>,
    /// The store's program
    #[arg(long, required_unless_present = "control")]
    store: Option<PathBuf>,
    /// The seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The TTL of events, in seconds
    #[arg(long, default_value_t = 50)]
    event_ttl: u64,
}

/// One thread: a server that is started ends with the thread that started it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    println!("seed {}", args.seed);
    match run::run(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
