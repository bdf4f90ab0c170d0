//! `SHA256SUMS`: derived from `bundle.json` alone, so that it can say nothing else.

use crate::{BUNDLE_JSON, Digest, Manifest};

/// The list that `sha256sum -c` reads: every file but itself, sorted by path.
pub(crate) fn sums(manifest: &Manifest, id: Digest) -> Vec<u8> {
    let mut lines: Vec<(&str, Digest)> = manifest
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.sha256))
        .collect();
    lines.push((BUNDLE_JSON, id));
    lines.sort();
    let mut text = String::new();
    for (path, digest) in lines {
        text.push_str(&format!("{digest}  {path}\n"));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_and_the_manifest_are_listed_in_order() {
        let manifest = crate::manifest::tests::example();
        let text = String::from_utf8(sums(&manifest, manifest.id())).unwrap();
        let paths: Vec<&str> = text.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        assert_eq!(paths, ["bin/quantykube-store", "bundle.json", "run"]);
        assert!(text.contains(&format!("{}  bundle.json\n", manifest.id())));
    }
}
