//! Files from a URL, taken only with their checksum.

use std::io::{Read, Write};
use std::time::Duration;

use quantykube_base::{Exit, Failure, Reporter, Unit};
use quantykube_bundle_format::{Digest, Hasher};
use tempfile::NamedTempFile;

use crate::watch::Stop;

/// The longest file that is taken, in bytes: what an entry of a bundle can hold.
const LENGTH_MAX: u64 = (1 << 33) - 1;
/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(60);

/// Fetches `url` into a temporary file, which goes when it is dropped, and compares its checksum.
pub fn fetch(url: &str, sha256: Digest, report: &Reporter, stop: &Stop) -> Result<NamedTempFile, Failure> {
    let failed = |message: String| Failure::new(Exit::Failed, "fetch", message);
    let agent = ureq::Agent::config_builder()
        .timeout_connect(Some(SILENCE))
        .timeout_recv_response(Some(SILENCE))
        .user_agent(concat!("quantykube-bundle/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent();
    let mut response = agent
        .get(url)
        .call()
        .map_err(|error| failed(format!("cannot fetch {url}")).because(error))?;
    let total = response.body().content_length();
    let mut progress = report.progress(&format!("fetching {url}"), Unit::Bytes, total);
    let mut reader = response.body_mut().with_config().limit(LENGTH_MAX).reader();
    let mut file =
        NamedTempFile::new().map_err(|error| failed("cannot make a temporary file".into()).because(error))?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        if stop.is_set() {
            return Err(failed(format!("stopped while fetching {url}")));
        }
        let read = reader
            .read(&mut buffer)
            .map_err(|error| failed(format!("{url} broke off")).because(error))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        file.write_all(&buffer[..read])
            .map_err(|error| failed(format!("cannot keep {url}")).because(error))?;
        progress.add(read as u64);
    }
    progress.finish();
    let found = hasher.finish();
    match found == sha256 {
        true => Ok(file),
        false => Err(checksum_differs(url, found, sha256)),
    }
}

/// An input that is not the one the spec means.
pub fn checksum_differs(what: &str, found: Digest, expected: Digest) -> Failure {
    let message = format!("{what}: sha256 is {found}, the spec expects {expected}");
    Failure::new(Exit::NotVerified, "checksum-differs", message)
        .hint("find out why the file changed before you change the spec")
}
