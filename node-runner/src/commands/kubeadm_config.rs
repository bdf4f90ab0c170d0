//! `kubeadm-config`: a filter that records the store in kubeadm's ConfigMap, or takes it out again, so that
//! `kubeadm upgrade` renders an API server manifest that names the right side.
//!
//! It reads what `kubectl get configmap -o json` prints and writes what `kubectl replace -f -` takes: the resourceVersion
//! comes along, so that an edit of somebody else's in between is answered Conflict and not lost.

use std::io::{Read, Write};

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Direction, Plan, Summary};
use serde_json::Value as Json;
use yaml_serde::{Mapping, Value};

use crate::commands::Context;
use crate::moves::store::NAME;
use crate::moves::undo_store::Installed;

/// The flag of the API server.
const FLAG: &str = "etcd-servers";
/// The document in the ConfigMap.
const DOCUMENT: &str = "ClusterConfiguration";
/// The most that is read: a ConfigMap has 1 MiB at most, and JSON quotes it.
const INPUT_MAX: u64 = 8 << 20;

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Edit {
    /// kubeadm names the store at this URL from now on.
    Remember(String),
    /// kubeadm names its own etcd again.
    Forget(String),
}

impl Edit {
    /// The command that makes this edit on the live cluster.
    pub fn command(&self) -> String {
        let (verb, url) = match self {
            Edit::Remember(url) => ("remember", url),
            Edit::Forget(url) => ("forget", url),
        };
        let kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system";
        format!(
            "{kubectl} get configmap kubeadm-config -o json | quantykube kubeadm-config {verb} {url} | {kubectl} replace -f -"
        )
    }
}

/// The command that goes with an install, from its plan.
pub fn remember(plan: &Plan) -> Option<String> {
    let installed = Installed::of("this one", plan).ok()?;
    Some(Edit::Remember(installed.store).command())
}

/// The command that goes with an undo: the reverse of the last install's.
pub fn forget(context: &Context) -> Option<String> {
    let all = context.root.journals().list(&context.machine()).ok()?;
    let is_install = |journal: &&Summary| journal.plan.name == NAME && journal.plan.direction == Direction::Install;
    let install = all.iter().rev().find(is_install)?;
    let installed = Installed::of(&install.id, &install.plan).ok()?;
    Some(Edit::Forget(installed.store).command())
}

/// The command as it is shown.
pub fn said(command: Option<&str>) -> String {
    match command {
        Some(command) => {
            format!("so that kubeadm upgrade names it too, tell kubeadm (once the API server is ready):\n  {command}")
        }
        None => "kubeadm upgrade may name another: see quantykube kubeadm-config --help".to_owned(),
    }
}

/// Reads standard input, writes standard output.
pub fn run(edit: &Edit) -> Result<Exit, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .take(INPUT_MAX)
        .read_to_string(&mut text)
        .map_err(|error| wrong("standard input cannot be read").because(error))?;
    let edited = edited(&text, edit)?;
    std::io::stdout()
        .write_all(edited.as_bytes())
        .and_then(|()| std::io::stdout().flush())
        .map_err(|error| Failure::new(Exit::Failed, "output", "standard output cannot be written").because(error))?;
    Ok(Exit::Done)
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Refused, "kubeadm-config", what).hint(
        "give it what `kubectl -n kube-system get configmap kubeadm-config -o json` prints; kubeadm writes that ConfigMap",
    )
}

/// The ConfigMap with its ClusterConfiguration edited. One that is already so comes back with the same document.
fn edited(text: &str, edit: &Edit) -> Result<String, Failure> {
    if text.trim().is_empty() {
        return Err(wrong("nothing came on standard input"));
    }
    let mut map: Json =
        serde_json::from_str(text).map_err(|error| wrong("standard input is not JSON").because(error))?;
    let document = map
        .get_mut("data")
        .and_then(|data| data.get_mut(DOCUMENT))
        .ok_or_else(|| wrong(format!("it is no ConfigMap with data.{DOCUMENT}")))?;
    let found = document
        .as_str()
        .ok_or_else(|| wrong(format!("data.{DOCUMENT} is not a text")))?;
    if let Some(new) = edit_document(found, edit)? {
        *document = Json::String(new);
    }
    let mut out = map.to_string();
    out.push('\n');
    Ok(out)
}

