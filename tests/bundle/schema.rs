//! `init` and `schema`: what they write is right, and the schema judges as `build` does.

use std::fs;
use std::process::Command;

use crate::workbench::{AMD64, OWN, Ran, Workbench, elf};

/// Another implementation of JSON Schema judges the file `spec`.
const JUDGE: &str = "\
import json, sys, yaml
from jsonschema import Draft7Validator
schema = json.load(open('schema.json'))
Draft7Validator.check_schema(schema)
errors = [error.message for error in Draft7Validator(schema).iter_errors(yaml.safe_load(open(sys.argv[1])))]
print('\\n'.join(errors))
sys.exit(10 if errors else 0)
";

fn judge(bench: &Workbench, spec: &str) -> Ran {
    let schema = bench.run(&["schema"]).ok().out;
    bench.put("schema.json", schema.as_bytes());
    let judge = Command::new("python3")
        .args(["-W", "ignore", "-c", JUDGE, spec])
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    let ran = Ran::from(judge);
    let missing = "python3 with yaml and jsonschema is missing or fails; scripts/setup --tests installs it";
    assert!(matches!(ran.code, Some(0 | 10)), "{missing}: {}", ran.err);
    ran
}

#[test]
fn a_spec_of_init_builds_and_is_valid() {
    let bench = Workbench::new();
    bench.run(&["init"]).ok();
    judge(&bench, "quantykube.yaml").ok();
    // The stand-ins are for amd64.
    let spec = fs::read_to_string(bench.path("quantykube.yaml")).unwrap();
    let spec = spec.replace("# architecture: arm64", "architecture: amd64");
    bench.put("quantykube.yaml", spec.as_bytes());
    bench.run(&["build", "-o", "out/b.tar.gz"]).ok();
    bench.run(&["verify", "out/b.tar.gz"]).ok();
    bench.run(&["init"]).failed(4, &["quantykube.yaml is there already"]);
    assert_eq!(fs::read_to_string(bench.path("quantykube.yaml")).unwrap(), spec);
    bench.run(&["init", "other.yaml"]).ok();
    bench
        .run(&["init", "none/other.yaml"])
        .failed(1, &["cannot make none/other.yaml"]);
}

#[test]
fn the_schema_says_what_build_says() {
    let bench = Workbench::new();
    bench.put("tools/probe", &elf(AMD64, false, 1000, 3));
    let sum = "0".repeat(64);
    let valid = [
        OWN.to_owned(),
        format!("{OWN}name: edge\nversion: '1.0'\n"),
        format!("{OWN}binaries: [{{name: probe, path: tools/probe}}]"),
        format!("{OWN}templates: {{only: [systemd/quantykube-store.service]}}"),
        format!("{OWN}values: {{}}\nimages: []\n"),
        format!("{OWN}registries: [{{host: 'r.example:5000', plainHttp: true}}]"),
        format!(
            "{OWN}parts: [{{name: tools, default: true, binaries: [{{name: probe, path: tools/probe}}], values: {{}}}}]"
        ),
    ];
    let invalid = [
        "name: edge\n".to_owned(),
        "programs: [{name: etcd}]".to_owned(),
        format!("{OWN}binary: []"),
        format!("{OWN}name: Edge"),
        format!("{OWN}version: v1"),
        format!("{OWN}binaries: [{{name: probe}}]"),
        format!("{OWN}binaries: [{{path: tools/probe}}]"),
        format!("{OWN}binaries: [{{name: a/b, path: tools/probe}}]"),
        format!("{OWN}binaries: [{{name: probe, path: /tools/probe}}]"),
        format!("{OWN}binaries: [{{name: probe, path: tools/probe, sha256: AB}}]"),
        format!("{OWN}binaries: [{{name: probe, path: a, url: 'http://x/y', sha256: '{sum}'}}]"),
        format!("{OWN}binaries: [{{name: probe, url: 'http://me:secret@x/y', sha256: '{sum}'}}]"),
        format!("{OWN}binaries: [{{name: probe, url: 'ftp://x/y', sha256: '{sum}'}}]"),
        format!("{OWN}templates: {{folder: /t}}"),
        format!("{OWN}templates: {{files: []}}"),
        format!("{OWN}images: [{{name: a, ociLayout: x, from: r.example/a}}]"),
        format!("{OWN}images: [{{name: a, digest: 'sha256:1'}}]"),
        format!("{OWN}registries: [{{host: r.example, ca: /ca.pem}}]"),
        format!("{OWN}registries: [{{host: r.example/a}}]"),
        format!("{OWN}parts: [{{default: true}}]"),
        format!("{OWN}parts: [{{name: Tools}}]"),
        format!("{OWN}parts: [{{name: tools, registries: []}}]"),
        format!("{OWN}parts: [{{name: tools, binaries: [{{name: probe}}]}}]"),
        format!("{OWN}images: [{{name: a, ociLayout: x, dockerArchive: y}}]"),
        format!("{OWN}images: [{{name: a, oci_layout: x}}]"),
        "architecture: x86\nprograms: [{name: quantykube}]\n".to_owned(),
    ];
    // Right as a spec, and built only with a lock.
    let locked = [
        format!("{OWN}binaries: [{{name: probe, url: 'http://x/y'}}]"),
        format!("{OWN}images: [{{name: a}}]"),
    ];
    for spec in locked {
        bench.put("spec.yaml", format!("architecture: amd64\n{spec}").as_bytes());
        judge(&bench, "spec.yaml").ok();
        let built = bench.run(&["build", "spec.yaml", "-o", "out/b.tar.gz"]);
        built.failed(2, &["--locked"]);
    }
    for (specs, expected) in [(&valid[..], 0), (&invalid[..], 10)] {
        for spec in specs {
            let spec = match spec.starts_with("architecture") {
                true => spec.clone(),
                false => format!("architecture: amd64\n{spec}"),
            };
            bench.put("spec.yaml", spec.as_bytes());
            let judged = judge(&bench, "spec.yaml");
            assert_eq!(judged.code, Some(expected), "{spec}: {}", judged.out);
            let built = bench.run(&["build", "spec.yaml", "-o", "out/b.tar.gz"]);
            let wanted = if expected == 0 { 0 } else { 2 };
            assert_eq!(built.code, Some(wanted), "{spec}: {}", built.err);
        }
    }
}
