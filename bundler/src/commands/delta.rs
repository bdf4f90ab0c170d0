//! `build --base`: what makes a bundle of an older one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Base, Delta, Made, Sealed, Unverified};
use serde_json::json;

use crate::args::{self, Build};
use crate::fresh::Fresh;
use crate::watch::{Shown, Stop};

/// Writes the delta under a temporary name, applies it, and renames it when it gave the whole bundle.
pub fn run(sealed: &Sealed, base: &Path, args: &Build, report: &Reporter, stop: &Stop) -> Result<(), Failure> {
    let jobs = args::jobs(args.jobs);
    let archive = Arc::new(Unverified::open(base)?);
    let mut shown = Shown::new(report, "verifying the base", stop);
    archive.verify(jobs, &mut shown)?;
    shown.finish();
    let short = archive.id().to_string()[..12].to_owned();
    let target = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.from-{short}.delta", sealed.manifest().folder())),
    };
    let mut fresh = Fresh::make(&target)?;
    let mut shown = Shown::new(report, "comparing", stop);
    let made = sealed.delta(&archive, &mut fresh.file, &target, jobs, &mut shown)?;
    shown.finish();
    let mut shown = Shown::new(report, "proving", stop);
    let delta = Delta::open(fresh.path(), &mut shown)?;
    let base = Base::Archive(Arc::clone(&archive));
    let written = delta.apply(&base, &mut std::io::sink(), &target, jobs, &mut shown)?;
    shown.finish();
    if !delta.gives(&written) || written.sha256 != made.whole.sha256 {
        // Applying has compared already; this is for the reader of this code.
        return Err(Failure::new(
            Exit::Failed,
            "delta",
            "the delta does not give the bundle",
        ));
    }
    fresh.replace()?;
    say(sealed, &target, &archive, &made, report);
    Ok(())
}

fn say(sealed: &Sealed, target: &Path, base: &Unverified, made: &Made, report: &Reporter) {
    // Of each kind: files, bytes in the delta, bytes in the whole bundle.
    let mut kinds: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for file in &made.files {
        let sum = kinds.entry(file.kind.name()).or_default();
        *sum = (sum.0 + 1, sum.1 + file.bytes, sum.2 + file.packed);
    }
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let mut text = format!(
        "{}  {}, {:.1} % of the {} that a whole bundle has\nbundle id  {}\nbase       {}  {}\n\n{:10}  {:>5}  {:>10}  {:>10}\n",
        target.display(),
        human_bytes(made.length),
        percent(made.length, made.whole.size),
        human_bytes(made.whole.size),
        made.whole.id,
        base.id(),
        base.manifest().folder(),
        "KIND",
        "FILES",
        "DELTA",
        "WHOLE",
    );
    for (kind, (files, bytes, packed)) in &kinds {
        let _ = writeln!(
            text,
            "{kind:10}  {files:>5}  {:>10}  {:>10}",
            human_bytes(*bytes),
            human_bytes(*packed)
        );
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let _ = write!(
        text,
        "\nWhere the base is, or its folder:\n  quantykube-bundle apply {name} BASE"
    );
    let value = json!({
        "file": target.display().to_string(),
        "size": made.length,
        "id": made.whole.id.to_string(),
        "base": base.id().to_string(),
        "folder": sealed.manifest().folder(),
        "wholeSize": made.whole.size,
        "wholeSha256": made.whole.sha256.to_string(),
        "kinds": kinds
            .iter()
            .map(|(kind, (files, bytes, packed))| json!({"kind": kind, "files": files, "size": bytes, "wholeSize": packed}))
            .collect::<Vec<_>>(),
        "files": made
            .files
            .iter()
            .map(|file| json!({"path": file.path, "from": file.place, "size": file.bytes, "wholeSize": file.packed}))
            .collect::<Vec<_>>(),
    });
    report.result(&text, value);
}
