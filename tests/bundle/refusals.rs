//! What `build` refuses: it names the thing, and leaves no file.

use crate::workbench::{AMD64, ARM64, OWN, Workbench, elf};

#[test]
fn a_checksum_that_differs() {
    let bench = Workbench::new();
    bench.put("tool", b"#!/bin/sh\n");
    let wrong = "0".repeat(64);
    bench.refuses(
        &format!("{OWN}binaries: [{{name: tool, path: tool, sha256: '{wrong}'}}]"),
        3,
        &["tool", &wrong],
    );
    bench.refuses(
        &format!("programs: [{{name: quantykube-store}}, {{name: quantykube, sha256: '{wrong}'}}]"),
        3,
        &["quantykube", &wrong],
    );
}

#[test]
fn programs_of_another_kind() {
    let bench = Workbench::new();
    for (bytes, names) in [
        (
            elf(ARM64, false, 1000, 1),
            &["tool is a program for arm64, expected one for amd64"][..],
        ),
        (elf(3, false, 1000, 1), &["for 386"]),
        (b"MZ not an elf".to_vec(), &["tool is not an ELF program"]),
        (Vec::new(), &["tool is not an ELF program"]),
    ] {
        bench.put("tool", &bytes);
        bench.refuses(&format!("{OWN}binaries: [{{name: tool, path: tool}}]"), 4, names);
    }
    // A binary may need libraries, ours may not, nor be a script.
    bench.put("tool", &elf(AMD64, true, 1000, 1));
    let own = "programs: [{name: quantykube, path: tool}]";
    bench.refuses(own, 4, &["tool is linked dynamically", "crt-static"]);
    bench.put("tool", b"#!/bin/sh\n");
    bench.refuses(own, 4, &["tool is not an ELF program"]);
    bench.refuses(
        &format!("{OWN}binaries: [{{name: tool, path: none}}]"),
        4,
        &["none", "No such file"],
    );
    // A pipe with nobody at its other end would be waited for without end.
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.path("pipe"), rustix::fs::Mode::RWXU).unwrap();
    bench.refuses(
        &format!("{OWN}binaries: [{{name: tool, path: pipe}}]"),
        4,
        &["pipe", "it is no regular file"],
    );
    std::fs::remove_file(bench.path("quantykube-store")).unwrap();
    bench.refuses(OWN, 4, &["quantykube-store", "build it first"]);
}

#[test]
fn a_variable_without_a_value() {
    let bench = Workbench::new();
    bench.put("t/manifests/a.yaml", b"kind: A\nsite: {{ site | yaml }}\n");
    bench.refuses(
        &format!("{OWN}templates: {{folder: t}}"),
        2,
        &["manifests/a.yaml line 2", "site", "no value"],
    );
    bench.refuses(&format!("{OWN}values: {{sitte: x}}"), 2, &["sitte", "no template uses"]);
    bench.put("t/manifests/a.yaml", b"kind: A\nsite: {{ site }}\n");
    let spec = format!("{OWN}templates: {{folder: t}}\nvalues: {{site: 'a: b'}}");
    bench.refuses(&spec, 2, &["manifests/a.yaml line 2", "no plain word"]);
}

#[test]
fn a_program_that_is_named_and_not_packed() {
    let bench = Workbench::new();
    let spec = format!("{OWN}templates: {{folder: t}}");
    bench.put(
        "t/systemd/a.service",
        b"[Service]\nExecStartPre=-{{ programs }}/tool x\nExecStart=/bin/true\n",
    );
    let path = "/usr/local/lib/quantykube/0.1.0/tool";
    bench.refuses(&spec, 4, &["systemd/a.service", path, "not in the bundle"]);
    bench.put("tool", b"#!/bin/sh\n");
    bench
        .build(&format!("{spec}\nbinaries: [{{name: tool, path: tool}}]"))
        .ok();
    std::fs::remove_file(bench.path("out/b.tar.gz")).unwrap();
    bench.put(
        "t/systemd/a.service",
        b"[Service]\nExecStart=/usr/local/lib/quantykube/0.0.9/quantykube\n",
    );
    bench.refuses(&spec, 4, &["0.0.9/quantykube", "this bundle has version 0.1.0"]);
    // The built-in unit needs the store.
    bench.refuses(
        "programs: [{name: quantykube}]",
        4,
        &["systemd/quantykube-store.service", "0.1.0/quantykube-store"],
    );
}

#[test]
fn a_unit_that_is_named_and_not_packed() {
    let bench = Workbench::new();
    bench.put(
        "t/systemd/a.service",
        b"[Unit]\nWants=kubelet.service quantykube-b.path\n[Service]\nExecStart=/bin/true\n",
    );
    bench.refuses(
        &format!("{OWN}templates: {{folder: t}}"),
        4,
        &["systemd/a.service", "quantykube-b.path"],
    );
}

#[test]
fn an_image_that_is_named_and_not_packed() {
    let bench = Workbench::new();
    let list =
        b"kind: A\n---\nkind: List\nitems:\n- spec: {containers: [{name: a, image: 'registry.k8s.io/pause:3.10'}]}\n";
    bench.put("t/manifests/a.yaml", list);
    let spec = format!("{OWN}templates: {{folder: t}}");
    bench.refuses(
        &spec,
        4,
        &["manifests/a.yaml", "registry.k8s.io/pause:3.10", "not in the bundle"],
    );
    bench.put("t/manifests/a.yaml", b"a: [\n");
    bench.refuses(&spec, 2, &["manifests/a.yaml", "not valid YAML"]);
}

#[test]
fn mistakes_in_the_spec() {
    let bench = Workbench::new();
    bench.refuses(&format!("{OWN}binary: []"), 2, &["spec.yaml", "unknown field `binary`"]);
    bench.refuses(
        "programs: [{name: quantykube}]\nversion: ../1",
        2,
        &["../1", "a version is"],
    );
    bench.refuses(
        &format!("{OWN}binaries: [{{name: tool, path: /bin/sh}}]"),
        2,
        &["/bin/sh", "relative to the spec"],
    );
    bench
        .run(&["build", "none.yaml"])
        .failed(2, &["none.yaml", "No such file"]);
    bench.put("good.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    bench
        .run(&["build", "good.yaml", "-o", "out"])
        .failed(2, &["out is a folder"]);
    bench.run(&["build", "--jobs", "0"]).failed(2, &["--jobs"]);
    bench
        .run(&["build", "--templates", "none"])
        .failed(2, &["none holds no template"]);
}

#[test]
fn a_refused_build_leaves_the_old_bundle() {
    let bench = Workbench::new();
    let before = std::fs::read(bench.default_bundle()).unwrap();
    bench
        .build(&format!("{OWN}values: {{x: 1}}"))
        .failed(2, &["no template uses"]);
    assert!(std::fs::read(bench.path("out/b.tar.gz")).unwrap() == before);
}
