//! Reading what a person wrote.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use quantykube_base::{Exit, Failure};

/// A text file, whole, with a bound on its length.
pub fn read_text(path: &Path, most: u64) -> Result<String, Failure> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::InvalidData => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::new(exit, "read", format!("cannot read {name}")).because(error)
    };
    let mut text = String::new();
    File::open(path)
        .map_err(cannot)?
        .take(most + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    match text.len() as u64 > most {
        true => Err(Failure::new(
            Exit::Usage,
            "read",
            format!("{name} is longer than {most} bytes"),
        )),
        false => Ok(text),
    }
}
