//! `sbom`: what a bundle is made of.

use quantykube_base::{Exit, Failure, Reporter};
use quantykube_bundle_format::Unverified;
use serde_json::{Value, json};

use crate::args::{Sbom, SbomFormat};
use crate::sbom::{self, cyclonedx, spdx};

/// The longest document that is read.
const DOCUMENT_MAX: u64 = 64 << 20;

/// Prints the document in the bundle, or makes another of it.
pub fn run(args: &Sbom, report: &Reporter) -> Result<(), Failure> {
    let bundle = Unverified::open(&args.file)?;
    let document = bundle.small_file(sbom::PATH, DOCUMENT_MAX)?;
    let wrong = || {
        let message = format!("{} of the bundle is not one that this program wrote", sbom::PATH);
        Failure::new(Exit::NotVerified, "sbom", message)
    };
    let value = match args.format {
        SbomFormat::Spdx => serde_json::from_slice(&document).map_err(|error| wrong().because(error))?,
        SbomFormat::Cyclonedx => {
            let crates = spdx::crates(&document).ok_or_else(wrong)?;
            cyclonedx::document(bundle.manifest(), &crates)
        }
    };
    say(&value, report);
    Ok(())
}

fn say(value: &Value, report: &Reporter) {
    let text = serde_json::to_string_pretty(value).expect("a document is JSON");
    report.result(&text, json!({"sbom": value}));
}
