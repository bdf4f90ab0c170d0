//! What users expect of a command line: completions and manual pages that know every command and option.

use std::process::Command;

use crate::workbench::{Ran, Workbench};

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
