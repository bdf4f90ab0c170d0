//! Fuzz targets: bytes that nobody vouches for, given to what has to read them.
//!
//! ```text
//! process A (this one): starts B, sees how it ends      process B: input after input, each made of seed and number
//! ```
//! B has a limit on its address space and notes each input's number before it is judged, so that A can name the input
//! that ended or stopped B. An input of `recovery` comes again with `--seed S --first N --inputs 1`; one of `requests` needs those
//! before it, and half of those of `bbolt` begin with a snapshot that is another one each time.

mod bolt;
mod mutate;
mod recovery;
mod requests;
mod watcher;

use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use watcher::watch;

/// What an input may take of the address space beyond what the process has at its start. The largest fixture takes some
/// 100 MiB with all its copies.
const ROOM_BYTES: u64 = 512 << 20;

/// The options of a target.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// Mutated bytes to what reads them, instead of requests to two servers
    #[arg(long, value_enum)]
    pub target: Option<Target>,
    /// With --target: how many inputs; without it as many as fit into --seconds
    #[arg(long)]
    pub inputs: Option<u64>,
    /// With --target: no new input after so many seconds
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// A fault that the target must find, in input 3 or behind it
    #[arg(long, value_enum, hide = true)]
    pub plant: Option<Plant>,
    /// The process that takes the inputs; their numbers go to this file
    #[arg(long, hide = true)]
    pub inside: Option<PathBuf>,
}

/// What reads the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Target {
    /// Recovery of a store file, its check, and all reading of what was recovered
    Recovery,
    /// The reader of etcd's database files
    Bbolt,
    /// The decoding of requests by a running store
    Requests,
}

/// A fault that proves a target able to find one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Plant {
    /// A panic (for the requests: the server ends)
    Panic,
    /// An allocation that no input justifies
    Allocation,
    /// Content changed under right checksums, told to be plain damage: it has to be seen as accepted
    Silent,
    /// An input that takes forever
    Hang,
}

/// How the reader took an input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Took {
    /// An error, as it should be for damage.
    Refused,
    /// Read, with the content of the original.
    Same,
    /// Read, with other content: only where the checksums had been made right.
    Other,
}

/// A target with what it needs.
trait Judge {
    /// Judges the input that these random numbers make. `planted`: with the planted fault.
    fn judge(&mut self, rng: &mut SmallRng, planted: Option<Plant>) -> Result<Took, String>;
}

/// The inside process: judges input after input. True if nothing was found.
///
/// # Errors
/// What keeps it from starting.
pub fn inside(target: Target, seed: u64, first: u64, args: &TargetArgs) -> Result<bool, String> {
    let note = args.inside.as_ref().ok_or("no file for the numbers")?;
    let note = std::fs::File::create(note).map_err(|error| format!("{}: {error}", note.display()))?;
    let mut judge: Box<dyn Judge> = match target {
        Target::Recovery => Box::new(recovery::Recovery::new()?),
        Target::Bbolt => Box::new(bolt::Bbolt::new()?),
        Target::Requests => Box::new(requests::Requests::new()?),
    };
    limit_memory()?;
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let last = args.inputs.map_or(u64::MAX, |inputs| first.saturating_add(inputs));
    let (mut number, mut took) = (first, [0u64; 3]);
    while number < last && (args.inputs.is_some() || Instant::now() < end) {
        note.write_all_at(format!("{number:020}").as_bytes(), 0)
            .map_err(|error| format!("the number of an input: {error}"))?;
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
        let planted = args.plant.filter(|_| number >= first + 3);
        match catch_unwind(AssertUnwindSafe(|| judge.judge(&mut rng, planted))) {
            Ok(Ok(how)) => took[how as usize] += 1,
            Ok(Err(what)) => {
                println!("{target:?}, seed {seed}, input {number}: {what}");
                return Ok(false);
            }
            Err(_) => {
                println!("{target:?}, seed {seed}, input {number}: a panic (above)");
                return Ok(false);
            }
        }
        number += 1;
    }
    println!(
        "{target:?}, seed {seed}: inputs {first} to {number}, {} in all: {} refused, {} read as before, {} read with other \
         content",
        number - first,
        took[0],
        took[1],
        took[2]
    );
    Ok(true)
}

/// Lets any larger allocation end the process.
fn limit_memory() -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size: u64 = size
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .ok_or("/proc/self/status tells no VmSize in kB")?;
    let limit = Rlimit {
        current: Some((size << 10) + ROOM_BYTES),
        maximum: getrlimit(Resource::As).maximum,
    };
    setrlimit(Resource::As, limit).map_err(|error| format!("the limit on the address space: {error}"))
}

/// The faults that any target can be given. Silent acceptance is each target's own.
fn plant(planted: Option<Plant>) {
    match planted {
        Some(Plant::Panic) => panic!("a planted panic"),
        Some(Plant::Allocation) => drop(std::hint::black_box(vec![1u8; 2 * ROOM_BYTES as usize])),
        Some(Plant::Hang) => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        Some(Plant::Silent) | None => {}
    }
}
