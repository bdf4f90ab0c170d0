//! The one HTTP client: redirects, silence, and what went wrong in words. No secret gets into an error.

use std::time::Duration;

use ureq::Body;
use ureq::http::{Response, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// How many redirects are followed.
const REDIRECTS_MAX: usize = 10;

/// A request that did not succeed.
#[derive(Debug)]
pub struct Trouble {
    /// What happened.
    pub text: String,
    /// Whether the same request may succeed in a moment.
    pub again: bool,
}

impl Trouble {
    pub fn new(text: impl Into<String>) -> Trouble {
        let (text, again) = (text.into(), false);
        Trouble { text, again }
    }

    pub fn passing(text: impl Into<String>) -> Trouble {
        let (text, again) = (text.into(), true);
        Trouble { text, again }
    }
}

/// Certificates of the only authorities that are believed.
#[derive(Clone, Debug)]
pub struct Authorities(Vec<Certificate<'static>>);

impl Authorities {
    /// Reads PEM. The error says what is wrong with it.
    pub fn from_pem(text: &str) -> Result<Authorities, String> {
        let mut found = Vec::new();
        for item in parse_pem(text.as_bytes()) {
            match item.map_err(|error| format!("it is no PEM: {error}"))? {
                PemItem::Certificate(certificate) => found.push(certificate),
                _ => return Err("it holds something else than certificates".into()),
            }
        }
        match found.is_empty() {
            true => Err("it holds no certificate".into()),
            false => Ok(Authorities(found)),
        }
    }
}

/// What is sent and where it may lead.
#[derive(Debug)]
pub struct Client {
    agent: ureq::Agent,
    /// Whether https may redirect to http.
    downgrade: bool,
}

impl Client {
    /// A client that believes `authorities`, or without them those that every browser believes.
    pub fn new(authorities: Option<&Authorities>, downgrade: bool) -> Client {
        let mut config = ureq::Agent::config_builder()
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("quantykube-bundle/", env!("CARGO_PKG_VERSION")));
        if let Some(Authorities(certificates)) = authorities {
            let roots = RootCerts::new_with_certs(certificates);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let agent = config.build().new_agent();
        Client { agent, downgrade }
    }

    /// GET, through redirects. `authorization` goes to the host of `url` alone. Whatever the last status is, it is
    /// the caller's to judge.
    pub fn get(
        &self,
        url: &str,
        headers: &[(&str, String)],
        authorization: Option<&str>,
    ) -> Result<Response<Body>, Trouble> {
        let mut here = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.agent.get(&here);
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            if let Some(value) = authorization.filter(|_| origin(&here) == origin(url)) {
                request = request.header(header::AUTHORIZATION.as_str(), value);
            }
            let response = request.call().map_err(in_words)?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.headers().get(header::LOCATION);
            let Some(location) = location.and_then(|value| value.to_str().ok()) else {
                return Err(Trouble::new(format!(
                    "{} redirects to nowhere ({})",
                    bare(&here),
                    response.status().as_u16()
                )));
            };
            let next = resolve(&here, location)
                .ok_or_else(|| Trouble::new(format!("{} redirects to no URL of http or https", bare(&here))))?;
            if here.starts_with("https:") && next.starts_with("http:") && !self.downgrade {
                let text = format!("{} redirects from https to http, to {}", bare(&here), bare(&next));
                return Err(Trouble::new(text));
            }
            here = next;
        }
        Err(Trouble::new(format!(
            "{} redirects more than {REDIRECTS_MAX} times",
            bare(url)
        )))
    }
}

/// What a failed exchange is in words; whether it is worth another try.
pub fn in_words(error: ureq::Error) -> Trouble {
    match error {
        // The URL may be one to which a server redirected, with a secret in it.
        ureq::Error::BadUri(_) => Trouble::new("it leads to what is no URL"),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) | ureq::Error::RequireHttpsOnly(_) => {
            Trouble::new(format!("TLS: {error}"))
        }
        // What rustls refuses comes as an error of the connection.
        ureq::Error::Io(inner) => match inner.kind() == std::io::ErrorKind::InvalidData {
            true => Trouble::new(format!("TLS: {inner}")),
            false => Trouble::passing(inner.to_string()),
        },
        ureq::Error::HostNotFound => Trouble::new("no such host is known"),
        error => Trouble::passing(error.to_string()),
    }
}

/// Scheme, host and port.
pub fn origin(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    let end = url[from..].find(['/', '?', '#']).map_or(url.len(), |at| from + at);
    &url[..end]
}

/// A URL without its query, which may hold a secret.
pub fn bare(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// Where a Location leads from `here`; nothing but http and https is taken.
fn resolve(here: &str, location: &str) -> Option<String> {
    let is_url = |text: &str| text.starts_with("http://") || text.starts_with("https://");
    if is_url(location) {
        return Some(location.to_owned());
    }
    if let Some(rest) = location.strip_prefix("//") {
        let scheme = here.split("://").next()?;
        return Some(format!("{scheme}://{rest}"));
    }
    if location.starts_with('/') {
        return Some(format!("{}{location}", origin(here)));
    }
    let scheme_like = location
        .split(['/', '?'])
        .next()
        .is_some_and(|first| first.contains(':'));
    if scheme_like || location.is_empty() {
        return None;
    }
    let folder = &bare(here)[..bare(here).rfind('/')? + 1];
    let folder = match folder.ends_with("://") {
        true => format!("{}/", origin(here)),
        false => folder.to_owned(),
    };
    Some(format!("{folder}{location}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved() {
        let here = "https://a.example:5000/v2/x/blobs/y?q=1/2";
        for (location, expected) in [
            ("https://b/c?d", Some("https://b/c?d")),
            ("//b/c", Some("https://b/c")),
            ("/c?d", Some("https://a.example:5000/c?d")),
            ("z", Some("https://a.example:5000/v2/x/blobs/z")),
            ("ftp://b/c", None),
            ("file:/etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(resolve(here, location).as_deref(), expected, "{location}");
        }
        assert_eq!(resolve("http://a", "z").as_deref(), Some("http://a/z"));
        assert_eq!(origin(here), "https://a.example:5000");
        assert_eq!(bare(here), "https://a.example:5000/v2/x/blobs/y");
    }
}
