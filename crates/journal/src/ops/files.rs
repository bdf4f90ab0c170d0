//! Folders, files, links, and the edit of one string.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Context, Trouble, failed, parent, temporary};
use crate::plan::Content;
use crate::state::Before;
use crate::system::{Entry, Meta};

pub(super) fn observe_dir(context: &mut Context<'_>, path: &Path) -> Result<Before, Trouble> {
    match context.system.look(path)? {
        None => Ok(Before::Absent),
        Some(Entry::Dir(_)) => Ok(Before::Same),
        Some(_) => failed(format!("{} is in the way: a folder is to stand there", path.display())),
    }
}

pub(super) fn make_dir(context: &mut Context<'_>, path: &Path, mode: u32) -> Result<(), Trouble> {
    if context.system.look(path)?.is_none() {
        context.system.make_dir(path, mode)?;
    }
    Ok(context.system.sync_dir(parent(path))?)
}

pub(super) fn undo_dir(context: &mut Context<'_>, path: &Path, before: &Before) -> Result<(), Trouble> {
    // What someone put into it meanwhile is theirs: the folder stays then.
    let ours = *before == Before::Absent && matches!(context.system.look(path)?, Some(Entry::Dir(_)));
    if ours && context.system.list(path)?.is_empty() {
        context.system.remove_dir(path)?;
    }
    if *before == Before::Absent {
        context.system.sync_dir(parent(path))?;
    }
    Ok(())
}

pub(super) fn observe_file(
    context: &mut Context<'_>,
    path: &Path,
    mode: u32,
    content: &Content,
) -> Result<Before, Trouble> {
    match context.system.look(path)? {
        None => Ok(Before::Absent),
        Some(Entry::File(_, meta)) => {
            let sha256 = context.system.digest(path)?;
            if sha256 == wanted(content) && (meta.mode, meta.uid, meta.gid) == (mode, 0, 0) {
                return Ok(Before::Same);
            }
            keep(context, path)?;
            Ok(Before::File { sha256, meta })
        }
        Some(_) => failed(format!("{} is in the way: a file is to stand there", path.display())),
    }
}

pub(super) fn put_file(
    context: &mut Context<'_>,
    path: &Path,
    mode: u32,
    content: &Content,
    before: &Before,
) -> Result<(), Trouble> {
    let swept = drop_temporary(context, path)?;
    match standing(context, path)? {
        Standing::File(sha256, meta) if sha256 == wanted(content) && meta.mode == mode => {}
        stands if is_before(&stands, before) => {
            let meta = Meta::mode(mode);
            match content {
                Content::Text(text) => context.system.create(&swept, text.as_bytes(), &meta)?,
                Content::File { from, .. } => {
                    context.system.copy(from, &swept, &meta)?;
                    // The copy is what gets its name: so the copy is what is checked.
                    let found = context.system.digest(&swept)?;
                    if found != wanted(content) {
                        context.system.remove(&swept)?;
                        return Err(Trouble::Failed {
                            message: format!("{} has sha256 {found}, expected {}", from.display(), wanted(content)),
                            exit: quantykube_base::Exit::NotVerified,
                        });
                    }
                }
            }
            context.system.sync(&swept)?;
            context.system.rename(&swept, path)?;
        }
        _ => return changed(path),
    }
    Ok(context.system.sync_dir(parent(path))?)
}

pub(super) fn undo_file(
    context: &mut Context<'_>,
    path: &Path,
    mode: u32,
    content: &Content,
    before: &Before,
) -> Result<(), Trouble> {
    let swept = drop_temporary(context, path)?;
    let stands = standing(context, path)?;
    let ours = matches!(&stands, Standing::File(sha256, meta) if *sha256 == wanted(content) && meta.mode == mode);
    match before {
        Before::Same => return Ok(()),
        _ if is_before(&stands, before) => {}
        Before::File { meta, .. } if ours || stands == Standing::Nothing => {
            context.system.copy(&kept(context), &swept, meta)?;
            context.system.sync(&swept)?;
            context.system.rename(&swept, path)?;
        }
        Before::Absent if ours => context.system.remove(path)?,
        _ => return changed(path),
    }
    Ok(context.system.sync_dir(parent(path))?)
}

pub(super) fn observe_link(context: &mut Context<'_>, path: &Path, target: &Path) -> Result<Before, Trouble> {
    match context.system.look(path)? {
        None => Ok(Before::Absent),
        Some(Entry::Link(found)) if found == target => Ok(Before::Same),
        Some(Entry::Link(found)) => Ok(Before::Link { target: found }),
        Some(_) => failed(format!("{} is in the way: a link is to stand there", path.display())),
    }
}

pub(super) fn put_link(context: &mut Context<'_>, path: &Path, target: &Path, before: &Before) -> Result<(), Trouble> {
    let swept = drop_temporary(context, path)?;
    let stands = standing(context, path)?;
    if stands != Standing::Link(target.to_owned()) {
        if !is_before(&stands, before) {
            return changed(path);
        }
        context.system.symlink(&swept, target)?;
        context.system.rename(&swept, path)?;
    }
    Ok(context.system.sync_dir(parent(path))?)
}

