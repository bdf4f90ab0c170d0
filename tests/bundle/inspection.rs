//! Looking into bundles: `inspect`, `diff`, bills of materials, builds that only try.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::workbench::{AMD64, OWN, Ran, Workbench, elf, tree};

/// Judges a file by the official JSON schema of its format, with the validator of others where it is installed.
const JUDGE: &str = "\
import json, sys
kind, path = sys.argv[1:]
text = open(path).read()
try:
    if kind == 'cyclonedx':
        from cyclonedx.validation.json import JsonStrictValidator
        from cyclonedx.schema import SchemaVersion
        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
        errors = [str(error)] if error else []
    else:
        from spdx_tools.spdx.parser.parse_anything import parse_file
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
        errors = [m.validation_message for m in validate_full_spdx_document(parse_file(path))]
except ImportError as missing:
    print(missing)
    sys.exit(99)
print('\\n'.join(errors))
sys.exit(10 if errors else 0)
";

/// A folder with the validators, which `scripts/setup --tests` makes.
fn python() -> String {
    let venv = quantykube_tests::places::cache().join("sbom-venv/bin/python3");
    match venv.is_file() {
        true => venv.display().to_string(),
        false => "python3".into(),
    }
}

/// A stand-in that carries a list of crates, as our programs do.
fn with_crates(bench: &Workbench) {
    let mut program = elf(AMD64, false, 100_000, 1);
    program.extend_from_slice(b"quantykube-crates:1\nanyhow 1.0.99 MIT OR Apache-2.0\nold 0.2.0 MIT/Apache-2.0\nquantykube 0.1.0 Apache-2.0\n\n");
    bench.put("quantykube", &program);
    bench.put("quantykube-store", &elf(AMD64, false, 50_000, 2));
}

fn json(ran: Ran) -> Value {
    serde_json::from_str(ran.ok().out.lines().last().unwrap()).unwrap()
}

