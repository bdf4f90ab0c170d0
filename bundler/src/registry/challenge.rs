//! What a registry asks for with 401: the header `WWW-Authenticate` (RFC 9110, section 11.6.1) as registries write it.

use std::collections::BTreeMap;

/// What is asked for.
#[derive(Debug, Eq, PartialEq)]
pub enum Challenge {
    /// User and password.
    Basic,
    /// A token, which another server gives.
    Bearer {
        /// That server's URL.
        realm: String,
        /// What the token is for, as the registry wants it asked.
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Of all that the registry would take, a token before a password.
    pub fn of<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
        let mut basic = None;
        for header in headers {
            let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
            if scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            } else if scheme.eq_ignore_ascii_case("bearer") {
                let mut words = parameters(rest);
                let realm = words.remove("realm")?;
                let (service, scope) = (words.remove("service"), words.remove("scope"));
                return Some(Challenge::Bearer { realm, service, scope });
            }
        }
        basic
    }
}

/// `name="value", name=value`.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let mut value = String::new();
        if let Some(quoted) = after.strip_prefix('"') {
            let mut escaped = false;
            let mut end = quoted.len();
            for (at, c) in quoted.char_indices() {
                match c {
                    _ if escaped => {
                        value.push(c);
                        escaped = false;
                    }
                    '\\' => escaped = true,
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    _ => value.push(c),
                }
            }
            rest = &quoted[end..];
        } else {
            let end = after.find(',').unwrap_or(after.len());
            value.push_str(after[..end].trim());
            rest = &after[end..];
        }
        found.insert(name, value);
    }
    found
}

/// A word in a query: everything but letters, digits and `-._~` as `%XX`.
pub fn encoded(word: &str) -> String {
    let mut text = String::new();
    for byte in word.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => text.push(byte.into()),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let of = |headers: &[&str]| Challenge::of(headers.iter().copied());
        let bearer = r#"Bearer realm="https://auth.example/token",service="a \"b\"",scope="repository:a/b:pull,push""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.example/token".into(),
            service: Some("a \"b\"".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(of(&["Basic realm=x", bearer]), Some(expected));
        assert_eq!(of(&["basic realm=\"x\""]), Some(Challenge::Basic));
        assert_eq!(of(&["Negotiate", "Bearer service=x"]), None);
        let short = Challenge::Bearer {
            realm: "http://a".into(),
            service: None,
            scope: None,
        };
        assert_eq!(of(&["bearer realm=http://a, error=\"x"]), Some(short));
        assert_eq!(encoded("a b:c/d"), "a%20b%3Ac%2Fd");
    }
}
