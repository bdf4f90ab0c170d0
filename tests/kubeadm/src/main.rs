//! What `scripts/kubeadm.sh` runs: a real kubeadm cluster moved onto the store and back.
//! usage: quantykube-test-kubeadm move BUNDLE [--long]

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
mod tally;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (bundle, long) = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["move", bundle] => (Path::new(*bundle).to_owned(), false),
        ["move", bundle, "--long"] => (Path::new(*bundle).to_owned(), true),
        _ => {
            eprintln!("usage: quantykube-test-kubeadm move BUNDLE [--long]");
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::new();
    let mut bench = Bench::set_up(&bundle);
    round::round(&mut bench, &mut tally, long);
    if long {
        long::renewals(&bench, &mut tally);
        drop(bench);
        long::cuts(&bundle, &mut tally);
    } else {
        drop(bench);
    }
    if tally.close() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
