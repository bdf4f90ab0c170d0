//! One look of the guard: which side has the data, which manifest names the other one, and taking it away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quantykube_journal::{Pid, Summary, System, in_force};

use crate::facts::manifest::{Flags, Manifest};
use crate::facts::{Root, chain, process};
use crate::guard::{CURE, FILE, Incident};
use crate::moves::store::NAME;
use crate::moves::undo_store::Installed;
use crate::moves::{etcd_servers, places};

/// Which side has the cluster's data, as the journals say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Side {
    /// `store` or `etcd`.
    pub data: &'static str,
    /// The URL that an API server must use.
    pub right: String,
    /// The URL that it must not.
    pub wrong: String,
    /// The API server's manifest in the kubelet's folder.
    pub manifest: PathBuf,
}

/// What a look came to.
#[derive(Debug)]
pub enum Look {
    /// Nothing is wrong, or a move is open: then it is the move's business.
    Quiet,
    /// Something is wrong, but a run holds the lock: look again soon.
    Later,
    /// It was taken away.
    Taken(Box<Incident>, Flags),
}

/// What the journals say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// No move ever ended on this node.
    Unmoved,
    /// A move is open: what the folder holds is its business.
    Open,
    /// The side that has the data.
    Settled(Side),
}

impl Standing {
    /// Read out of all journals, oldest first.
    pub fn of(list: Vec<Summary>) -> Standing {
        if list.iter().any(Summary::is_open) {
            return Standing::Open;
        }
        let newest = list.iter().rev().filter(|j| j.plan.name == NAME);
        let newest = newest.filter_map(|j| Installed::of(&j.id, &j.plan).ok()).next();
        let in_force = in_force(list, NAME);
        let on_store = in_force.is_some();
        let installed = in_force.and_then(|j| Installed::of(&j.id, &j.plan).ok()).or(newest);
        installed.map_or(Standing::Unmoved, |installed| {
            Standing::Settled(match on_store {
                true => Side {
                    data: "store",
                    right: installed.store,
                    wrong: installed.etcd,
                    manifest: installed.manifest,
                },
                false => Side {
                    data: "etcd",
                    right: installed.etcd,
                    wrong: installed.store,
                    manifest: installed.manifest,
                },
            })
        })
    }
}

/// Looks once, and takes away what is wrong.
pub fn look(root: &Root, standing: &Standing, system: &mut dyn System) -> Result<Look, quantykube_journal::Error> {
    let Standing::Settled(side) = standing else {
        return Ok(Look::Quiet);
    };
    if wrong(root, side).is_none() {
        return Ok(Look::Quiet);
    }
    let journals = root.journals();
    let _session = match journals.lock(system) {
        Err(quantykube_journal::Error::Locked { .. }) => return Ok(Look::Later),
        session => session?,
    };
    // Once more with the lock: a move may have come and gone.
    let Standing::Settled(side) = Standing::of(journals.list(system)?) else {
        return Ok(Look::Quiet);
    };
    match wrong(root, &side) {
        None => Ok(Look::Quiet),
        Some((manifest, names)) => {
            take(root, system, &side, &manifest, names).map(|(incident, flags)| Look::Taken(Box::new(incident), flags))
        }
    }
}

/// A manifest of the API server that names the other side, and what it names. On the store everything else is wrong at the
/// API server's own place; under another name, and on etcd, only the side that was left.
fn wrong(root: &Root, side: &Side) -> Option<(Manifest, String)> {
    let folder = side.manifest.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(root.at(folder)).into_iter().flatten().flatten();
    for name in entries.map(|entry| entry.file_name()) {
        let path = folder.join(&name);
        // The kubelet reads every file but these. One that is half written is no manifest yet, for it as for us.
        if name.as_encoded_bytes().starts_with(b".") || !root.at(&path).is_file() {
            continue;
        }
        let Ok(Some(manifest)) = Manifest::read(root, &path) else {
            continue;
        };
        let all = manifest.flags().all("etcd-servers").join(",");
        let named = |url: &str| all.split(',').any(|item| item.trim_end_matches('/') == url);
        let own = path == side.manifest && !all.is_empty();
        if named(&side.wrong) || own && side.data == "store" && all != side.right {
            return Some((manifest, all));
        }
    }
    None
}

