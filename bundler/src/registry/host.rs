//! One registry: its requests, and how it is told who asks. The protocol is that of the OCI distribution specification
//! 1.1, the tokens are those of the distribution project's "token authentication specification".

use std::cell::RefCell;
use std::collections::BTreeMap;

use quantykube_base::Failure;
use quantykube_oci::{ACCEPTED, DOCUMENT_MAX, Digest};
use serde::Deserialize;
use ureq::Body;
use ureq::http::{Response, StatusCode, header};

use super::challenge::{Challenge, encoded};
use super::credentials::{Credentials, User};
use crate::download::Headers;
use crate::http::{Authorities, Client, Trouble, bare, in_words, origin};

/// The longest answer of a server that gives tokens, and the most that is read of an error, in bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// How a registry is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The authorities that are believed in place of the usual ones.
    pub authorities: Option<Authorities>,
    /// http without TLS, because it was asked for.
    pub plain: bool,
}

/// One registry.
pub struct Host {
    base: String,
    plain: bool,
    client: Client,
    /// The value of Authorization that was accepted last, for each repository.
    known: RefCell<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<ErrorOf>,
}

#[derive(Deserialize)]
struct ErrorOf {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Host {
    /// The registry of `host`, as names of images write it.
    pub fn new(host: &str, access: &Access) -> Host {
        let scheme = if access.plain { "http" } else { "https" };
        // The one name that is not the host's own.
        let host = if host == "docker.io" {
            "registry-1.docker.io"
        } else {
            host
        };
        Host {
            base: format!("{scheme}://{host}"),
            plain: access.plain,
            client: Client::new(access.authorities.as_ref(), access.plain),
            known: RefCell::default(),
        }
    }

    /// A manifest or an index, by digest or by tag, whole. Its digest is not compared here.
    pub fn manifest(&self, repository: &Repository, reference: &str) -> Result<Vec<u8>, Trouble> {
        let headers = vec![("Accept", ACCEPTED.join(", "))];
        let path = format!("manifests/{reference}");
        let mut response = self.get(repository, &path, &headers)?;
        let length = response.body().content_length();
        let reading = response.body_mut().with_config().limit(DOCUMENT_MAX).read_to_vec();
        let bytes = reading.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => Trouble::new(format!("it is longer than {DOCUMENT_MAX} bytes")),
            error => in_words(error),
        })?;
        match length.filter(|length| *length != bytes.len() as u64) {
            Some(length) => Err(Trouble::passing(format!(
                "it broke off after {} of {length} bytes",
                bytes.len()
            ))),
            None => Ok(bytes),
        }
    }

    /// A blob, from where `headers` say.
    pub fn blob(&self, repository: &Repository, digest: Digest, headers: &Headers) -> Result<Response<Body>, Trouble> {
        self.get(repository, &format!("blobs/{digest}"), headers)
    }

    fn get(&self, repository: &Repository, path: &str, headers: &Headers) -> Result<Response<Body>, Trouble> {
        let url = format!("{}/v2/{}/{path}", self.base, repository.path);
        let known = self.known.borrow().get(&repository.path).cloned();
        let response = self.client.get(&url, headers, known.as_deref())?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return judged(response, repository);
        }
        // A token may have ended meanwhile, so that one is asked for whatever was known.
        let challenges = response.headers().get_all(header::WWW_AUTHENTICATE);
        let challenge = Challenge::of(challenges.iter().filter_map(|value| value.to_str().ok()));
        let authorization = match (challenge, &repository.user) {
            (Some(Challenge::Bearer { realm, service, scope }), user) => {
                self.token(&realm, service, scope, &repository.path, user.as_ref())?
            }
            (Some(Challenge::Basic), Some(user)) => user.basic(),
            _ => return judged(response, repository),
        };
        let response = self.client.get(&url, headers, Some(&authorization))?;
        if response.status() != StatusCode::UNAUTHORIZED {
            self.known.borrow_mut().insert(repository.path.clone(), authorization);
        }
        judged(response, repository)
    }

    /// Asks for a token.
    fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
        path: &str,
        user: Option<&User>,
    ) -> Result<String, Trouble> {
        let shown = bare(realm).to_owned();
        if !(realm.starts_with("https://") || self.plain && realm.starts_with("http://")) {
            let text = format!("the registry sends us to {shown} for a token, which is not https");
            return Err(Trouble::new(text));
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{path}:pull"));
        let mut url = format!(
            "{realm}{}scope={}",
            if realm.contains('?') { '&' } else { '?' },
            encoded(&scope)
        );
        if let Some(service) = service {
            url.push_str(&format!("&service={}", encoded(&service)));
        }
        let basic = user.map(User::basic);
        let at = |text: String| format!("no token from {shown}: {text}");
        let mut response = self
            .client
            .get(&url, &[], basic.as_deref())
            .map_err(|trouble| Trouble {
                text: at(trouble.text),
                ..trouble
            })?;
        let status = response.status();
        if !status.is_success() {
            let who = user.map(|user| format!(" for {}", user.name)).unwrap_or_default();
            return Err(Trouble {
                text: at(format!("http status: {}{who}{}", status.as_u16(), said(&mut response))),
                again: is_passing(status),
            });
        }
        let answer = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        let answer = answer.map_err(in_words)?;
        // What cannot be read may hold a secret, and is not shown.
        let token: Token =
            serde_json::from_slice(&answer).map_err(|_| Trouble::new(at("the answer cannot be read".into())))?;
        let token = token.token.or(token.access_token).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| Trouble::new(at("the answer holds none".into())))?;
        match token.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(format!("Bearer {token}")),
            false => Err(Trouble::new(at("it has characters that a token cannot have".into()))),
        }
    }

    /// How it is called in messages.
    pub fn name(&self) -> &str {
        origin(&self.base)
    }
}

/// A repository of a registry, and who asks for it.
#[derive(Debug)]
pub struct Repository {
    /// Without the host, as `library/nginx`.
    pub path: String,
    pub user: Option<User>,
}

impl Repository {
    /// `whole` is as `docker.io/library/nginx`. Also gives the host.
    pub fn of(whole: &str, credentials: &Credentials) -> Result<(String, Repository), Failure> {
        let (host, path) = whole.split_once('/').expect("a repository has a host");
        let (path, user) = (path.to_owned(), credentials.user(whole)?);
        Ok((host.to_owned(), Repository { path, user }))
    }
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || [408, 429].contains(&status.as_u16())
}

fn judged(mut response: Response<Body>, repository: &Repository) -> Result<Response<Body>, Trouble> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let what = match (status.as_u16(), &repository.user) {
        (401 | 403, Some(user)) => format!(", and the user was {}", user.name),
        (401 | 403, None) => ", and no credentials are given for it".into(),
        (404, _) => ", it is not there".into(),
        _ => String::new(),
    };
    Err(Trouble {
        text: format!("http status: {}{what}{}", status.as_u16(), said(&mut response)),
        again: is_passing(status),
    })
}

/// What a registry says of an error, made harmless.
fn said(response: &mut Response<Body>) -> String {
    let body = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
    let errors = body.ok().and_then(|body| serde_json::from_slice::<Errors>(&body).ok());
    let Some(first) = errors.and_then(|errors| errors.errors.into_iter().next()) else {
        return String::new();
    };
    let text = format!("{} {}", first.code, first.message);
    let plain: String = text.trim().chars().filter(|c| !c.is_control()).take(200).collect();
    match plain.is_empty() {
        true => plain,
        false => format!("; the server says: {plain}"),
    }
}
