//! What no file of the tree may hold.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use quantykube_tests::places::root;

/// The only files that may say `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/journal/src/system/host.rs",
    "crates/store-file/src/disk/file.rs",
];

/// No source file is longer.
const LINES_MAX: usize = 700;

fn tracked() -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "git ls-files failed");
    String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(PathBuf::from)
        .filter(|p| root().join(p).is_file())
        .collect()
}

fn rust() -> Vec<(String, String)> {
    tracked()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(root().join(&path)).unwrap(),
            )
        })
        .collect()
}

#[test]
fn unsafe_stands_only_where_the_design_allows_it() {
    let word = concat!("un", "safe");
    for (path, text) in rust() {
        if UNSAFE.contains(&path.as_str()) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let found = code
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|token| token == word);
            assert!(
                !found || code.contains('"'),
                "{path}:{}: {word} is not allowed here",
                number + 1
            );
        }
    }
}

#[test]
fn sources_are_ascii_and_not_too_long() {
    for (path, text) in rust() {
        if let Some(number) = text.lines().position(|line| !line.is_ascii()) {
            panic!("{path}:{}: not ASCII", number + 1);
        }
        let lines = text.lines().count();
        assert!(
            lines <= LINES_MAX,
            "{path} has {lines} lines, more than {LINES_MAX}: split it"
        );
    }
}

#[test]
fn scripts_stop_at_the_first_failure() {
    for path in tracked()
        .into_iter()
        .filter(|p| p.starts_with("scripts") || p.starts_with(".ci"))
    {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        if text.starts_with("#!") {
            assert!(
                text.contains("set -euo pipefail"),
                "{}: no `set -euo pipefail`",
                path.display()
            );
        }
    }
}

#[test]
fn no_built_file_is_in_the_tree() {
    for path in tracked() {
        let size = fs::metadata(root().join(&path)).unwrap().len();
        assert!(
            size <= 1_000_000,
            "{} has {size} bytes: a test or a script should make it",
            path.display()
        );
    }
}
