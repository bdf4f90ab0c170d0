//! Updates and deletions with resourceVersions noted before the move: they succeed exactly when nothing has changed.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::api::{Answer, Api};
use crate::each::each;
use crate::fill::Object;
use crate::kinds::Random;
use crate::note::{IN_FLIGHT, Noted};
use crate::tally::Tally;

const UNCHANGED: &str = "updates with the noted resourceVersion: 200";
const CHANGED: &str = "the same after another's change: 409";
const OLDER: &str = "updates with an older resourceVersion: 409";
const DELETES: &str = "deletions with the noted resourceVersion: 200";
const STALE_DELETES: &str = "deletions with an older resourceVersion: 409";
const REBORN: &str = "updates of an object made anew: 409";
const TAKEN: &str = "creating what exists: 409";
const NEW: &str = "new resourceVersions: above the head, none twice";

/// What the API server acknowledged.
#[derive(Default)]
pub struct Written {
    /// Creations and updates: resource, name and the new resourceVersion.
    pub puts: Vec<(String, String, i64)>,
    /// Deletions: resource and name.
    pub deletions: Vec<(String, String)>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Case {
    Unchanged,
    Changed,
    Older,
    Delete,
    StaleDelete,
    Reborn,
    Taken,
}

/// Calls of one case: its row, what was expected and answered, and what was written.
struct Done {
    row: &'static str,
    what: String,
    expected: &'static str,
    found: String,
    puts: Vec<(String, String, i64)>,
    deletions: Vec<(String, String)>,
}

/// Runs the checks and returns what was written.
pub async fn run(api: &Api, noted: &Noted, seed: u64, tally: &mut Tally) -> Result<Written> {
    tally.expect(&[UNCHANGED, CHANGED, OLDER, DELETES, STALE_DELETES, REBORN, TAKEN, NEW]);
    let mut objects: Vec<&Object> = noted
        .ours
        .values()
        .filter(|object| object.kind.resource != "events")
        .collect();
    objects.sort_by(|a, b| a.name.cmp(&b.name));
    // A shuffle that the seed decides.
    let mut random = Random(seed);
    for at in (1..objects.len()).rev() {
        objects.swap(at, random.below(at as u64 + 1) as usize);
    }
    let quota = |parts: usize| (objects.len() * parts / 100).max(1);
    let mut jobs: Vec<(Case, Object)> = Vec::new();
    let mut rest = objects.clone();
    for (case, count, fits) in [
        (
            Case::Older,
            quota(5),
            (|o: &Object| o.older.is_some()) as fn(&Object) -> bool,
        ),
        (Case::StaleDelete, quota(2), |o| o.older.is_some() && o.kind.deletable),
        (Case::Delete, quota(2), |o| o.kind.deletable),
        (Case::Reborn, quota(1), |o| {
            o.kind.deletable && o.kind.resource != "services"
        }),
        (Case::Taken, quota(1), |o| o.kind.resource != "services"),
        (Case::Changed, quota(8), |_| true),
        (Case::Unchanged, quota(8), |_| true),
    ] {
        let mut taken = 0;
        rest.retain(|object| {
            let take = taken < count && fits(object);
            if take {
                taken += 1;
                jobs.push((case, (*object).clone()));
            }
            !take
        });
    }

    let shared = Arc::new(api.clone());
    let done = each(jobs, IN_FLIGHT / 2, |(case, object)| {
        let api = shared.clone();
        async move { one(&api, case, object).await }
    })
    .await?;
    let mut written = Written::default();
    let mut versions = HashSet::new();
    for done in done {
        tally.check(done.row, done.found == done.expected, || {
            format!("{}: answered {}, expected {}", done.what, done.found, done.expected)
        });
        for (resource, name, version) in done.puts {
            let new = version > noted.dump.revision && versions.insert(version);
            tally.check(NEW, new, || {
                format!("{resource} {name} got {version}, the head was {}", noted.dump.revision)
            });
            written.puts.push((resource, name, version));
        }
        written.deletions.extend(done.deletions);
    }
    Ok(written)
}

async fn one(api: &Api, case: Case, object: Object) -> Result<Done> {
    let path = object.path();
    let noted = object.current.clone().context("the object is deleted")?;
    let resource = object.kind.resource.to_string();
    let mut puts = Vec::new();
    let mut deletions = Vec::new();
    let mut mine = noted.clone();
    mine["metadata"]["annotations"]["example.com/after"] = json!("the move");
    let (row, expected, answer) = match case {
        Case::Unchanged => (UNCHANGED, "200 OK", api.put(&path, &mine).await?),
        Case::Changed => {
            let patch = json!({ "metadata": { "annotations": { "example.com/other": "client" } } });
            let other = api.merge(&path, &patch).await?.success("another's change")?;
            note(&mut puts, &resource, &object.name, &other)?;
            (CHANGED, "409 Conflict", api.put(&path, &mine).await?)
        }
        Case::Older => {
            mine["metadata"]["resourceVersion"] = json!(object.older.as_deref().context("no older version")?);
            (OLDER, "409 Conflict", api.put(&path, &mine).await?)
        }
        Case::Delete => {
            let answer = api.delete(&path, Some(object.resource_version()?)).await?;
            deletions.push((resource.clone(), object.name.clone()));
            (DELETES, "200 OK", answer)
        }
        Case::StaleDelete => {
            let older = object.older.as_deref().context("no older version")?;
            (STALE_DELETES, "409 Conflict", api.delete(&path, Some(older)).await?)
        }
        Case::Reborn => {
            api.delete(&path, None).await?.success("delete")?;
            deletions.push((resource.clone(), object.name.clone()));
            let again = api
                .post(&object.kind.list_path(object.namespace.as_deref()), &bare(&noted))
                .await?;
            note(&mut puts, &resource, &object.name, &again.success("create again")?)?;
            (REBORN, "409 Conflict", api.put(&path, &mine).await?)
        }
        Case::Taken => {
            let list = object.kind.list_path(object.namespace.as_deref());
            (TAKEN, "409 AlreadyExists", api.post(&list, &bare(&noted)).await?)
        }
    };
    if case == Case::Unchanged && answer.status.is_success() {
        note(&mut puts, &resource, &object.name, &answer)?;
    }
    let found = match case {
        // A deletion answers with a Status or, for some kinds, with the object.
        Case::Delete if answer.status.is_success() => "200 OK".to_string(),
        _ => answer.class(),
    };
    Ok(Done {
        row,
        what: path,
        expected,
        found,
        puts,
        deletions,
    })
}

/// The object without what the server gave it.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "generation",
            "deletionTimestamp",
        ] {
            metadata.remove(name);
        }
        // A job's controller label and selector are made from its uid.
        metadata.remove("labels");
    }
    if object["kind"] == "Job" {
        object["spec"]["selector"] = Value::Null;
        object["spec"]["template"]["metadata"]["labels"] = Value::Null;
    }
    object
}

fn note(puts: &mut Vec<(String, String, i64)>, resource: &str, name: &str, answer: &Answer) -> Result<()> {
    let version = answer.json()["metadata"]["resourceVersion"]
        .as_str()
        .context("no resourceVersion")?
        .parse()?;
    puts.push((resource.to_string(), name.to_string(), version));
    Ok(())
}
