//! `extract`: a bundle into a new folder, or nothing.

use quantykube_base::{Failure, Reporter};
use quantykube_bundle_format::Unverified;
use serde_json::json;

use crate::args::{self, Extract};
use crate::check::{self, Expected};
use crate::layout;
use crate::watch::{Shown, Stop};

/// Checks and unpacks a bundle.
pub fn run(args: &Extract, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let expected = Expected::read(&args.meant)?;
    let bundle = Unverified::open(&args.file)?;
    let key = expected.compare(&bundle)?;
    let mut shown = Shown::new(report, "extracting", &stop);
    if !args.paths.is_empty() {
        let folder = bundle.extract_some(&args.dir, &args.paths, args::jobs(args.jobs), &mut shown)?;
        shown.finish();
        let folder = folder.display().to_string();
        let claimed = match expected.is_any() {
            true => "",
            false => " (claimed; --id or --public-key checks it)",
        };
        let text = format!(
            "{folder} holds what was asked for, as bundle.json gives it; the rest was not read\nbundle id  {}{claimed}{}",
            bundle.id(),
            check::signed(&bundle, key),
        );
        let value = json!({
            "folder": folder,
            "paths": args.paths,
            "id": bundle.id().to_string(),
            "idChecked": expected.is_any(),
            "signedBy": key.map(|key| key.to_string()),
        });
        report.result(&text, value);
        return Ok(());
    }
    // What cannot be read as bundle.json has it is damaged, and the extraction says where.
    layout::check(&bundle).or_else(|failure| match failure.name {
        "read" => Ok(()),
        _ => Err(failure),
    })?;
    let verified = bundle.extract(&args.dir, args::jobs(args.jobs), &mut shown)?;
    shown.finish();
    let folder = verified
        .root()
        .expect("an extraction has a folder")
        .display()
        .to_string();
    let text = format!(
        "{folder} is whole\nbundle id  {}{}",
        verified.id(),
        check::signed(&bundle, key)
    );
    report.result(
        &text,
        json!({"folder": folder, "id": verified.id().to_string(), "signedBy": key.map(|key| key.to_string())}),
    );
    Ok(())
}
