//! Fills the cluster through the API: every object is created, some are changed many times, some deleted, some deleted
//! and made again under the same name; in the middle etcd is compacted at its head.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::api::Api;
use crate::each::each;
use crate::etcd::Etcd;
use crate::kinds::{KINDS, Kind, Random, custom_definition, text};

/// Calls in flight while filling.
const IN_FLIGHT: usize = 64;

/// One object through the fill.
#[derive(Clone)]
pub struct Object {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its namespace where it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The last state the API server answered; `None` once it is deleted.
    pub current: Option<Value>,
    /// A resourceVersion it had before its last change.
    pub older: Option<String>,
    life: Life,
    seed: u64,
    changes: u64,
}

impl Object {
    /// Its path in the API.
    pub fn path(&self) -> String {
        format!("{}/{}", self.kind.list_path(self.namespace.as_deref()), self.name)
    }

    /// Its last known resourceVersion.
    pub fn resource_version(&self) -> Result<&str> {
        let current = self.current.as_ref().context("the object is deleted")?;
        current["metadata"]["resourceVersion"]
            .as_str()
            .context("an object without a resourceVersion")
    }
}

/// What happens to one object. Updates are counted before and after the compaction.
#[derive(Clone, Copy)]
struct Life {
    late: bool,
    updates: [u64; 2],
    deleted: Option<Half>,
    again: bool,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Half {
    First,
    Second,
}

/// What was done, for the table and for the checks.
pub struct Filled {
    /// Every object, the deleted ones too.
    pub objects: Vec<Object>,
    /// How many writes the API server acknowledged.
    pub writes: u64,
    /// The revision at which etcd was compacted on the way.
    pub compacted: i64,
}

/// Writes `count` objects that stay, and as many more as are deleted on the way.
pub async fn fill(api: &Api, etcd: &Etcd, count: usize, random: &mut Random) -> Result<Filled> {
    let mut writes = 0;
    let namespaces: Vec<String> = (0..(count / 125).clamp(4, 60))
        .map(|i| format!("space-{i:03}"))
        .collect();
    for namespace in &namespaces {
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        api.post("/api/v1/namespaces", &body)
            .await?
            .success("create a namespace")?;
        // The controller that makes it does not run here, and no pod is admitted without it.
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        api.post(&path, &account).await?.success("create a service account")?;
        writes += 2;
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(definitions, &custom_definition())
        .await?
        .success("create the definition")?;
    writes += 1;
    wait_served(api, "/apis/example.com/v1/widgets").await?;

    let planned = plan(count.saturating_sub(namespaces.len() * 2 + 1), &namespaces, random);
    let (events, rest): (Vec<Object>, Vec<Object>) = planned.into_iter().partition(|o| o.kind.resource == "events");

    let (rest, done) = pass(api, rest, Half::First).await?;
    writes += done;
    let compacted = etcd.revision().await?;
    etcd.compact(compacted).await?;
    let (rest, done) = pass(api, rest, Half::Second).await?;
    writes += done;
    let (events, done) = pass(api, events, Half::First).await?;
    writes += done;
    let (events, done) = pass(api, events, Half::Second).await?;
    writes += done;

    let objects: Vec<Object> = rest.into_iter().chain(events).collect();
    ensure!(
        objects.iter().all(|o| o.life.deleted.is_some() == o.current.is_none()),
        "an object is not as planned"
    );
    Ok(Filled {
        objects,
        writes,
        compacted,
    })
}

/// Waits until the API server serves a path, as it does some time after a definition was written.
pub async fn wait_served(api: &Api, path: &str) -> Result<()> {
    for _ in 0..300 {
        if api.get(path).await?.status.is_success() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("{path} is not served after 30 s")
}

fn plan(count: usize, namespaces: &[String], random: &mut Random) -> Vec<Object> {
    let shares: u32 = KINDS.iter().map(|kind| kind.share).sum();
    let mut objects = Vec::new();
    let mut left = count;
    for (at, kind) in KINDS.iter().enumerate() {
        let mut keep = count * kind.share as usize / shares as usize;
        if at + 1 == KINDS.len() {
            // What rounding left over goes to the last kind.
            keep = left;
        }
        left -= keep;
        let doomed = if kind.deletable { keep / 6 } else { 0 };
        for index in 0..keep + doomed {
            let mut seed = random.next();
            if kind.resource == "configmaps" && index == 1 {
                seed = seed / 64 * 64 + 1;
            }
            let number = objects.len();
            let updates = |random: &mut Random| match random.below(10) {
                0..5 => 0,
                5..8 => 1 + random.below(2),
                _ => 2 + random.below(4),
            };
            let mut life = Life {
                late: random.below(5) == 0,
                updates: [updates(random), updates(random)],
                deleted: None,
                again: kind.deletable && random.below(12) == 0,
            };
            if index >= keep {
                life.deleted = Some(if random.below(2) == 0 {
                    Half::First
                } else {
                    Half::Second
                });
                life.again = false;
            }
            if life.late && life.deleted == Some(Half::First) {
                life.late = false;
            }
            // One object of each kind is changed far more often than the others.
            if index == 0 {
                life.updates = [20, 20];
            }
            let namespace = &namespaces[random.below(namespaces.len() as u64) as usize];
            objects.push(Object {
                kind,
                namespace: kind.namespaced.then(|| namespace.clone()),
                name: format!("qk-{}-{number:05}", &kind.resource[..kind.resource.len().min(20)]),
                current: None,
                older: None,
                life,
                seed,
                changes: 0,
            });
        }
    }
    objects
}

/// Takes every object through one half of its life.
async fn pass(api: &Api, objects: Vec<Object>, half: Half) -> Result<(Vec<Object>, u64)> {
    let api = Arc::new(api.clone());
    let done = each(objects, IN_FLIGHT, |object| {
        let api = api.clone();
        async move { live(&api, object, half).await }
    })
    .await?;
    let writes = done.iter().map(|(_, writes)| writes).sum();
    Ok((done.into_iter().map(|(object, _)| object).collect(), writes))
}

async fn live(api: &Api, mut object: Object, half: Half) -> Result<(Object, u64)> {
    let life = object.life;
    let (born, updates) = match half {
        Half::First if life.late => return Ok((object, 0)),
        Half::First => (true, life.updates[0]),
        Half::Second if life.deleted == Some(Half::First) => return Ok((object, 0)),
        Half::Second => (life.late, life.updates[1]),
    };
    let mut writes = updates;
    if born {
        create(api, &mut object).await?;
        writes += 1;
    }
    for _ in 0..updates {
        update(api, &mut object).await?;
    }
    let again = life.again && half == Half::Second;
    if life.deleted == Some(half) || again {
        api.delete(&object.path(), None).await?.success("delete")?;
        object.current = None;
        writes += 1;
    }
    if again {
        create(api, &mut object).await?;
        update(api, &mut object).await?;
        writes += 2;
    }
    Ok((object, writes))
}

async fn create(api: &Api, object: &mut Object) -> Result<()> {
    let mut body = object
        .kind
        .object(object.namespace.as_deref(), &object.name, object.seed);
    if let Some(size) = large(object) {
        body["data"] = json!({ "large": text(object.seed, size) });
        body["binaryData"] = json!({});
    }
    let path = object.kind.list_path(object.namespace.as_deref());
    let answer = api
        .post(&path, &body)
        .await?
        .success(&format!("create {}", object.name))?;
    object.current = Some(answer.json());
    Ok(())
}

/// Every 32nd ConfigMap is large; the largest are as large as the API lets a ConfigMap be, and one always is.
fn large(object: &Object) -> Option<u64> {
    if object.kind.resource != "configmaps" {
        return None;
    }
    match object.seed % 64 {
        0 => Some(1 << (14 + object.seed / 64 % 6)),
        1 => Some(1 << 20),
        _ => None,
    }
}

/// Changes the object: mostly a PUT with the resourceVersion, every fourth time a merge patch without one.
async fn update(api: &Api, object: &mut Object) -> Result<()> {
    let path = object.path();
    let older = object.resource_version()?.to_string();
    // Never twice the same: an update that changes nothing gets no new resourceVersion.
    object.changes += 1;
    let round = json!(object.changes.to_string());
    let answer = if object.seed.is_multiple_of(4) {
        let patch = json!({ "metadata": { "annotations": { "example.com/patched": round } } });
        api.merge(&path, &patch).await?
    } else {
        let mut body = object.current.clone().context("the object is deleted")?;
        body["metadata"]["annotations"]["example.com/round"] = round;
        api.put(&path, &body).await?
    };
    let body = answer.success(&format!("update {}", object.name))?.json();
    object.current = Some(body);
    object.older = Some(older);
    Ok(())
}
