//! Onto the store, writes, back into etcd, and onto the store again.

use serde_json::{Value, json};

use crate::bench::{Bench, ETCD, LONG, STORE};

#[test]
fn there_and_back_and_there_again() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();
    let etcd_before = bench.revision(ETCD);

    // Planning changes nothing and tells every step.
    let planned = bench.run(&["plan", "store"]).expect(0);
    assert_eq!(planned.last()["allowed"], true);
    let steps = planned.last()["plan"]["steps"].as_array().unwrap().len();
    assert!(
        !bench.node.path("/var/lib/quantykube").exists(),
        "plan has written something"
    );
    assert!(!bench.node.path("/usr/local/bin/quantykube").exists());
    println!(
        "plan: {} checks say yes, {steps} steps",
        planned.last()["checks"].as_array().unwrap().len()
    );

    let installed = bench.run(&["install", "store"]).expect(0);
    assert_eq!(installed.last()["changed"], true);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), STORE);
    assert_eq!(bench.manifest(), original.replace(ETCD, STORE));
    assert!(bench.is_active("quantykube-store") && bench.is_enabled("quantykube-store"));
    let on_store = bench.objects();
    let (compared, written) = on_store.unchanged_since(&before);
    let etcd_idle = bench.revision(ETCD);
    println!(
        "install: {compared} objects at their resourceVersion ({written} of the API server's own written since); etcd {etcd_before} -> {etcd_idle}, store {}",
        bench.revision(STORE)
    );
    assert!(bench.revision(STORE) >= etcd_before);

    // Again: nothing to do, and status says where the data lives.
    assert_eq!(bench.run(&["install", "store"]).expect(0).last()["changed"], false);
    let status = bench.status();
    assert_eq!((&status["data"], &status["openMove"]), (&json!("store"), &Value::Null));

    // Writes: a new object, a changed one, one that goes, and a changed one by its old resourceVersion.
    let old_c1 = on_store.objects["configmaps moves/c1"].clone();
    bench.kubectl(&[
        "-n",
        "moves",
        "create",
        "configmap",
        "born-on-store",
        "--from-literal=where=store",
    ]);
    bench.kubectl(&[
        "-n",
        "moves",
        "patch",
        "configmap",
        "c0",
        "--patch",
        r#"{"data":{"where":"store"}}"#,
    ]);
    bench.kubectl(&["-n", "moves", "delete", "secret", "s0"]);
    assert!(
        replace(&bench, &old_c1.text, "with-old-number"),
        "an update with a resourceVersion of before the move"
    );
    assert!(
        !replace(&bench, &old_c1.text, "too-late"),
        "the same resourceVersion again must be a conflict"
    );
    for number in 0..20 {
        bench.kubectl(&[
            "-n",
            "moves",
            "label",
            "--overwrite",
            "configmap",
            "c2",
            &format!("n=v{number}"),
        ]);
    }
    let written_on_store = bench.objects();
    assert!(written_on_store.revision > on_store.revision);
    let store_revision = bench.revision(STORE);

    // Back, by the installed program alone: the bundle is gone.
    bench.node.run(&["mv", &bench.folder, "/root/away"]);
    let undone = bench.installed(&["undo", "store"]).expect(0);
    assert_eq!(undone.last()["changed"], true);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), ETCD);
    assert_eq!(bench.manifest(), original);
    assert!(!bench.is_active("quantykube-store") && !bench.is_enabled("quantykube-store"));
    let back = bench.objects();
    let etcd_revision = bench.revision(ETCD);
    assert!(
        etcd_revision > store_revision,
        "etcd is at {etcd_revision}, the store was at {store_revision}"
    );
    assert!(
        back.revision > written_on_store.revision,
        "a list's resourceVersion went back"
    );
    compare_after_undo(&before, &written_on_store, &back);
    let in_etcd = |key: &str| {
        let found = bench.node.etcdctl(&["get", key, "--prefix", "--write-out=json"]);
        let found: Value = serde_json::from_str(&found).unwrap();
        found["count"].as_u64().unwrap_or(0)
    };
    assert_eq!(
        in_etcd("/registry/configmaps/moves/born-on-store"),
        1,
        "what was written on the store is in etcd"
    );
    assert_eq!(
        in_etcd("/registry/secrets/moves/s0"),
        0,
        "what was deleted on the store is not in etcd"
    );
    assert_eq!(in_etcd("quantykube"), 0, "no key of ours is left");
    // An object written on the store has a new number; the store's is answered with a conflict. An untouched one keeps it.
    let c2 = &written_on_store.objects["configmaps moves/c2"].text;
    assert!(!replace(&bench, c2, "number-of-the-store"));
    let c3 = &written_on_store.objects["configmaps moves/c3"].text;
    assert!(replace(&bench, c3, "untouched"));
    let kept = bench.node.run(&["ls", "/var/lib/quantykube/store"]);
    println!(
        "undo: etcd {etcd_idle} -> {etcd_revision}, the store was at {store_revision}; kept: {}",
        kept.trim()
    );
    assert_eq!(kept.trim(), "store-2.qks");
    // A store without its file must not begin an empty cluster.
    let start = bench.node.exec(&["systemctl", "start", "quantykube-store"]);
    assert!(!start.status.success() && !bench.node.path("/var/lib/quantykube/store/store.qks").exists());
    assert_eq!(bench.installed(&["undo", "store"]).expect(0).last()["changed"], false);
    assert_eq!(bench.installed(&["status"]).expect(0).last()["data"], "etcd");

    // And there again.
    bench.node.run(&["mv", "/root/away", &bench.folder]);
    let before = bench.objects();
    bench.run(&["install", "store"]).expect(0);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), STORE);
    let again = bench.objects();
    let (compared, _) = again.unchanged_since(&before);
    println!(
        "install again: {compared} objects at their resourceVersion, store at {}",
        bench.revision(STORE)
    );

    // The store's data survives a reboot, and the API server finds it.
    let mut bench = bench;
    let state = bench.node.reboot(LONG);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), STORE);
    bench.objects().unchanged_since(&again);
    println!("after a reboot (systemd: {state}) everything is there");
}