/// The new document; `None` where it is already so.
fn edit_document(text: &str, edit: &Edit) -> Result<Option<String>, Failure> {
    let mut root: Value =
        yaml_serde::from_str(text).map_err(|error| wrong(format!("{DOCUMENT} is not YAML")).because(error))?;
    let version = root
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    // A map of flags up to v1beta3, a list of names and values since.
    let as_map = match version.as_str() {
        "kubeadm.k8s.io/v1beta2" | "kubeadm.k8s.io/v1beta3" => true,
        "kubeadm.k8s.io/v1beta4" | "kubeadm.k8s.io/v1" => false,
        other => {
            return Err(Failure::new(
                Exit::NeedsNewer,
                "kubeadm-config",
                format!("{DOCUMENT} has version {other:?}; v1beta2 to v1beta4 and v1 are known"),
            ));
        }
    };
    let root_map = root
        .as_mapping_mut()
        .ok_or_else(|| wrong(format!("{DOCUMENT} is not a map")))?;
    let api_server = child(root_map, "apiServer")?;
    let changed = match as_map {
        true => edit_map(api_server, edit)?,
        false => edit_list(api_server, edit)?,
    };
    if !changed {
        return Ok(None);
    }
    let new = yaml_serde::to_string(&root).map_err(|error| wrong("the edited document").because(error))?;
    Ok(Some(new))
}

/// The map below a key, made where there is none.
fn child<'a>(map: &'a mut Mapping, key: &str) -> Result<&'a mut Mapping, Failure> {
    let entry = map.entry(Value::from(key)).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Mapping(Mapping::new());
    }
    entry
        .as_mapping_mut()
        .ok_or_else(|| wrong(format!("{DOCUMENT}: {key} is not a map")))
}

fn other(found: &str, wanted: &str) -> Failure {
    Failure::new(
        Exit::Refused,
        "kubeadm-config",
        format!("apiServer.extraArgs names {FLAG}={found} already, not {wanted}"),
    )
    .hint("somebody has set it; see why, and edit the ConfigMap by hand")
}

fn edit_map(api_server: &mut Mapping, edit: &Edit) -> Result<bool, Failure> {
    let found = api_server
        .get("extraArgs")
        .and_then(|args| args.get(FLAG))
        .map(|value| value.as_str().unwrap_or_default().to_owned());
    match (edit, found) {
        (Edit::Remember(url), Some(found)) if found == *url => Ok(false),
        (Edit::Remember(url), Some(found)) | (Edit::Forget(url), Some(found)) if found != *url => {
            Err(other(&found, url))
        }
        (Edit::Remember(url), _) => {
            child(api_server, "extraArgs")?.insert(Value::from(FLAG), Value::from(url.as_str()));
            Ok(true)
        }
        (Edit::Forget(_), None) => Ok(false),
        (Edit::Forget(_), Some(_)) => {
            let args = child(api_server, "extraArgs")?;
            args.remove(FLAG);
            if args.is_empty() {
                api_server.remove("extraArgs");
            }
            Ok(true)
        }
    }
}

