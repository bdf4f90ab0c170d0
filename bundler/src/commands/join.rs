//! `join`: the parts of a bundle put together, each checked.

use std::path::PathBuf;

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Parts, Unverified};
use serde_json::json;

use crate::args::Join;
use crate::check::{self, Expected};
use crate::fresh::{self, Fresh};
use crate::watch::{Shown, Stop};

/// Opens the set of parts that the command line means.
pub fn open(files: &[PathBuf]) -> Result<Parts, Failure> {
    Ok(match files {
        [one] => Parts::beside(one)?,
        files => Parts::of(files)?,
    })
}

/// Names the parts that are good and have another name.
pub fn warn(parts: &Parts, report: &Reporter) {
    for text in parts.misnamed() {
        report.warning("part-name", &text);
    }
}

/// Writes the whole beside nothing that is there; the parts stay.
pub fn run(args: &Join, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let expected = Expected::read(&args.meant)?;
    let parts = open(&args.parts)?;
    warn(&parts, report);
    let (count, sha256) = (parts.paths().count(), parts.sha256());
    // A look at what they hold, before anything is written: another bundle than the one that is meant ends here.
    let bundle = Unverified::open_parts(open(&args.parts)?)?;
    let key = expected.compare(&bundle)?;
    let target = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.tar.gz", bundle.manifest().folder())),
    };
    fresh::absent(&target)?;
    fresh::space(
        target.parent().unwrap_or(std::path::Path::new("")),
        parts.whole_length(),
    )?;
    let mut fresh = Fresh::make(&target)?;
    let mut shown = Shown::new(report, "joining", &stop);
    parts.join(&mut fresh.file, &target, &mut shown)?;
    shown.finish();
    fresh.finish()?;
    let file = target.display().to_string();
    let text = format!(
        "{file}  {}, from {count} parts, which stay\nbundle id  {}{}\nsha256     {sha256}",
        human_bytes(bundle.length()),
        bundle.id(),
        check::signed(&bundle, key),
    );
    let value = json!({
        "file": file,
        "parts": count,
        "id": bundle.id().to_string(),
        "sha256": sha256.to_string(),
        "size": bundle.length(),
        "signedBy": key.map(|key| key.to_string()),
    });
    report.result(&text, value);
    Ok(())
}
