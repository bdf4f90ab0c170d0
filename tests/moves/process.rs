//! The API server's process is treated strictly: it must be gone, with its pod, before anything is copied.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG};
use crate::kills::read_up_to;

/// A kubelet that has forgotten the pod, and an API server that does not end when it is asked: everything is put back,
/// and nothing is ever killed. Another client of etcd is no one to copy beside, either.
#[test]
fn an_api_server_that_stays_is_put_back_and_a_client_of_etcd_is_refused() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();

    // One that only watches, and writes nothing while the copy is made.
    let pki = "/etc/kubernetes/pki";
    let script = format!(
        "exec etcdctl --endpoints={ETCD} --cacert={pki}/etcd/ca.crt --cert={pki}/apiserver-etcd-client.crt \
         --key={pki}/apiserver-etcd-client.key watch /somewhere"
    );
    let mut client = bench.node.spawn(&["sh", "-c", &script]);
    while bench.node.processes("etcdctl").is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    // It had begun, so that no check before the start says so.
    let said = bench.run(&["install", "store"]).expect(1);
    let causes = said.last()["causes"].to_string();
    assert!(causes.contains("step quiet") && causes.contains("etcdctl"), "{causes}");
    bench.node.api_ready(LONG);
    assert_eq!(
        (bench.serves_from().as_str(), bench.manifest()),
        (ETCD, original.clone())
    );
    client.kill();
    println!("another client of etcd: exit 1, everything put back; {causes}");

    bench.node.run(&["touch", "/run/kubelet-forgets"]);
    let pids = bench.node.processes("kube-apiserver");
    let pid = Pid::from_raw(pids[0] as i32).unwrap();
    let mut run = bench.spawn(&["install", "store"]);
    read_up_to(&mut run, "gone");
    kill_process(pid, Signal::STOP).unwrap();
    // The way back gives the manifest back before it waits for the API server.
    let said = read_up_to(&mut run, "answers");
    let text = format!("{said:?}");
    assert!(text.contains("asking process"), "it was asked to end: {text}");
    assert!(text.contains("has not ended within 90 s"), "{text}");
    assert_eq!(bench.node.processes("kube-apiserver"), pids, "it was not killed");
    assert_eq!(bench.manifest(), original);
    // It goes on, finds TERM, and the kubelet starts it anew from the manifest that is back.
    bench.node.run(&["rm", "/run/kubelet-forgets"]);
    kill_process(pid, Signal::CONT).unwrap();
    let output = run.output();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["name"], "put-back", "{last}");
    assert_ne!(bench.node.processes("kube-apiserver"), pids, "it ended by itself");
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), ETCD);
    bench.objects().unchanged_since(&before);
    assert_eq!(bench.status()["openMove"], Value::Null);
    println!("an API server that does not end: exit 1 after TERM at 60 s and 30 s more, back on etcd, not killed");
}
