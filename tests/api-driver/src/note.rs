//! What is written down before the move: every object as the API shows it, every key as etcd holds it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;

use crate::api::Api;
use crate::each::each;
use crate::etcd::{Dump, Etcd, Lease};
use crate::fill::{Filled, Object};

/// Calls in flight while reading.
pub const IN_FLIGHT: usize = 64;

/// One kind of object that the API server lists.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The path of the group and version.
    pub base: String,
    /// The plural name.
    pub name: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

impl Resource {
    /// The path of the list of all of them.
    pub fn list_path(&self) -> String {
        format!("{}/{}", self.base, self.name)
    }

    fn object_path(&self, metadata: &serde_json::Value) -> Result<String> {
        let name = metadata["name"].as_str().context("an object without a name")?;
        Ok(match metadata["namespace"].as_str() {
            Some(namespace) if self.namespaced => format!("{}/namespaces/{namespace}/{}/{name}", self.base, self.name),
            _ => format!("{}/{}/{name}", self.base, self.name),
        })
    }
}

/// One object as a GET showed it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seen {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: i64,
    /// The whole answer.
    pub bytes: Bytes,
}

impl Seen {
    /// Reads identity and version out of an answer.
    pub fn of(bytes: Bytes) -> Result<Seen> {
        let object: serde_json::Value = serde_json::from_slice(&bytes)?;
        let metadata = &object["metadata"];
        Ok(Seen {
            uid: metadata["uid"].as_str().context("an object without a uid")?.to_string(),
            resource_version: metadata["resourceVersion"]
                .as_str()
                .context("an object without a resourceVersion")?
                .parse()?,
            bytes,
        })
    }
}

/// All of it.
pub struct Noted {
    /// Every object by its path.
    pub objects: BTreeMap<String, Seen>,
    /// The revision when the objects were read; the API server wrote a little more until it had stopped.
    pub read_at: i64,
    /// The driver's own objects that stand, by their path: nobody else writes these.
    pub ours: HashMap<String, Object>,
    /// Paths of objects that were deleted.
    pub deleted: Vec<String>,
    /// Lists that were begun before the move: path with its continue token.
    pub begun: Vec<String>,
    /// The revision etcd was compacted at on the way.
    pub compacted: i64,
    /// Every key, read after the API server had stopped.
    pub dump: Dump,
    /// Every lease that has keys.
    pub leases: BTreeMap<i64, Lease>,
}

/// The part that needs the running API server.
pub struct ApiNotes {
    read_at: i64,
    objects: BTreeMap<String, Seen>,
}

/// Begins a paged list of each of a few kinds, to be gone on with after the move.
pub async fn begin_lists(api: &Api) -> Result<Vec<String>> {
    let mut begun = Vec::new();
    for path in [
        "/api/v1/configmaps",
        "/apis/apps/v1/deployments",
        "/apis/example.com/v1/widgets",
    ] {
        let path = format!("{path}?limit=3");
        let list = api.get(&path).await?.success("begin a list")?.json();
        let token = list["metadata"]["continue"]
            .as_str()
            .context("a list of 3 has no continue token")?;
        begun.push(format!("{path}&continue={token}"));
    }
    Ok(begun)
}

/// Reads every object: lists every kind, then gets each object by itself.
pub async fn through_api(api: &Api, etcd: &Etcd) -> Result<ApiNotes> {
    let read_at = etcd.revision().await?;
    let resources = discover(api).await?;
    let mut paths = Vec::new();
    for resource in &resources {
        let mut token = String::new();
        loop {
            let list = format!("{}?limit=500{token}", resource.list_path());
            let list = api.get(&list).await?.success("list")?.json();
            for item in list["items"].as_array().context("a list without items")? {
                paths.push(resource.object_path(&item["metadata"])?);
            }
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = format!("&continue={next}"),
                _ => break,
            }
        }
    }
    let count = paths.len();
    let objects = get_all(api, paths).await?;
    let mut found = BTreeMap::new();
    for (path, answer) in objects {
        let (status, bytes) = answer;
        // The cluster's own leases come and go while it runs; the driver's objects are checked below.
        if status == 200 {
            found.insert(path, Seen::of(bytes)?);
        }
    }
    ensure!(
        found.len() * 100 >= count * 99,
        "only {} of {count} objects were found again",
        found.len()
    );
    Ok(ApiNotes {
        read_at,
        objects: found,
    })
}

