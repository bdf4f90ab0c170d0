//! `remove`: takes our units, programs and settings off a node that is back on etcd. Data goes only with `--purge`.
//!
//! It is no move: it takes nothing that serves, each of its steps may be taken again, and the program itself goes last,
//! so that an interrupted `remove` is simply called again.

use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure};
use quantykube_journal::System;
use quantykube_journal::system::{Entry, SystemError};
use serde_json::json;

use crate::commands::Context;
use crate::guard;
use crate::moves::places;
use crate::moves::store::NAME;

/// What of the node tells that its cluster still is there.
const CLUSTER: [&str; 2] = ["/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/admin.conf"];

/// Something that would go.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Item {
    /// A unit: stopped, disabled, its file removed.
    Unit(String),
    /// A file or a link.
    File(PathBuf),
    /// A folder with all that is in it.
    Tree(PathBuf),
    /// A folder, if it is empty.
    Empty(PathBuf),
}

impl Item {
    fn text(&self) -> String {
        match self {
            Item::Unit(name) => format!("unit {name}"),
            Item::File(path) => path.display().to_string(),
            Item::Tree(path) => format!("{} and all that is in it", path.display()),
            Item::Empty(path) => format!("{}, if nothing else is in it", path.display()),
        }
    }
}

/// Removes, or with `dry_run` says what would go.
pub fn run(context: &Context, purge: bool, dry_run: bool) -> Result<Exit, Failure> {
    context.must_be_root()?;
    let system = &mut context.machine();
    let journals = context.root.journals();
    // The data of a cluster that is there is never taken from it; of one that was reset away there is nothing to serve.
    let cluster = cluster_is_there(system).map_err(|error| failed(&error))?;
    if cluster {
        if let Some(open) = journals.open_move(system).map_err(|error| error.failure())? {
            return Err(refuse(
                "open-move",
                format!("the move {} is open", open.id),
                "end it first: quantykube undo store, or quantykube resume",
            ));
        }
        if let Some(install) = journals.in_force(system, NAME).map_err(|error| error.failure())? {
            return Err(refuse(
                "on-store",
                format!("the cluster's data lives in the store (journal {})", install.id),
                "bring it back into etcd first: quantykube undo store",
            ));
        }
        if let Ok(Some(incident)) = guard::last(&context.root) {
            return Err(refuse(
                "guard",
                format!(
                    "the guard holds the API server's manifest at {}",
                    incident.retired.display()
                ),
                &incident.cure,
            ));
        }
    }
    let items = items(system, purge).map_err(|error| failed(&error))?;
    let listed: Vec<String> = items.iter().map(Item::text).collect();
    if dry_run {
        let text = match listed.is_empty() {
            true => "nothing of QuantyKube's is on this node".to_owned(),
            false => format!("would remove:\n  {}\nnothing was changed", listed.join("\n  ")),
        };
        context
            .reporter
            .result(&text, json!({"what": "remove", "changed": false, "items": listed}));
        return Ok(Exit::Done);
    }
    for item in &items {
        context.reporter.step("remove", &item.text());
        take(system, item).map_err(|error| failed(&error))?;
    }
    let kept = match purge {
        true => String::new(),
        false => format!("; journals and store files stay in {}", places::DATA),
    };
    let text = match items.is_empty() {
        true => format!("already so: no program, unit or setting of QuantyKube's is on this node{kept}"),
        false => format!("done: {} things removed{kept}", items.len()),
    };
    context.reporter.result(
        &text,
        json!({"what": "remove", "changed": !items.is_empty(), "items": listed, "purged": purge}),
    );
    Ok(Exit::Done)
}

fn refuse(name: &'static str, what: String, hint: &str) -> Failure {
    Failure::new(
        Exit::Refused,
        name,
        format!("remove cannot begin: {what}; nothing was touched"),
    )
    .hint(hint)
}

fn failed(error: &SystemError) -> Failure {
    Failure::new(Exit::Failed, "remove", error.full()).hint("cure that, then run quantykube remove again: it goes on")
}

