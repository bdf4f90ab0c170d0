//! Manual pages and completions of the programs that a bundle holds, where systems look for them below a prefix.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use quantykube_bundle_format::{Content, FileMode, Input, Kind, Origin};

use crate::args::Args;
use crate::commands::{completions, man};

/// The folder in the bundle.
const FOLDER: &str = "share";
/// Our own program, where a bundle holds it.
const BUNDLER: &str = "bin/quantykube-bundle";

macro_rules! runner {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../node-runner/pages/", $path)))),*]
    };
}

/// The node-runner's, as its own tests made them of its command line.
const RUNNER: &[(&str, &str)] = runner![
    "bash-completion/completions/quantykube",
    "fish/vendor_completions.d/quantykube.fish",
    "man/man1/quantykube-first-boot.1",
    "man/man1/quantykube-guard-release.1",
    "man/man1/quantykube-guard.1",
    "man/man1/quantykube-history.1",
    "man/man1/quantykube-images-load.1",
    "man/man1/quantykube-images.1",
    "man/man1/quantykube-install.1",
    "man/man1/quantykube-kubeadm-config.1",
    "man/man1/quantykube-migrate.1",
    "man/man1/quantykube-plan.1",
    "man/man1/quantykube-remove.1",
    "man/man1/quantykube-resume.1",
    "man/man1/quantykube-status.1",
    "man/man1/quantykube-undo.1",
    "man/man1/quantykube-verify.1",
    "man/man1/quantykube-version.1",
    "man/man1/quantykube.1",
    "zsh/site-functions/_quantykube",
];

/// The pages for a bundle that holds the programs `targets`, by their paths in it.
pub fn of<'a>(mut targets: impl Iterator<Item = &'a str>) -> Vec<Input> {
    let runner = RUNNER
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    let mut pages: Vec<(String, String)> = runner.collect();
    if targets.any(|target| target == BUNDLER) {
        pages.extend(ours());
    }
    let input = |(path, text): (String, String)| {
        let of = match Path::new(&path).starts_with("man") {
            true => "manual page",
            false => "completions",
        };
        Input {
            path: format!("{FOLDER}/{path}"),
            kind: Kind::Document,
            mode: FileMode::Plain,
            origin: Origin::Generated(of.into()),
            content: Content::Bytes(text.into_bytes()),
        }
    };
    pages.into_iter().map(input).collect()
}

/// Those of this program.
fn ours() -> Vec<(String, String)> {
    let mut program = Args::command();
    program.build();
    let name = program.get_name().to_owned();
    let mut pages = vec![
        (
            format!("bash-completion/completions/{name}"),
            completions::script(Shell::Bash),
        ),
        (
            format!("fish/vendor_completions.d/{name}.fish"),
            completions::script(Shell::Fish),
        ),
        (format!("zsh/site-functions/_{name}"), completions::script(Shell::Zsh)),
    ];
    let commands = program.get_subcommands().filter(|command| command.get_name() != "help");
    for command in commands.chain([&program]) {
        let (name, page) = man::page(command);
        pages.push((format!("man/man1/{name}"), page));
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_node_runner_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-runner/pages");
        let (mut left, mut found) = (vec![folder.clone()], Vec::new());
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => left.push(path),
                    false => found.push(path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        found.sort();
        assert_eq!(found, RUNNER.iter().map(|(path, _)| *path).collect::<Vec<_>>());
    }

    #[test]
    fn our_own_come_with_our_own_program() {
        let count = |targets: &[&str]| of(targets.iter().copied()).len();
        assert_eq!(count(&["run", "bin/quantykube-store"]), RUNNER.len());
        let commands = Args::command().get_subcommands().count();
        assert_eq!(count(&["run", BUNDLER]), RUNNER.len() + 3 + 1 + commands);
    }
}
