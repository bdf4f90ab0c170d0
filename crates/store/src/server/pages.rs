//! The plain HTTP pages: health, version and metrics, worded as etcd words them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Method, Response, StatusCode, Uri};
use quantykube_etcd_api::{AlarmType, RangeRequest};
use serde_json::json;

use super::metrics::{self, Calls};
use crate::engine::Engine;
use crate::version::{ETCD_CLUSTER_VERSION, ETCD_STORAGE_VERSION, ETCD_VERSION};

/// The checks behind /livez.
const LIVE: &[&str] = &["serializable_read"];

/// The checks behind /readyz.
const READY: &[&str] = &[
    "data_corruption",
    "linearizable_read",
    "non_learner",
    "serializable_read",
];

/// The pages.
pub struct Pages {
    /// The store.
    pub engine: Arc<Engine>,
    /// Counts of calls.
    pub calls: Arc<Calls>,
}

impl Pages {
    /// Answers a request for a page.
    pub fn answer(&self, method: &Method, uri: &Uri) -> Response<Bytes> {
        let query = uri.query().unwrap_or("");
        let path = uri.path();
        let checks = path.strip_prefix("/livez").map(|rest| (LIVE, rest));
        let checks = checks.or_else(|| path.strip_prefix("/readyz").map(|rest| (READY, rest)));
        if method != Method::GET {
            let mut response = page(
                StatusCode::METHOD_NOT_ALLOWED,
                "text/plain; charset=utf-8",
                "Method Not Allowed\n",
            );
            response
                .headers_mut()
                .insert("allow", hyper::header::HeaderValue::from_static("GET"));
            return response;
        }
        match (path, checks) {
            ("/health", _) => self.health(query),
            ("/version", _) => {
                // By hand, for its order is etcd's.
                let version = format!(
                    r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{ETCD_CLUSTER_VERSION}","storage":"{ETCD_STORAGE_VERSION}"}}"#
                );
                page(StatusCode::OK, "application/json", version)
            }
            ("/metrics", _) => page(
                StatusCode::OK,
                "text/plain; version=0.0.4; charset=utf-8",
                metrics::text(&self.engine, &self.calls),
            ),
            (_, Some((checks, ""))) => {
                let excluded = values(query, "exclude");
                self.check(checks.iter().copied().filter(|check| !excluded.contains(check)), query)
            }
            (_, Some((checks, rest))) if checks.contains(&rest.trim_start_matches('/')) => {
                self.check(std::iter::once(rest.trim_start_matches('/')), query)
            }
            _ => page(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "404 page not found\n",
            ),
        }
    }

    fn health(&self, query: &str) -> Response<Bytes> {
        let excluded = values(query, "exclude");
        let reason = match self.engine.lock() {
            Err(error) => format!("RANGE ERROR:{error}"),
            Ok(mut state) => {
                let alarm = state
                    .alarms()
                    .into_iter()
                    .find_map(|alarm| match AlarmType::try_from(alarm.alarm) {
                        Ok(AlarmType::NoSpace) if !excluded.contains("NOSPACE") => Some("ALARM NOSPACE"),
                        Ok(AlarmType::Corrupt) if !excluded.contains("CORRUPT") => Some("ALARM CORRUPT"),
                        _ => None,
                    });
                match (alarm, state.range(&any_key())) {
                    (Some(alarm), _) => alarm.to_owned(),
                    (None, Err(error)) => format!("RANGE ERROR:{error}"),
                    (None, Ok(_)) => String::new(),
                }
            }
        };
        let healthy = reason.is_empty();
        metrics::health_checked(healthy);
        // By hand: etcd's clients compare the text, and its order is fixed.
        let text = format!("{{\"health\":\"{healthy}\",\"reason\":{}}}", json!(reason));
        match healthy {
            true => page(StatusCode::OK, "text/plain; charset=utf-8", text),
            false => page(
                StatusCode::SERVICE_UNAVAILABLE,
                "text/plain; charset=utf-8",
                text + "\n",
            ),
        }
    }

    fn check<'a>(&self, checks: impl Iterator<Item = &'a str>, query: &str) -> Response<Bytes> {
        let mut report = String::new();
        let mut failed = false;
        for check in checks {
            match self.run(check) {
                Ok(()) => report.push_str(&format!("[+]{check} ok\n")),
                Err(why) => {
                    failed = true;
                    report.push_str(&format!("[-]{check} failed: {why}\n"));
                }
            }
        }
        if failed {
            return page(
                StatusCode::SERVICE_UNAVAILABLE,
                "text/plain; charset=utf-8",
                report + "\n",
            );
        }
        let verbose = query.split('&').any(|pair| pair.split('=').next() == Some("verbose"));
        let text = if verbose { report + "ok\n" } else { "ok\n".to_owned() };
        page(StatusCode::OK, "text/plain; charset=utf-8", text)
    }

    fn run(&self, check: &str) -> Result<(), String> {
        let mut state = self.engine.lock().map_err(|error| error.to_string())?;
        match check {
            "data_corruption" => {
                let corrupt = |alarm: &quantykube_etcd_api::AlarmMember| alarm.alarm == AlarmType::Corrupt as i32;
                match state.alarms().iter().any(corrupt) {
                    true => Err("alarm activated: CORRUPT".to_owned()),
                    false => Ok(()),
                }
            }
            "serializable_read" | "linearizable_read" => {
                state.range(&any_key()).map(|_| ()).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}

fn any_key() -> RangeRequest {
    RangeRequest {
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        limit: 1,
        keys_only: true,
        ..Default::default()
    }
}

/// The values of a query's key, which may be given several times.
fn values<'a>(query: &'a str, key: &str) -> BTreeSet<&'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, value)| *name == key && !value.is_empty())
        .map(|(_, value)| value)
        .collect()
}

fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", hyper::header::HeaderValue::from_static(kind));
    headers.insert(
        "x-content-type-options",
        hyper::header::HeaderValue::from_static("nosniff"),
    );
    response
}
