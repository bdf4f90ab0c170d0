//! What the README promises is there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use quantykube_tests::places::root;

#[test]
fn the_readme_names_the_two_commands_and_they_can_be_run() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for command in ["./scripts/bundle", "./scripts/test"] {
        assert!(readme.contains(command), "README.md does not name {command}");
        let mode = fs::metadata(root().join(command)).unwrap().permissions().mode();
        assert!(mode & 0o111 == 0o111, "{command} cannot be executed");
    }
}

#[test]
fn files_that_the_docs_link_to_exist() {
    let docs = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for page in docs
        .chain([root().join("README.md")])
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
    {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let link = link.split('#').next().unwrap_or("");
            if link.is_empty() || link.contains("://") {
                continue;
            }
            let target = page.parent().unwrap().join(link);
            assert!(
                target.exists(),
                "{} links to {link}, which is not there",
                page.display()
            );
        }
    }
}

#[test]
fn every_bug_has_a_symptom_a_cause_and_a_test() {
    let text = fs::read_to_string(root().join("docs/bugs.md")).unwrap();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells = line.trim_matches('|').split('|').count();
        assert_eq!(cells, 3, "docs/bugs.md: `{line}` has {cells} cells");
    }
}