fn take(
    root: &Root,
    system: &mut dyn System,
    side: &Side,
    manifest: &Manifest,
    names: String,
) -> Result<(Incident, Flags), quantykube_journal::Error> {
    let folder = places::retired_folder(side.manifest.parent().unwrap_or(Path::new("/")));
    if system.look(&folder)?.is_none() {
        system.make_dir(&folder, 0o700)?;
    }
    let name = manifest
        .path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let free = (1..).map(|n| folder.join(format!("{name}.guarded-{n}")));
    let mut retired = folder.clone();
    for path in free {
        if system.look(&path)?.is_none() {
            retired = path;
            break;
        }
    }
    system.rename_new(&manifest.path, &retired)?;
    // From here on the kubelet finds it no more. What follows only tells.
    let _ = system.sync_dir(&folder);
    let _ = system.sync_dir(manifest.path.parent().unwrap_or(Path::new("/")));
    let flags = manifest.flags();
    let terminated = terminate(root, system, &flags, &[]);
    let incident = Incident {
        at: system.wall_clock(),
        why: format!(
            "{} named {names}, but the cluster's data lives in the {}: an API server on it would serve old data. It was taken \
             out of the kubelet's folder; the API server is down until it is released",
            manifest.path.display(),
            if side.data == "store" {
                "store"
            } else {
                "etcd that the store was copied back into"
            },
        ),
        manifest: side.manifest.clone(),
        retired,
        names,
        expected: side.right.clone(),
        data: side.data.to_owned(),
        terminated: terminated.iter().map(|pid| pid.pid).collect(),
        cure: CURE.to_owned(),
    };
    write(root, &incident)
        .map_err(|source| quantykube_journal::system::SystemError::at("write", Path::new(FILE))(source))?;
    Ok((incident, flags))
}

/// Asks every API server that was started with these flags to end, but for those that were asked before.
pub fn terminate(root: &Root, system: &mut dyn System, flags: &Flags, asked: &[Pid]) -> Vec<Pid> {
    let found = process::of_manifest(root, flags).into_iter().map(|process| Pid {
        pid: process.pid,
        start: process.start,
    });
    found
        .filter(|pid| !asked.contains(pid) && system.terminate(*pid).is_ok())
        .collect()
}

fn write(root: &Root, incident: &Incident) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(incident).map_err(io::Error::other)?;
    quantykube_base::durable::write(&root.at(FILE), &text, 0o644)
}

/// Edits the manifest that was taken away, so that it names the side with the data, and gives it back.
pub fn release(root: &Root, system: &mut dyn System, incident: &Incident) -> Result<(), Refusal> {
    if system.look(&incident.manifest)?.is_some() {
        return Err(Refusal::Stands(incident.manifest.clone()));
    }
    let manifest = Manifest::read(root, &incident.retired)
        .map_err(|error| Refusal::Edit(chain(&error)))?
        .ok_or_else(|| Refusal::Edit(format!("{} is gone", incident.retired.display())))?;
    let named = manifest.flags().all("etcd-servers").join(",");
    if named != incident.expected {
        let edit = etcd_servers::edit(&manifest.text, &named, &incident.expected)
            .map_err(|error| Refusal::Edit(error.to_string()))?;
        let Some(quantykube_journal::system::Entry::File(_, meta)) = system.look(&incident.retired)? else {
            return Err(Refusal::Edit(format!("{} is no file", incident.retired.display())));
        };
        let temporary = incident.retired.with_file_name(".released.quantykube-new");
        if system.look(&temporary)?.is_some() {
            system.remove(&temporary)?;
        }
        system.create(&temporary, edit.text.as_bytes(), &meta)?;
        system.sync(&temporary)?;
        system.rename(&temporary, &incident.retired)?;
    }
    system.rename_new(&incident.retired, &incident.manifest)?;
    for path in [&incident.manifest, &incident.retired] {
        system.sync_dir(path.parent().unwrap_or(Path::new("/")))?;
    }
    let _ = quantykube_base::durable::remove(&root.at(FILE));
    Ok(())
}

/// Why nothing was released.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Another manifest is in use.
    #[error("{} stands already", .0.display())]
    Stands(PathBuf),
    /// The text cannot be edited.
    #[error("the manifest cannot be edited: {0}")]
    Edit(String),
    /// The machine says no.
    #[error(transparent)]
    System(#[from] quantykube_journal::system::SystemError),
}
