//! The build script of each program: lists the crates that are linked into it, so that the program carries the list and
//! a bundle's bill of materials is that of the bytes that are packed. Lines of `NAME VERSION LICENSE`, sorted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let var = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let folder = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let lock = folder
        .ancestors()
        .map(|folder| folder.join("Cargo.lock"))
        .find(|lock| lock.is_file());
    for path in lock.iter().chain([&folder.join("Cargo.toml")]) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let tree = Command::new(var("CARGO"))
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
        ])
        .args([
            "--format",
            "{p}|{l}",
            "--package",
            &var("CARGO_PKG_NAME"),
            "--target",
            &var("TARGET"),
        ])
        .current_dir(&folder)
        .output();
    let mut list = BTreeSet::new();
    match tree {
        Ok(tree) if tree.status.success() => {
            for line in String::from_utf8_lossy(&tree.stdout).lines() {
                let Some((package, license)) = line.split_once('|') else {
                    continue;
                };
                let mut words = package.split(' ');
                if let (Some(name), Some(version)) = (words.next(), words.next()) {
                    let license = license.trim_end_matches("(*)").trim();
                    list.insert(format!("{name} {} {license}\n", version.trim_start_matches('v')));
                }
            }
        }
        // The program works without it; the bill of materials then names none of its crates.
        _ => println!("cargo:warning=cargo tree failed: this program will not know its crates"),
    }
    let text = format!("quantykube-crates:1\n{}\n", list.into_iter().collect::<String>());
    std::fs::write(PathBuf::from(var("OUT_DIR")).join("crates"), text).expect("the build folder can be written to");
}
