//! The long part: kubeadm's own renewals on a moved node, and power cuts all over install and undo.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, STORE};
use crate::cut;
use crate::tally::Tally;

/// Where an install is cut off, and from where it may be served after the boot.
const INSTALL: &[(&str, &[&str])] = &[
    ("store-unit", &[ETCD]),
    ("retire", &[ETCD]),
    ("gone", &[ETCD]),
    ("copy", &[ETCD]),
    ("unit", &[ETCD, STORE]),
    ("edit", &[ETCD, STORE]),
    ("return", &[STORE]),
    ("ready", &[STORE]),
];
/// The same of an undo, which begins on the store.
const UNDO: &[(&str, &[&str])] = &[
    ("gone", &[STORE]),
    ("copy-back", &[STORE]),
    ("return", &[STORE, ETCD]),
    ("ready", &[ETCD]),
];

/// On a machine whose cluster lives in the store: what an administrator does there with kubeadm.
pub fn renewals(bench: &Bench, tally: &mut Tally) {
    // kubeadm renews every certificate that the store, etcd and the API server use.
    bench.vm.sh("kubeadm certs renew all");
    let begun = Instant::now();
    let file = "openssl x509 -noout -fingerprint -in /etc/kubernetes/pki/etcd/server.crt";
    let shown = "openssl s_client -connect 127.0.0.1:2479 </dev/null 2>/dev/null | openssl x509 -noout -fingerprint";
    bench.vm.until(
        "the store shows its new certificate",
        &format!("[ \"$({file})\" = \"$({shown})\" ]"),
        LONG,
    );
    tally.check("the store serves with the renewed certificate", true, String::new);
    println!(
        "renewal: {:.0} s until the store showed it",
        begun.elapsed().as_secs_f64()
    );
    // The static pods read theirs when they start.
    bench.vm.sh("for name in kube-apiserver kube-controller-manager kube-scheduler; do pkill -x ${name:0:15} || true; done; sleep 5");
    bench.vm.sh("sh /root/kit/client");
    bench.serves();
    bench.settle();
    tally.same(
        "after kubeadm certs renew all: on the store",
        &bench.serves_from().as_str(),
        &STORE,
    );

    // kubeadm writes a manifest that names etcd again. Whatever happens to it, nobody is served stale data.
    let moved = bench.manifest();
    bench
        .vm
        .sh("kubeadm init phase control-plane apiserver --config /etc/kubeadm.yaml");
    let begun = Instant::now();
    let mut stale = false;
    while begun.elapsed() < Duration::from_secs(300) {
        let script = "for pid in $(pgrep -x kube-apiserver); do tr '\\0' '\\n' <\"/proc/$pid/cmdline\"; done | \
                      grep -qx -- --etcd-servers=https://127.0.0.1:2379 && . /root/kit/common && \
                      [ \"$(ask --max-time 10 -o /dev/null -w '%{http_code}' $server/readyz)\" = 200 ]";
        stale |= bench.vm.run(script).code == 0;
        std::thread::sleep(Duration::from_secs(3));
    }
    tally.check(
        "a manifest of kubeadm's that names etcd never serves stale data",
        !stale,
        || "an API server that was started on etcd was ready".to_owned(),
    );
    let status = bench.status();
    println!("status after it: {status}");
    bench.vm.put("/root/moved.yaml", moved.as_bytes());
    bench.vm.sh("install -m 600 /root/moved.yaml /etc/kubernetes/manifests/.new && mv /etc/kubernetes/manifests/.new /etc/kubernetes/manifests/kube-apiserver.yaml");
    bench.serves();
    bench.settle();
    tally.same(
        "with the moved manifest back: on the store",
        &bench.serves_from().as_str(),
        &STORE,
    );
}

/// Twelve power cuts on a machine of their own.
pub fn cuts(bundle: &Path, tally: &mut Tally) {
    let mut bench = Bench::set_up(bundle);
    let mut plain = vec![plain(&mut bench)];
    let mut put_back = Vec::new();
    let mut number = 100_000;
    for (verb, places) in [("install", INSTALL), ("undo", UNDO)] {
        for (place, sides) in places {
            let (from, back) = if verb == "install" {
                (ETCD, "undo store")
            } else {
                (STORE, "install store")
            };
            if bench.serves_from() != from {
                bench.moves(back);
                bench.serves();
            }
            number += 100_000;
            bench.act(number);
            // Some writes, at the side it is on now.
            std::thread::sleep(Duration::from_secs(10));
            let ready = cut::cut(&mut bench, tally, verb, place, sides, Some(median(&plain)));
            // Where both sides are right the boot finishes a step first; that is no putting back.
            if sides.len() == 1 {
                put_back.push(ready);
            }
        }
        plain.push(self::plain(&mut bench));
    }
    let status = bench.status();
    tally.same("after all cuts no move is open", &status["openMove"], &Value::Null);
    let (plain, after) = (median(&plain), median(&put_back));
    tally.check(
        &format!(
            "the API server is ready {after:.0} s after a cut in a move, {plain:.0} s after one without (medians of {} and 3)",
            put_back.len()
        ),
        after <= 1.2 * plain,
        || format!("{put_back:?}"),
    );
}

/// After how many seconds of power the API server is ready where no move was open.
fn plain(bench: &mut Bench) -> f64 {
    bench.vm.cut();
    let begun = Instant::now();
    bench.vm.power_on();
    bench.serves();
    let took = begun.elapsed().as_secs_f64();
    println!("control: cut off without a move, the API server is ready {took:.0} s after the power is on");
    took
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