/// What was written on the store has a higher number in etcd; all else is as before the move.
fn compare_after_undo(before: &crate::bench::Objects, on_store: &crate::bench::Objects, back: &crate::bench::Objects) {
    let mut untouched = 0;
    let mut written = 0;
    for (name, object) in &on_store.objects {
        let now = back.objects.get(name).unwrap_or_else(|| panic!("{name} was lost"));
        assert_eq!(now.uid, object.uid, "{name}");
        if before.objects.get(name) == Some(object) && name.contains(" moves/") {
            assert_eq!(now, object, "{name} was not touched on the store");
            untouched += 1;
        } else if name.contains(" moves/") {
            assert!(
                now.revision > on_store.revision,
                "{name}: {} is not past the store's {}",
                now.revision,
                on_store.revision
            );
            let without = |text: &str| text.replace(&format!("\"resourceVersion\":\"{}\"", object.revision), "");
            let now_text = now
                .text
                .replace(&format!("\"resourceVersion\":\"{}\"", now.revision), "");
            assert_eq!(now_text, without(&object.text), "{name}");
            written += 1;
        } else {
            assert!(now.revision >= object.revision, "{name} went back");
        }
    }
    for name in back.objects.keys().filter(|name| name.contains(" moves/")) {
        assert!(on_store.objects.contains_key(name), "{name} has come back");
    }
    assert!(written >= 4, "{written} objects were written on the store");
    println!(
        "undo: {untouched} untouched objects at their resourceVersion, {written} written ones past the store's last"
    );
}

/// Replaces an object by itself with one more label; whether the API server took it. Any other answer than Conflict panics.
fn replace(bench: &Bench, text: &str, label: &str) -> bool {
    let mut object: Value = serde_json::from_str(text).unwrap();
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("ConfigMap");
    object["metadata"]["labels"]["test"] = json!(label);
    std::fs::write(bench.node.path("/root/replace.json"), object.to_string()).unwrap();
    let kubeconfig = "/etc/kubernetes/super-admin.conf";
    let output = bench.node.exec(&[
        "kubectl",
        "--kubeconfig",
        kubeconfig,
        "replace",
        "-f",
        "/root/replace.json",
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || errors.contains("Conflict"), "{errors}");
    output.status.success()
}
