//! Opening an archive: its frame and its `bundle.json`, both still claims.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::gzip::{Decoder, HEADER, Header, TRAILER_TAIL, Trailer};
use crate::layout::{Body, Layout, cut};
use crate::manifest::BUNDLE_JSON_MAX;
use crate::part::{self, Parts};
use crate::signature::{self, KeyId, PublicKey, Signature};
use crate::source::{Piece, Source};
use crate::{BUNDLE_JSON, Digest, Error, Manifest, SIGNATURE, tar};

/// An archive whose frame and manifest are well formed. What they say is not yet true.
#[derive(Debug)]
pub struct Unverified {
    pub(crate) path: PathBuf,
    pub(crate) source: Source,
    pub(crate) manifest: Manifest,
    pub(crate) layout: Layout,
    pub(crate) trailer: Trailer,
    pub(crate) signature: Option<Signature>,
}

impl Unverified {
    /// Reads the first entry, the trailer and the signature, where there is one, and nothing else. Of an archive that was
    /// split `path` is any part: the others are looked for in its folder.
    pub fn open(path: &Path) -> Result<Unverified, Error> {
        let file = open_file(path)?;
        if part::begins(&file) {
            return Unverified::open_parts(Parts::beside(path)?);
        }
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        let piece = Piece {
            file,
            path: path.into(),
            offset: 0,
            length,
            sum: None,
        };
        Unverified::open_source(path, Source::new(vec![piece]))
    }

    /// As [`Unverified::open`], of a set of parts that is whole.
    pub fn open_parts(parts: Parts) -> Result<Unverified, Error> {
        let (path, expected) = (parts.name(), parts.id());
        let files: Vec<PathBuf> = parts.paths().map(PathBuf::from).collect();
        let bundle = Unverified::open_source(&path, parts.into_source()).map_err(|error| part::blame(&files, error))?;
        match bundle.id() == expected {
            true => Ok(bundle),
            false => Err(Error::Parts(format!(
                "the parts say that they are of bundle {expected}, and hold bundle {}",
                bundle.id()
            ))),
        }
    }

    fn open_source(path: &Path, source: Source) -> Result<Unverified, Error> {
        let length = source.length();
        let frame = Frame {
            path,
            file: &source,
            length,
        };
        let (bundle_json, front) = frame.first_entry()?;
        let manifest = Manifest::parse(&bundle_json)?;
        let trailer = frame.trailer()?;
        let mut layout = Layout::new(&manifest, false)?;
        let (found, expected) = (trailer.members.len(), layout.chunks.len());
        let at_trailer = |found: String| Error::Frame {
            path: path.into(),
            offset: length - trailer.encode().len() as u64,
            found,
        };
        // bundle.json is silent about the signature, which takes one member.
        let signed = found == expected + 1;
        if found != expected && !signed {
            return Err(at_trailer(format!(
                "the table has {found} members, bundle.json gives {expected}, and one more where it is signed"
            )));
        }
        if trailer.members[..front.len()] != front {
            return Err(at_trailer(
                "the table has other lengths than the members of bundle.json".into(),
            ));
        }
        let mut signature = None;
        if signed {
            layout = Layout::new(&manifest, true)?;
            signature = Some(frame.signature(&manifest, &layout, &trailer)?);
        }
        Ok(Unverified {
            path: path.into(),
            source,
            manifest,
            layout,
            trailer,
            signature,
        })
    }

    /// What the archive claims to hold.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The id that the archive claims.
    pub fn id(&self) -> Digest {
        self.layout.id
    }

