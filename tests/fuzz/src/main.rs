//! The program `quantykube-fuzz`: random requests to etcd and to the store, compared.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use quantykube_fuzz::run::{Counts, Fault, Sides};
use quantykube_fuzz::side::Kind;
use quantykube_fuzz::targets::{self, TargetArgs};
use quantykube_fuzz::{generate, shrink, step};

/// Sends the same seeded random requests to two servers and compares every answer and every event
///
/// Slices are independent of each other: a run that was stopped goes on with --first. A difference is shrunk to a list of
/// steps, printed, written to --found and played again with --replay. Exit code 0: no difference; 1: one was found; 2:
/// wrong usage.
#[derive(Clone, Debug, Parser)]
#[command(name = "quantykube-fuzz")]
struct Args {
    /// Requests in all
    #[arg(long, default_value_t = 100_000)]
    requests: usize,
    /// Requests of one slice
    #[arg(long, default_value_t = 10_000)]
    slice: usize,
    /// The number of the first slice, or input
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The seed; drawn if it is not given
    #[arg(long, env = "QUANTYKUBE_SEED")]
    seed: Option<u64>,
    /// Slices run at once, each with servers of its own
    #[arg(long, default_value_t = 4)]
    lanes: usize,
    /// The server that is right
    #[arg(long, value_enum, default_value = "etcd")]
    left: Name,
    /// The server that is judged
    #[arg(long, value_enum, default_value = "store")]
    right: Name,
    /// Where the servers keep their files
    #[arg(long, default_value = "/dev/shm")]
    folder: PathBuf,
    /// Where a difference's steps are written
    #[arg(long, default_value = "fuzz-found.jsonl")]
    found: PathBuf,
    /// Play these steps instead of random ones
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Print the steps of slice --first and do nothing else
    #[arg(long)]
    print: bool,
    /// Most runs to shrink a difference; 0 does not
    #[arg(long, default_value_t = 600)]
    shrink: usize,
    /// Go on with other slices after a difference
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    targets: TargetArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Etcd,
    Store,
}

impl From<Name> for Kind {
    fn from(name: Name) -> Kind {
        match name {
            Name::Etcd => Kind::Etcd,
            Name::Store => Kind::Store,
        }
    }
}

#[derive(Default)]
struct Total {
    counts: Counts,
    slices: usize,
    different: Vec<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(target) = args.targets.target {
        let seed = args.seed.unwrap_or_else(|| rand::random_range(0..u64::from(u32::MAX)));
        let run = if args.targets.inside.is_some() {
            targets::inside
        } else {
            targets::watch
        };
        return code(run(target, seed, args.first, &args.targets));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    code(runtime.expect("a runtime").block_on(run(args)))
}

fn code(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(args: Args) -> Result<bool, String> {
    if let Some(path) = &args.replay {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let steps = step::read(&text)?;
        let mut sides = Sides::fresh([args.left.into(), args.right.into()], args.folder, Fault::None).await?;
        return Ok(match sides.run(&steps).await {
            Ok(counts) => {
                println!("no difference: {counts:?}");
                true
            }
            Err(found) => {
                println!("step {}: {}", found.at, found.what);
                false
            }
        });
    }
    let seed = args.seed.unwrap_or_else(|| rand::random_range(0..u64::from(u32::MAX)));
    if args.print {
        print!("{}", step::write(&generate::steps(seed, args.first, args.slice)));
        return Ok(true);
    }
    let slices = args.requests.div_ceil(args.slice) as u64;
    let last = args.first + slices;
    println!("seed {seed}: slices {}..{last} of {} requests", args.first, args.slice);
    let queue: Arc<Mutex<VecDeque<u64>>> = Arc::new(Mutex::new((args.first..last).collect()));
    let total = Arc::new(Mutex::new(Total::default()));
    let begun = Instant::now();
    let lanes: Vec<_> = (0..args.lanes.max(1))
        .map(|_| {
            let (args, queue, total) = (args.clone(), Arc::clone(&queue), Arc::clone(&total));
            tokio::spawn(async move { lane(&args, seed, &queue, &total, begun).await })
        })
        .collect();
    for lane in lanes {
        lane.await.map_err(|error| format!("a lane failed: {error}"))??;
    }
    let total = total.lock().expect("no lane panicked");
    let c = total.counts;
    println!(
        "seed {seed}: {} requests ({} refused by both), {} revisions, {} compactions, {} watches, {} events, {} restarts \
         in {:.0} s; slices with differences: {:?}",
        c.requests,
        c.refused,
        c.revisions,
        c.compactions,
        c.watches,
        c.events,
        c.restarts,
        begun.elapsed().as_secs_f64(),
        total.different
    );
    Ok(total.different.is_empty())
}

async fn lane(
    args: &Args,
    seed: u64,
    queue: &Mutex<VecDeque<u64>>,
    total: &Mutex<Total>,
    begun: Instant,
) -> Result<(), String> {
    loop {
        let Some(slice) = queue.lock().expect("no lane panicked").pop_front() else {
            return Ok(());
        };
        let steps = generate::steps(seed, slice, args.slice);
        let mut sides = Sides::fresh([args.left.into(), args.right.into()], args.folder.clone(), Fault::None).await?;
        match sides.run(&steps).await {
            Ok(counts) => {
                let mut total = total.lock().expect("no lane panicked");
                total.slices += 1;
                let all = &mut total.counts;
                all.requests += counts.requests;
                all.refused += counts.refused;
                all.revisions += counts.revisions;
                all.compactions += counts.compactions;
                all.watches += counts.watches;
                all.events += counts.events;
                all.restarts += counts.restarts;
                println!(
                    "slice {slice}: same, {} requests; {} done in {:.0} s",
                    counts.requests,
                    total.counts.requests,
                    begun.elapsed().as_secs_f64()
                );
            }
            Err(found) => {
                println!("slice {slice}, step {}: {}", found.at, found.what);
                if !args.all {
                    queue.lock().expect("no lane panicked").clear();
                }
                total.lock().expect("no lane panicked").different.push(slice);
                if args.shrink > 0 {
                    report(args, seed, slice, &mut sides, &steps, &found).await?;
                }
            }
        }
    }
}

async fn report(
    args: &Args,
    seed: u64,
    slice: u64,
    sides: &mut Sides,
    steps: &[step::Step],
    found: &quantykube_fuzz::run::Difference,
) -> Result<(), String> {
    let Some(shrunk) = shrink::shrink(sides, steps, found, args.shrink).await else {
        println!("slice {slice}: the difference did not come again");
        return Ok(());
    };
    let fresh = if shrunk.only_fresh {
        ", on fresh servers only"
    } else {
        ""
    };
    let text = format!(
        "# seed {seed}, slice {slice}, {} steps after {} runs{fresh}\n{}",
        shrunk.steps.len(),
        shrunk.runs,
        step::write(&shrunk.steps)
    );
    println!("{text}{}", shrunk.what);
    let path = args.found.with_extension(format!("{slice}.jsonl"));
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("again: quantykube-fuzz --replay {}", path.display());
    Ok(())
}
