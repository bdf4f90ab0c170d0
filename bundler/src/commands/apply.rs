//! `apply`: a bundle made of an older one and a delta.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Base, Delta, Folder, Unverified};
use serde_json::json;

use crate::args::{self, Apply};
use crate::check::Expected;
use crate::fresh::{self, Fresh, cannot_write};
use crate::watch::{Shown, Stop};

/// Proves the delta and its base, and writes the new bundle, or nothing.
pub fn run(args: &Apply, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let jobs = args::jobs(args.jobs);
    let expected = Expected::read(&args.meant)?;
    let mut shown = Shown::new(report, "reading the delta", &stop);
    let delta = Delta::open(&args.delta, &mut shown)?;
    shown.finish();
    let key = expected.compare_delta(&delta)?;
    let target = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.tar.gz", delta.manifest().folder())),
    };
    fresh::absent(&target)?;
    let base = base(&args.base, &delta, jobs, report, &stop)?;
    fresh::space(target.parent().unwrap_or(Path::new("")), delta.size())?;
    let fresh = Fresh::make(&target)?;
    let mut out = BufWriter::with_capacity(1 << 20, &fresh.file);
    let mut shown = Shown::new(report, "packing", &stop);
    let written = delta.apply(&base, &mut out, &target, jobs, &mut shown)?;
    out.flush().map_err(cannot_write(&target))?;
    drop(out);
    shown.finish();
    fresh.finish()?;
    let file = target.display().to_string();
    let signed = key.map(|key| format!("\nsigned by  {key}")).unwrap_or_default();
    let text = format!(
        "{file}  {}, the very bytes of the whole bundle\nbundle id  {}{signed}\nsha256     {}",
        human_bytes(written.size),
        written.id,
        written.sha256,
    );
    let value = json!({
        "file": file,
        "id": written.id.to_string(),
        "sha256": written.sha256.to_string(),
        "size": written.size,
        "base": delta.base().to_string(),
        "signedBy": key.map(|key| key.to_string()),
    });
    report.result(&text, value);
    Ok(())
}

/// The base, every bit of it verified. Another one than the delta's ends this before that.
fn base(path: &Path, delta: &Delta, jobs: usize, report: &Reporter, stop: &Stop) -> Result<Base, Failure> {
    let compare = |id: quantykube_bundle_format::Digest| match id == delta.base() {
        true => Ok(()),
        false => {
            let (shown, wanted, name) = (path.display(), delta.base(), delta.base_folder());
            let message = format!("{shown} has the id {id}, and the delta starts from {name} with the id {wanted}");
            Err(Failure::new(Exit::NotVerified, "base", message).hint("give the bundle that the delta was made from"))
        }
    };
    let mut shown = Shown::new(report, "verifying the base", stop);
    let base = match path.is_dir() {
        true => {
            let folder = Folder::open(path)?;
            compare(folder.id())?;
            Base::Folder(folder.verify(jobs, &mut shown)?)
        }
        false => {
            let archive = Unverified::open(path)?;
            compare(archive.id())?;
            archive.verify(jobs, &mut shown)?;
            Base::Archive(Arc::new(archive))
        }
    };
    shown.finish();
    Ok(base)
}
