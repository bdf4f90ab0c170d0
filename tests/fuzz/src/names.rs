//! How steps name what depends on the state of the servers: revisions and long values.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A revision, named by where it stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Rev {
    /// This number: `17`.
    #[default]
    Zero,
    /// A number as it is: `=17`.
    Raw(i64),
    /// So far from the last revision: `head`, `head+1`, `head-3`.
    Head(i64),
    /// So far from the compacted revision: `compacted`, `compacted-1`.
    Compacted(i64),
    /// So many hundredths of the way from the compacted revision to the last: `30%`.
    Part(u8),
    /// The revision of the last plain put of a key: `of ab`; 0 if there was none.
    Of(String),
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = |f: &mut fmt::Formatter<'_>, name: &str, by: i64| match by {
            0 => write!(f, "{name}"),
            by => write!(f, "{name}{by:+}"),
        };
        match self {
            Rev::Zero => write!(f, "0"),
            Rev::Raw(number) => write!(f, "={number}"),
            Rev::Head(by) => offset(f, "head", *by),
            Rev::Compacted(by) => offset(f, "compacted", *by),
            Rev::Part(part) => write!(f, "{part}%"),
            Rev::Of(key) => write!(f, "of {key}"),
        }
    }
}

impl FromStr for Rev {
    type Err = String;

    fn from_str(text: &str) -> Result<Rev, String> {
        let wrong = || format!("{text:?} names no revision; there are 0, =7, head, head+1, compacted-1, 30%, of KEY");
        let number = |text: &str| -> Result<i64, String> {
            match text {
                "" => Ok(0),
                text => text.parse().map_err(|_| wrong()),
            }
        };
        if text == "0" {
            Ok(Rev::Zero)
        } else if let Some(rest) = text.strip_prefix('=') {
            number(rest).map(Rev::Raw)
        } else if let Some(rest) = text.strip_prefix("head") {
            number(rest).map(Rev::Head)
        } else if let Some(rest) = text.strip_prefix("compacted") {
            number(rest).map(Rev::Compacted)
        } else if let Some(part) = text.strip_suffix('%') {
            part.parse().map(Rev::Part).map_err(|_| wrong())
        } else if let Some(key) = text.strip_prefix("of ") {
            Ok(Rev::Of(key.to_owned()))
        } else {
            Err(wrong())
        }
    }
}

impl Serialize for Rev {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rev {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rev, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The bytes of a key or value: each character is one byte (they are all below 256), and `v*300` is 300 times v.
pub fn spell(text: &str) -> bytes::Bytes {
    if let Some((what, times)) = text.split_once('*')
        && let Ok(times) = times.parse()
    {
        return what.repeat(times).into_bytes().into();
    }
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
        .collect::<Vec<u8>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_revisions_are_read_as_they_are_written() {
        let all = [
            Rev::Zero,
            Rev::Raw(-1),
            Rev::Head(0),
            Rev::Head(-3),
            Rev::Head(1),
            Rev::Compacted(0),
            Rev::Compacted(2),
            Rev::Part(30),
            Rev::Of("a b".to_owned()),
        ];
        for rev in all {
            assert_eq!(rev.to_string().parse::<Rev>().unwrap(), rev);
        }
        assert!("heat".parse::<Rev>().is_err() && "x%".parse::<Rev>().is_err());
        assert_eq!(&spell("ab*3")[..], b"ababab");
        assert_eq!(&spell("\u{ff}a")[..], [0xff, b'a']);
    }
}
