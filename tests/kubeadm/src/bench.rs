//! The machine with the bundle on it, a filled cluster, somebody who writes and somebody who asks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use quantykube_test_vm::{Output, Vm};
use serde_json::Value;

use crate::keys::{self, Keys};
use crate::{fill, polls};

/// Generous: emulation is slow, and the machine may be shared.
pub const LONG: Duration = Duration::from_secs(1800);
/// etcd, as kubeadm's manifest names it.
pub const ETCD: &str = "https://127.0.0.1:2379";
/// The store.
pub const STORE: &str = "https://127.0.0.1:2479";

/// The machine and where the bundle lies in it.
pub struct Bench {
    /// The machine.
    pub vm: Vm,
    folder: String,
}

/// What a run of `run --json` said.
pub struct Said {
    /// The exit code.
    pub code: i32,
    /// Every event, in order.
    pub events: Vec<Value>,
    /// Standard error.
    pub errors: String,
}

impl Said {
    fn of(output: &Output) -> Said {
        Said {
            code: output.code,
            events: output
                .out
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
            errors: output.err.clone(),
        }
    }

    /// The result or the error.
    pub fn last(&self) -> Value {
        self.events.last().cloned().unwrap_or(Value::Null)
    }

    /// The same, where it must have ended with 0.
    #[track_caller]
    pub fn well(self) -> Said {
        let shown: Vec<String> = self.events.iter().map(Value::to_string).collect();
        assert!(
            self.code == 0,
            "exit code {}\n{}\n{}",
            self.code,
            self.errors,
            shown.join("\n")
        );
        self
    }
}

impl Bench {
    /// Resumes the machine, carries the bundle in and fills the cluster.
    pub fn set_up(bundle: &Path) -> Bench {
        let begun = Instant::now();
        let vm = Vm::resume();
        println!("the machine goes on after {:.0} s", begun.elapsed().as_secs_f64());
        let kit = tempfile::tempdir().expect("a folder can be made");
        let put = |name: &str, text: &str| fs::write(kit.path().join(name), text).expect("a file can be written");
        put("common", include_str!("../files/common"));
        put("client", include_str!("../files/client"));
        put("writer", include_str!("../files/writer"));
        put("poller", include_str!("../files/poller"));
        put("control", include_str!("../files/control"));
        put("first.json", &fill::first().to_string());
        put("rest.json", &fill::rest().to_string());
        fs::copy(bundle, kit.path().join("bundle.tar.gz")).unwrap_or_else(|err| panic!("{}: {err}", bundle.display()));
        let disk = vm.carry_in(kit.path());
        vm.sh(&format!(
            "mkdir -p /root/kit && cd /root/kit && cp {disk}/* . 2>/dev/null; umount {disk}; sh client && \
             tar -xzf bundle.tar.gz -C /root && rm bundle.tar.gz"
        ));
        let folder = vm.sh("ls -d /root/quantykube-*/").trim().to_owned();
        let bench = Bench { vm, folder };
        bench.serves();
        bench.vm.sh("kubectl create --validate=false -f /root/kit/first.json");
        bench
            .vm
            .sh("kubectl wait --for=condition=Established crd/widgets.example.com --timeout=300s");
        bench.vm.until(
            "the namespace has its account",
            ". /root/kit/common; ask --max-time 60 $server/api/v1/namespaces/filled/serviceaccounts/default | grep -q uid",
            LONG,
        );
        bench.vm.sh("kubectl create --validate=false -f /root/kit/rest.json");
        // Some history: objects written more than once, and one that is gone.
        bench
            .vm
            .sh("kubectl -n filled label configmaps,secrets,widgets --all round=one");
        bench.vm.sh("kubectl -n filled delete configmap n3");
        bench.settle();
        bench.act(0);
        println!("bundle in, cluster filled after {:.0} s", begun.elapsed().as_secs_f64());
        bench
    }

    /// Lets the writer, from a number on, and the poller begin.
    pub fn act(&self, number: u32) {
        self.vm.start("writer", &format!("exec bash /root/kit/writer {number}"));
        self.vm.start("poller", "exec bash /root/kit/poller");
    }

    /// Waits until every pod that should run is ready again, and the node.
    pub fn settle(&self) {
        let ready =
            "[.[] | .status.conditions[]? | select(.type == \"Ready\") | .status] | length > 0 and all(. == \"True\")";
        let pods = ".items | map(select(.metadata.namespace == \"kube-system\" or .metadata.name == \"sleeper\"))";
        let script = format!(
            "set -o pipefail; . /root/kit/common; ask --max-time 60 $server/api/v1/pods | jq -e '{pods} | length == 5 and ({ready})' && \
             ask --max-time 60 $server/api/v1/nodes/node1 | jq -e '[.] | {ready}'"
        );
        self.vm.until("the pods are ready", &script, LONG);
    }

    /// Waits until the API server is ready.
    pub fn serves(&self) -> Duration {
        let ask =
            ". /root/kit/common; [ \"$(ask --max-time 10 -o /dev/null -w '%{http_code}' $server/readyz)\" = 200 ]";
        self.vm.until("the API server is ready", ask, LONG)
    }

    /// A machine as it is, with nobody who writes and no bundle in a folder.
    pub fn bare(vm: Vm) -> Bench {
        vm.put("/root/kit/common", include_bytes!("../files/common"));
        vm.put("/root/kit/client", include_bytes!("../files/client"));
        vm.sh("sh /root/kit/client");
        Bench {
            vm,
            folder: String::new(),
        }
    }

    /// The machine's clock, in milliseconds.
    pub fn now(&self) -> u64 {
        self.vm.sh("date +%s%3N").trim().parse().expect("date prints a number")
    }

