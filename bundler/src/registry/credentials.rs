//! Who we are to a registry: a file in the form of docker's `config.json`. Nothing of it is ever printed but the name of
//! the user.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quantykube_base::{Exit, Failure};
use serde::Deserialize;

/// The longest file that is read, in bytes.
const LENGTH_MAX: u64 = 1 << 20;

/// Every user that a file names.
#[derive(Debug, Default)]
pub struct Credentials {
    path: PathBuf,
    auths: BTreeMap<String, Auth>,
    /// Whether the file leaves some to a helper program.
    helpers: bool,
}

/// A user and a password.
#[derive(Clone)]
pub struct User {
    pub name: String,
    password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "User({})", self.name)
    }
}

impl User {
    /// The value of the header Authorization.
    pub fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.name, self.password)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default)]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    #[serde(rename = "identitytoken")]
    identity_token: Option<String>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Auth(...)")
    }
}

impl Credentials {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Credentials, Failure> {
        let text = crate::files::read_text(path, LENGTH_MAX)?;
        let file: File = serde_json::from_str(&text).map_err(|error| {
            // What serde says of a mistake may show a part of the text: the place is enough.
            let (line, column) = (error.line(), error.column());
            let message = format!(
                "{} is no config.json of docker: line {line}, column {column}",
                path.display()
            );
            Failure::new(Exit::Usage, "credentials", message)
        })?;
        Ok(Credentials {
            path: path.into(),
            auths: file.auths,
            helpers: file.creds_store.is_some_and(|name| !name.is_empty()) || !file.cred_helpers.is_empty(),
        })
    }

    /// The user for a repository, as `docker.io/library/nginx`: that of the longest key that it begins with.
    pub fn user(&self, repository: &str) -> Result<Option<User>, Failure> {
        let fits = |key: &str| {
            repository
                .strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let keys = self.auths.iter().map(|(key, auth)| (place(key), key, auth));
        let Some((_, key, auth)) = keys
            .filter(|(place, ..)| fits(place))
            .max_by_key(|(place, ..)| place.len())
        else {
            return Ok(None);
        };
        let wrong = |found: &str| {
            let message = format!("{} {found} for {key}", self.path.display());
            let failure = Failure::new(Exit::Refused, "credentials", message);
            Err(failure.hint("give a file with auth, or username and password"))
        };
        if auth.identity_token.as_ref().is_some_and(|token| !token.is_empty()) {
            return wrong("has an identity token, which is not supported,");
        }
        let decoded = auth.auth.as_ref().filter(|text| !text.is_empty()).map(|text| {
            let bytes = STANDARD.decode(text.trim()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            text.split_once(':')
                .map(|(name, password)| (name.to_owned(), password.trim_end_matches('\0').to_owned()))
        });
        match (decoded, &auth.username, &auth.password) {
            (Some(None), ..) => wrong("has an auth that is not base64 of USER:PASSWORD"),
            (Some(Some((name, password))), ..) => Ok(Some(User { name, password })),
            (None, Some(name), Some(password)) => Ok(Some(User {
                name: name.clone(),
                password: password.clone(),
            })),
            _ if self.helpers => wrong("leaves the password to a helper program, which is not run,"),
            _ => wrong("has no password"),
        }
    }

    /// What a registry that says no may lack.
    pub fn hint(&self) -> String {
        match (self.path.as_os_str().is_empty(), self.helpers) {
            (true, _) => "give credentials with --credentials FILE".into(),
            (false, true) => format!(
                "{} leaves passwords to a helper program, which is not run: give a file that holds them",
                self.path.display()
            ),
            (false, false) => format!("{} may lack a user that is let in", self.path.display()),
        }
    }
}

/// What a key stands for: docker writes some as URLs, and Docker Hub under an older name.
fn place(key: &str) -> String {
    let bare = key.trim_start_matches("https://").trim_start_matches("http://");
    let bare = bare.trim_end_matches('/');
    let bare = bare
        .strip_suffix("/v1")
        .or_else(|| bare.strip_suffix("/v2"))
        .unwrap_or(bare);
    match bare {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(text: &str) -> Credentials {
        let file: File = serde_json::from_str(text).unwrap();
        Credentials {
            path: "config.json".into(),
            auths: file.auths,
            helpers: file.creds_store.is_some(),
        }
    }

    #[test]
    fn the_longest_key_wins() {
        let file = credentials(
            r#"{"auths": {"https://index.docker.io/v1/": {"auth": "aHViOnBhc3M6d29yZA=="},
                "r.example:5000": {"username": "all", "password": "x"},
                "r.example:5000/team": {"username": "team", "password": "y"}}}"#,
        );
        let name = |repository| file.user(repository).unwrap().map(|user| user.name);
        assert_eq!(name("docker.io/library/nginx").as_deref(), Some("hub"));
        assert_eq!(name("r.example:5000/teams/a").as_deref(), Some("all"));
        assert_eq!(name("r.example:5000/team/a").as_deref(), Some("team"));
        assert_eq!(name("r.example/team/a"), None);
        let user = file.user("docker.io/a/b").unwrap().unwrap();
        assert_eq!(user.password, "pass:word");
        assert!(!format!("{file:?} {user:?}").contains("pass:word"));
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for (text, expected) in [
            (r#"{"auths": {"r": {"auth": "!"}}}"#, "not base64"),
            (r#"{"auths": {"r": {"identitytoken": "t"}}}"#, "identity token"),
            (r#"{"auths": {"r": {}}, "credsStore": "pass"}"#, "helper program"),
            (r#"{"auths": {"r": {}}}"#, "no password"),
        ] {
            let failure = credentials(text).user("r/a").unwrap_err();
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
