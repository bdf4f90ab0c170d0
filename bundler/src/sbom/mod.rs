//! The bill of materials: every file of a bundle with its digest, every image, and the crates that QuantyKube's own
//! programs were built from. The crates are read out of the programs, which carry their list: so it is that of the very
//! bytes that are packed.

pub mod cyclonedx;
pub mod spdx;

use std::collections::{BTreeMap, BTreeSet};

use quantykube_bundle_format::{Digest, Manifest};

/// The path of the SPDX document in a bundle.
pub const PATH: &str = "sbom.spdx.json";

/// One crate.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Crate {
    pub name: String,
    pub version: String,
    /// An SPDX expression, where the crate gives one.
    pub license: Option<String>,
}

/// Of each program, by its path in the bundle, the crates that it says it was built from.
pub type Crates = BTreeMap<String, BTreeSet<Crate>>;

/// The list in the bytes of a program; `None` where it carries none.
pub fn crates_of(program: &[u8]) -> Option<BTreeSet<Crate>> {
    // Put right here, so that this program's own code does not hold the mark.
    let mark = b"quantykube-crates;1\n".map(|byte| if byte == b';' { b':' } else { byte });
    let start = memchr::memmem::find(program, &mark)? + mark.len();
    let rest = &program[start..];
    let end = memchr::memmem::find(&rest[..rest.len().min(1 << 20)], b"\n\n")?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    let of_line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        Some(Crate {
            name: words.next()?.to_owned(),
            version: words.next()?.to_owned(),
            license: words.next().filter(|license| !license.is_empty()).map(String::from),
        })
    };
    text.lines().map(of_line).collect()
}

/// What stands for the whole list of files, as a bundle's id does for all of it: the document itself is not in it.
fn stands_for(manifest: &Manifest) -> Digest {
    let lines: Vec<String> = manifest
        .files
        .iter()
        .filter(|file| file.path != PATH)
        .map(|file| format!("{}  {}\n", file.sha256, file.path))
        .collect();
    Digest::of(lines.concat().as_bytes())
}

/// Seconds since 1970 as `2026-01-01T00:00:00Z`.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The package URL of a crate.
fn crate_purl(of: &Crate) -> String {
    format!("pkg:cargo/{}@{}", of.name, of.version.replace('+', "%2B"))
}

/// The package URL of an image, as `pkg:oci/pause@sha256%3A...?repository_url=registry.k8s.io%2Fpause&tag=3.10`.
fn image_purl(name: &str, digest: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    let (repository, tag) = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (name, None),
    };
    let last = repository.rsplit('/').next().unwrap_or(repository);
    let tag = tag.map(|tag| format!("&tag={tag}")).unwrap_or_default();
    format!(
        "pkg:oci/{last}@{}?repository_url={}{tag}",
        digest.replace(':', "%3A"),
        repository.replace('/', "%2F").replace(':', "%3A"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_urls_are_written_as_the_standards_say() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            ((1 << 33) - 1, "2242-03-16T12:56:31Z"),
        ] {
            assert_eq!(timestamp(seconds), text);
        }
        assert_eq!(
            image_purl("registry.k8s.io/pause:3.10", "sha256:ab"),
            "pkg:oci/pause@sha256%3Aab?repository_url=registry.k8s.io%2Fpause&tag=3.10"
        );
        assert_eq!(
            image_purl("localhost:5000/a/b@sha256:cd", "sha256:ab"),
            "pkg:oci/b@sha256%3Aab?repository_url=localhost%3A5000%2Fa%2Fb"
        );
    }

    #[test]
    fn the_list_is_found_in_a_program() {
        let mut program = vec![0; 1000];
        program.extend_from_slice(b"quantykube-crates:1\nanyhow 1.0.0 MIT OR Apache-2.0\nours 0.1.0 \n\nrest");
        let crates: Vec<Crate> = crates_of(&program).unwrap().into_iter().collect();
        assert_eq!(crates[0].license.as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!((crates[1].name.as_str(), &crates[1].license), ("ours", &None));
        assert_eq!(crates_of(b"nothing"), None);
    }
}
