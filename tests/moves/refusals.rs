//! What is refused on a node, before anything is touched.

use serde_json::Value;

use crate::bench::Bench;

#[test]
fn nothing_is_touched_where_a_check_says_no() {
    let bench = Bench::set_up();
    let picture = || bench.node.run(&["sh", "-c", PICTURE]);
    let before = picture();
    let refused = |what: &str, code: i32, name: &str| {
        for verb in ["plan", "install"] {
            let said = bench.run(&[verb, "store"]).expect(code);
            let error = said.last();
            assert_eq!(error["name"], name, "{what}: {error}");
            let after = picture();
            let new: Vec<&str> = after
                .lines()
                .filter(|line| !before.lines().any(|old| old == *line))
                .collect();
            assert!(after == before, "{what}: {verb} has touched the node: {new:#?}");
        }
        println!("{what}: exit {code}, {name}");
    };

    // The bundle: one byte, one file more, another id.
    let store = format!("{}/bin/quantykube-store", bench.folder);
    bench.node.run(&["cp", "-a", &store, "/root/whole"]);
    bench.node.run(&[
        "sh",
        "-c",
        &format!("printf x | dd of={store} bs=1 seek=1000 conv=notrunc status=none"),
    ]);
    refused("a changed byte", 3, "checksum-differs");
    bench.node.run(&["cp", "-a", "/root/whole", &store]);
    bench.node.run(&["touch", &format!("{}/bin/more", bench.folder)]);
    refused("a file too many", 3, "set-of-files");
    bench.node.run(&["rm", &format!("{}/bin/more", bench.folder)]);
    let other = "0".repeat(64);
    let said = bench.run(&["install", "store", "--id", &other]).expect(3);
    assert_eq!(said.last()["name"], "other-bundle");
    let verified = bench.run(&["verify"]).expect(0);
    let id = verified.last()["id"].as_str().unwrap().to_owned();
    assert_eq!(bench.run(&["verify", "--id", &id]).expect(0).last()["idCompared"], true);
    assert_eq!(
        bench
            .run(&["verify", "/root/bundle.tar.gz", "--id", &id])
            .expect(0)
            .last()["verified"],
        true
    );

    // Not root: nothing can be read, nothing is tried.
    let run = "/opt/run-for-all";
    bench.node.run(&["cp", &format!("{}/run", bench.folder), run]);
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let argv = [&nobody[..], &[run, "--json", "install", "store"]].concat();
    let output = bench.node.exec(&argv);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    println!("not root: exit 4");
    bench.node.run(&["rm", run]);

    // A key of somebody else's.
    bench.node.etcdctl(&["put", "/calico/x", "y"]);
    refused("a key of others", 4, "foreign-keys");
    bench.node.etcdctl(&["del", "/calico/x"]);

    // Something stands where the store's file will be. It is part of the picture.
    bench.node.run(&["systemctl", "stop", "kubelet"]);
    refused("the kubelet does not run", 4, "kubelet");
    bench.node.run(&["systemctl", "start", "kubelet"]);

    // What a command line can have wrong.
    let usage = bench
        .node
        .exec(&[&format!("{}/run", bench.folder), "install", "everything"]);
    assert_eq!(usage.status.code(), Some(2));
    let version = bench.run(&["version"]).expect(0);
    assert_ne!(version.last()["version"], Value::Null);
}

/// Everything a move could touch: names, modes, owners, times and content.
pub const PICTURE: &str = "
for folder in /etc/kubernetes /etc/systemd/system /usr/local /var/lib/quantykube /etc/quantykube; do
    if [ -e $folder ]; then
        find $folder -printf '%p %m %U:%G %C@ %T@\\n'
        find $folder -type f -exec sha256sum {} +
    fi
done | LC_ALL=C sort
";
