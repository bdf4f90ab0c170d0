//! Signatures: minisign and we agree, and where a key is trusted nothing else is taken.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::raw;
use crate::workbench::{OWN, Ran, Workbench, tree};

const TOP: &str = "quantykube-0.1.0-linux-amd64";

fn sh(bench: &Workbench, script: &str) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(bench.path(""));
    command.output().unwrap().into()
}

/// A workbench with the keys `mine` and `other`.
fn bench() -> Workbench {
    let bench = Workbench::new();
    bench.run(&["keygen", "--no-password", "-o", "mine"]).ok();
    bench.run(&["keygen", "--no-password", "-o", "other"]).ok();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    bench
}

/// Builds `spec.yaml` into `name`, signed with `key` where there is one. Returns the id.
fn build(bench: &Workbench, name: &str, key: Option<&str>) -> String {
    let mut args = vec!["build", "spec.yaml", "-o", name, "--json"];
    args.extend(key.iter().flat_map(|key| ["--sign", key]));
    let ran = bench.run(&args).ok();
    let last: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    last["id"].as_str().unwrap().to_owned()
}

/// Verifies and extracts `file`, which must be refused with 3 while `names` are said and nothing is written.
#[track_caller]
fn refused(bench: &Workbench, file: &str, names: &[&str]) {
    for args in [&["verify", file][..], &["extract", file, "new"]] {
        let args = [args, &["--public-key", "mine.pub"]].concat();
        bench.run(&args).failed(3, names);
        assert!(!bench.path("new").exists(), "{args:?} wrote something");
    }
}

#[test]
fn minisign_and_sha256sum_agree_with_us() {
    let bench = bench();
    let id = build(&bench, "s.tar.gz", Some("mine.key"));
    let verified = bench.run(&["verify", "s.tar.gz", "--public-key", "mine.pub"]).ok();
    let key = fs::read_to_string(bench.path("mine.pub")).unwrap();
    let (comment, key) = key.split_once('\n').unwrap();
    let key_id = comment.split(' ').find(|word| word.len() == 16).unwrap();
    assert!(
        verified.out.contains(&format!("signed by  {key_id}\n")),
        "{}",
        verified.out
    );
    bench.run(&["verify", "s.tar.gz", "--public-key", key.trim()]).ok();
    bench
        .run(&["extract", "s.tar.gz", "ours", "--public-key", "mine.pub"])
        .ok();
    sh(&bench, "mkdir theirs; tar xzf s.tar.gz -C theirs").ok();
    assert!(
        tree(&bench.path("ours")) == tree(&bench.path("theirs")),
        "tar and we extract different trees"
    );
    if fs::exists("/usr/bin/minisign").unwrap() {
        let checked = sh(&bench, "cd theirs/*; minisign -V -p ../../mine.pub -m SHA256SUMS").ok();
        assert!(
            checked.out.contains(&format!("Trusted comment: {TOP} {id}")),
            "{}",
            checked.out
        );
        let wrong = sh(&bench, "cd theirs/*; minisign -V -p ../../other.pub -m SHA256SUMS");
        assert_eq!(wrong.code, Some(1), "{}", wrong.err);
        // And it signs with our keys.
        sh(
            &bench,
            "echo text > t; minisign -S -W -s mine.key -m t; minisign -V -p mine.pub -m t",
        )
        .ok();
    } else {
        panic!("minisign is missing; scripts/setup --tests installs it");
    }
    sh(&bench, "cd theirs/*; sha256sum -c --strict --quiet SHA256SUMS").ok();
    // Every file but the list itself and its signature is in the list.
    let script = "cd theirs/*; find . -type f ! -name 'SHA256SUMS*' | wc -l; wc -l < SHA256SUMS";
    let counts = sh(&bench, script).ok().out;
    assert_eq!(counts.lines().collect::<Vec<_>>(), ["30", "30"]);
}

#[test]
fn a_bundle_has_the_same_id_signed_and_unsigned_and_the_same_bytes_signed_twice() {
    let bench = bench();
    let unsigned = build(&bench, "u.tar.gz", None);
    assert_eq!(build(&bench, "s.tar.gz", Some("mine.key")), unsigned);
    build(&bench, "again.tar.gz", Some("mine.key"));
    build(&bench, "o.tar.gz", Some("other.key"));
    let read = |name: &str| fs::read(bench.path(name)).unwrap();
    assert!(
        read("s.tar.gz") == read("again.tar.gz"),
        "the same inputs gave other bytes"
    );
    assert!(read("s.tar.gz") != read("o.tar.gz"));
    // Without a trusted key both are taken; whose signature it is, is only a claim then.
    bench.run(&["verify", "u.tar.gz", "--id", &unsigned]).ok();
    let ran = bench.run(&["verify", "s.tar.gz", "--id", &unsigned]).ok();
    assert!(ran.out.contains("(claimed; --public-key checks it)"), "{}", ran.out);
    bench
        .run(&[
            "verify",
            "s.tar.gz",
            "--public-key",
            "mine.pub",
            "--id",
            &"0".repeat(64),
        ])
        .failed(3, &["has the id", &unsigned]);
}

