//! The fuzz targets: a short run of each, and that each finds what is put in.

use std::process::Command;

/// Runs the program; what it prints, and whether it found nothing.
fn fuzz(arguments: &[&str]) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_quantykube-fuzz"))
        .args(arguments)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}");
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    if output.status.code() == Some(1) {
        println!("{}", String::from_utf8_lossy(&output.stderr));
    }
    (text, output.status.success())
}

/// QUANTYKUBE_SEED repeats a run, QUANTYKUBE_FUZZ_INPUTS makes it longer.
fn short_run(target: &str, inputs: &str) {
    let inputs = std::env::var("QUANTYKUBE_FUZZ_INPUTS").unwrap_or_else(|_| inputs.to_owned());
    let (text, sound) = fuzz(&["--target", target, "--inputs", &inputs]);
    assert!(sound, "{text}");
    assert!(text.contains(&format!(", {inputs} in all: ")), "{text}");
}

/// With each fault in every input from number 3 on, the run ends with it, and names the input.
fn finds(target: &str, faults: &[(&str, &str)]) {
    for (fault, told) in faults {
        let (text, sound) = fuzz(&["--target", target, "--seed", "5", "--inputs", "10", "--plant", fault]);
        assert!(
            !sound && text.contains("input 3: ") && text.contains(told),
            "{fault}: {text}"
        );
    }
}

const PANIC: (&str, &str) = ("panic", "a panic");
const ALLOCATION: (&str, &str) = ("allocation", "signal 6");

#[test]
fn damaged_store_files_are_refused_or_read_as_before() {
    short_run("recovery", "100");
}

#[test]
fn mutated_databases_are_refused_or_read_to_their_end() {
    short_run("bbolt", "150");
}

#[test]
fn mutated_requests_to_all_methods_are_answered_or_refused() {
    short_run("requests", "600");
}

#[test]
fn what_is_put_in_is_found() {
    finds(
        "recovery",
        &[PANIC, ALLOCATION, ("silent", "accepted in silence"), ("hang", "no end")],
    );
    finds("bbolt", &[PANIC, ALLOCATION, ("silent", "accepted in silence")]);
    finds("requests", &[("panic", "ended with"), ("allocation", "more than 1")]);
}
