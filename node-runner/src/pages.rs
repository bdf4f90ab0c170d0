//! Manual pages and completions of this program, which quantykube-bundle packs. They are made from the definition of the
//! command line and kept in `pages/`, for the bundler knows nothing of a node and runs no program that it packs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

/// The definition without what nobody types.
fn visible() -> Command {
    let whole = crate::args::definition();
    let mut command = Command::new("quantykube")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_help(whole.get_after_help().cloned().unwrap_or_default())
        .args(whole.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(whole.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned());
    command.build();
    command
}

/// Every page by its path below `share/`.
fn made() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let command = visible();
    let mut left = vec![&command];
    while let Some(one) = left.pop() {
        let name = one.get_display_name().unwrap_or(one.get_name()).to_owned();
        let mut page = Vec::new();
        clap_mangen::Man::new(one.clone()).render(&mut page).unwrap();
        pages.insert(format!("man/man1/{name}.1"), String::from_utf8(page).unwrap());
        let shown = |verb: &&Command| verb.get_name() != "help" && !verb.is_hide_set();
        left.extend(one.get_subcommands().filter(shown));
    }
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/quantykube"),
        (Shell::Fish, "fish/vendor_completions.d/quantykube.fish"),
        (Shell::Zsh, "zsh/site-functions/_quantykube"),
    ] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut visible(), "quantykube", &mut script);
        pages.insert(path.into(), String::from_utf8(script).unwrap());
    }
    pages
}

fn files(folder: &Path, below: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, below, found),
            false => {
                let name = path.strip_prefix(below).unwrap().to_str().unwrap().to_owned();
                found.insert(name, path);
            }
        }
    }
}

/// After a change of the command line write them anew with
/// `QUANTYKUBE_GOLDEN=write cargo test -p quantykube-node-runner the_pages_are_those_of_the_command_line`.
#[test]
fn the_pages_are_those_of_the_command_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pages");
    let made = made();
    if std::env::var_os("QUANTYKUBE_GOLDEN").is_some_and(|value| value == "write") {
        let _ = fs::remove_dir_all(&folder);
        for (name, text) in &made {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    let mut found = BTreeMap::new();
    files(&folder, &folder, &mut found);
    let names: Vec<&String> = found.keys().collect();
    let anew = "QUANTYKUBE_GOLDEN=write cargo test -p quantykube-node-runner the_pages_are_those_of_the_command_line";
    assert_eq!(
        names,
        made.keys().collect::<Vec<_>>(),
        "write them anew: {anew}; and list them in bundler/src/pages.rs"
    );
    for (name, path) in found {
        assert!(
            fs::read_to_string(path).unwrap() == made[&name],
            "{name} is not current; write it anew: {anew}"
        );
    }
    // Nothing for plans and units is in them, and the verbs are.
    let bash = &made["bash-completion/completions/quantykube"];
    assert!(bash.contains("rehearse") && bash.contains("first-boot") && !bash.contains("copy-back"));
}