/// Whether the cluster is still on this node; `kubeadm reset` leaves none of these.
fn cluster_is_there(system: &dyn System) -> Result<bool, SystemError> {
    for path in CLUSTER {
        if system.look(Path::new(path))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What there is of ours, in the order in which it goes.
fn items(system: &dyn System, purge: bool) -> Result<Vec<Item>, SystemError> {
    let mut items = Vec::new();
    // Whatever units a version put on the node: all of them have our name, and no other program's have.
    let ours = |name: &String| name.starts_with("quantykube-") && !name.ends_with(".d");
    for name in entries(system, Path::new(places::UNITS))?.into_iter().filter(ours) {
        items.push(Item::Unit(name));
    }
    for name in entries(system, Path::new(places::BOOT_UNITS))?.into_iter().filter(ours) {
        items.push(Item::File(Path::new(places::BOOT_UNITS).join(name)));
    }
    let mut file = |path: &Path| -> Result<(), SystemError> {
        if system.look(path)?.is_some() {
            items.push(Item::File(path.to_owned()));
        }
        Ok(())
    };
    file(Path::new(places::STORE_ENV))?;
    file(Path::new(guard::FILE))?;
    // The link goes only if it is ours.
    if let Some(Entry::Link(target)) = system.look(Path::new(places::LINK))?
        && target.starts_with(places::PROGRAMS)
    {
        items.push(Item::File(places::LINK.into()));
    }
    let retired = places::retired_folder(Path::new("/etc/kubernetes/manifests"));
    for folder in [Path::new(places::SETTINGS), &retired] {
        if system.look(folder)?.is_some() && entries(system, folder)?.iter().all(|name| name == "store.env") {
            items.push(Item::Empty(folder.to_owned()));
        }
    }
    if purge && system.look(Path::new(places::DATA))?.is_some() {
        items.push(Item::Tree(places::DATA.into()));
    }
    if system.look(Path::new(places::PROGRAMS))?.is_some() {
        items.push(Item::Tree(places::PROGRAMS.into()));
    }
    Ok(items)
}

/// The names in a folder; none where it is not there.
fn entries(system: &dyn System, folder: &Path) -> Result<Vec<String>, SystemError> {
    match system.look(folder)? {
        Some(Entry::Dir(_)) => system.list(folder),
        _ => Ok(Vec::new()),
    }
}

fn take(system: &mut dyn System, item: &Item) -> Result<(), SystemError> {
    match item {
        Item::Unit(name) => {
            let path = Path::new(places::UNITS).join(name);
            // A template is never a unit itself.
            if !name.contains('@') {
                system.set_active(name, false)?;
            }
            system.set_enabled(name, false)?;
            if system.look(&path)?.is_some() {
                system.remove(&path)?;
                system.sync_dir(Path::new(places::UNITS))?;
            }
            system.reload_units()
        }
        Item::File(path) => {
            if system.look(path)?.is_some() {
                system.remove(path)?;
                sync_parent(system, path)?;
            }
            Ok(())
        }
        Item::Tree(path) => {
            tree(system, path)?;
            sync_parent(system, path)
        }
        Item::Empty(path) => {
            if entries(system, path)?.is_empty() && system.look(path)?.is_some() {
                system.remove_dir(path)?;
                sync_parent(system, path)?;
            }
            Ok(())
        }
    }
}

fn tree(system: &mut dyn System, path: &Path) -> Result<(), SystemError> {
    match system.look(path)? {
        None => Ok(()),
        Some(Entry::Dir(_)) => {
            for name in system.list(path)? {
                tree(system, &path.join(name))?;
            }
            system.remove_dir(path)
        }
        Some(_) => system.remove(path),
    }
}

fn sync_parent(system: &mut dyn System, path: &Path) -> Result<(), SystemError> {
    match path.parent() {
        Some(parent) => system.sync_dir(parent),
        None => Ok(()),
    }
}
