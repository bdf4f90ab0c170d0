//! `verify`: every bit of a bundle.

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Digest, Unverified};
use serde_json::json;

use crate::args::{self, Verify};
use crate::check;
use crate::watch::{Shown, Stop};

/// Checks a bundle and says its id.
pub fn run(args: &Verify, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let file = args.file.display();
    let wanted: Option<Digest> = match args.id.as_deref().map(str::parse).transpose() {
        Ok(wanted) => wanted,
        Err(error) => return Err(Failure::new(Exit::Usage, "id", format!("--id: {error}"))),
    };
    let bundle = Unverified::open(&args.file).map_err(check::failure)?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != bundle.id()) {
        let message = format!("{file} has the id {}, expected {wanted}", bundle.id());
        return Err(Failure::new(Exit::NotVerified, "id-differs", message).hint("this is not the bundle that you mean"));
    }
    let mut shown = Shown::new(report, "verifying", &stop);
    let verified = bundle
        .verify(args::jobs(args.jobs), &mut shown)
        .map_err(check::failure)?;
    shown.finish();
    let (id, manifest) = (verified.id(), verified.manifest());
    let files = manifest.files.len() + 2;
    let size = human_bytes(bundle.length());
    let text = format!("verified: {file} ({size}, {files} files) is whole and unchanged\nbundle id  {id}");
    let value = json!({
        "verified": true,
        "file": file.to_string(),
        "id": id.to_string(),
        "name": manifest.name,
        "version": manifest.version,
        "architecture": manifest.architecture.name(),
        "files": files,
        "size": bundle.length(),
    });
    report.result(&text, value);
    Ok(())
}
