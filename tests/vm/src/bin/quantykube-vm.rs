//! The part of `scripts/vm` that runs the machine.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["bake", folder] => quantykube_test_vm::bake::bake(Path::new(folder)),
        _ => {
            eprintln!("usage: quantykube-vm bake FOLDER");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