#[test]
fn an_unsigned_bundle_or_another_key_is_refused() {
    let bench = bench();
    build(&bench, "u.tar.gz", None);
    refused(&bench, "u.tar.gz", &["u.tar.gz is not signed"]);
    build(&bench, "o.tar.gz", Some("other.key"));
    let other = fs::read_to_string(bench.path("other.pub")).unwrap();
    let id = other.split(' ').find(|word| word.len() == 16).unwrap();
    refused(&bench, "o.tar.gz", &["is signed with the key", id, "trusted is"]);
    bench
        .run(&["verify", "o.tar.gz", "--public-key", "none.pub"])
        .failed(2, &["--public-key names no key", "none.pub"]);
    bench
        .run(&["verify", "o.tar.gz", "--public-key", "spec.yaml"])
        .failed(2, &["no public key of minisign"]);
}

#[test]
fn a_signature_that_is_not_of_this_bundle_by_this_key_is_refused() {
    let harmless = |data: &[u8]| raw::entries(&[raw::named("run", data)]);
    let signature = |comment: &str, key: &[u8; 8], fill: u8| {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let first = BASE64_STANDARD.encode([&b"ED"[..], key, &[fill; 64]].concat());
        let second = BASE64_STANDARD.encode([fill; 64]);
        format!("untrusted comment: signature of SHA256SUMS\n{first}\ntrusted comment: {comment}\n{second}\n")
    };
    let bench = bench();
    let key = fs::read_to_string(bench.path("mine.pub")).unwrap();
    let key: [u8; 8] = {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let bytes = BASE64_STANDARD.decode(key.lines().nth(1).unwrap()).unwrap();
        bytes[2..10].try_into().unwrap()
    };
    let put = |name: &str, entries: &[raw::Entry], text: &str| {
        let mut entries = entries.to_vec();
        // After SHA256SUMS and before run.
        entries.insert(3, raw::file(&raw::top("SHA256SUMS.minisig"), 0o644, text.as_bytes()));
        bench.put(name, &raw::archive(&entries));
    };
    let entries = harmless(b"a program");
    let id = raw::id(&entries);
    let comment = format!("{} {id}", raw::TOP);

    // Well formed, and nobody's: taken for unsigned where no key is trusted, refused where one is.
    put("forged.tar.gz", &entries, &signature(&comment, &key, 7));
    bench.run(&["verify", "forged.tar.gz"]).ok();
    refused(&bench, "forged.tar.gz", &["is not one of this bundle by that key"]);

    // Not in the one encoding: refused by everybody.
    let good = signature(&comment, &key, 7);
    for (text, said) in [
        (
            good.replace("of SHA256SUMS", "of sha256sums"),
            "one encoding of a signature",
        ),
        (
            signature(&format!("{} {}", raw::TOP, "0".repeat(64)), &key, 7),
            "one encoding of a signature",
        ),
        (good.replacen("\nRU", "\nRW", 1), "one encoding of a signature"),
        (format!("{good}more\n"), "not written as bundle.json gives it"),
        (String::new(), "not written as bundle.json gives it"),
    ] {
        assert_ne!(text, good);
        put("bad.tar.gz", &entries, &text);
        bench
            .run(&["verify", "bad.tar.gz"])
            .failed(3, &["entry SHA256SUMS.minisig", said]);
        refused(&bench, "bad.tar.gz", &[said]);
    }

    // At another place, twice, or listed in bundle.json.
    let entry = raw::file(&raw::top("SHA256SUMS.minisig"), 0o644, good.as_bytes());
    let mut moved = entries.clone();
    moved.insert(2, entry.clone());
    bench.put("moved.tar.gz", &raw::archive(&moved));
    bench
        .run(&["verify", "moved.tar.gz"])
        .failed(3, &["entry SHA256SUMS.minisig"]);
    let mut twice = entries.clone();
    twice.insert(3, entry.clone());
    twice.insert(3, entry);
    bench.put("twice.tar.gz", &raw::archive(&twice));
    bench
        .run(&["verify", "twice.tar.gz"])
        .failed(3, &["the table has 7 members, bundle.json gives 5"]);
    let listed = raw::entries(&[
        raw::named("SHA256SUMS.minisig", good.as_bytes()),
        raw::named("run", b"x"),
    ]);
    bench.put("listed.tar.gz", &raw::archive(&listed));
    bench
        .run(&["verify", "listed.tar.gz"])
        .failed(3, &["SHA256SUMS.minisig", "twice"]);
}