fn edit_list(api_server: &mut Mapping, edit: &Edit) -> Result<bool, Failure> {
    let is_flag = |item: &Value| item.get("name").and_then(Value::as_str) == Some(FLAG);
    let mut list = match api_server.get("extraArgs") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Sequence(list)) => list.clone(),
        Some(_) => return Err(wrong("apiServer.extraArgs is not a list")),
    };
    let found: Vec<String> = list
        .iter()
        .filter(|item| is_flag(item))
        .map(|item| item.get("value").and_then(Value::as_str).unwrap_or_default().to_owned())
        .collect();
    let url = match edit {
        Edit::Remember(url) | Edit::Forget(url) => url,
    };
    if let Some(found) = found.iter().find(|found| *found != url) {
        return Err(other(found, url));
    }
    match (edit, found.is_empty()) {
        (Edit::Remember(_), false) | (Edit::Forget(_), true) => return Ok(false),
        (Edit::Remember(_), true) => {
            let mut item = Mapping::new();
            item.insert(Value::from("name"), Value::from(FLAG));
            item.insert(Value::from("value"), Value::from(url.as_str()));
            list.push(Value::Mapping(item));
        }
        (Edit::Forget(_), false) => list.retain(|item| !is_flag(item)),
    }
    match list.is_empty() {
        true => {
            api_server.remove("extraArgs");
        }
        false => {
            api_server.insert(Value::from("extraArgs"), Value::Sequence(list));
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://127.0.0.1:2479";

    fn config(version: &str, api_server: &str) -> String {
        format!(
            "{api_server}apiVersion: kubeadm.k8s.io/{version}\nclusterName: c\nkind: ClusterConfiguration\nnetworking: {{}}\n"
        )
    }

    fn extra_args(text: &str) -> Value {
        let root: Value = yaml_serde::from_str(text).unwrap();
        root["apiServer"].get("extraArgs").cloned().unwrap_or(Value::Null)
    }

    fn yaml(text: &str) -> Value {
        yaml_serde::from_str(text).unwrap()
    }

    #[test]
    fn each_form_is_edited_there_and_back() {
        let remember = Edit::Remember(URL.to_owned());
        let forget = Edit::Forget(URL.to_owned());
        let map = format!("{{etcd-servers: '{URL}'}}");
        let map_two = format!("{{v: '2', etcd-servers: '{URL}'}}");
        let list = format!("[{{name: etcd-servers, value: '{URL}'}}]");
        let list_two = format!("[{{name: v, value: '2'}}, {{name: etcd-servers, value: '{URL}'}}]");
        let cases = [
            ("v1beta3", "", map.as_str()),
            ("v1beta3", "apiServer: {}\n", &map),
            ("v1beta3", "apiServer:\n  timeoutForControlPlane: 4m0s\n", &map),
            ("v1beta3", "apiServer:\n  extraArgs:\n    v: '2'\n", &map_two),
            ("v1beta4", "", &list),
            ("v1beta4", "apiServer: {}\n", &list),
            (
                "v1beta4",
                "apiServer:\n  extraArgs:\n  - name: v\n    value: '2'\n",
                &list_two,
            ),
            ("v1", "apiServer:\n  certSANs: [a]\n", &list),
        ];
        for (version, api_server, expected) in cases {
            let before = config(version, api_server);
            let with = edit_document(&before, &remember).unwrap().unwrap();
            assert_eq!(extra_args(&with), yaml(expected), "{before}");
            assert_eq!(edit_document(&with, &remember).unwrap(), None, "already so");
            let without = edit_document(&with, &forget).unwrap().unwrap();
            let mut was = yaml(&before);
            // An empty map is what kubeadm itself writes.
            let map = was.as_mapping_mut().unwrap();
            map.entry(Value::from("apiServer"))
                .or_insert(Value::Mapping(Mapping::new()));
            assert_eq!(yaml(&without), was);
            assert_eq!(edit_document(&without, &forget).unwrap(), None, "already so");
        }
    }

    #[test]
    fn what_somebody_else_set_is_left_alone() {
        for text in [
            config(
                "v1beta3",
                "apiServer:\n  extraArgs:\n    etcd-servers: https://10.0.0.1:2379\n",
            ),
            config(
                "v1beta4",
                "apiServer:\n  extraArgs:\n  - name: etcd-servers\n    value: https://10.0.0.1:2379\n",
            ),
        ] {
            for edit in [Edit::Remember(URL.to_owned()), Edit::Forget(URL.to_owned())] {
                let failure = edit_document(&text, &edit).unwrap_err();
                assert_eq!(failure.exit, Exit::Refused);
                assert!(failure.message.contains("10.0.0.1"), "{}", failure.message);
            }
        }
        let newer = edit_document(&config("v2", ""), &Edit::Remember(URL.to_owned())).unwrap_err();
        assert_eq!(newer.exit, Exit::NeedsNewer);
    }

    #[test]
    fn the_rest_of_the_config_map_stays() {
        let map = serde_json::json!({
            "kind": "ConfigMap",
            "metadata": {"name": "kubeadm-config", "resourceVersion": "7"},
            "data": {DOCUMENT: config("v1beta4", "apiServer: {}\n"), "other": "x"},
        });
        let text = edited(&map.to_string(), &Edit::Remember(URL.to_owned())).unwrap();
        let new: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(new["metadata"], map["metadata"]);
        assert_eq!(new["data"]["other"], "x");
        assert!(new["data"][DOCUMENT].as_str().unwrap().contains(URL));
        for bad in ["", "no json", "{}", r#"{"data":{"ClusterConfiguration":7}}"#] {
            assert_eq!(
                edited(bad, &Edit::Remember(URL.to_owned())).unwrap_err().exit,
                Exit::Refused,
                "{bad}"
            );
        }
    }
}
