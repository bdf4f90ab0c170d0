//! Checking every bit of an archive, on all cores, in bounded memory.

use std::collections::BTreeSet;

use crate::gzip::{Decoder, HEADER, Header};
use crate::layout::{Body, Entry};
use crate::ordered::{Pool, ordered};
use crate::verified::Watcher;
use crate::{Digest, Error, Hasher, Unverified, Verified, part, tar};

/// Where the content of entries goes while it is checked.
pub(crate) trait Sink {
    fn begin(&mut self, entry: &Entry) -> Result<(), Error>;
    fn data(&mut self, bytes: &[u8]) -> Result<(), Error>;
    fn end(&mut self) -> Result<(), Error>;
}

/// Nowhere.
struct Nothing;

impl Sink for Nothing {
    fn begin(&mut self, _: &Entry) -> Result<(), Error> {
        Ok(())
    }
    fn data(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl Unverified {
    /// Checks every bit of the archive with `jobs` threads and writes nothing. `watcher` hears of the bytes of the
    /// archive that were checked.
    pub fn verify(&self, jobs: usize, watcher: &mut dyn Watcher) -> Result<Verified, Error> {
        self.check(jobs, watcher, &mut Nothing)?;
        Ok(Verified {
            manifest: self.manifest.clone(),
            id: self.layout.id,
            root: None,
        })
    }

    /// Checks everything; content goes to `sink` before its digest is known.
    pub(crate) fn check(&self, jobs: usize, watcher: &mut dyn Watcher, sink: &mut dyn Sink) -> Result<(), Error> {
        let result = self.check_all(jobs, watcher, sink);
        // Of parts, the one to copy again is worth more than the place in the whole.
        match result {
            Err(Error::Stopped) | Ok(()) => result,
            Err(error) if self.source.is_split() => Err(part::blame(&self.files(), error)),
            other => other,
        }
    }

    fn check_all(&self, jobs: usize, watcher: &mut dyn Watcher, sink: &mut dyn Sink) -> Result<(), Error> {
        let all: Vec<usize> = (0..self.trailer.members.len()).collect();
        let (mut archive, mut parts) = (Hasher::new(), self.source.sums());
        let total = self.members(&all, jobs, watcher, sink, &mut |member| {
            archive.update(member);
            parts.update(member);
        })?;
        parts.update(&self.trailer.encode());
        let (found, expected) = (archive.finish(), self.trailer.sha256);
        if found != expected {
            return Err(Error::Frame {
                path: self.path.clone(),
                offset: total,
                found: format!("the bytes before the trailer have the sha256 {found}, the trailer says {expected}"),
            });
        }
        match parts.good() {
            true => Ok(()),
            // Which of them is said by the caller.
            false => Err(Error::Parts("a part does not have the checksum that it says".into())),
        }
    }

    /// Checks the entries that `wanted` names and reads no other.
    pub(crate) fn check_some(
        &self,
        wanted: &BTreeSet<usize>,
        jobs: usize,
        watcher: &mut dyn Watcher,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let chunks = self.layout.chunks.iter().enumerate();
        let which: Vec<usize> = chunks
            .filter(|(_, chunk)| wanted.contains(&chunk.entry))
            .map(|(index, _)| index)
            .collect();
        self.members(&which, jobs, watcher, sink, &mut |_| ())?;
        Ok(())
    }

    /// Reads and checks the members `which`, whole entries in order, and gives the bytes of each to `seen`. Returns how
    /// many bytes they have in the file.
    fn members(
        &self,
        which: &[usize],
        jobs: usize,
        watcher: &mut dyn Watcher,
        sink: &mut dyn Sink,
        seen: &mut dyn FnMut(&[u8]),
    ) -> Result<u64, Error> {
        let mut offsets = Vec::with_capacity(self.trailer.members.len());
        let mut next = 0;
        for length in &self.trailer.members {
            offsets.push(next);
            next += u64::from(*length);
        }
        let total = which.iter().map(|index| u64::from(self.trailer.members[*index])).sum();
        let pool = Pool::default();
        let worker = || {
            let mut decoder = Decoder::new();
            let (offsets, pool) = (&offsets, &pool);
            move |piece: usize| self.member(&mut decoder, which[piece], offsets[which[piece]], pool)
        };
        let (mut content, mut done) = (Hasher::new(), 0);
        watcher.tell(done, total)?;
        ordered(
            jobs,
            1,
            which.len(),
            worker,
            |piece, (member, bytes): (Vec<u8>, Vec<u8>)| {
                seen(&member);
                self.entry_part(which[piece], &bytes, &mut content, sink)?;
                done += member.len() as u64;
                pool.put(member);
                pool.put(bytes);
                watcher.tell(done, total)
            },
        )?;
        Ok(total)
    }

    /// Reads and inflates one member: its bytes in the file, and what they hold.
    fn member(
        &self,
        decoder: &mut Decoder,
        index: usize,
        offset: u64,
        pool: &Pool,
    ) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let length = self.trailer.members[index];
        let damaged = |found: String| Error::Frame {
            path: self.path.clone(),
            offset,
            found,
        };
        let mut member = pool.get();
        member.resize(HEADER, 0);
        let read = |bytes: &mut [u8], at: u64| {
            self.source
                .read_exact_at(bytes, at)
                .map_err(Error::io("read", &self.path))
        };
        // The header alone bounds what is allocated: the table was not checked against it yet.
        read(&mut member, offset)?;
        let header = Header::decode(member[..].try_into().expect("one header")).map_err(&damaged)?;
        if header.member() != u64::from(length) {
            return Err(damaged(format!(
                "this member declares {} bytes, the table {length}",
                header.member()
            )));
        }
        let expected = self.layout.chunks[index].length;
        if u64::from(header.inflated) != expected {
            let found = header.inflated;
            return Err(damaged(format!(
                "this member declares {found} inflated bytes, bundle.json gives {expected}"
            )));
        }
        member.resize(length as usize, 0);
        read(&mut member[HEADER..], offset + HEADER as u64)?;
        let bytes = decoder.member(header, &member, pool.get()).map_err(&damaged)?;
        Ok((member, bytes))
    }

    /// Compares one chunk with what `bundle.json` says must stand there.
    fn entry_part(&self, index: usize, bytes: &[u8], content: &mut Hasher, sink: &mut dyn Sink) -> Result<(), Error> {
        let chunk = self.layout.chunks[index];
        let parts = self.layout.parts(chunk);
        let wrong = |entry: &str, found: String| Error::Entry {
            path: self.path.clone(),
            entry: entry.into(),
            found,
        };
        let Some(entry) = self.layout.entry(chunk) else {
            return match bytes.iter().all(|byte| *byte == 0) {
                true => Ok(()),
                false => Err(wrong("the end of the archive", self.found_instead(bytes))),
            };
        };
        if !parts.header.is_empty() {
            if bytes[parts.header.clone()] != entry.header[..] {
                return Err(wrong(entry.display(), self.found_instead(bytes)));
            }
            sink.begin(entry)?;
        }
        let part = &bytes[parts.content];
        content.update(part);
        sink.data(part)?;
        if bytes[parts.padding].iter().any(|byte| *byte != 0) {
            return Err(wrong(entry.display(), "the padding after it is not empty".into()));
        }
        let last = self.layout.chunks[index + 1].entry != chunk.entry;
        if last {
            let expected = match entry.body {
                Body::Folder => None,
                Body::Manifest => Some(self.layout.id),
                Body::Sums => Some(Digest::of(&self.layout.sums)),
                Body::Signature => self.signature.as_ref().map(|signature| Digest::of(signature.bytes())),
                Body::File(file) => Some(self.manifest.files[file].sha256),
            };
            let found = std::mem::take(content).finish();
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                return Err(Error::Checksum {
                    path: entry.path.clone(),
                    found,
                    expected,
                });
            }
            sink.end()?;
        }
        Ok(())
    }

    fn found_instead(&self, bytes: &[u8]) -> String {
        match bytes.first_chunk::<512>() {
            Some(header) => format!("found {}, not written as bundle.json gives it", tar::describe(header)),
            None => "found less than a tar header".into(),
        }
    }
}

impl Entry {
    fn display(&self) -> &str {
        if self.path.is_empty() {
            "the folder itself"
        } else {
            &self.path
        }
    }
}
