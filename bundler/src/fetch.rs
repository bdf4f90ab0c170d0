//! Files from a URL, taken only with their checksum.

use quantykube_base::{Exit, Failure, Reporter};
use quantykube_bundle_format::Digest;
use tempfile::NamedTempFile;

use crate::content::Contents;
use crate::download::{self, Wanted};
use crate::http::{Client, Trouble};
use crate::watch::Stop;

/// The longest file that is taken, in bytes: what an entry of a bundle can hold.
const LENGTH_MAX: u64 = (1 << 33) - 1;

/// Fetches `url` into a temporary file beside the blobs of `contents`, and gives its digest.
pub fn fetch(
    url: &str,
    contents: &Contents,
    report: &Reporter,
    stop: &Stop,
) -> Result<(NamedTempFile, Digest), Failure> {
    // What it redirects to does not matter: the checksum decides.
    let client = Client::new(None, true);
    let wanted = Wanted {
        what: url,
        size: None,
        most: LENGTH_MAX,
    };
    let mut file = contents.begin()?;
    let digest = download::download(&wanted, file.as_file_mut(), report, stop, &mut |headers| {
        let response = client.get(url, headers, None)?;
        let status = response.status();
        match status.is_success() {
            true => Ok(response),
            false => Err(Trouble {
                text: format!("http status: {}", status.as_u16()),
                again: status.is_server_error() || status.as_u16() == 429,
            }),
        }
    })?;
    Ok((file, digest))
}

/// An input that is not the one the spec means.
pub fn checksum_differs(what: &str, found: Digest, expected: Digest) -> Failure {
    let message = format!("{what}: sha256 is {found}, the spec expects {expected}");
    Failure::new(Exit::NotVerified, "checksum-differs", message)
        .hint("find out why the file changed before you change the spec")
}
