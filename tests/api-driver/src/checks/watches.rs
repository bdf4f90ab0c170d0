//! Watches through the API from old and current resourceVersions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::api::Api;
use crate::note::Noted;
use crate::tally::Tally;

const OLD: &str = "API watches from old resourceVersions: 410";
const INITIAL: &str = "API watches that begin with all objects";
const AT_HEAD: &str = "API watches from the head: events or 410";
const LIVE: &str = "API watches: each acknowledged write, once, in order";

/// The kinds that are watched: list path and resource.
const WATCHED: &[(&str, &str)] = &[
    ("/api/v1/configmaps", "configmaps"),
    ("/api/v1/secrets", "secrets"),
    ("/api/v1/pods", "pods"),
    ("/apis/apps/v1/deployments", "deployments"),
    ("/apis/batch/v1/jobs", "jobs"),
    ("/apis/rbac.authorization.k8s.io/v1/roles", "roles"),
    ("/apis/discovery.k8s.io/v1/endpointslices", "endpointslices"),
    ("/apis/example.com/v1/widgets", "widgets"),
];

/// How long a watch may say nothing before that counts as silence.
const PATIENCE: Duration = Duration::from_secs(15);

/// Watches from before the move, from nothing and from 0, with nothing being written meanwhile.
pub async fn old(api: &Api, noted: &Noted, tally: &mut Tally) -> Result<()> {
    tally.expect(&[OLD, INITIAL, AT_HEAD, LIVE]);
    let head = noted.dump.revision;
    // Events are not cached: the API server asks etcd itself, from the next revision on.
    for version in [1, noted.compacted + 1, head - 2] {
        let first = first_event(api, &format!("/api/v1/events?watch=1&resourceVersion={version}")).await?;
        tally.check(OLD, first.contains("410 Expired"), || {
            format!("events from {version} of {head}: {first}")
        });
        tally.answer(format!("watch events from {version}"), first);
    }
    for (path, resource) in WATCHED {
        let olds = [
            1,
            noted.compacted - 1,
            noted.compacted + 1,
            head / 2 + noted.compacted / 2,
            head - 1,
        ];
        for version in olds {
            let first = first_event(api, &format!("{path}?watch=1&resourceVersion={version}")).await?;
            tally.check(OLD, first.contains("410 Expired"), || {
                format!("{resource} from {version} of {head}: {first}")
            });
            tally.answer(format!("watch {resource} from {version}"), first);
        }
        // The API server's cache may have begun at the head or, when it wrote something while it started, later.
        let first = head_watch(api, path, head).await?;
        tally.check(AT_HEAD, first != "silence", || {
            format!("{resource} from {head}: {first}")
        });

        let expected: BTreeMap<String, String> = noted
            .ours
            .iter()
            .filter(|(_, object)| object.kind.resource == *resource)
            .map(|(_, object)| Ok((object.name.clone(), object.resource_version()?.to_string())))
            .collect::<Result<_>>()?;
        for query in [
            "resourceVersion=0",
            "",
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        ] {
            let bookmark = query.starts_with("send");
            let found = initial(api, &format!("{path}?watch=1&{query}"), &expected, bookmark).await?;
            tally.check(INITIAL, found == "all", || {
                format!("{resource} with {query:?}: {found}")
            });
            tally.answer(format!("watch {resource} with {query:?}"), found);
        }
    }
    Ok(())
}

/// The first thing a watch says, in words that do not hold numbers of this run.
async fn first_event(api: &Api, path: &str) -> Result<String> {
    let mut watch = match api.watch(path).await? {
        Ok(watch) => watch,
        Err(answer) => return Ok(format!("HTTP {}", answer.class())),
    };
    match tokio::time::timeout(PATIENCE, watch.next()).await {
        Err(_) => Ok("silence".to_string()),
        Ok(event) => match event? {
            None => Ok("the server ended the watch".to_string()),
            Some(event) => {
                let object = &event["object"];
                let detail = match event["type"].as_str() {
                    Some("ERROR") => format!("{} {}", object["code"], object["reason"].as_str().unwrap_or("")),
                    _ => object["metadata"]["name"].as_str().unwrap_or("").to_string(),
                };
                Ok(format!("{} {detail}", event["type"].as_str().unwrap_or("?")))
            }
        },
    }
}

/// A watch from the head; the server ends it after a second. `silence` is an end that never comes.
async fn head_watch(api: &Api, path: &str, head: i64) -> Result<String> {
    first_event(api, &format!("{path}?watch=1&resourceVersion={head}&timeoutSeconds=1")).await
}

