//! `verify`: every bit of a bundle.

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::Unverified;
use serde_json::json;

use crate::args::{self, Verify};
use crate::check::{self, Expected};
use crate::watch::{Shown, Stop};

/// Checks a bundle and says its id.
pub fn run(args: &Verify, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let file = args.file.display();
    let expected = Expected::read(&args.meant)?;
    let bundle = Unverified::open(&args.file)?;
    let key = expected.compare(&bundle)?;
    let mut shown = Shown::new(report, "verifying", &stop);
    let verified = bundle.verify(args::jobs(args.jobs), &mut shown)?;
    shown.finish();
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
    });
    report.result(&text, value);
    Ok(())
}
