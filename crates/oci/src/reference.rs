//! Names of images, with everything said that a runtime adds.

use std::fmt;

use crate::Digest;

/// A name of an image, as a runtime completes it: `nginx` is `docker.io/library/nginx:latest`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Reference {
    /// Host and path, as `docker.io/library/nginx`.
    pub repository: String,
    /// The tag; `latest` where neither a tag nor a digest is given.
    pub tag: Option<String>,
    /// The digest of a manifest.
    pub digest: Option<Digest>,
}

impl Reference {
    /// Reads and completes a name. The error says what is wrong with it.
    pub fn parse(name: &str) -> Result<Reference, String> {
        let (rest, digest) = match name.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
            None => (name, None),
        };
        let last = rest.rfind('/').map_or(0, |at| at + 1);
        let (repository, tag) = match rest[last..].find(':') {
            Some(at) => (&rest[..last + at], Some(&rest[last + at + 1..])),
            None => (rest, digest.is_none().then_some("latest")),
        };
        // The first part is a host where it looks like one; else Docker Hub is meant.
        let looks_like_a_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
        let repository = match repository.split_once('/') {
            Some((first, _)) if looks_like_a_host(first) => repository.to_owned(),
            Some(_) => format!("docker.io/{repository}"),
            None => format!("docker.io/library/{repository}"),
        };
        let (host, path) = repository.split_once('/').expect("a host was added");
        let host_fits = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
        let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        let path_fits = path.split('/').all(|part| !part.is_empty() && part.bytes().all(lower));
        let word = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let tag_fits = tag.is_none_or(|tag| (1..=128).contains(&tag.len()) && tag.bytes().all(word));
        if !(host_fits && path_fits && tag_fits) {
            return Err(format!(
                "{:?} is no name of an image",
                name.chars().take(300).collect::<String>()
            ));
        }
        let tag = tag.map(str::to_owned);
        Ok(Reference {
            repository,
            tag,
            digest,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(out, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(out, "@{digest}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (short, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.2", "docker.io/library/nginx:1.2"),
            ("a/b", "docker.io/a/b:latest"),
            ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
            ("localhost/x:1", "localhost/x:1"),
            ("host:5000/x", "host:5000/x:latest"),
            ("[::1]:5000/x:1", "[::1]:5000/x:1"),
            (&format!("quay.io/x@{digest}"), &format!("quay.io/x@{digest}")),
            (&format!("quay.io/x:1@{digest}"), &format!("quay.io/x:1@{digest}")),
        ] {
            assert_eq!(Reference::parse(short).unwrap().to_string(), full);
            assert_eq!(Reference::parse(full).unwrap().to_string(), full);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in [
            "",
            "a b",
            "A",
            "a:",
            "a@sha256:1",
            "a//b",
            "/a",
            "a/",
            "a:b:c",
            "https://x/y",
            "{{ image }}",
        ] {
            assert!(Reference::parse(name).is_err(), "{name}");
        }
    }
}