pub(super) fn undo_link(context: &mut Context<'_>, path: &Path, target: &Path, before: &Before) -> Result<(), Trouble> {
    let swept = drop_temporary(context, path)?;
    let stands = standing(context, path)?;
    let ours = stands == Standing::Link(target.to_owned());
    match before {
        Before::Same => return Ok(()),
        _ if is_before(&stands, before) => {}
        Before::Link { target } if ours || stands == Standing::Nothing => {
            context.system.symlink(&swept, target)?;
            context.system.rename(&swept, path)?;
        }
        Before::Absent if ours => context.system.remove(path)?,
        _ => return changed(path),
    }
    Ok(context.system.sync_dir(parent(path))?)
}

pub(super) fn observe_edit(context: &mut Context<'_>, path: &Path, from: &str, to: &str) -> Result<Before, Trouble> {
    let (text, meta) = text(context, path)?;
    match (text.matches(from).count(), text.matches(to).count()) {
        (1, 0) => {
            keep(context, path)?;
            Ok(Before::File {
                sha256: hex::encode(Sha256::digest(text.as_bytes())),
                meta,
            })
        }
        (0, 1) => Ok(Before::Same),
        counts => neither(path, from, to, counts),
    }
}

pub(super) fn edit(
    context: &mut Context<'_>,
    path: &Path,
    from: &str,
    to: &str,
    before: &Before,
) -> Result<(), Trouble> {
    match before {
        Before::Same => Ok(()),
        _ => replace(context, path, from, to),
    }
}

pub(super) fn undo_edit(
    context: &mut Context<'_>,
    path: &Path,
    from: &str,
    to: &str,
    before: &Before,
) -> Result<(), Trouble> {
    match before {
        Before::Same => Ok(()),
        _ => replace(context, path, to, from),
    }
}

fn replace(context: &mut Context<'_>, path: &Path, from: &str, to: &str) -> Result<(), Trouble> {
    let swept = drop_temporary(context, path)?;
    let (text, meta) = text(context, path)?;
    match (text.matches(from).count(), text.matches(to).count()) {
        (0, 1) => {}
        (1, 0) => {
            context
                .system
                .create(&swept, text.replacen(from, to, 1).as_bytes(), &meta)?;
            context.system.sync(&swept)?;
            context.system.rename(&swept, path)?;
        }
        counts => return neither(path, from, to, counts),
    }
    Ok(context.system.sync_dir(parent(path))?)
}

fn text(context: &Context<'_>, path: &Path) -> Result<(String, Meta), Trouble> {
    let Some(Entry::File(_, meta)) = context.system.look(path)? else {
        return failed(format!("{} is not there, or is no file", path.display()));
    };
    match String::from_utf8(context.system.read(path)?) {
        Ok(text) => Ok((text, meta)),
        Err(_) => failed(format!("{} is not UTF-8 text", path.display())),
    }
}

fn neither<T>(path: &Path, from: &str, to: &str, counts: (usize, usize)) -> Result<T, Trouble> {
    failed(format!(
        "{} has {:?} {} times and {:?} {} times: exactly one of the two must stand there, once",
        path.display(),
        from.trim(),
        counts.0,
        to.trim(),
        counts.1
    ))
}

fn changed<T>(path: &Path) -> Result<T, Trouble> {
    failed(format!(
        "{} is neither what was put there nor what stood there before: someone changed it",
        path.display()
    ))
}

/// What stands at a path, as far as it decides.
#[derive(Debug, Eq, PartialEq)]
enum Standing {
    Nothing,
    File(String, Meta),
    Link(PathBuf),
    Other,
}

fn standing(context: &Context<'_>, path: &Path) -> Result<Standing, Trouble> {
    Ok(match context.system.look(path)? {
        None => Standing::Nothing,
        Some(Entry::File(_, meta)) => Standing::File(context.system.digest(path)?, meta),
        Some(Entry::Link(target)) => Standing::Link(target),
        Some(_) => Standing::Other,
    })
}

fn is_before(stands: &Standing, before: &Before) -> bool {
    match (stands, before) {
        (Standing::Nothing, Before::Absent) => true,
        (Standing::File(found, meta), Before::File { sha256, meta: old }) => found == sha256 && meta == old,
        (Standing::Link(found), Before::Link { target }) => found == target,
        _ => false,
    }
}

fn wanted(content: &Content) -> String {
    match content {
        Content::Text(text) => hex::encode(Sha256::digest(text.as_bytes())),
        Content::File { sha256, .. } => sha256.clone(),
    }
}

fn kept(context: &Context<'_>) -> PathBuf {
    context.folder.join("kept").join(context.index.to_string())
}

/// Keeps a file's bytes in the journal, durably. The copy is for root alone: it may hold secrets.
fn keep(context: &mut Context<'_>, path: &Path) -> Result<(), Trouble> {
    let kept = kept(context);
    // From a try that crashed before it was noted.
    if context.system.look(&kept)?.is_some() {
        context.system.remove(&kept)?;
    }
    context.system.copy(path, &kept, &Meta::mode(0o600))?;
    context.system.sync(&kept)?;
    Ok(context.system.sync_dir(parent(&kept))?)
}

/// Takes away what a crash left under the temporary name, and returns the name.
pub(super) fn drop_temporary(context: &mut Context<'_>, path: &Path) -> Result<PathBuf, Trouble> {
    let temporary = temporary(path);
    if context.system.look(&temporary)?.is_some() {
        context.system.remove(&temporary)?;
    }
    Ok(temporary)
}