    /// The signature, where there is one. Who made it is a claim until [`Unverified::check_signature`] says so.
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }

    /// Checks that the archive is signed with one of `keys`, and says with which. The signature is of `SHA256SUMS`, which
    /// follows from `bundle.json`: from then on all that `bundle.json` says is true, and what is left to check is whether
    /// the archive holds it.
    pub fn check_signature(&self, keys: &[PublicKey]) -> Result<KeyId, Error> {
        signature::check(&self.path, self.signature.as_ref(), &self.layout.sums, keys)
    }

    /// The archive's length in bytes.
    pub fn length(&self) -> u64 {
        self.source.length()
    }

    /// How many bytes of the archive were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }

    /// The files that hold the archive: one, or its parts in order.
    pub fn files(&self) -> Vec<PathBuf> {
        self.source.paths().map(PathBuf::from).collect()
    }

    /// How many bytes of the archive each file of the manifest claims to take, in the manifest's order.
    pub fn packed_sizes(&self) -> Vec<u64> {
        self.layout
            .packed_sizes(self.manifest.files.len(), &self.trailer.members)
    }

    /// Fills `out` from byte `offset` of a file on; only the members that hold these bytes are read. Their CRC is checked,
    /// the file's digest is not.
    pub fn read_file(&self, path: &str, offset: u64, mut out: &mut [u8]) -> Result<(), Error> {
        let entry = self
            .layout
            .entries
            .iter()
            .position(|entry| entry.path == path && entry.body != Body::Folder);
        let entry = entry.ok_or_else(|| Error::NoEntry { path: path.into() })?;
        let frame = Frame {
            path: &self.path,
            file: &self.source,
            length: self.length(),
        };
        let (mut decoder, mut at, mut place) = (Decoder::new(), 0, offset);
        for (chunk, length) in self.layout.chunks.iter().zip(&self.trailer.members) {
            // Where this chunk's content begins in the file.
            let start = chunk.start.saturating_sub(tar::BLOCK);
            let parts = self.layout.parts(*chunk);
            let end = start + parts.content.len() as u64;
            if chunk.entry == entry && !out.is_empty() && (start..end).contains(&place) {
                let (bytes, found) = frame.member(&mut decoder, at)?;
                if found != *length || bytes.len() as u64 != chunk.length {
                    return Err(self.source_error(at, "this member is not the one that the table says"));
                }
                let from = parts.content.start + (place - start) as usize;
                let now = out.len().min((end - place) as usize);
                let (filled, rest) = out.split_at_mut(now);
                filled.copy_from_slice(&bytes[from..from + now]);
                (out, place) = (rest, place + now as u64);
            }
            at += u64::from(*length);
        }
        match out.is_empty() {
            true => Ok(()),
            false => Err(self.source_error(at, "it ends before the bytes that were asked for")),
        }
    }

    /// All of a small file, whose digest is compared with what `bundle.json` says.
    pub fn small_file(&self, path: &str, most: u64) -> Result<Vec<u8>, Error> {
        let file = self
            .manifest
            .file(path)
            .ok_or_else(|| Error::NoEntry { path: path.into() })?;
        if file.size > most {
            return Err(Error::Entry {
                path: self.path.clone(),
                entry: path.into(),
                found: format!("it has {} bytes, {most} are the most that is read", file.size),
            });
        }
        let mut bytes = vec![0; file.size as usize];
        self.read_file(path, 0, &mut bytes)?;
        let (found, expected) = (Digest::of(&bytes), file.sha256);
        match found == expected {
            true => Ok(bytes),
            false => Err(Error::Checksum {
                path: path.into(),
                found,
                expected,
            }),
        }
    }

    fn source_error(&self, offset: u64, found: &str) -> Error {
        Error::Frame {
            path: self.path.clone(),
            offset,
            found: found.into(),
        }
    }
}

/// Opens a regular file. Should it be a pipe, opening it must not wait for a writer.
pub(crate) fn open_file(path: &Path) -> Result<File, Error> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(Error::io("open", path))?;
    match file.metadata().map_err(Error::io("read", path))?.is_file() {
        true => Ok(file),
        false => Err(Error::NotABundle {
            path: path.into(),
            found: "it is no regular file".into(),
        }),
    }
}

/// The file as a row of gzip members.
struct Frame<'a> {
    path: &'a Path,
    file: &'a Source,
    length: u64,
}

