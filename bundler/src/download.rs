//! A body into a file: what broke off is gone on with where it ended, as long as the server still gives something.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use quantykube_base::{Exit, Failure, Reporter, Unit};
use quantykube_bundle_format::{Digest, Hasher};
use ureq::Body;
use ureq::http::{Response, StatusCode, header};

use crate::http::Trouble;
use crate::watch::Stop;

/// How often in a row it is tried without getting further.
const TRIES: u32 = 4;
/// What counts as getting further, in bytes.
const FURTHER: u64 = 64 << 10;
/// The wait after the first try in vain; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);

/// What is downloaded.
pub struct Wanted<'a> {
    /// Its name in messages.
    pub what: &'a str,
    /// The length that it must have, in bytes, where that is known.
    pub size: Option<u64>,
    /// The most bytes that are taken.
    pub most: u64,
}

/// The headers of a request, which say where to begin.
pub type Headers = Vec<(&'static str, String)>;

/// Writes the body into `file`, which is empty, and gives its digest. `open` sends one request with the given headers and
/// judges its status but for 200 and 206.
pub fn download(
    wanted: &Wanted,
    file: &mut File,
    report: &Reporter,
    stop: &Stop,
    open: &mut dyn FnMut(&Headers) -> Result<Response<Body>, Trouble>,
) -> Result<Digest, Failure> {
    let what = wanted.what;
    let mut download = Download {
        wanted,
        file,
        stop,
        hasher: Hasher::new(),
        at: 0,
        total: wanted.size,
        tag: None,
    };
    let mut progress = report.progress(&format!("fetching {what}"), Unit::Bytes, wanted.size);
    let mut tries = 0;
    loop {
        let before = download.at;
        let trouble = match download.attempt(open, &mut |done| progress.set(done, "")) {
            Ok(()) => break,
            Err(Ended::Failed(failure)) => return Err(failure),
            Err(Ended::Trouble(trouble)) => trouble,
        };
        tries = match download.at >= before + FURTHER {
            true => 1,
            false => tries + 1,
        };
        if !trouble.again || tries >= TRIES {
            let message = match download.at {
                0 => format!("cannot fetch {what}"),
                at => {
                    let of = download.total.map(|total| format!(" of {total}")).unwrap_or_default();
                    format!("{what} broke off after {at}{of} bytes")
                }
            };
            let tried = match tries {
                1 => String::new(),
                _ => format!(" ({tries} tries)"),
            };
            return Err(Failure::new(Exit::Failed, "fetch", message + &tried).because(trouble.text));
        }
        pause(PAUSE * (1 << tries.min(6)) / 2, what, stop)?;
    }
    progress.finish();
    Ok(download.hasher.finish())
}

/// Sends a request until it succeeds or is not worth another try.
pub fn again_and_again<T>(what: &str, stop: &Stop, send: &mut dyn FnMut() -> Result<T, Trouble>) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        let trouble = match send() {
            Ok(value) => return Ok(value),
            Err(trouble) => trouble,
        };
        tries += 1;
        if !trouble.again || tries >= TRIES {
            return Err(Failure::new(Exit::Failed, "fetch", format!("cannot fetch {what}")).because(trouble.text));
        }
        pause(PAUSE * (1 << tries) / 2, what, stop)?;
    }
}

fn stopped(what: &str) -> Failure {
    Failure::new(Exit::Failed, "fetch", format!("stopped while fetching {what}"))
}

fn pause(length: Duration, what: &str, stop: &Stop) -> Result<(), Failure> {
    const SLICE: Duration = Duration::from_millis(50);
    for _ in 0..length.as_millis().div_ceil(SLICE.as_millis()) {
        if stop.is_set() {
            return Err(stopped(what));
        }
        std::thread::sleep(SLICE);
    }
    Ok(())
}

enum Ended {
    Trouble(Trouble),
    Failed(Failure),
}

