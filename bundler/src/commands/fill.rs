//! `fill`: a half-copied bundle completed from another copy.

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Unverified, fill};
use serde_json::json;

use crate::args::{self, Fill};
use crate::check::{self, Expected};
use crate::watch::{Shown, Stop};

/// Reads of the other copy what is missing, and proves the whole.
pub fn run(args: &Fill, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let expected = Expected::read(&args.meant)?;
    let other = Unverified::open(&args.other)?;
    let key = expected.compare(&other)?;
    let mut shown = Shown::new(report, "filling", &stop);
    let filled = fill(&args.file, &other, &mut shown)?;
    shown.finish();
    let bundle = Unverified::open(&args.file)?;
    expected.compare(&bundle)?;
    let mut shown = Shown::new(report, "verifying", &stop);
    bundle.verify(args::jobs(args.jobs), &mut shown)?;
    shown.finish();
    let file = args.file.display().to_string();
    let text = format!(
        "{file} is whole: {} were there, {} were written, {} were read of {}\nbundle id  {}{}",
        human_bytes(filled.kept),
        human_bytes(filled.written),
        human_bytes(filled.read),
        args.other.display(),
        bundle.id(),
        check::signed(&bundle, key),
    );
    let value = json!({
        "file": file,
        "id": bundle.id().to_string(),
        "size": filled.length,
        "kept": filled.kept,
        "written": filled.written,
        "read": filled.read,
    });
    report.result(&text, value);
    Ok(())
}
