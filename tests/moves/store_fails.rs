//! A store that does not start: the API server is put back on etcd.

use crate::bench::{Bench, ETCD, LONG};

#[test]
fn a_store_that_does_not_start_is_given_up() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();
    // A drop-in that breaks the unit when it comes.
    let drop_in = "/etc/systemd/system/quantykube-store.service.d";
    bench.node.run(&["mkdir", "-p", drop_in]);
    std::fs::write(
        bench.node.path(&format!("{drop_in}/broken.conf")),
        "[Service]\nExecStart=\nExecStart=/bin/false\n",
    )
    .unwrap();

    let said = bench.run(&["install", "store"]).expect(1);
    let error = said.last();
    assert_eq!(
        (&error["event"], &error["name"]),
        (&"error".into(), &"put-back".into()),
        "{error}"
    );
    let causes = error["causes"].to_string();
    assert!(
        causes.contains("step unit"),
        "the fault was the store's start: {causes}"
    );
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), ETCD);
    assert_eq!(bench.manifest(), original);
    assert!(!bench.is_active("quantykube-store") && !bench.is_enabled("quantykube-store"));
    assert!(!bench.node.path("/var/lib/quantykube/store/store.qks").exists());
    let (compared, _) = bench.objects().unchanged_since(&before);
    let status = bench.status();
    assert_eq!(
        (&status["data"], &status["openMove"]),
        (&"etcd".into(), &serde_json::Value::Null)
    );
    println!("the store did not start: exit 1, {compared} objects back on etcd; {causes}");

    // The cause cured, the same command works.
    bench.node.run(&["rm", "-r", drop_in]);
    bench.run(&["install", "store"]).expect(0);
    bench.objects().unchanged_since(&before);
    println!("cured: exit 0");
}
