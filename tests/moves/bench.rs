//! What the tests of moves share: a node with a bundle on it, a cluster with objects in it, and what `run` says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use quantykube_test_node::{Node, Options, Spawned};
use quantykube_tests::program;
use serde_json::Value;

/// Long enough for an API server on a busy machine.
pub const LONG: Duration = Duration::from_secs(240);
/// The API server's manifest.
pub const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
/// etcd, as kubeadm's manifest names it.
pub const ETCD: &str = "https://127.0.0.1:2379";
/// The store.
pub const STORE: &str = "https://127.0.0.1:2479";

/// A node with the bundle extracted and a cluster that serves.
pub struct Bench {
    /// The node.
    pub node: Node,
    /// The extracted bundle's folder in the node.
    pub folder: String,
}

/// What a run of `run --json` ended with.
#[derive(Debug)]
pub struct Said {
    /// The exit code.
    pub code: i32,
    /// Every event, in order.
    pub events: Vec<Value>,
    /// Standard error.
    pub errors: String,
}

impl Said {
    /// Reads the output of `run --json`.
    pub fn of(output: &Output) -> Said {
        let text = String::from_utf8_lossy(&output.stdout);
        let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Said {
            code: output.status.code().unwrap_or(-1),
            events: text.lines().map(event).collect(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The last event: a result or an error.
    pub fn last(&self) -> &Value {
        self.events.last().unwrap_or(&Value::Null)
    }

    /// The same, where it must have ended with this exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Said {
        assert_eq!(self.code, code, "{}\n{:#?}", self.errors, self.events);
        self
    }
}

impl Bench {
    /// Boots a node, extracts the bundle on it and fills the cluster.
    pub fn set_up() -> Bench {
        Bench::on(Options::default())
    }

    /// The same on a node of a certain kind.
    pub fn on(options: Options) -> Bench {
        let archive = bundle();
        let node = Node::boot(options);
        let waited = node.api_ready(LONG);
        println!("a node is up, its API server ready after {:.1} s", waited.as_secs_f64());
        node.copy_in(&archive, "/root/bundle.tar.gz");
        node.run(&["tar", "-xzf", "/root/bundle.tar.gz", "-C", "/root"]);
        let folder = node.run(&["sh", "-c", "ls -d /root/quantykube-*"]).trim().to_owned();
        let bench = Bench { node, folder };
        bench.fill();
        bench
    }

    /// Runs `./run --json ARGS` in the bundle's folder.
    pub fn run(&self, args: &[&str]) -> Said {
        Said::of(
            &self
                .node
                .exec(&self.command(args).iter().map(String::as_str).collect::<Vec<_>>()),
        )
    }

    /// Starts it and goes on.
    pub fn spawn(&self, args: &[&str]) -> Spawned {
        self.node
            .spawn(&self.command(args).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn command(&self, args: &[&str]) -> Vec<String> {
        let mut argv = vec![format!("{}/run", self.folder), "--json".to_owned()];
        argv.extend(args.iter().map(|arg| (*arg).to_owned()));
        argv
    }

    /// The installed program, without any bundle.
    pub fn installed(&self, args: &[&str]) -> Said {
        Said::of(
            &self
                .node
                .exec(&[&["/usr/local/bin/quantykube", "--json"], args].concat()),
        )
    }

    /// Objects of several kinds in the namespace `moves`.
    fn fill(&self) {
        let mut text = String::from("apiVersion: v1\nkind: Namespace\nmetadata: {name: moves}\n");
        for number in 0..40 {
            text += &format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}, namespace: moves}}\ndata: {{n: \"{number}\", big: \"{}\"}}\n",
                "x".repeat(number * 500)
            );
            text += &format!(
                "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s{number}, namespace: moves}}\nstringData: {{n: \"{number}\"}}\n"
            );
            text += &format!(
                "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: a{number}, namespace: moves}}\n"
            );
            text += &format!(
                "---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: l{number}, namespace: moves}}\nspec: {{holderIdentity: h{number}}}\n"
            );
            text += &format!(
                "---\napiVersion: v1\nkind: Event\nmetadata: {{name: e{number}, namespace: moves}}\ninvolvedObject: {{kind: ConfigMap, name: c{number}, namespace: moves}}\nreason: Test\nmessage: m\ntype: Normal\n"
            );
        }
        std::fs::write(self.node.path("/root/fill.yaml"), text).unwrap();
        self.kubectl(&["create", "-f", "/root/fill.yaml"]);
        // Some history: objects written more than once, and some that are gone.
        self.kubectl(&["-n", "moves", "label", "configmaps", "--all", "round=one"]);
        self.kubectl(&["-n", "moves", "delete", "configmap", "c38", "c39", "--wait=true"]);
    }

    /// kubectl, which must succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.node.kubectl(args)
    }

    /// Every object of the cluster that the API server shows, with uid and resourceVersion; leases renew themselves and
    /// are left out, but for ours.
    pub fn objects(&self) -> Objects {
        let mut objects = BTreeMap::new();
        let mut revision = 0;
        for (kind, path) in KINDS {
            let list: Value = serde_json::from_str(&self.kubectl(&["get", "--raw", path])).unwrap();
            revision = revision.max(number(&list["metadata"]["resourceVersion"]));
            for item in list["items"].as_array().unwrap() {
                let data = &item["metadata"];
                let name = format!(
                    "{kind} {}/{}",
                    data["namespace"].as_str().unwrap_or("-"),
                    data["name"].as_str().unwrap()
                );
                if *kind == "leases" && data["namespace"] != "moves" {
                    continue;
                }
                let object = Object {
                    uid: data["uid"].as_str().unwrap().to_owned(),
                    revision: number(&data["resourceVersion"]),
                    text: item.to_string(),
                };
                objects.insert(name, object);
            }
        }
        Objects { objects, revision }
    }

    /// The revision of an etcd or of the store, as etcdctl tells it.
    pub fn revision(&self, endpoint: &str) -> i64 {
        let status = self
            .node
            .etcdctl_at(endpoint, &["endpoint", "status", "--write-out=json"]);
        let status: Value = serde_json::from_str(&status).unwrap();
        status[0]["Status"]["header"]["revision"].as_i64().unwrap()
    }

    /// The API server's manifest as it stands.
    pub fn manifest(&self) -> String {
        std::fs::read_to_string(self.node.path(MANIFEST)).unwrap()
    }

    /// The etcd that the one running API server was started with.
    pub fn serves_from(&self) -> String {
        self.is_served_from().expect("one API server runs")
    }

    /// The same; none where there is no API server, more than one, or one whose command line does not stand yet.
    pub fn is_served_from(&self) -> Option<String> {
        let pids = self.node.processes("kube-apiserver");
        let [pid] = pids.as_slice() else { return None };
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8(line).ok()?;
        let flag = line.split('\0').find_map(|item| item.strip_prefix("--etcd-servers="))?;
        Some(flag.to_owned())
    }

    /// Whether a unit is running.
    pub fn is_active(&self, unit: &str) -> bool {
        self.node
            .exec(&["systemctl", "is-active", "--quiet", unit])
            .status
            .success()
    }

    /// Whether a unit starts at boot.
    pub fn is_enabled(&self, unit: &str) -> bool {
        self.node
            .exec(&["systemctl", "is-enabled", "--quiet", unit])
            .status
            .success()
    }

    /// What `status --json` says.
    pub fn status(&self) -> Value {
        self.run(&["status"]).expect(0).last().clone()
    }
}

/// The kinds that are compared, with the path that lists them in all namespaces.
const KINDS: &[(&str, &str)] = &[
    ("namespaces", "/api/v1/namespaces"),
    ("configmaps", "/api/v1/configmaps"),
    ("secrets", "/api/v1/secrets"),
    ("serviceaccounts", "/api/v1/serviceaccounts"),
    ("services", "/api/v1/services"),
    ("events", "/api/v1/events"),
    ("leases", "/apis/coordination.k8s.io/v1/leases"),
    ("clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    (
        "clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
    ("roles", "/apis/rbac.authorization.k8s.io/v1/roles"),
    ("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    ("flowschemas", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"),
];

fn number(value: &Value) -> i64 {
    value.as_str().unwrap().parse().unwrap()
}

/// An object as the API server shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Object {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub revision: i64,
    /// All of it.
    pub text: String,
}

/// All objects, and the highest resourceVersion of a list.
#[derive(Clone, Debug)]
pub struct Objects {
    /// By kind, namespace and name.
    pub objects: BTreeMap<String, Object>,
    /// The highest that a list showed.
    pub revision: i64,
}

impl Objects {
    /// Asserts that every object of ours is as it was, and that no other one lost its identity or went back. Returns how
    /// many were compared and how many of the API server's own have been written since.
    #[track_caller]
    pub fn unchanged_since(&self, before: &Objects) -> (usize, usize) {
        let mut written = 0;
        for (name, old) in &before.objects {
            let new = self.objects.get(name).unwrap_or_else(|| panic!("{name} is gone"));
            assert_eq!(new.uid, old.uid, "{name}");
            if new == old {
                continue;
            }
            assert!(!name.contains(" moves/"), "{name} has changed:\n{old:?}\n{new:?}");
            assert!(
                new.revision > old.revision,
                "{name} has changed, but its resourceVersion went from {} to {}",
                old.revision,
                new.revision
            );
            written += 1;
        }
        assert!(
            self.revision >= before.revision,
            "a list's resourceVersion went from {} to {}",
            before.revision,
            self.revision
        );
        (before.objects.len(), written)
    }
}

/// The bundle, built once by the program under test.
pub fn bundle() -> PathBuf {
    static BUNDLE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bundle.tar.gz");
        let output = Command::new(program("quantykube-bundle"))
            .args(["build", "-o"])
            .arg(&file)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "the bundle does not build: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        (folder, file)
    };
    BUNDLE.get_or_init(build).1.clone()
}
