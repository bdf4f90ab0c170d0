//! Retire and return: one rename, never a deletion.

use std::path::Path;

use super::{Context, Trouble, failed, parent};
use crate::state::Before;

pub(super) fn observe(context: &mut Context<'_>, from: &Path, to: &Path) -> Result<Before, Trouble> {
    match (context.system.look(from)?.is_some(), context.system.look(to)?.is_some()) {
        (true, false) => Ok(Before::Nothing),
        (true, true) => failed(format!("{} is in the way of {}", to.display(), from.display())),
        (false, _) => failed(format!("{} is not there", from.display())),
    }
}

pub(super) fn rename(context: &mut Context<'_>, from: &Path, to: &Path) -> Result<(), Trouble> {
    match (context.system.look(from)?.is_some(), context.system.look(to)?.is_some()) {
        (true, false) => context.system.rename_new(from, to)?,
        (false, true) => {}
        (true, true) => return failed(format!("{} is in the way of {}", to.display(), from.display())),
        (false, false) => {
            return failed(format!(
                "neither {} nor {} is there any more",
                from.display(),
                to.display()
            ));
        }
    }
    // Where it is going first: were the two not one act of the file system, it would be in both rather than in none.
    context.system.sync_dir(parent(to))?;
    if parent(from) != parent(to) {
        context.system.sync_dir(parent(from))?;
    }
    Ok(())
}

pub(super) fn undo(context: &mut Context<'_>, from: &Path, to: &Path) -> Result<(), Trouble> {
    rename(context, to, from)
}