/// Whether a watch begins with exactly the objects that stand, and ends its beginning with a bookmark if asked to.
async fn initial(api: &Api, path: &str, expected: &BTreeMap<String, String>, bookmark: bool) -> Result<String> {
    let mut watch = match api.watch(path).await? {
        Ok(watch) => watch,
        Err(answer) => return Ok(format!("HTTP {}", answer.class())),
    };
    let mut left = expected.clone();
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        if left.is_empty() && !bookmark {
            return Ok("all".to_string());
        }
        let Ok(event) = tokio::time::timeout_at(end, watch.next()).await else {
            return Ok(format!("silence with {} objects to come", left.len()));
        };
        let Some(event) = event? else {
            return Ok(format!("the watch ended with {} objects to come", left.len()));
        };
        let metadata = &event["object"]["metadata"];
        match event["type"].as_str() {
            Some("ADDED") => {
                let name = metadata["name"].as_str().unwrap_or("");
                if name.starts_with("qk-") && left.remove(name).as_deref() != metadata["resourceVersion"].as_str() {
                    return Ok(format!("{name} came twice or at another resourceVersion"));
                }
            }
            Some("BOOKMARK") if metadata["annotations"]["k8s.io/initial-events-end"] == "true" => {
                return Ok(match left.len() {
                    0 => "all".to_string(),
                    missing => format!("the bookmark came with {missing} objects to come"),
                });
            }
            Some("BOOKMARK") => {}
            other => return Ok(format!("an event {other:?}")),
        }
    }
}

type Arrived = Arc<Mutex<Vec<(String, i64, String)>>>;

/// Watches of all watched kinds that run while the checks write.
pub struct Live {
    watches: Vec<(String, Arrived, JoinHandle<Result<()>>)>,
}

impl Live {
    /// Opens them at the current resourceVersion of each kind.
    pub async fn open(api: &Api) -> Result<Live> {
        let mut watches = Vec::new();
        for (path, resource) in WATCHED {
            let list = api.get(&format!("{path}?limit=1")).await?.success("list")?.json();
            let version = list["metadata"]["resourceVersion"]
                .as_str()
                .context("a list without a version")?;
            let mut watch = match api.watch(&format!("{path}?watch=1&resourceVersion={version}")).await? {
                Ok(watch) => watch,
                Err(answer) => bail!("the watch of {resource} from {version} was answered {}", answer.class()),
            };
            let arrived = Arrived::default();
            let log = arrived.clone();
            let task = tokio::spawn(async move {
                while let Some(event) = watch.next().await? {
                    let entry = entry(&event)?;
                    if let Ok(mut log) = log.lock() {
                        log.push(entry);
                    }
                }
                bail!("the server ended the watch")
            });
            watches.push(((*resource).to_string(), arrived, task));
        }
        Ok(Live { watches })
    }

    /// Waits for what was written, then compares: each write `(resource, resourceVersion)` once and in order.
    pub async fn close(self, written: &[(String, i64)], tally: &mut Tally) {
        for (resource, arrived, task) in self.watches {
            let expected: Vec<i64> = written
                .iter()
                .filter(|(r, _)| *r == resource)
                .map(|(_, rv)| *rv)
                .collect();
            let start = Instant::now();
            let versions = loop {
                let versions: Vec<i64> = arrived
                    .lock()
                    .map(|log| log.iter().map(|(_, rv, _)| *rv).collect())
                    .unwrap_or_default();
                if expected.iter().all(|rv| versions.contains(rv)) || start.elapsed() > PATIENCE || task.is_finished() {
                    break versions;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            if task.is_finished() {
                tally.check(LIVE, false, || format!("the watch of {resource} ended by itself"));
            }
            task.abort();
            for version in &expected {
                let times = versions.iter().filter(|rv| *rv == version).count();
                tally.check(LIVE, times == 1, || {
                    format!("{resource}: the write {version} arrived {times} times")
                });
            }
            let in_order = versions.is_sorted_by(|a, b| a < b);
            tally.check(LIVE, in_order, || format!("{resource}: events came out of order"));
        }
    }
}

fn entry(event: &Value) -> Result<(String, i64, String)> {
    let kind = event["type"].as_str().context("an event without a type")?.to_string();
    let metadata = &event["object"]["metadata"];
    let version = metadata["resourceVersion"]
        .as_str()
        .with_context(|| format!("an event {kind} without a resourceVersion"))?
        .parse()?;
    Ok((kind, version, metadata["name"].as_str().unwrap_or("").to_string()))
}
