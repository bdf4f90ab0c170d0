//! `check`: full verification of a closed file.

use std::path::PathBuf;

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_store_file::{self as store_file, Problem};
use serde_json::{Value, json};

use super::failure;

/// Read every byte that counts in a closed store file and tell what is damaged, with its offset
///
/// Both header copies, the checkpoint, every frame of the log, every value, and that index and history agree. The file is
/// not changed. Exit code 0: sound; 3: damaged; 4: a server holds it. What a power cut may leave (a torn tail, an older
/// header copy) is told and is no damage: the next start of the server puts it right.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The store file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// One JSON event a line on standard output
    #[arg(long)]
    pub json: bool,
}

/// Checks.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Failure> {
    let path = &args.file;
    reporter.step("check", &format!("checking {}", path.display()));
    let checked = store_file::check(path).map_err(|error| failure(path, error))?;
    for notice in &checked.notices {
        reporter.warning("notice", &format!("at offset {}: {}", notice.offset, notice.what));
    }
    let list = |problems: &[Problem]| -> Vec<Value> {
        let event = |problem: &Problem| json!({"offset": problem.offset, "what": problem.what});
        problems.iter().map(event).collect()
    };
    let value = json!({
        "path": path.display().to_string(),
        "sound": checked.problems.is_empty(),
        "problems": list(&checked.problems),
        "moreProblems": checked.more_problems,
        "notices": list(&checked.notices),
        "revision": checked.revision,
        "compactRevision": checked.compacted,
        "keys": checked.keys,
        "versions": checked.versions,
        "leases": checked.leases,
        "segments": checked.segments,
        "frames": checked.frames,
        "valueBytes": checked.value_bytes,
        "fileBytes": checked.file_bytes,
    });
    let Some(first) = checked.problems.first() else {
        let text = format!(
            "{} is sound: {} keys, {} versions, {} of values, {} frames in {} segments, revision {}, compacted {}",
            path.display(),
            checked.keys,
            checked.versions,
            human_bytes(checked.value_bytes),
            checked.frames,
            checked.segments,
            checked.revision,
            checked.compacted
        );
        reporter.result(&text, value);
        return Ok(());
    };
    let mut text: Vec<String> = checked
        .problems
        .iter()
        .map(|problem| format!("at offset {}: {}", problem.offset, problem.what))
        .collect();
    if checked.more_problems > 0 {
        text.push(format!("and {} more", checked.more_problems));
    }
    reporter.result(&text.join("\n"), value);
    let count = checked.problems.len() as u64 + checked.more_problems;
    let places = if count == 1 {
        "one place"
    } else {
        &format!("{count} places")
    };
    let message = format!(
        "{} is damaged in {places}, first at offset {}: {}",
        path.display(),
        first.offset,
        first.what
    );
    Err(Failure::new(Exit::NotVerified, "damaged", message)
        .hint("keep the file as it is, and restore the last snapshot elsewhere"))
}
