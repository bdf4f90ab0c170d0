//! Runs a program and prints what it cost: `SECONDS CPU_SECONDS PEAK_KIB`, as the last line of standard error.
//!
//! usage: quantykube-measure PROGRAM [ARGUMENT...]

use std::process::{Command, ExitCode};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: quantykube-measure PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let status = match Command::new(&program).args(arguments).status() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", program.display());
            return ExitCode::FAILURE;
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    // The one child has been waited for, so this is its own usage; max_rss is the largest resident set, in KiB.
    match getrusage(UsageWho::RUSAGE_CHILDREN) {
        Ok(usage) => {
            let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            eprintln!("{seconds:.3} {:.3} {}", cpu as f64 / 1e6, usage.max_rss());
        }
        Err(error) => {
            eprintln!("error: getrusage: {error}");
            return ExitCode::FAILURE;
        }
    }
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}
