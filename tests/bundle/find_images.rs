//! `build --find-images`: what manifests name, and what of it the spec lacks.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::workbench::{OWN, Workbench, tree};

/// Every kind that holds Pods, in YAML of several documents, in a List, and in JSON.
fn manifests(bench: &Workbench) {
    bench.put(
        "m/pods.yaml",
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec:\n  initContainers: [{name: i, image: 'r.example/init:1'}]\n  containers:\n  - \
          {name: a, image: nginx}\n  - {name: b, image: 'nginx:1.2'}\n  ephemeralContainers: [{name: e, image: 'r.example/debug:1'}]\n  \
          volumes: [{name: v, image: {reference: 'r.example/data:1', pullPolicy: Never}}]\n---\n# nothing\n---\nkind: Deployment\n\
          metadata: {name: two}\nspec: {template: {spec: {containers: [{image: 'nginx:1.2'}]}}}\n",
    );
    bench.put(
        "m/deep/list.yml",
        b"kind: List\nitems:\n- kind: CronJob\n  metadata: {name: three}\n  spec: {jobTemplate: {spec: {template: {spec: {containers: \
          [{image: 'r.example/job:1'}]}}}}}\n- kind: StatefulSet\n  metadata: {generateName: four-}\n  spec: {template: {spec: \
          {containers: [{image: 'r.example/db@sha256:DIGEST'}]}}}\n"
            .as_slice(),
    );
    let text = std::fs::read_to_string(bench.path("m/deep/list.yml")).unwrap();
    bench.put("m/deep/list.yml", text.replace("DIGEST", &"d".repeat(64)).as_bytes());
    bench.put(
        "m/own.json",
        br#"{"kind": "Cluster", "metadata": {"name": "five"}, "spec": {"pods": [{"image": "r.example/own:1"}], "image": 7}}"#,
    );
    bench.put("m/notes.txt", b"image: r.example/no:1");
}

const SPEC: &str = "images: [{name: 'docker.io/library/nginx:1.2', ociLayout: none}, {name: 'r.example/init:1'}, {name: 'r.example/db', \
                    ociLayout: none}]\n";

#[test]
fn every_image_of_every_kind_is_found() {
    let bench = Workbench::new();
    manifests(&bench);
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}{SPEC}").as_bytes());
    let ran = bench.run(&["build", "spec.yaml", "--find-images", "m", "--json"]).ok();
    let value: Value = serde_json::from_str(ran.out.trim()).unwrap();
    let images = value["images"].as_array().unwrap().iter();
    let found: BTreeMap<&str, (&str, String)> = images
        .map(|image| {
            let first = &image["named"][0];
            let place = format!(
                "{} {}",
                first["object"].as_str().unwrap(),
                first["field"].as_str().unwrap()
            );
            (
                image["name"].as_str().unwrap(),
                (image["state"].as_str().unwrap(), place),
            )
        })
        .collect();
    let db = format!("r.example/db@sha256:{}", "d".repeat(64));
    let expected = [
        (
            "docker.io/library/nginx:1.2",
            "in the spec",
            "Pod/one spec.containers[1].image",
        ),
        (
            "docker.io/library/nginx:latest",
            "lacking",
            "Pod/one spec.containers[0].image",
        ),
        ("r.example/data:1", "lacking", "Pod/one spec.volumes[0].image.reference"),
        (
            &db,
            "unclear",
            "StatefulSet/four- spec.template.spec.containers[0].image",
        ),
        (
            "r.example/debug:1",
            "lacking",
            "Pod/one spec.ephemeralContainers[0].image",
        ),
        (
            "r.example/init:1",
            "in the spec",
            "Pod/one spec.initContainers[0].image",
        ),
        (
            "r.example/job:1",
            "lacking",
            "CronJob/three spec.jobTemplate.spec.template.spec.containers[0].image",
        ),
        ("r.example/own:1", "lacking", "Cluster/five spec.pods[0].image"),
    ];
    let expected = expected.map(|(name, state, place)| (name, (state, place.to_owned())));
    assert_eq!(found, BTreeMap::from(expected));
    let twice = &value["images"][0]["named"];
    assert_eq!(twice.as_array().unwrap().len(), 2, "{twice}");
    assert_eq!(
        (value["files"].as_u64(), value["lacking"].as_array().unwrap().len()),
        (Some(3), 5)
    );
    // For people: a row each, and what to paste.
    let text = bench.run(&["build", "spec.yaml", "--find-images", "m"]).ok().out;
    for line in [
        "r.example/job:1 ",
        "m/pods.yaml Pod/one spec.containers[1].image and 1 more",
        "3 files name 8 images; the spec lacks 5, and of 1 the digest shows when it is built",
        "images:\n  - name: docker.io/library/nginx:latest\n  - name: r.example/data:1\n",
    ] {
        assert!(text.contains(line), "{line:?} is missing:\n{text}");
    }
    assert!(tree(&bench.path("out")).is_empty(), "nothing is built");
}

#[test]
fn what_cannot_be_read_is_named_and_what_is_no_name_is_told() {
    let bench = Workbench::new();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    let find = |what: &str| bench.run(&["build", "spec.yaml", "--find-images", what]);
    find("none.yaml").failed(2, &["none.yaml"]);
    bench.put("bad.yaml", b"kind: Pod\nspec: [\n");
    find("bad.yaml").failed(2, &["bad.yaml is not valid YAML", "line"]);
    bench.put(
        "chart.yaml",
        b"kind: Pod\nmetadata: {name: x}\nspec: {containers: [{image: '{{ .Values.image }}'}]}\n",
    );
    let ran = find("chart.yaml").ok();
    assert!(
        ran.err.contains("chart.yaml Pod/x spec.containers[0].image: ") && ran.err.contains("no name of an image"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("1 files name 0 images"), "{}", ran.out);
    // A link in a circle is not followed, one to a file is.
    bench.put("ring/a.yaml", b"image: nginx");
    std::os::unix::fs::symlink(".", bench.path("ring/ring.yaml")).unwrap();
    std::os::unix::fs::symlink("a.yaml", bench.path("ring/b.yaml")).unwrap();
    let ran = find("ring").ok();
    assert!(ran.out.contains("2 files name 1 images"), "{}", ran.out);
    let deep = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    bench.put("deep.yaml", deep.as_bytes());
    find("deep.yaml").failed(2, &["deep.yaml is not valid YAML"]);
    bench
        .run(&["build", "--find-images", "bad.yaml", "--dry-run"])
        .failed(2, &["cannot be used with"]);
}