#[test]
fn bills_of_materials_are_valid_and_true() {
    let bench = Workbench::new();
    with_crates(&bench);
    bench.default_bundle();
    let bundle = json(bench.run(&["inspect", "out/b.tar.gz", "--json"]))["bundle"].clone();
    bench.run(&["extract", "out/b.tar.gz", "x"]).ok();
    let inside = fs::read(bench.path("x/quantykube-0.1.0-linux-amd64/sbom.spdx.json")).unwrap();
    let spdx: Value = serde_json::from_slice(&inside).unwrap();
    let printed: Value = serde_json::from_str(&bench.run(&["sbom", "out/b.tar.gz"]).ok().out).unwrap();
    assert_eq!(printed, spdx);
    let cyclone: Value =
        serde_json::from_str(&bench.run(&["sbom", "out/b.tar.gz", "--format", "cyclonedx"]).ok().out).unwrap();
    // Every file with its digest, in both; only the document itself is not in itself.
    let files = bundle["files"].as_array().unwrap();
    assert!(files.len() >= 5);
    for file in files {
        let (path, sum) = (&file["path"], &file["sha256"]);
        let in_cyclone = cyclone["components"]
            .as_array()
            .unwrap()
            .iter()
            .find(|part| part["name"] == *path);
        assert_eq!(in_cyclone.unwrap()["hashes"][0]["content"], *sum, "{path}");
        let in_spdx = spdx["packages"]
            .as_array()
            .unwrap()
            .iter()
            .find(|part| part["name"] == *path);
        match path.as_str() {
            Some("sbom.spdx.json") => assert!(in_spdx.is_none()),
            _ => assert_eq!(in_spdx.unwrap()["checksums"][0]["checksumValue"], *sum, "{path}"),
        }
    }
    // The crates that the program says, and of that program alone.
    let crates: Vec<&str> = spdx["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["primaryPackagePurpose"] == "LIBRARY")
        .map(|part| part["externalRefs"][0]["referenceLocator"].as_str().unwrap())
        .collect();
    assert_eq!(
        crates,
        [
            "pkg:cargo/anyhow@1.0.99",
            "pkg:cargo/old@0.2.0",
            "pkg:cargo/quantykube@0.1.0"
        ]
    );
    let dependencies = cyclone["dependencies"].as_array().unwrap();
    let of = |name: &str| {
        dependencies.iter().find(|one| one["ref"] == name).unwrap()["dependsOn"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((of("file:run"), of("file:bin/quantykube-store")), (3, 0));
    // Others say that they are valid.
    bench.put("cyclone.json", cyclone.to_string().as_bytes());
    bench.put("bill.spdx.json", &inside);
    bench.put(
        "broken.json",
        cyclone.to_string().replace("\"SHA-256\"", "\"SHA-2\"").as_bytes(),
    );
    for (kind, file, expected) in [
        ("cyclonedx", "cyclone.json", 0),
        ("cyclonedx", "broken.json", 10),
        ("spdx", "bill.spdx.json", 0),
    ] {
        let run = Command::new(python())
            .args(["-W", "ignore", "-c", JUDGE, kind, file])
            .current_dir(bench.path(""))
            .output();
        let ran = Ran::from(run.unwrap());
        if ran.code == Some(99) {
            quantykube_tests::skipped(
                "bills_of_materials_are_valid_and_true",
                &format!("the validator of {kind}: {}", ran.out.trim()),
            );
            continue;
        }
        assert_eq!(ran.code, Some(expected), "{file}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn our_own_program_says_its_crates() {
    // The program under test is one of ours: packed as one, its list is in the bill.
    let bench = Workbench::new();
    let program = fs::read(bench.path("quantykube-bundle")).unwrap();
    let list = {
        let mark = b"quantykube-crates:1\n";
        let at = program
            .windows(mark.len())
            .position(|window| window == mark)
            .expect("it carries no list");
        let rest = &program[at + mark.len()..];
        let end = rest.windows(2).position(|window| window == b"\n\n").unwrap();
        String::from_utf8(rest[..end].to_vec()).unwrap()
    };
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines.is_sorted() && lines.len() > 50, "{list}");
    for wanted in ["clap 4.", "quantykube-bundle-format 0.", "sha2 0."] {
        assert!(lines.iter().any(|line| line.starts_with(wanted)), "{wanted}: {list}");
    }
    // Nothing that only tests or builds use, and nothing of this machine.
    for other in ["proc-macro2 ", "syn ", "tonic-build "] {
        assert!(!lines.iter().any(|line| line.starts_with(other)), "{other}: {list}");
    }
    assert!(!list.contains('/') || !list.contains("/root"), "{list}");
}

#[test]
fn a_tree_with_what_units_name() {
    let bench = Workbench::new();
    bench.default_bundle();
    let shown = bench.run(&["inspect", "out/b.tar.gz"]).ok().out;
    for line in [
        "bin/\n  quantykube-store ",
        "systemd/\n  quantykube",
        "systemd/quantykube-store.service names program /usr/local/lib/quantykube/0.1.0/quantykube-store",
        "program quantykube-store",
    ] {
        assert!(shown.contains(line), "{line:?}: {shown}");
    }
    let event = json(bench.run(&["inspect", "out/b.tar.gz", "--json"]));
    let read = event["bytesRead"].as_u64().unwrap();
    assert!(
        read > 0 && read < event["size"].as_u64().unwrap() / 100,
        "{read} of {} bytes were read",
        event["size"]
    );
}

#[test]
fn what_differs_is_said_in_words() {
    let bench = Workbench::new();
    bench.put("tools/a", &elf(AMD64, false, 5000, 5));
    bench
        .build(&format!("{OWN}binaries: [{{name: a, path: tools/a}}]\n"))
        .ok();
    fs::rename(bench.path("out/b.tar.gz"), bench.path("old.tar.gz")).unwrap();
    bench.put("quantykube-store", &elf(AMD64, false, 400_000, 77));
    bench
        .build(&format!(
            "version: 9.0.0\n{OWN}binaries: [{{name: b, path: tools/a}}]\n"
        ))
        .ok();
    let said = bench.run(&["diff", "old.tar.gz", "out/b.tar.gz"]).ok().out;
    for words in [
        "the version is 9.0.0 and was 0.1.0",
        "program bin/quantykube-store has other bytes, 390.7 KiB and had 293.1 KiB",
        "binary bin/b was bin/a",
    ] {
        assert!(said.contains(words), "{words:?}: {said}");
    }
    assert!(!said.contains("run has other"), "{said}");
    let same = bench.run(&["diff", "old.tar.gz", "old.tar.gz"]).ok().out;
    assert!(same.starts_with("the same bundle"), "{same}");
    let event = json(bench.run(&["diff", "old.tar.gz", "out/b.tar.gz", "--json"]));
    assert_eq!(event["same"], false);
}

#[test]
fn builds_that_only_try() {
    let bench = Workbench::new();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    let before = tree(&bench.path(""));
    let tried = json(bench.run(&["build", "spec.yaml", "--dry-run", "--json"]));
    assert!(tree(&bench.path("")) == before, "a dry run wrote something");
    let built = json(bench.run(&[
        "build",
        "spec.yaml",
        "-o",
        "out/b.tar.gz",
        "--check-reproducible",
        "--json",
    ]));
    assert_eq!(tried["id"], built["id"]);
    bench.put(
        "spec.yaml",
        format!("architecture: amd64\n{OWN}binaries: [{{name: x, path: none}}]\n").as_bytes(),
    );
    bench.run(&["build", "spec.yaml", "--dry-run"]).failed(4, &["none"]);
}

#[test]
fn every_event_is_as_the_schema_says() {
    const EVENTS: &str = "\
import json, sys
from jsonschema import Draft7Validator
schema = json.load(open('events.json'))
Draft7Validator.check_schema(schema)
lines = [json.loads(line) for line in open(sys.argv[1])]
errors = [e.message for line in lines for e in Draft7Validator(schema).iter_errors(line)]
print(sorted({line['event'] for line in lines}), *errors, sep='\\n')
sys.exit(10 if errors else 0)
";
    let bench = Workbench::new();
    bench.put("events.json", bench.run(&["schema", "--events"]).ok().out.as_bytes());
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    bench.put("bad.tar.gz", b"bad");
    let mut lines = String::new();
    for words in [
        "build spec.yaml -o out/b.tar.gz --check-reproducible",
        "verify out/b.tar.gz",
        "inspect out/b.tar.gz",
        "diff out/b.tar.gz out/b.tar.gz",
        "sbom out/b.tar.gz",
        "split out/b.tar.gz --size 3M -o out",
        "extract out/b.tar.gz out",
        "keygen --no-password -o k",
        "schema",
        "verify bad.tar.gz",
        "verify none",
        "dance",
    ] {
        let mut args: Vec<&str> = words.split(' ').collect();
        args.push("--json");
        let said = bench.run(&args).out;
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert!(
            matches!(last["event"].as_str(), Some("result" | "error")),
            "{words}: {last}"
        );
        lines.push_str(&said);
    }
    let wrong = lines.replace("\"exit\":3", "\"exit\":\"3\"");
    assert_ne!(wrong, lines);
    for (name, text, expected) in [("right", lines, 0), ("wrong", wrong, 10)] {
        bench.put(name, text.as_bytes());
        let run = Command::new("python3")
            .args(["-W", "ignore", "-c", EVENTS, name])
            .current_dir(bench.path(""))
            .output();
        let ran = Ran::from(run.unwrap());
        assert_eq!(ran.code, Some(expected), "{name}: {}{}", ran.out, ran.err);
        if expected == 0 {
            assert!(
                ran.out.contains("['error', 'progress', 'result', 'step']"),
                "every kind must be there: {}",
                ran.out
            );
        }
    }
}
