//! `split`: a bundle in parts that a small carrier takes.

use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Unverified, part_name};
use serde_json::json;

use crate::args::{self, Split};
use crate::fresh::{self, Fresh};
use crate::watch::{Shown, Stop};

/// Verifies the bundle and writes its parts, all or none.
pub fn run(args: &Split, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.file.parent().unwrap_or(Path::new("")).to_owned(),
    };
    let bundle = Unverified::open(&args.file)?;
    let mut shown = Shown::new(report, "verifying", &stop);
    bundle.verify(args::jobs(args.jobs), &mut shown)?;
    shown.finish();
    let mut shown = Shown::new(report, "hashing", &stop);
    let sha256 = bundle.sha256(&mut shown)?;
    shown.finish();
    let cut = bundle
        .cut(args.size.0, sha256)
        .map_err(|error| Failure::new(Exit::Usage, "size", format!("--size: {error}")))?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let targets: Vec<PathBuf> = (1..=cut.count())
        .map(|number| folder.join(part_name(&name, number, cut.count())))
        .collect();
    for target in &targets {
        fresh::absent(target)?;
    }
    fresh::space(&folder, (0..cut.count()).map(|index| cut.length(index)).sum())?;
    let mut shown = Shown::new(report, "splitting", &stop);
    let mut made = Vec::new();
    for (index, target) in targets.iter().enumerate() {
        let mut fresh = Fresh::make(target)?;
        cut.write(index, &mut fresh.file, target, &mut shown)?;
        made.push(fresh);
    }
    shown.finish();
    for (index, fresh) in made.into_iter().enumerate() {
        fresh.finish().inspect_err(|_| {
            for earlier in &targets[..index] {
                let _ = std::fs::remove_file(earlier);
            }
        })?;
    }
    let lines: Vec<String> = targets
        .iter()
        .enumerate()
        .map(|(index, target)| format!("{}  {}", target.display(), human_bytes(cut.length(index))))
        .collect();
    let text = format!(
        "{}\nbundle id  {}\nsha256     {sha256}  {name}\n\nWhere they are all in one folder, any of these gives the bundle again:\n  \
         quantykube-bundle join {}\n  cat {name}.part-* | tar xzf -    then: ./run verify --id {}",
        lines.join("\n"),
        bundle.id(),
        part_name(&name, 1, targets.len()),
        bundle.id(),
    );
    let value = json!({
        "id": bundle.id().to_string(),
        "sha256": sha256.to_string(),
        "size": bundle.length(),
        "parts": targets
            .iter()
            .enumerate()
            .map(|(index, target)| json!({"file": target.display().to_string(), "size": cut.length(index)}))
            .collect::<Vec<_>>(),
    });
    report.result(&text, value);
    Ok(())
}