impl From<Trouble> for Ended {
    fn from(trouble: Trouble) -> Ended {
        Ended::Trouble(trouble)
    }
}

struct Download<'a> {
    wanted: &'a Wanted<'a>,
    file: &'a mut File,
    stop: &'a Stop,
    hasher: Hasher,
    /// How many bytes are there.
    at: u64,
    /// How many there will be, where that was said.
    total: Option<u64>,
    /// What names this state of the file on the server: a rest of another one would be no rest.
    tag: Option<String>,
}

impl Download<'_> {
    fn attempt(
        &mut self,
        open: &mut dyn FnMut(&Headers) -> Result<Response<Body>, Trouble>,
        show: &mut dyn FnMut(u64),
    ) -> Result<(), Ended> {
        let mut headers: Headers = vec![("Accept-Encoding", "identity".into())];
        if self.at > 0 {
            headers.push(("Range", format!("bytes={}-", self.at)));
            if let Some(tag) = &self.tag {
                headers.push(("If-Range", tag.clone()));
            }
        }
        let mut response = open(&headers)?;
        self.begin(&response)?;
        let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 256 << 10];
        loop {
            if self.stop.is_set() {
                return Err(Ended::Failed(stopped(self.wanted.what)));
            }
            let read = match reader.read(&mut buffer) {
                Ok(read) => read,
                Err(error) => return Err(Trouble::passing(error.to_string()).into()),
            };
            if read == 0 {
                break;
            }
            self.hasher.update(&buffer[..read]);
            self.file
                .write_all(&buffer[..read])
                .map_err(|error| self.cannot_keep(error))?;
            self.at += read as u64;
            if self.at > self.total.unwrap_or(self.wanted.most) {
                return Err(self.length(format!("more than {} bytes", self.at - 1)).into());
            }
            show(self.at);
        }
        match self.total.filter(|total| *total != self.at) {
            None => Ok(()),
            Some(total) => Err(Trouble::passing(format!("{} bytes came, {total} were expected", self.at)).into()),
        }
    }

    /// Looks at what the server is about to give: the rest, or the whole once more.
    fn begin(&mut self, response: &Response<Body>) -> Result<(), Ended> {
        let header = |name: header::HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        let length = response.body().content_length();
        if response.status() == StatusCode::PARTIAL_CONTENT && self.at > 0 {
            let range = header(header::CONTENT_RANGE).unwrap_or_default();
            return match range.strip_prefix(&format!("bytes {}-", self.at)) {
                Some(_) => Ok(()),
                None => {
                    let text = format!(
                        "the server gives the range {range:?}, expected the one from byte {}",
                        self.at
                    );
                    Err(Trouble::new(text).into())
                }
            };
        }
        if self.at > 0 {
            self.at = 0;
            self.hasher = Hasher::new();
            let emptied = self
                .file
                .set_len(0)
                .and_then(|()| self.file.seek(SeekFrom::Start(0)).map(drop));
            emptied.map_err(|error| self.cannot_keep(error))?;
        }
        self.tag = header(header::ETAG)
            .filter(|tag| tag.starts_with('"'))
            .map(String::from);
        match (self.wanted.size, length) {
            (Some(size), Some(length)) if size != length => Err(self.length(format!("{length} bytes")).into()),
            (None, Some(length)) if length > self.wanted.most => Err(self.length(format!("{length} bytes")).into()),
            (None, length) => {
                self.total = length;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn length(&self, found: String) -> Trouble {
        Trouble::new(match self.wanted.size {
            Some(size) => format!("it has {found}, expected {size}"),
            None => format!("it has {found}, at most {} are taken", self.wanted.most),
        })
    }

    fn cannot_keep(&self, error: std::io::Error) -> Ended {
        let exit = match error.kind() {
            std::io::ErrorKind::StorageFull => Exit::NoSpace,
            _ => Exit::Failed,
        };
        Ended::Failed(Failure::new(exit, "fetch", format!("cannot keep {}", self.wanted.what)).because(error))
    }
}