#[test]
fn the_signature_of_another_bundle_is_refused() {
    let bench = bench();
    build(&bench, "a.tar.gz", Some("mine.key"));
    bench.put(
        "quantykube-store",
        &crate::workbench::elf(crate::workbench::AMD64, false, 300_000, 77),
    );
    build(&bench, "b.tar.gz", Some("mine.key"));
    // As an archive whose bytes are all right but for the signature.
    let (a, b) = (members(&bench, "a.tar.gz"), members(&bench, "b.tar.gz"));
    assert_eq!(a.len(), b.len());
    let mut swapped = b.clone();
    swapped[SIGNATURE] = a[SIGNATURE].clone();
    bench.put("swapped.tar.gz", &raw::seal(&swapped));
    refused(
        &bench,
        "swapped.tar.gz",
        &["one encoding of a signature of this bundle"],
    );
    bench.put("whole.tar.gz", &raw::seal(&b));
    bench.run(&["verify", "whole.tar.gz", "--public-key", "mine.pub"]).ok();
    // Another file under the signature of the whole list.
    let mut changed = b.clone();
    changed[SIGNATURE + 2] = a[SIGNATURE + 2].clone();
    bench.put("changed.tar.gz", &raw::seal(&changed));
    refused(&bench, "changed.tar.gz", &["bin/quantykube-store: sha256 is"]);
}

/// Where the member of the signature is: after bundle.json, the folder and SHA256SUMS.
const SIGNATURE: usize = 3;

/// The members of a bundle, by the table at its end.
fn members(bench: &Workbench, name: &str) -> Vec<Vec<u8>> {
    let whole = fs::read(bench.path(name)).unwrap();
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let trailer = whole.len() - word(whole.len() - 14);
    let mut members = Vec::new();
    let (mut at, mut entry) = (0, trailer + 16);
    while at < trailer {
        members.push(whole[at..at + word(entry)].to_vec());
        at += word(entry);
        entry += 4;
    }
    assert_eq!(at, trailer);
    members
}

#[test]
fn no_bit_of_a_signature_is_free() {
    let bench = bench();
    build(&bench, "s.tar.gz", Some("mine.key"));
    let whole = members(&bench, "s.tar.gz");
    // The stream without its packing, so that the flipped bit is one of the signature and all sums around it fit.
    let mut stream = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&whole[SIGNATURE][..]), &mut stream).unwrap();
    let text = &stream[512..];
    let length = text.iter().position(|byte| *byte == 0).unwrap();
    assert!(text.starts_with(b"untrusted comment: signature of SHA256SUMS\n"));
    let mut random = 0x2026_1129_u64;
    for place in (0..length).step_by(3) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut bad = stream.clone();
        bad[512 + place] ^= 1 << (random >> 61);
        let mut members = whole.clone();
        members[SIGNATURE] = raw::member(&bad, bad.len() as u32);
        bench.put("bad.tar.gz", &raw::seal(&members));
        let ran = bench.run(&["verify", "bad.tar.gz", "--public-key", "mine.pub"]);
        assert_eq!(ran.code, Some(3), "byte {place}: {}{}", ran.out, ran.err);
    }
    // And of its packing, as a fault of a disk would have it.
    let bytes = whole.concat();
    let start = whole[..SIGNATURE].concat().len();
    let file = fs::read(bench.path("s.tar.gz")).unwrap();
    assert!(file.starts_with(&bytes));
    for place in (start..start + whole[SIGNATURE].len()).step_by(3) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut bad = file.clone();
        bad[place] ^= 1 << (random >> 61);
        bench.put("bad.tar.gz", &bad);
        let ran = bench.run(&["verify", "bad.tar.gz"]);
        assert_eq!(ran.code, Some(3), "byte {place}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn keys_are_private_and_never_written_over() {
    let bench = Workbench::new();
    sh(&bench, "umask 000; ./quantykube-bundle keygen --no-password -o free").ok();
    let mode = |name: &str| fs::metadata(bench.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("free.key"), mode("free.pub")), (0o600, 0o644));
    let before = fs::read(bench.path("free.key")).unwrap();
    bench
        .run(&["keygen", "--no-password", "-o", "free"])
        .failed(4, &["free.key is there already"]);
    fs::remove_file(bench.path("free.key")).unwrap();
    bench
        .run(&["keygen", "--no-password", "-o", "free"])
        .failed(4, &["free.pub is there already"]);
    assert!(!bench.path("free.key").exists());
    bench.put("free.key", &before);
    let ran = bench.build_signed("free.key", &[]).ok();
    assert!(ran.err.contains("free.key can be read by others"), "{}", ran.err);
    bench.put(
        "none.key",
        b"untrusted comment: x\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n",
    );
    bench
        .build_signed("none.key", &[])
        .failed(2, &["none.key is no secret key of minisign"]);
    bench.build_signed("missing.key", &[]).failed(2, &["missing.key"]);
}

