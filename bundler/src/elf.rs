//! What a program is built for, from the first bytes of its file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use quantykube_base::{Exit, Failure, open_regular};
use quantykube_bundle_format::{Architecture, Kind};

/// The program header that names a dynamic loader.
const PT_INTERP: u32 = 3;

/// Checks that a file is a program for `architecture`. Ours must be static as well; another may be a script.
pub fn check(path: &Path, shown: &str, kind: Kind, architecture: Architecture) -> Result<(), Failure> {
    let file = open_regular(path).map_err(|error| {
        let failure = Failure::new(Exit::Refused, "missing-program", format!("cannot open {shown}"));
        let failure = match kind {
            Kind::Program => {
                failure.hint("build it first; it is looked for beside quantykube-bundle unless the spec gives its path")
            }
            _ => failure,
        };
        failure.because(error)
    })?;
    let refused = |found: String| Failure::new(Exit::Refused, "program", format!("{shown} {found}"));
    let mut start = [0; 64];
    let length = read_start(&file, &mut start)
        .map_err(|error| Failure::new(Exit::Failed, "read", format!("cannot read {shown}")).because(error))?;
    if kind == Kind::Binary && start.starts_with(b"#!") {
        return Ok(());
    }
    if length < start.len() || !start.starts_with(b"\x7fELF") {
        return Err(refused("is not an ELF program".into()));
    }
    if start[4..6] != [2, 1] {
        return Err(refused(format!(
            "is not a 64-bit little-endian program, expected one for {architecture}"
        )));
    }
    let machine = u16::from_le_bytes([start[18], start[19]]);
    if machine != architecture.elf_machine() {
        return Err(refused(format!(
            "is a program for {}, expected one for {architecture}",
            machine_name(machine)
        )));
    }
    if kind == Kind::Program && names_a_loader(&file, &start).map_err(refused)? {
        return Err(
            refused("is linked dynamically, and a node may not have its libraries".into())
                .hint("build it with RUSTFLAGS=\"-C target-feature=+crt-static\" and --target"),
        );
    }
    Ok(())
}

fn read_start(file: &File, start: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < start.len() {
        match file.read_at(&mut start[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// Whether a program header asks for a dynamic loader. The error says why that cannot be told.
fn names_a_loader(file: &File, start: &[u8; 64]) -> Result<bool, String> {
    let table = u64::from_le_bytes(start[32..40].try_into().expect("eight bytes"));
    let size = u64::from(u16::from_le_bytes([start[54], start[55]]));
    let count = u64::from(u16::from_le_bytes([start[56], start[57]]));
    if count > 0 && size < 56 {
        return Err("has program headers that cannot be read".into());
    }
    for index in 0..count {
        let mut kind = [0; 4];
        let at = table
            .checked_add(index * size)
            .ok_or("has program headers that cannot be read")?;
        file.read_exact_at(&mut kind, at)
            .map_err(|error| format!("has program headers that cannot be read: {error}"))?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "386".into(),
        40 => "arm".into(),
        21 => "ppc64le".into(),
        22 => "s390x".into(),
        62 => "amd64".into(),
        183 => "arm64".into(),
        243 => "riscv64".into(),
        other => format!("machine {other}"),
    }
}
