//! Checks provoked on a node in one boot: each says its name, plan and install refuse with it, and nothing is touched.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, MANIFEST, Said};
use crate::refusals::PICTURE;

/// Every check's state, as `--json` tells it.
fn states(said: &Said) -> BTreeMap<String, String> {
    let with_checks = said.events.iter().find(|event| event["checks"].is_array());
    let checks = with_checks.unwrap_or_else(|| panic!("no checks were told: {:#?}", said.events));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = checks["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| (text(&check["name"]), text(&check["state"])))
        .collect()
}

struct Provoked {
    bench: Bench,
}

impl Provoked {
    fn sh(&self, script: &str) -> String {
        self.bench.node.run(&["sh", "-ec", script])
    }

    /// Both verbs refuse, the named checks among what says no, and the node is as it was.
    #[track_caller]
    fn refused(&self, what: &str, names: &[&str]) {
        let before = self.sh(PICTURE);
        let planned = self.bench.run(&["plan", "store"]).expect(4);
        let states = states(&planned);
        for name in names {
            assert_eq!(states[*name], "no", "{what}: {states:#?}");
        }
        let installed = self.bench.run(&["install", "store"]).expect(4);
        let first = installed.last()["name"].as_str().unwrap();
        assert_eq!(states[first], "no", "{what}: {first}");
        assert_eq!(self.sh(PICTURE), before, "{what}: the node was touched");
        let all: Vec<_> = states
            .iter()
            .filter(|(_, state)| *state == "no")
            .map(|(name, _)| name.as_str())
            .collect();
        println!("{what}: exit 4, {}", all.join(" "));
    }

    /// The plan goes on, and the named check warns.
    #[track_caller]
    fn warned(&self, what: &str, name: &str) {
        let states = states(&self.bench.run(&["plan", "store"]).expect(0));
        assert_eq!(states[name], "warning", "{what}: {states:#?}");
        println!("{what}: exit 0, {name} warns");
    }

    fn good(&self) {
        let states = states(&self.bench.run(&["plan", "store"]).expect(0));
        assert!(
            states.values().all(|state| state == "ok" || state == "warning"),
            "{states:#?}"
        );
    }
}

#[test]
fn checks_are_provoked_in_one_boot() {
    let node = Provoked { bench: Bench::set_up() };
    node.good();

    node.sh(&format!("chattr +i {MANIFEST}"));
    node.refused("an immutable manifest", &["manifest"]);
    node.sh(&format!("chattr -i {MANIFEST}"));

    // The kubelet would start a second API server from it at once.
    node.sh(&format!("systemctl stop kubelet; cp -a {MANIFEST} {MANIFEST}.bak"));
    node.refused("a stray copy of the manifest", &["static-pods", "kubelet"]);
    node.sh(&format!("rm {MANIFEST}.bak; systemctl start kubelet"));

    node.sh("mkdir -p /var/lib/quantykube; mount -t tmpfs tmpfs /var/lib/quantykube");
    node.refused("a store in memory", &["file-system"]);
    node.sh("umount /var/lib/quantykube; rmdir /var/lib/quantykube");

    node.sh("mount --bind /usr/local /usr/local; mount -o remount,bind,ro /usr/local");
    node.refused("programs on a read-only mount", &["writable"]);
    node.sh("umount /usr/local");

    // A real kubeadm that tries to join what does not answer.
    let mut kubeadm = node.bench.node.spawn(&[
        "kubeadm",
        "join",
        "127.0.0.1:1",
        "--token=abcdef.0123456789abcdef",
        "--discovery-token-unsafe-skip-ca-verification",
        "--ignore-preflight-errors=all",
    ]);
    let begun = Instant::now();
    while node.bench.node.processes("kubeadm").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "kubeadm does not run");
        std::thread::sleep(Duration::from_millis(100));
    }
    node.refused("a kubeadm at work", &["kubeadm-work"]);
    kubeadm.kill();

    // etcd's own users; the API server's certificate names one that may do all, so that it goes on.
    let etcdctl = |args: &[&str]| node.bench.node.etcdctl(args);
    for user in ["root", "kube-apiserver-etcd-client"] {
        etcdctl(&["user", "add", &format!("{user}:secret")]);
        etcdctl(&["user", "grant-role", user, "root"]);
    }
    etcdctl(&["auth", "enable"]);
    node.refused("an etcd with users", &["etcd-users"]);
    etcdctl(&["--user=root:secret", "auth", "disable"]);

    let added = etcdctl(&["member", "add", "node2", "--learner", "--peer-urls=http://127.0.0.1:1"]);
    let id = added.split_whitespace().nth(1).unwrap();
    node.refused("a learner", &["members"]);
    etcdctl(&["member", "remove", id]);

    // etcd reads its pair anew at each handshake.
    node.sh("cp -a /etc/kubernetes/pki/etcd /root/etcd-pki");
    node.sh(&certificate(10, "DNS:node1"));
    node.refused("a certificate that is not for 127.0.0.1", &["etcd-server"]);
    node.sh(&certificate(
        10,
        "DNS:node1,DNS:localhost,IP:127.0.0.1,IP:::1,IP:10.0.0.10",
    ));
    node.warned("a certificate that ends in ten days", "etcd-server");
    node.sh("cp -a /root/etcd-pki/server.crt /etc/kubernetes/pki/etcd/server.crt");

    node.sh("mkdir -p /etc/cron.d; echo '0 3 * * * root etcdctl snapshot save /root/x' >/etc/cron.d/save-etcd");
    node.warned("a cron table that saves etcd", "schedules");
    node.sh("rm /etc/cron.d/save-etcd");
    node.good();
}

/// Signs etcd's key anew with kubeadm's own authority.
fn certificate(days: u32, names: &str) -> String {
    format!(
        "cd /etc/kubernetes/pki/etcd
         printf 'subjectAltName={names}\\nextendedKeyUsage=serverAuth,clientAuth\\n' >/root/extensions
         openssl req -new -key server.key -subj /CN=node1 -out /root/request 2>/dev/null
         openssl x509 -req -in /root/request -CA ca.crt -CAkey ca.key -set_serial 7 -days {days} -extfile /root/extensions -out server.crt 2>/dev/null"
    )
}