    /// Runs `./run --json ARGS` in the bundle's folder to its end.
    pub fn product(&self, args: &str) -> Said {
        self.start_product(args);
        Said::of(&self.vm.wait_for("product", LONG))
    }

    /// The same of a move, which must end well. On a machine that others use the etcd of an emulated node may be too slow
    /// to answer the checks: where they say no, nothing was touched, and it is asked again.
    #[track_caller]
    pub fn moves(&self, args: &str) -> Said {
        for _ in 0..4 {
            let said = self.product(args);
            if said.code != 4 {
                return said.well();
            }
            println!("{args} cannot begin, asked again: {}", said.last());
            std::thread::sleep(Duration::from_secs(20));
        }
        self.product(args).well()
    }

    /// Starts it; what it says goes out of the machine line by line, too.
    pub fn start_product(&self, args: &str) {
        let script = format!(
            "cd {}; set -o pipefail; ./run --json {args} | tee /dev/ttyS2",
            self.folder
        );
        self.vm.start("product", &script);
    }

    /// What `status --json` says.
    pub fn status(&self) -> Value {
        self.product("status").well().last()
    }

    /// All keys of an etcd or of the store, at a revision where one is given.
    pub fn keys(&self, endpoint: &str, revision: i64) -> (i64, Keys) {
        let text = self.etcdctl(endpoint, &format!("get '' --prefix --rev={revision} --write-out=json"));
        keys::parse(&text)
    }

    /// etcdctl with the API server's certificate.
    pub fn etcdctl(&self, endpoint: &str, args: &str) -> String {
        self.vm.sh(&self.command(endpoint, args))
    }

    /// The command of it.
    pub fn command(&self, endpoint: &str, args: &str) -> String {
        let pki = "/etc/kubernetes/pki";
        format!(
            "etcdctl --dial-timeout=60s --command-timeout=300s --endpoints={endpoint} --cacert={pki}/etcd/ca.crt \
             --cert={pki}/apiserver-etcd-client.crt --key={pki}/apiserver-etcd-client.key {args}"
        )
    }

    /// The API server's manifest as it stands.
    pub fn manifest(&self) -> String {
        self.vm.sh("cat /etc/kubernetes/manifests/kube-apiserver.yaml")
    }

    /// The hash over all keys and revisions of etcd up to one.
    pub fn hash(&self, revision: i64) -> Value {
        let text = self.etcdctl(ETCD, &format!("endpoint hashkv --rev={revision} --write-out=json"));
        let answer: Value = serde_json::from_str(&text).expect("etcdctl prints JSON");
        answer[0]["HashKV"]["hash"].clone()
    }

    /// The revision that etcd was last compacted at.
    pub fn compacted_at(&self) -> i64 {
        let text = self.etcdctl(ETCD, "endpoint hashkv --write-out=json");
        let answer: Value = serde_json::from_str(&text).expect("etcdctl prints JSON");
        answer[0]["HashKV"]["compact_revision"].as_i64().expect("a revision")
    }

    /// The revision and the keys of the store file that the last undo has put aside.
    pub fn closed_store(&self) -> (i64, Keys) {
        let text = self.vm.sh(
            "$(ls -d /usr/local/lib/quantykube/*/quantykube-store) dump --live \"$(ls -t /var/lib/quantykube/store/store-*.qks | head -n 1)\"",
        );
        keys::parse_dump(&text)
    }

    /// What the API server shows of the filled kinds: by list and name, each object as it came.
    pub fn objects(&self) -> BTreeMap<String, Value> {
        let mut urls = String::new();
        for path in fill::LISTS {
            urls += &format!(" $server{path}");
        }
        let text = self.vm.sh(&format!(
            ". /root/kit/common; ask --max-time 300 -w '\\n@%{{http_code}}\\n'{urls}"
        ));
        let mut objects = BTreeMap::new();
        let mut answers = text.split("\n@200\n");
        for path in fill::LISTS {
            let answer = answers.next().unwrap_or_default();
            let answer: Value = serde_json::from_str(answer).unwrap_or_else(|err| panic!("{path}: {err}: {answer}"));
            match answer["items"].as_array() {
                Some(items) => objects.extend(items.iter().map(|item| {
                    let name = item["metadata"]["name"].as_str().unwrap_or_default();
                    (format!("{path}/{name}"), item.clone())
                })),
                None => {
                    objects.insert((*path).to_owned(), answer);
                }
            }
        }
        objects
    }

    /// The containers of the runtime that run, by pod and name: their ids. `own` are the control plane's that an API
    /// server's stop may take along.
    pub fn containers(&self) -> BTreeMap<String, String> {
        let text = self.vm.sh("crictl ps --output json");
        let answer: Value = serde_json::from_str(&text).expect("crictl prints JSON");
        let own = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        answer["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|container| {
                let name = container["metadata"]["name"].as_str()?;
                let pod = container["labels"]["io.kubernetes.pod.name"].as_str()?;
                (!own.contains(&name)).then(|| (format!("{pod}/{name}"), container["id"].to_string()))
            })
            .collect()
    }

    /// The etcd that the running API server was started with.
    pub fn serves_from(&self) -> String {
        let script = "tr '\\0' '\\n' <\"/proc/$(pgrep -x kube-apiserver)/cmdline\" | sed -n 's/^--etcd-servers=//p'";
        self.vm.sh(script).trim().to_owned()
    }

    /// What the writer was told is written: names and revisions.
    pub fn acknowledged(&self) -> BTreeMap<String, i64> {
        let line = |line: &str| {
            let mut words = line.strip_prefix("ack ")?.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        self.vm.notes().lines().filter_map(line).collect()
    }

    /// What the poller saw.
    pub fn polls(&self) -> Vec<polls::Poll> {
        polls::parse(&self.vm.notes())
    }
}
