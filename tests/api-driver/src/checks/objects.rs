//! Every object as the API shows it, one by one and in lists.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::api::Api;
use crate::fill::wait_served;
use crate::kinds::KINDS;
use crate::note::{Noted, Seen, get_all};
use crate::tally::Tally;

const OURS: &str = "objects by GET: uid, resourceVersion, bytes";
const CLUSTER: &str = "the cluster's own objects: same, or written since";
const DELETED: &str = "deleted objects: not found";
const LISTS: &str = "objects in lists (cached, consistent, paged, exact)";
const BEGUN: &str = "paged lists begun before the move: 410";
const ANSWERS: &str = "lists at other resourceVersions";

/// Runs the checks.
pub async fn run(api: &Api, noted: &Noted, tally: &mut Tally) -> Result<()> {
    tally.expect(&[OURS, CLUSTER, DELETED, LISTS, BEGUN, ANSWERS]);
    wait_served(api, "/apis/example.com/v1/widgets?limit=1").await?;
    let head = noted.dump.revision;
    // The events' lease runs: they are read first.
    let mut paths: Vec<String> = noted.objects.keys().cloned().collect();
    paths.sort_by_key(|path| !path.contains("/events/"));
    for (path, (status, bytes)) in get_all(api, paths).await? {
        let before = &noted.objects[&path];
        let now = match status {
            200 => Some(Seen::of(bytes)?),
            _ => None,
        };
        let shape = |seen: &Seen| {
            format!(
                "uid {} at {} in {} bytes",
                seen.uid,
                seen.resource_version,
                seen.bytes.len()
            )
        };
        let told = || match &now {
            Some(now) => format!("{path}: found {}, expected {}", shape(now), shape(before)),
            None => format!("{path}: answered {status}"),
        };
        let same = now.as_ref() == Some(before);
        if noted.ours.contains_key(&path) {
            tally.check(OURS, same, told);
        } else {
            let written_since = now.as_ref().is_some_and(|now| now.resource_version > noted.read_at);
            tally.check(CLUSTER, same || written_since, told);
        }
    }
    for (path, (status, _)) in get_all(api, noted.deleted.clone()).await? {
        tally.same(DELETED, &path, status, 404);
    }
    lists(api, noted, tally).await?;
    for path in &noted.begun {
        let class = api.get(path).await?.class();
        tally.same(BEGUN, path, class.as_str(), "410 Expired");
    }
    for (question, expected) in [
        (
            "resourceVersion=1&resourceVersionMatch=Exact".to_string(),
            "410 Expired",
        ),
        (
            format!("resourceVersion={}&resourceVersionMatch=Exact&limit=2", head - 1),
            "410 Expired",
        ),
        (
            format!("resourceVersion={head}&resourceVersionMatch=Exact&limit=2"),
            "200 OK",
        ),
        (
            format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", head - 1),
            "200 OK",
        ),
        (
            format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", head + 1_000_000),
            "504 Timeout",
        ),
    ] {
        for list in ["/api/v1/secrets", "/apis/example.com/v1/widgets"] {
            let class = api.get(&format!("{list}?{question}")).await?.class();
            tally.same(ANSWERS, &format!("{list}?{question}"), class.as_str(), expected);
            tally.answer(format!("list {list}?{question}"), class);
        }
    }
    Ok(())
}

/// Lists every kind in four ways; each must show every object of ours at its resourceVersion.
async fn lists(api: &Api, noted: &Noted, tally: &mut Tally) -> Result<()> {
    let head = noted.dump.revision;
    for kind in KINDS {
        let base = kind.list_path(None);
        let expected: BTreeMap<(String, String), String> = noted
            .ours
            .values()
            .filter(|object| object.kind.resource == kind.resource)
            .map(|object| {
                let key = (object.namespace.clone().unwrap_or_default(), object.name.clone());
                Ok((key, object.resource_version()?.to_string()))
            })
            .collect::<Result<_>>()?;
        let exact = format!("resourceVersion={head}&resourceVersionMatch=Exact&limit=10000");
        for (way, query) in [
            ("cached", "resourceVersion=0"),
            ("consistent", ""),
            ("paged", "limit=97"),
            ("exact", &exact),
        ] {
            let found = list(api, &base, query)
                .await
                .with_context(|| format!("the {way} list of {}", kind.resource))?;
            for (key, version) in &expected {
                tally.check(LISTS, found.get(key) == Some(version), || {
                    format!(
                        "{way} list, {} {key:?}: {:?}, expected {version}",
                        kind.resource,
                        found.get(key)
                    )
                });
            }
            for key in found
                .keys()
                .filter(|key| key.1.starts_with("qk-") && !expected.contains_key(*key))
            {
                tally.check(LISTS, false, || {
                    format!("{way} list shows {} {key:?}, which was deleted", kind.resource)
                });
            }
        }
    }
    Ok(())
}

async fn list(api: &Api, base: &str, query: &str) -> Result<BTreeMap<(String, String), String>> {
    let mut found = BTreeMap::new();
    let mut token = String::new();
    loop {
        let page = api
            .get(&format!("{base}?{query}{token}"))
            .await?
            .success("list")?
            .json();
        for item in page["items"].as_array().context("a list without items")? {
            let text = |name: &str| item["metadata"][name].as_str().unwrap_or_default().to_string();
            found.insert((text("namespace"), text("name")), text("resourceVersion"));
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = format!("&continue={next}"),
            _ => return Ok(found),
        }
    }
}
