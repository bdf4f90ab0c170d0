//! Which versions of etcd are known.

use std::fmt;

/// A version of etcd, as its Status tells it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// The oldest source that is known.
pub(crate) const OLDEST: (u32, u32) = (3, 4);
/// The newest source that is known.
pub(crate) const NEWEST: (u32, u32) = (3, 7);

impl Version {
    /// Reads `3.6.14` or `3.7.0-rc.1`; None for anything else.
    pub fn parse(text: &str) -> Option<Version> {
        let plain = text.split(['-', '+']).next()?;
        let mut numbers = plain.split('.').map(|part| part.parse().ok());
        let version = Version {
            major: numbers.next()??,
            minor: numbers.next()??,
            patch: numbers.next()??,
        };
        numbers.next().is_none().then_some(version)
    }

    /// Whether it is one of the versions that were tried: 3.4 to 3.7.
    pub fn supported(self) -> bool {
        (OLDEST..=NEWEST).contains(&(self.major, self.minor))
    }

    /// Whether it is newer than any version that was tried.
    pub fn too_new(self) -> bool {
        (self.major, self.minor) > NEWEST
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn only_3_4_to_3_7_are_known() {
        let supported = |text| Version::parse(text).map(Version::supported);
        for known in ["3.4.0", "3.4.23", "3.5.21", "3.6.14", "3.7.1", "3.7.0-rc.0"] {
            assert_eq!(supported(known), Some(true), "{known}");
        }
        for unknown in ["2.3.8", "3.3.27", "3.8.0", "4.0.0", "3.8.0-alpha.0"] {
            assert_eq!(supported(unknown), Some(false), "{unknown}");
        }
        assert!(Version::parse("3.8.0").unwrap().too_new());
        assert!(Version::parse("4.0.0").unwrap().too_new());
        assert!(!Version::parse("3.3.27").unwrap().too_new());
        for nonsense in ["", "3", "3.6", "3.6.x", "3.6.1.1", "v3.6.1", "-"] {
            assert_eq!(Version::parse(nonsense), None, "{nonsense}");
        }
    }
}