impl Frame<'_> {
    fn error(&self, offset: u64, found: impl Into<String>) -> Error {
        Error::Frame {
            path: self.path.into(),
            offset,
            found: found.into(),
        }
    }

    fn truncated(&self, found: impl Into<String>) -> Error {
        Error::Truncated {
            path: self.path.into(),
            length: self.length,
            found: found.into(),
        }
    }

    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(Error::io("read", self.path))?;
        Ok(bytes)
    }

    fn header(&self, offset: u64) -> Result<Header, Error> {
        if offset + HEADER as u64 > self.length {
            return Err(self.truncated(format!("inside the header of the gzip member at byte {offset}")));
        }
        Header::decode(&self.read(offset)?).map_err(|found| self.error(offset, found))
    }

    /// One whole member and its length in the file.
    fn member(&self, decoder: &mut Decoder, offset: u64) -> Result<(Vec<u8>, u32), Error> {
        let header = self.header(offset)?;
        if offset + header.member() > self.length {
            let missing = offset + header.member() - self.length;
            return Err(self.truncated(format!("{missing} bytes before the end of the member at byte {offset}")));
        }
        let mut member = vec![0; header.member() as usize];
        self.file
            .read_exact_at(&mut member, offset)
            .map_err(Error::io("read", self.path))?;
        let bytes = decoder
            .member(header, &member, Vec::new())
            .map_err(|found| self.error(offset, found))?;
        Ok((bytes, member.len() as u32))
    }

    /// The bytes of `bundle.json` and the lengths of the members that hold them.
    fn first_entry(&self) -> Result<(Vec<u8>, Vec<u32>), Error> {
        if self.length == 0 {
            return Err(self.truncated("it is empty"));
        }
        let not_ours = |found: &str| Error::NotABundle {
            path: self.path.into(),
            found: found.into(),
        };
        if self.length >= 2 && self.read::<2>(0)? != [0x1f, 0x8b] {
            return Err(not_ours("it does not begin as a gzip file"));
        }
        let mut decoder = Decoder::new();
        let (mut stream, length) = self.member(&mut decoder, 0)?;
        let mut lengths = vec![length];
        let Some(header) = stream.first_chunk::<512>() else {
            return Err(not_ours("its first member holds no tar header"));
        };
        let name = tar::stated_name(header);
        if name.split_once('/').map(|(_, rest)| rest) != Some(BUNDLE_JSON) {
            return Err(not_ours(&format!(
                "its first entry is {}, expected {BUNDLE_JSON}",
                tar::describe(header)
            )));
        }
        let size = tar::stated_size(header).filter(|size| *size <= BUNDLE_JSON_MAX);
        let Some(size) = size else {
            return Err(Error::Entry {
                path: self.path.into(),
                entry: BUNDLE_JSON.into(),
                found: format!("{}; at most {BUNDLE_JSON_MAX} bytes are read", tar::describe(header)),
            });
        };
        let mut offset = u64::from(length);
        for (index, (_, length)) in cut(size).enumerate() {
            if index > 0 {
                let (bytes, packed) = self.member(&mut decoder, offset)?;
                offset += u64::from(packed);
                lengths.push(packed);
                stream.extend_from_slice(&bytes);
            }
            let expected = index as u64 * crate::gzip::CUT + length;
            if stream.len() as u64 != expected {
                let found = stream.len();
                return Err(self.error(
                    offset,
                    format!("bundle.json has {found} bytes up to here, expected {expected}"),
                ));
            }
        }
        stream.drain(..512);
        stream.truncate(size as usize);
        Ok((stream, lengths))
    }

    /// The signature, from the member where a signed archive has it.
    fn signature(&self, manifest: &Manifest, layout: &Layout, trailer: &Trailer) -> Result<Signature, Error> {
        let place = layout.chunks.iter().position(|chunk| {
            let entry = layout.entry(*chunk);
            entry.is_some_and(|entry| entry.body == Body::Signature)
        });
        let place = place.expect("a signed layout has a signature");
        let offset = trailer.members[..place].iter().map(|length| u64::from(*length)).sum();
        let (stream, length) = self.member(&mut Decoder::new(), offset)?;
        if length != trailer.members[place] {
            let found = trailer.members[place];
            return Err(self.error(
                offset,
                format!("this member declares {length} bytes, the table {found}"),
            ));
        }
        let wrong = |found: String| Error::Entry {
            path: self.path.into(),
            entry: SIGNATURE.into(),
            found,
        };
        let chunk = layout.chunks[place];
        let entry = layout.entry(chunk).expect("it was just found");
        let parts = layout.parts(chunk);
        if stream.len() as u64 != chunk.length || stream[parts.header] != entry.header[..] {
            let found = stream.first_chunk().map(tar::describe).unwrap_or_default();
            return Err(wrong(format!("found {found}, not written as bundle.json gives it")));
        }
        Signature::parse(manifest, &stream[parts.content]).map_err(wrong)
    }

    /// The trailer, which must end the file and account for all bytes before it.
    fn trailer(&self) -> Result<Trailer, Error> {
        let Some(start) = self.length.checked_sub(TRAILER_TAIL as u64) else {
            return Err(self.truncated("before the trailer"));
        };
        let stated = Trailer::stated_length(&self.read(start)?);
        let Some(length) = stated.filter(|length| *length <= self.length) else {
            return Err(self.why_no_trailer());
        };
        let offset = self.length - length;
        let mut bytes = vec![0; length as usize];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(Error::io("read", self.path))?;
        let Ok(trailer) = Trailer::decode(&bytes) else {
            return Err(self.why_no_trailer());
        };
        let sum: u64 = trailer.members.iter().map(|length| u64::from(*length)).sum();
        if sum != offset {
            return Err(self.error(
                offset,
                format!("the table accounts for {sum} bytes, {offset} stand before it"),
            ));
        }
        Ok(trailer)
    }

    /// Walks the members' headers to say where the file stops being a bundle.
    fn why_no_trailer(&self) -> Error {
        let mut offset = 0;
        loop {
            if offset == self.length {
                return self.truncated("before the trailer");
            }
            if offset + HEADER as u64 > self.length {
                return self.truncated(format!("inside the header of the gzip member at byte {offset}"));
            }
            let start = match self.read::<HEADER>(offset) {
                Ok(start) => start,
                Err(error) => return error,
            };
            if start[12..14] == *b"QT" {
                let data = u64::from(u16::from_le_bytes([start[14], start[15]]));
                let end = offset + 16 + data + 10;
                return match end.cmp(&self.length) {
                    std::cmp::Ordering::Greater => self.truncated(format!("inside the trailer at byte {offset}")),
                    std::cmp::Ordering::Equal => self.error(offset, "the trailer is not the canonical one"),
                    std::cmp::Ordering::Less => {
                        self.error(end, format!("{} bytes follow the end of the bundle", self.length - end))
                    }
                };
            }
            let header = match Header::decode(&start) {
                Ok(header) => header,
                Err(found) => return self.error(offset, found),
            };
            if offset + header.member() > self.length {
                let missing = offset + header.member() - self.length;
                return self.truncated(format!("{missing} bytes before the end of the member at byte {offset}"));
            }
            offset += header.member();
        }
    }
}
