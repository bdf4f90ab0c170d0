//! The edit of the one string that decides which store an API server uses.
//!
//! The text is edited, never the tree: order, quotes, comments and anchors stay as a person left them. The edit is proved by
//! reading both texts as YAML and finding exactly one string that differs, in the way that was meant.

use yaml_serde::Value;

use crate::facts::manifest::{self, Flags};

/// The edit: `from` stands once in the text and becomes `to`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Edit {
    /// Whole lines (or parts of one) of the old text, long enough to stand in it once.
    pub from: String,
    /// What stands there afterwards.
    pub to: String,
    /// The whole new text.
    pub text: String,
}

/// Why the manifest cannot be edited.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The flag is missing.
    #[error("the API server's manifest has no --etcd-servers")]
    Missing,
    /// More than one server is named.
    #[error("--etcd-servers names several servers: {0}")]
    Several(String),
    /// Some kinds are kept in another etcd.
    #[error("--etcd-servers-overrides is set: {0}")]
    Overrides(String),
    /// The address is written in a way that a text edit cannot change alone.
    #[error("the address {0} cannot be replaced without changing something else in the manifest")]
    NotAlone(String),
    /// One of the two texts is not YAML.
    #[error("the manifest is not YAML: {0}")]
    Yaml(String),
}

/// The one server that an API server's flags name.
pub fn server(flags: &Flags) -> Result<String, Error> {
    if flags.has("etcd-servers-overrides") {
        return Err(Error::Overrides(flags.all("etcd-servers-overrides").join(" ")));
    }
    let all = flags.all("etcd-servers");
    match all.as_slice() {
        [] => Err(Error::Missing),
        [one] if !one.contains(',') && !one.trim().is_empty() => Ok((*one).to_owned()),
        _ => Err(Error::Several(all.join(","))),
    }
}

/// Replaces the server `from` by `to` in a manifest's text.
pub fn edit(text: &str, from: &str, to: &str) -> Result<Edit, Error> {
    let old = parse(text)?;
    let places: Vec<usize> = text.match_indices(from).map(|(at, _)| at).collect();
    let mut found = None;
    for at in places {
        let new_text = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
        let Ok(new) = parse(&new_text) else { continue };
        let differences = differences(&old, &new);
        let flags = manifest::argv(&new_text).map(|argv| Flags::parse(&argv));
        let meant = flags.is_ok_and(|flags| flags.all("etcd-servers") == [to]);
        if differences == 1 && meant && found.replace((at, new_text)).is_some() {
            return Err(Error::NotAlone(from.to_owned()));
        }
    }
    let (at, new_text) = found.ok_or_else(|| Error::NotAlone(from.to_owned()))?;
    let (start, end) = widen(text, at, at + from.len());
    Ok(Edit {
        from: text[start..end].to_owned(),
        to: format!("{}{to}{}", &text[start..at], &text[at + from.len()..end]),
        text: new_text,
    })
}

/// Widens a stretch to whole lines, then by lines before it, until it stands once in the text.
fn widen(text: &str, start: usize, end: usize) -> (usize, usize) {
    let end = text[end..].find('\n').map_or(text.len(), |at| end + at);
    let mut start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    while start > 0 && text.matches(&text[start..end]).count() > 1 {
        start = text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
    }
    (start, end)
}

fn parse(text: &str) -> Result<Value, Error> {
    yaml_serde::from_str(text).map_err(|error| Error::Yaml(error.to_string()))
}

