//! A node whose API server reaches etcd at `[::1]`.

use quantykube_test_node::Options;

use crate::bench::{Bench, LONG};

#[test]
fn a_node_with_ipv6_is_moved_there_and_back() {
    let (etcd, store) = ("https://[::1]:2379", "https://[::1]:2479");
    let address = "fd00::10".parse().unwrap();
    let bench = Bench::on(Options {
        address,
        ..Options::default()
    });
    let original = bench.manifest();
    let before = bench.objects();
    bench.run(&["install", "store"]).expect(0);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), store);
    assert_eq!(bench.manifest(), original.replace(etcd, store));
    bench.objects().unchanged_since(&before);
    bench.kubectl(&["-n", "moves", "create", "configmap", "on-store", "--from-literal=a=b"]);
    bench.run(&["undo", "store"]).expect(0);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), etcd);
    assert_eq!(bench.manifest(), original);
    let (compared, _) = bench.objects().unchanged_since(&before);
    bench.kubectl(&["-n", "moves", "get", "configmap", "on-store"]);
    println!("with IPv6: {compared} objects there and back");
}
