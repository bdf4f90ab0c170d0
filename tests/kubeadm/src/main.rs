//! What `scripts/kubeadm.sh` runs: a real kubeadm cluster moved onto the store and back.
//! usage: quantykube-test-kubeadm move BUNDLE [--long]
//!        quantykube-test-kubeadm cuts BUNDLE
//!        quantykube-test-kubeadm seed SEED [--long]

use std::path::Path;
use std::process::ExitCode;

use bench::Bench;
use tally::Tally;

mod bench;
mod cut;
mod fill;
mod keys;
mod long;
mod polls;
mod round;
mod seed;
mod tally;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (bundle, round, long, cuts) = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["move", bundle] => (*bundle, true, false, false),
        ["move", bundle, "--long"] => (*bundle, true, true, true),
        ["cuts", bundle] => (*bundle, false, false, true),
        ["seed", seed] => (*seed, false, false, false),
        ["seed", seed, "--long"] => (*seed, false, true, false),
        _ => {
            eprintln!("usage: quantykube-test-kubeadm move BUNDLE [--long] | cuts BUNDLE | seed SEED [--long]");
            return ExitCode::from(2);
        }
    };
    let bundle = Path::new(bundle);
    let mut tally = Tally::new();
    if args[0] == "seed" {
        seed::first_boot(bundle, &mut tally, long);
        if long {
            seed::broken(bundle, &mut tally);
        }
    }
    if round {
        let mut bench = Bench::set_up(bundle);
        round::round(&mut bench, &mut tally, long);
        if long {
            long::renewals(&bench, &mut tally);
        }
    }
    if cuts {
        long::cuts(bundle, &mut tally);
    }
    if tally.close() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