/// Counts the strings that differ; where anything else does, the answer is more than one.
fn differences(old: &Value, new: &Value) -> usize {
    const OTHER: usize = 2;
    match (old, new) {
        (Value::String(a), Value::String(b)) => usize::from(a != b),
        (Value::Sequence(a), Value::Sequence(b)) if a.len() == b.len() => {
            a.iter().zip(b).map(|(a, b)| differences(a, b)).sum()
        }
        (Value::Mapping(a), Value::Mapping(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .map(|((key_a, a), (key_b, b))| if key_a == key_b { differences(a, b) } else { OTHER })
            .sum(),
        (a, b) if a == b => 0,
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "https://127.0.0.1:2379";
    const NEW: &str = "https://127.0.0.1:2479";

    fn pod(lines: &str) -> String {
        format!(
            "# keep me {OLD}\nspec:\n  containers:\n  - command:\n    - kube-apiserver\n{lines}    image: x # and me\n"
        )
    }

    /// The edit must be found, change one stretch, and lead back to the very same bytes.
    fn there_and_back(text: &str, from: &str, to: &str) {
        let edit = edit(text, from, to).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(text.matches(&edit.from).count(), 1, "{text}");
        assert_eq!(text.replace(&edit.from, &edit.to), edit.text);
        let back = super::edit(&edit.text, to, from).unwrap();
        assert_eq!(back.text, text);
    }

    #[test]
    fn every_form_a_person_may_write_is_edited_alone() {
        for lines in [
            "    - --etcd-servers=https://127.0.0.1:2379\n",
            "    - \"--etcd-servers=https://127.0.0.1:2379\" # why\n",
            "    - '--etcd-servers=https://127.0.0.1:2379'\n",
            "    - --etcd-servers\n    - https://127.0.0.1:2379\n",
            "    - --etcd_servers=https://127.0.0.1:2379\n",
            "    # - --etcd-servers=https://127.0.0.1:2379\n    - --etcd-servers=https://127.0.0.1:2379\n",
            "    - &etcd --etcd-servers=https://127.0.0.1:2379\n",
            "    - --a\n    - https://127.0.0.1:2379\n    - --etcd-servers\n    - https://127.0.0.1:2379\n",
        ] {
            there_and_back(&pod(lines), OLD, NEW);
        }
        let six = pod("    - --etcd-servers=https://[::1]:2379\n").replace(OLD, "https://[::1]:2379");
        there_and_back(&six, "https://[::1]:2379", "https://[::1]:2479");
    }

    #[test]
    fn what_cannot_be_changed_alone_is_refused() {
        for lines in [
            // An alias: the same text serves twice.
            "    - &etcd --etcd-servers=https://127.0.0.1:2379\n    - *etcd\n",
            // Twice the same flag.
            "    - --etcd-servers=https://127.0.0.1:2379\n    - --etcd-servers=https://127.0.0.1:2379\n",
            // Escapes: the text does not hold the address.
            "    - \"--etcd-servers=https:\\/\\/127.0.0.1:2379\"\n",
            // Another flag's value only.
            "    - --etcd-servers=https://127.0.0.1:2378\n    - --other=https://127.0.0.1:2379\n",
            "    - --other=https://127.0.0.1:2379\n",
        ] {
            assert_eq!(
                edit(&pod(lines), OLD, NEW),
                Err(Error::NotAlone(OLD.to_owned())),
                "{lines}"
            );
        }
    }

    #[test]
    fn lists_and_overrides_are_refused() {
        let flags = |list: &[&str]| Flags::parse(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(server(&flags(&["--etcd-servers=a"])), Ok("a".to_owned()));
        assert_eq!(server(&flags(&["--etcd-servers", "a"])), Ok("a".to_owned()));
        assert_eq!(server(&flags(&[])), Err(Error::Missing));
        assert_eq!(
            server(&flags(&["--etcd-servers=a,b"])),
            Err(Error::Several("a,b".to_owned()))
        );
        assert_eq!(
            server(&flags(&["--etcd-servers=a", "--etcd-servers=b"])),
            Err(Error::Several("a,b".to_owned()))
        );
        assert_eq!(
            server(&flags(&["--etcd-servers=a", "--etcd-servers-overrides=/events#b"])),
            Err(Error::Overrides("/events#b".to_owned()))
        );
    }
}
