//! `verify`: every bit of a bundle.

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::{KeyId, Parts, Survey, Unverified, Verified};
use serde_json::json;

use crate::args::{self, Verify};
use crate::check::{self, Expected};
use crate::commands::join;
use crate::layout;
use crate::watch::{Shown, Stop};

/// Checks a bundle and says its id.
pub fn run(args: &Verify, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let file = args.files[0].display();
    let expected = Expected::read(&args.meant)?;
    let checked = check(args, &expected, report, &stop);
    let (bundle, key, verified) = match checked {
        Err(failure) if ["truncated", "damaged", "checksum-differs"].contains(&failure.name) => {
            return Err(say_what_is_whole(args, failure, report, &stop));
        }
        other => other?,
    };
    let (id, manifest) = (verified.id(), verified.manifest());
    let files = manifest.files.len() + 2 + usize::from(bundle.signature().is_some());
    let size = human_bytes(bundle.length());
    let text = format!(
        "verified: {file} ({size}, {files} files) is whole and unchanged\nbundle id  {id}{}",
        check::signed(&bundle, key)
    );
    let value = json!({
        "verified": true,
        "file": file.to_string(),
        "id": id.to_string(),
        "signedBy": key.map(|key| key.to_string()),
        "name": manifest.name,
        "version": manifest.version,
        "architecture": manifest.architecture.name(),
        "files": files,
        "size": bundle.length(),
        "parts": args.files.len().max(bundle.files().len()),
    });
    report.result(&text, value);
    Ok(())
}

fn check(
    args: &Verify,
    expected: &Expected,
    report: &Reporter,
    stop: &Stop,
) -> Result<(Unverified, Option<KeyId>, Verified), Failure> {
    let bundle = match &args.files[..] {
        [one] => Unverified::open(one)?,
        several => Unverified::open_parts(Parts::of(several)?)?,
    };
    if let [first, _, ..] = &bundle.files()[..] {
        let parts = match &args.files[..] {
            [_] => Parts::beside(first)?,
            several => Parts::of(several)?,
        };
        join::warn(&parts, report);
    }
    let key = expected.compare(&bundle)?;
    let mut shown = Shown::new(report, "verifying", stop);
    let verified = bundle.verify(args::jobs(args.jobs), &mut shown)?;
    shown.finish();
    layout::check(&bundle)?;
    Ok((bundle, key, verified))
}

/// A copy that stopped halfway is worth something: says which of its bytes, and how to complete it.
fn say_what_is_whole(args: &Verify, failure: Failure, report: &Reporter, stop: &Stop) -> Failure {
    let [file] = &args.files[..] else { return failure };
    let mut shown = Shown::new(report, "looking for what is whole", stop);
    let Ok(survey) = Survey::of(file, &mut shown) else {
        return failure;
    };
    if survey.members == 0 {
        return failure;
    }
    let ranges: Vec<String> = survey
        .good
        .iter()
        .take(20)
        .map(|range| format!("{} to {}", range.start, range.end))
        .collect();
    let more = match survey.good.len().saturating_sub(20) {
        0 => String::new(),
        more => format!(" and {more} ranges more"),
    };
    let message = format!(
        "whole in {}: {} of {} bytes, from {}{more}",
        file.display(),
        survey.bytes(),
        survey.length,
        ranges.join(", "),
    );
    report.step("whole", &message);
    failure.hint(format!(
        "copy it again, or complete it from another copy, of which only the rest is read: quantykube-bundle fill {} OTHER",
        file.display()
    ))
}
