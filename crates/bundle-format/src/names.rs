//! Which names a bundle may hold.
//!
//! The grammar is narrow on purpose: plain ASCII letters, digits and `._+@:=,-`. So no name has a second spelling after
//! Unicode normalisation, none needs quoting in a shell or in `SHA256SUMS`, and none is hidden.

use std::collections::BTreeMap;

use crate::Error;

/// The longest path inside the bundle's folder, in bytes.
const PATH_MAX: usize = 200;

/// Checks one path relative to the bundle's folder.
pub fn check_path(path: &str) -> Result<(), Error> {
    let broken = |rule| {
        Err(Error::Name {
            name: path.chars().take(300).collect(),
            rule,
        })
    };
    if path.is_empty() {
        return broken("it is empty");
    }
    if path.len() > PATH_MAX {
        return broken("it is longer than 200 bytes");
    }
    if path.starts_with('/') {
        return broken("it is absolute");
    }
    for part in path.split('/') {
        match part {
            "" => return broken("it has an empty part"),
            "." | ".." => return broken("it has a part . or .."),
            _ if part.starts_with('.') => return broken("a part begins with a dot"),
            _ if part.starts_with('-') => return broken("a part begins with a hyphen"),
            _ => {}
        }
        if !part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._+@:=,-".contains(&b))
        {
            return broken("only ASCII letters, digits and ._+@:=,- are allowed");
        }
    }
    Ok(())
}

/// Checks a set of paths: each by itself, none twice, none equal to another but for case, none the folder of another.
pub fn check_paths<'a>(paths: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen: BTreeMap<String, bool> = BTreeMap::new();
    for path in paths {
        check_path(path)?;
        let broken = |rule| {
            Err(Error::Name {
                name: path.to_owned(),
                rule,
            })
        };
        let lower = path.to_ascii_lowercase();
        for (end, _) in lower.match_indices('/') {
            if seen.insert(lower[..end].to_owned(), true) == Some(false) {
                return broken("a part of it is a file of the bundle");
            }
        }
        match seen.insert(lower, false) {
            None => {}
            Some(true) => return broken("it is a folder of the bundle too"),
            Some(false) => return broken("it is there twice, perhaps in another case"),
        }
    }
    Ok(())
}

/// Checks the bundle's name: the first part of its folder's name.
pub fn check_name(name: &str) -> Result<(), Error> {
    let fits = (1..=40).contains(&name.len())
        && name.as_bytes()[0].is_ascii_lowercase()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    match fits {
        true => Ok(()),
        false => Err(Error::Name {
            name: name.chars().take(80).collect(),
            rule: "a bundle's name is 1 to 40 of a-z, 0-9 and -, beginning with a letter",
        }),
    }
}

/// Checks a version.
pub fn check_version(version: &str) -> Result<(), Error> {
    let fits = (1..=40).contains(&version.len())
        && version.as_bytes()[0].is_ascii_digit()
        && version
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+-".contains(&b));
    match fits {
        true => Ok(()),
        false => Err(Error::Name {
            name: version.chars().take(80).collect(),
            rule: "a version is 1 to 40 of letters, digits and .+-, beginning with a digit",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass() {
        for path in [
            "run",
            "bin/quantykube-store",
            "systemd/a@.service",
            "images/blobs/sha256/0a",
        ] {
            check_path(path).unwrap();
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let long = "a/".repeat(100) + "a";
        for path in [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a/./b",
            "a//b",
            "a/",
            "./a",
            ".hidden",
            "a/.b",
            "-rf",
            "a b",
            "a\\b",
            "a\nb",
            "a\0b",
            "\u{e9}",
            "a/\u{65}\u{301}",
            &long,
        ] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_set_with_two_meanings_is_refused() {
        for set in [
            &["a", "a"][..],
            &["a", "A"],
            &["a", "a/b"],
            &["a/b", "a"],
            &["a/b/c", "A/B"],
            &["A/b", "a/B"],
        ] {
            assert!(check_paths(set.iter().copied()).is_err(), "{set:?}");
        }
        check_paths(["a/b", "a/c", "b", "ab"].into_iter()).unwrap();
    }

    #[test]
    fn versions_and_names() {
        check_name("quantykube").unwrap();
        check_version("0.1.0-rc.1+5").unwrap();
        for bad in ["", "..", "a/b", "A", "-a", "0a"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "..", "1/2", "v1", "1 2", "1_2"] {
            assert!(check_version(bad).is_err(), "{bad:?}");
        }
    }
}
