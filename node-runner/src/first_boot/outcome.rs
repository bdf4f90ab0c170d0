//! How a first boot ended, in a file that `status` and cloud-init's command read.

use std::path::Path;

use quantykube_journal::System;
use quantykube_journal::system::{Meta, SystemError};
use serde::{Deserialize, Serialize};

use crate::facts::{Known, Root};
use crate::moves::places;

/// How it ended. The keys are written in the order of their names, each on its own line: a shell reads `exit`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Outcome {
    /// As in the table of exit codes.
    pub exit: u8,
    /// In words.
    pub message: String,
    /// A stable name.
    pub name: String,
    /// `done`, `nothing` or `failed`.
    pub outcome: String,
}

/// The file.
pub struct OutcomeFile;

impl OutcomeFile {
    /// Writes it whole and durably, in place of an older one.
    ///
    /// # Errors
    /// As the machine's.
    pub fn write(system: &mut dyn System, outcome: &Outcome) -> Result<(), SystemError> {
        let folder = Path::new(places::FIRST_BOOT);
        let (file, new) = (folder.join("outcome.json"), folder.join(".outcome.json"));
        folders(system)?;
        let mut text = serde_json::to_string_pretty(outcome).expect("an outcome is JSON");
        text.push('\n');
        if system.look(&new)?.is_some() {
            system.remove(&new)?;
        }
        system.create(&new, text.as_bytes(), &Meta::mode(0o644))?;
        system.sync(&new)?;
        system.rename(&new, &file)?;
        system.sync_dir(folder)
    }

    /// Reads it; `None` where no first boot has ended on this node.
    pub fn read(root: &Root) -> Known<Option<Outcome>> {
        let path = root.at(places::FIRST_BOOT).join("outcome.json");
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .map_err(|error| format!("{} cannot be understood: {error}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }
}

/// Makes the folder of first boots, root's alone.
///
/// # Errors
/// As the machine's.
pub fn folders(system: &mut dyn System) -> Result<(), SystemError> {
    for folder in [places::DATA, places::FIRST_BOOT].map(Path::new) {
        if system.look(folder)?.is_none() {
            system.make_dir(folder, 0o700)?;
            if let Some(parent) = folder.parent() {
                system.sync_dir(parent)?;
            }
        }
    }
    Ok(())
}