/// Gets many objects: path, status and body of each.
pub async fn get_all(api: &Api, paths: Vec<String>) -> Result<Vec<(String, (u16, Bytes))>> {
    let api = Arc::new(api.clone());
    each(paths, IN_FLIGHT, |path| {
        let api = api.clone();
        async move {
            let answer = api.get(&path).await?;
            Ok((path, (answer.status.as_u16(), answer.body)))
        }
    })
    .await
}

/// Reads the rest out of etcd, the API server having stopped, and puts everything together.
pub async fn through_etcd(notes: ApiNotes, begun: Vec<String>, filled: Filled, etcd: &Etcd) -> Result<Noted> {
    let leases = settled_leases(etcd).await?;
    let dump = etcd.dump().await?;
    ensure!(
        dump.count == dump.keys.len() as i64,
        "etcd counts {} keys and shows {}",
        dump.count,
        dump.keys.len()
    );
    let mut ours = HashMap::new();
    let mut deleted = Vec::new();
    for object in filled.objects {
        let path = object.path();
        if object.current.is_none() {
            deleted.push(path);
            continue;
        }
        let seen = notes
            .objects
            .get(&path)
            .with_context(|| format!("{path} is not in its list"))?;
        ensure!(
            seen.resource_version.to_string() == object.resource_version()?,
            "{path} is not as the last write left it"
        );
        ours.insert(path, object);
    }
    Ok(Noted {
        objects: notes.objects,
        read_at: notes.read_at,
        ours,
        deleted,
        begun,
        compacted: filled.compacted,
        dump,
        leases,
    })
}

/// The leases with keys, once no short one is left: the API server's own entry in the endpoints runs out within
/// 15 s, and etcd would change between two looks at it.
async fn settled_leases(etcd: &Etcd) -> Result<BTreeMap<i64, Lease>> {
    let start = Instant::now();
    loop {
        let mut leases = etcd.leases().await?;
        leases.retain(|_, lease| !lease.keys.is_empty());
        if leases.values().all(|lease| lease.granted >= 30) {
            return Ok(leases);
        }
        if start.elapsed() > Duration::from_secs(30) {
            bail!("leases of less than 30 s are still there 30 s after the API server stopped");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Every kind that can be listed, each group in its preferred version.
async fn discover(api: &Api) -> Result<Vec<Resource>> {
    let mut bases = vec!["/api/v1".to_string()];
    let groups = api.get("/apis").await?.success("discovery")?.json();
    for group in groups["groups"].as_array().context("discovery without groups")? {
        let version = group["preferredVersion"]["groupVersion"]
            .as_str()
            .context("a group without a version")?;
        bases.push(format!("/apis/{version}"));
    }
    let mut resources = Vec::new();
    for base in bases {
        let list = api.get(&base).await?.success("discovery")?.json();
        for resource in list["resources"].as_array().context("a group without resources")? {
            let name = resource["name"].as_str().context("a resource without a name")?;
            let listed = resource["verbs"]
                .as_array()
                .is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            // Events are in two groups, component statuses in no store.
            let twin = base.starts_with("/apis/events.k8s.io") || name == "componentstatuses";
            if listed && !name.contains('/') && !twin {
                resources.push(Resource {
                    base: base.clone(),
                    name: name.to_string(),
                    namespaced: resource["namespaced"].as_bool().unwrap_or(false),
                });
            }
        }
    }
    Ok(resources)
}