#[test]
fn a_password_protects_a_key_and_is_never_said() {
    let bench = Workbench::new();
    let (right, wrong) = ("correct horse battery", "not the password");
    let keygen = bench
        .command()
        .args(["keygen", "-o", "p"])
        .env("QUANTYKUBE_SIGN_PASSWORD", right)
        .output()
        .unwrap();
    let keygen = Ran::from(keygen).ok();
    let built = bench.build_signed("p.key", &[("QUANTYKUBE_SIGN_PASSWORD", right)]).ok();
    bench.run(&["verify", "out/b.tar.gz", "--public-key", "p.pub"]).ok();
    let failed = bench.build_signed("p.key", &[("QUANTYKUBE_SIGN_PASSWORD", wrong)]);
    failed.failed(4, &["p.key cannot be opened with this password"]);
    let empty = bench.build_signed("p.key", &[("QUANTYKUBE_SIGN_PASSWORD", "")]);
    empty.failed(2, &["the password is empty"]);
    let secret = fs::read_to_string(bench.path("p.key")).unwrap();
    let secret = secret.lines().nth(1).unwrap();
    for ran in [&keygen, &built, &failed, &empty] {
        for text in [&ran.out, &ran.err] {
            for word in [right, wrong, secret] {
                assert!(!text.contains(word), "{text}");
            }
        }
    }
}

/// Runs a command line on a terminal of its own and answers each prompt in turn. Returns the exit code and all that the
/// terminal showed.
fn on_a_terminal(bench: &Workbench, line: &str, answers: &[(&str, &str)]) -> (Option<i32>, String) {
    let line = format!("tty > tty; exec {line}");
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(bench.path(""))
        .env_remove("QUANTYKUBE_SIGN_PASSWORD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut next) = (Vec::new(), [0]);
    for (prompt, answer) in answers {
        while !String::from_utf8_lossy(&shown).contains(prompt) {
            let shown_now = String::from_utf8_lossy(&shown).into_owned();
            assert_eq!(
                output.read(&mut next).unwrap(),
                1,
                "it ended before {prompt:?}: {shown_now}"
            );
            shown.push(next[0]);
        }
        // The prompt comes a moment before the echo is switched off; nobody types as fast as we do.
        let is_silent = || sh(bench, "stty -a -F $(cat tty)").ok().out.contains("-echo ");
        let begun = Instant::now();
        while !is_silent() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "the echo stays on after {prompt:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        input.write_all(format!("{answer}\n").as_bytes()).unwrap();
    }
    output.read_to_end(&mut shown).unwrap();
    (
        child.wait().unwrap().code(),
        String::from_utf8_lossy(&shown).into_owned(),
    )
}

#[test]
fn a_terminal_is_asked_for_the_password_and_does_not_show_it() {
    let bench = Workbench::new();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    let keygen = "./quantykube-bundle keygen -o t";
    let (first, again) = ("password for the new key: ", "once more: ");
    let (code, shown) = on_a_terminal(&bench, keygen, &[(first, "sesame"), (again, "semolina")]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(
        shown.contains("the two passwords differ") && !bench.path("t.key").exists(),
        "{shown}"
    );
    let (code, shown) = on_a_terminal(&bench, keygen, &[(first, "sesame"), (again, "sesame")]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
    let build = "./quantykube-bundle build spec.yaml -o t.tar.gz --sign t.key";
    let (code, shown) = on_a_terminal(&bench, build, &[("password of t.key: ", "sesame")]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
    bench.run(&["verify", "t.tar.gz", "--public-key", "t.pub"]).ok();
}
