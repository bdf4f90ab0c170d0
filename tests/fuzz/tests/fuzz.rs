//! The fuzzer itself, and what it has found.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use quantykube_fuzz::run::{Counts, Difference, Fault, Sides};
use quantykube_fuzz::side::Kind;
use quantykube_fuzz::{generate, shrink, step};

/// Requests of a run at the gate; QUANTYKUBE_FUZZ_REQUESTS says otherwise.
const REQUESTS: usize = 100_000;

/// Requests of a slice.
const SLICE: usize = 10_000;

/// A memory file system where there is one.
fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn seed() -> u64 {
    let seed = match std::env::var("QUANTYKUBE_SEED") {
        Ok(seed) => seed.parse().expect("QUANTYKUBE_SEED is a number"),
        Err(_) => rand::random_range(0..u64::from(u32::MAX)),
    };
    println!("seed {seed} (QUANTYKUBE_SEED={seed} repeats this run)");
    seed
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

async fn sides(right: Kind, fault: Fault) -> Sides {
    Sides::fresh([Kind::Etcd, right], folder(), fault)
        .await
        .expect("two servers")
}

/// The sum of slices run in lanes of their own.
fn lanes(seed: u64, slices: u64, size: usize, right: Kind) -> Result<Counts, String> {
    let next = Mutex::new(0);
    let total = Mutex::new(Counts::default());
    let lane = || -> Result<(), String> {
        loop {
            let slice = {
                let mut next = next.lock().expect("no lane panicked");
                *next += 1;
                *next - 1
            };
            if slice >= slices {
                return Ok(());
            }
            let steps = generate::steps(seed, slice, size);
            let counts = block_on(async {
                let mut sides = sides(right, Fault::None).await;
                match sides.run(&steps).await {
                    Ok(counts) => Ok(counts),
                    Err(found) => Err(tell(&mut sides, seed, slice, &steps, &found).await),
                }
            })?;
            let mut total = total.lock().expect("no lane panicked");
            total.requests += counts.requests;
            total.refused += counts.refused;
            total.compactions += counts.compactions;
            total.watches += counts.watches;
            total.events += counts.events;
            total.restarts += counts.restarts;
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..3).map(|_| scope.spawn(lane)).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().expect("a lane ends well"))
    })?;
    Ok(total.into_inner().expect("no lane panicked"))
}

async fn tell(sides: &mut Sides, seed: u64, slice: u64, steps: &[step::Step], found: &Difference) -> String {
    let whole = format!("seed {seed}, slice {slice}, step {}: {}", found.at, found.what);
    match shrink::shrink(sides, steps, found, 300).await {
        None => whole,
        Some(shrunk) => format!(
            "{whole}\n{} steps show it:\n{}{}",
            shrunk.steps.len(),
            step::write(&shrunk.steps),
            shrunk.what
        ),
    }
}

/// The judge judged: etcd beside etcd shows no difference, whatever the requests.
#[test]
fn etcd_does_not_differ_from_etcd() {
    let counts = lanes(seed(), 4, 1500, Kind::Etcd).unwrap_or_else(|what| panic!("{what}"));
    println!("{counts:?}");
    assert!(
        counts.requests > 5000 && counts.refused > 300 && counts.events > 1000 && counts.watches > 10,
        "{counts:?}"
    );
}

/// Errors put into the answers of one of two etcds are found, and what is printed is short and shows them again.
#[test]
fn an_error_put_in_is_found_and_made_short() {
    for (fault, most) in [(Fault::ThirdVersion, 5), (Fault::LostDelete, 4)] {
        block_on(async {
            let steps = generate::steps(1, 0, 1500);
            let mut sides = sides(Kind::Etcd, fault).await;
            let found = sides.run(&steps).await.expect_err("the error is found");
            let shrunk = shrink::shrink(&mut sides, &steps, &found, 400)
                .await
                .expect("it comes again");
            println!(
                "{fault:?}: step {}, shrunk in {} runs to\n{}",
                found.at,
                shrunk.runs,
                step::write(&shrunk.steps)
            );
            assert!(shrunk.steps.len() <= most, "{:?}", shrunk.steps);
            let again = step::read(&step::write(&shrunk.steps)).expect("what was written is read");
            sides.renew().await.expect("new servers");
            sides.run(&again).await.expect_err("what was printed shows it again");
        });
    }
}

/// Every difference that was ever found, on servers without a past.
#[test]
fn what_was_found_stays_away() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of what was found")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let steps = step::read(&std::fs::read_to_string(&path).expect("a list of steps"));
        let steps = steps.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let outcome = block_on(async { sides(Kind::Store, Fault::None).await.run(&steps).await });
        outcome.unwrap_or_else(|found| panic!("{}, step {}: {}", path.display(), found.at, found.what));
    }
}

/// The store beside etcd.
#[test]
fn the_store_does_not_differ_from_etcd() {
    let requests =
        std::env::var("QUANTYKUBE_FUZZ_REQUESTS").map_or(REQUESTS, |number| number.parse().expect("a number"));
    let counts =
        lanes(seed(), requests.div_ceil(SLICE) as u64, SLICE, Kind::Store).unwrap_or_else(|what| panic!("{what}"));
    println!("{counts:?}");
    assert!(
        counts.requests > requests * 9 / 10 && counts.refused > requests / 50 && counts.events > requests / 10,
        "{counts:?}"
    );
}
