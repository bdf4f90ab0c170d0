//! What users expect of a command line: completions and manual pages that know every command and option.

use std::process::Command;

use crate::workbench::{AMD64, OWN, Ran, Workbench, elf};

/// The names of all commands, from the help.
fn commands(bench: &Workbench) -> Vec<String> {
    let help = bench.run(&["--help"]).ok().out;
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<String> = names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(names.len() > 9 && names.contains(&"keygen".to_owned()), "{help}");
    names.into_iter().filter(|name| name != "help").collect()
}

/// The long options of a command, from its help.
fn options(bench: &Workbench, command: &str) -> Vec<String> {
    let help = bench.run(&[command, "--help"]).ok().out;
    // Not those that its examples show of other commands.
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let words = lines.flat_map(str::split_whitespace);
    let mut options: Vec<String> = words
        .filter_map(|word| word.strip_prefix("--"))
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'))
        .map(String::from)
        .collect();
    options.sort();
    options.dedup();
    assert!(options.contains(&"json".to_owned()), "{help}");
    options
}

#[test]
fn wrong_usage_is_an_event_too() {
    let bench = Workbench::bare();
    for words in [
        &["--json", "verify"][..],
        &["build", "--jobs", "many", "--json"],
        &["--json", "dance"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        let event: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            (&event["event"], &event["exit"]),
            (&"error".into(), &2.into()),
            "{event}"
        );
        assert!(
            event["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{event}"
        );
    }
    let ran = bench.run(&["verify"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("Usage:"), "{}", ran.err);
}

#[test]
fn bash_completes_commands_and_options() {
    let bench = Workbench::bare();
    let script = bench.run(&["completions", "bash"]).ok().out;
    bench.put("complete.bash", script.as_bytes());
    let complete = |words: &str| {
        let script = format!(
            "set -e; . ./complete.bash; spec=$(complete -p quantykube-bundle); [[ $spec =~ -F\\ ([^ ]+) ]]; \
             COMP_WORDS=({words}''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             ${{BASH_REMATCH[1]}} quantykube-bundle '' \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let run = Command::new("bash")
            .args(["-c", &script])
            .current_dir(bench.path(""))
            .output();
        Ran::from(run.unwrap()).ok().out
    };
    let first = complete("quantykube-bundle ");
    for command in commands(&bench) {
        assert!(first.lines().any(|line| line == command), "{command}: {first}");
        let offered = complete(&format!("quantykube-bundle {command} "));
        for option in options(&bench, &command) {
            assert!(
                offered.lines().any(|line| line == format!("--{option}")),
                "{command} --{option}: {offered}"
            );
        }
    }
    for shell in ["elvish", "fish", "powershell", "zsh"] {
        let script = bench.run(&["completions", shell]).ok().out;
        assert!(script.contains("public-key") && script.contains("keygen"), "{shell}");
    }
    bench.run(&["completions", "csh"]).failed(2, &["csh"]);
}

#[test]
fn every_command_has_a_page_with_its_options() {
    let bench = Workbench::bare();
    let whole = bench.run(&["man"]).ok().out;
    assert!(whole.contains(".TH quantykube-bundle 1"), "{whole}");
    for command in commands(&bench) {
        let escaped = command.replace('-', "\\-");
        assert!(
            whole.contains(&format!("quantykube\\-bundle\\-{escaped}(1)")),
            "{command}: {whole}"
        );
        let page = bench.run(&["man", &command]).ok().out;
        assert!(page.contains(&format!(".TH quantykube-bundle-{command} 1")), "{page}");
        for option in options(&bench, &command) {
            let option = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&option), "{command} {option}: {page}");
        }
    }
    assert!(whole.contains("Exit codes"), "{whole}");
    bench.run(&["man", "none"]).failed(2, &["no command none", "keygen"]);
}

/// A result that could not be written is told by the exit code; a reader that went away is no failure.
#[test]
fn a_result_that_is_lost_fails() {
    let run = |shell: &str| {
        let program = quantykube_tests::program("quantykube-bundle");
        let output = Command::new("sh")
            .arg("-c")
            .arg(shell)
            .arg("sh")
            .arg(program)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for json in ["", "--json"] {
        let (code, said) = run(&format!("\"$1\" {json} schema"));
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = run(&format!("\"$1\" {json} schema >/dev/full"));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("standard output takes nothing"), "{said}");
    }
}

/// Long options of a verb of the node-runner, and its own verbs, from its help.
fn of_runner(words: &[&str]) -> (Vec<String>, Vec<String>) {
    let run = Command::new(quantykube_tests::program("quantykube"))
        .args(words)
        .arg("--help")
        .output();
    let help = Ran::from(run.unwrap()).ok().out;
    let lines = || help.lines().map(str::trim_start);
    let options = lines()
        .filter(|line| line.starts_with('-'))
        .flat_map(str::split_whitespace);
    let options = options.filter_map(|word| word.strip_prefix("--")).map(String::from);
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let list = list.split("\n\n").next().unwrap_or_default().lines();
    let verbs = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let verbs = verbs
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help");
    (options.collect(), verbs.map(String::from).collect())
}

#[test]
fn a_bundle_holds_pages_and_completions_of_its_programs() {
    let bench = Workbench::new();
    bench.put("tools/bundler", &elf(AMD64, false, 1000, 5));
    let programs = OWN.replace("]", ", {name: quantykube-bundle, path: tools/bundler}]");
    bench.build(&programs).ok();
    bench.run(&["extract", "out/b.tar.gz", "new", "share"]).ok();
    let share = bench.path("new/quantykube-0.1.0-linux-amd64/share");
    let read = |path: &str| std::fs::read_to_string(share.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    // What is packed is what the programs say of themselves: the one under test here, and the node's.
    assert_eq!(
        read("man/man1/quantykube-bundle.1").trim_end(),
        bench.run(&["man"]).ok().out.trim_end()
    );
    for command in commands(&bench) {
        let page = bench.run(&["man", &command]).ok().out;
        assert_eq!(
            read(&format!("man/man1/quantykube-bundle-{command}.1")).trim_end(),
            page.trim_end()
        );
    }
    let shells = [
        "bash-completion/completions/quantykube",
        "zsh/site-functions/_quantykube",
        "fish/vendor_completions.d/quantykube.fish",
    ];
    let mut todo = vec![Vec::<String>::new()];
    let mut seen = 0;
    while let Some(words) = todo.pop() {
        let (options, verbs) = of_runner(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let page = read(&format!(
            "man/man1/{}.1",
            [&["quantykube".to_owned()][..], &words].concat().join("-")
        ));
        for option in options.iter().filter(|option| *option != "help") {
            assert!(
                page.contains(&format!("\\-\\-{}", option.replace('-', "\\-"))),
                "{words:?} --{option}: {page}"
            );
            for shell in shells {
                assert!(read(shell).contains(option), "{shell}: {words:?} --{option}");
            }
        }
        for verb in verbs {
            assert!(read(shells[0]).contains(&verb), "{verb}");
            todo.push([&words[..], &[verb]].concat());
        }
        seen += 1;
    }
    assert!(seen > 14, "{seen} verbs");
    // Shells and man take them.
    for (shell, path) in [
        ("bash", shells[0]),
        ("bash", "bash-completion/completions/quantykube-bundle"),
    ] {
        let run = Command::new(shell)
            .args(["-n", path])
            .current_dir(&share)
            .output()
            .unwrap();
        Ran::from(run).ok();
    }
    // They cost little, and come with their program alone.
    let size = |file: &str| std::fs::metadata(bench.path(file)).unwrap().len();
    let both = size("out/b.tar.gz");
    bench.build(OWN).ok();
    let list = bench.run(&["inspect", "out/b.tar.gz"]).ok().out;
    assert!(
        list.contains("quantykube-images-load.1") && !list.contains("quantykube-bundle"),
        "{list}"
    );
    let sizes = bench.run(&["inspect", "out/b.tar.gz", "--json"]).ok().out;
    println!(
        "{} bytes more for those of quantykube-bundle",
        both - size("out/b.tar.gz")
    );
    assert!(both - size("out/b.tar.gz") < 100_000, "{sizes}");
}
