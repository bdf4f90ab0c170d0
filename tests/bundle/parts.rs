//! Optional parts of a spec: what is taken, what is left, and that each choice is the spec that says the same without parts.

use std::fs;

use serde_json::Value;

use crate::workbench::{AMD64, OWN, Workbench, elf, tree};

const PARTS: &str = "\
values: {site: north}
templates: {folder: templates}
parts:
- {name: probing, default: true, binaries: [{name: probe, path: tools/probe}]}
- {name: debugging, binaries: [{name: strace, path: tools/strace}], templates: [manifests/debug.yaml], values: {level: high}}
";

fn bench() -> Workbench {
    let bench = Workbench::new();
    bench.put("tools/probe", &elf(AMD64, true, 2000, 3));
    bench.put("tools/strace", &elf(AMD64, true, 3000, 4));
    bench.put("templates/manifests/site.yaml", b"site: {{ site | yaml }}\n");
    bench.put("templates/manifests/debug.yaml", b"level: {{ level | yaml }}\n");
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}{PARTS}").as_bytes());
    bench
}

/// The bytes of a build.
fn built(bench: &Workbench, spec: &str, extra: &[&str]) -> Vec<u8> {
    bench
        .run(&[&["build", spec, "-o", "out/b.tar.gz"], extra].concat())
        .ok();
    let bytes = fs::read(bench.path("out/b.tar.gz")).unwrap();
    fs::remove_file(bench.path("out/b.tar.gz")).unwrap();
    bytes
}

/// The paths that a dry run would pack.
fn packed(bench: &Workbench, extra: &[&str]) -> Vec<String> {
    let ran = bench
        .run(&[&["build", "spec.yaml", "--dry-run", "--json"], extra].concat())
        .ok();
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    let files = last["bundle"]["files"].as_array().unwrap().iter();
    let paths = files.map(|file| file["path"].as_str().unwrap().to_owned());
    paths
        .filter(|path| path.starts_with("bin/") || path.starts_with("manifests/"))
        .collect()
}

#[test]
fn each_choice_is_the_spec_that_says_the_same() {
    let bench = bench();
    let (probe, strace) = ("{name: probe, path: tools/probe}", "{name: strace, path: tools/strace}");
    let plain = |name: &str, binaries: &str, templates: &str, values: &str| {
        let spec = format!(
            "architecture: amd64\n{OWN}binaries: [{binaries}]\nvalues: {{site: north{values}}}\ntemplates: {{folder: templates, \
             only: [{templates}]}}\n"
        );
        bench.put(name, spec.as_bytes());
        built(&bench, name, &[])
    };
    let (site, both) = ("manifests/site.yaml", "manifests/site.yaml, manifests/debug.yaml");
    let usual = plain("usual.yaml", probe, site, "");
    assert!(built(&bench, "spec.yaml", &[]) == usual);
    assert!(built(&bench, "spec.yaml", &["--with", "probing"]) == usual);
    assert!(built(&bench, "spec.yaml", &["--without", "probing"]) == plain("least.yaml", "", site, ""));
    let all = plain("all.yaml", &format!("{probe}, {strace}"), both, ", level: high");
    assert!(built(&bench, "spec.yaml", &["--with", "debugging"]) == all);
    let other = plain("other.yaml", strace, both, ", level: high");
    assert!(built(&bench, "spec.yaml", &["--with", "debugging", "--without", "probing"]) == other);
    assert_eq!(packed(&bench, &[]), ["bin/probe", "bin/quantykube-store", site]);
    assert_eq!(
        packed(&bench, &["--with", "debugging", "--without", "probing"]),
        ["bin/quantykube-store", "bin/strace", "manifests/debug.yaml", site]
    );
    let said = bench
        .run(&["build", "spec.yaml", "--with", "debugging", "--dry-run"])
        .ok()
        .err;
    assert!(said.contains("with the optional parts probing, debugging"), "{said}");
}

#[test]
fn a_name_that_no_part_has_is_refused_and_mistakes_are_found_in_what_is_left_out() {
    let bench = bench();
    let build = |extra: &[&str]| bench.run(&[&["build", "spec.yaml", "-o", "out/b.tar.gz"], extra].concat());
    build(&["--with", "debug"]).failed(2, &["no part \"debug\"", "there are: probing, debugging"]);
    build(&["--without", "none"]).failed(2, &["no part \"none\"", "there are: probing, debugging"]);
    build(&["--with", "probing", "--without", "probing"]).failed(2, &["probing", "--with and in --without"]);
    let text = fs::read_to_string(bench.path("spec.yaml")).unwrap();
    for (from, to, said) in [
        ("path: tools/strace", "path: /tools/strace", "must be relative"),
        ("name: strace", "name: probe", "two programs become bin/probe"),
        (
            "debug.yaml]",
            "none.yaml]",
            "the template manifests/none.yaml, which is not there",
        ),
        ("level: high", "site: high", "the value site is listed twice"),
    ] {
        assert!(text.contains(from));
        bench.put("spec.yaml", text.replace(from, to).as_bytes());
        build(&[]).failed(2, &["spec.yaml", said]);
    }
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    build(&["--with", "debugging"]).failed(2, &["it has no parts"]);
    assert!(tree(&bench.path("out")).is_empty());
}
