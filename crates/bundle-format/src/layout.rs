//! What stands where in the uncompressed archive. The writer and the reader both derive it from `bundle.json`, so the
//! reader parses nothing: it compares.

use std::collections::BTreeSet;

use crate::gzip::{CUT, MEMBERS_MAX};
use crate::signature::Signature;
use crate::sums::sums;
use crate::tar::{self, BLOCK, END, Node};
use crate::{BUNDLE_JSON, Digest, Error, Manifest, SHA256SUMS, SIGNATURE};

/// What an entry holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Body {
    /// `bundle.json`.
    Manifest,
    /// `SHA256SUMS`.
    Sums,
    /// `SHA256SUMS.minisig`.
    Signature,
    /// A file, by its index in the manifest.
    File(usize),
    /// A folder.
    Folder,
}

/// One entry of the archive.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The path in the bundle's folder; empty for that folder itself.
    pub path: String,
    pub body: Body,
    pub size: u64,
    pub mode: u32,
    pub header: Box<[u8; 512]>,
}

/// What one gzip member holds: a part of one entry, or the end of the archive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Chunk {
    /// The entry's index; one past the last for the end of the archive.
    pub entry: usize,
    /// Where it begins, counted from the entry's header.
    pub start: u64,
    pub length: u64,
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub entries: Vec<Entry>,
    pub chunks: Vec<Chunk>,
    pub id: Digest,
    pub bundle_json: Vec<u8>,
    pub sums: Vec<u8>,
}

/// A chunk's bytes in their three parts.
pub(crate) struct Parts<B> {
    pub header: B,
    pub content: B,
    pub padding: B,
}

impl Layout {
    /// The layout of a manifest that was checked, with a signature or without.
    pub fn new(manifest: &Manifest, signed: bool) -> Result<Layout, Error> {
        // Before anything is allocated for them: a manifest can claim more than any memory holds.
        let members = members(manifest);
        if members > MEMBERS_MAX as u64 {
            return Err(Error::Manifest(format!(
                "its files need {members} gzip members or more, {MEMBERS_MAX} are the most"
            )));
        }
        let bundle_json = manifest.to_bytes();
        let id = Digest::of(&bundle_json);
        let sums = sums(manifest, id);
        let folder = manifest.folder();
        let entry = |path: &str, body: Body, node: Node| {
            let name = match node {
                Node::Folder if path.is_empty() => format!("{folder}/"),
                Node::Folder => format!("{folder}/{path}/"),
                Node::File { .. } => format!("{folder}/{path}"),
            };
            let header = tar::header(&name, node, manifest.mtime).ok_or(Error::Name {
                name: name.clone(),
                rule: "a tar header cannot hold it: the last part is longer than 100 bytes, or the rest than 155",
            })?;
            let (size, mode) = match node {
                Node::Folder => (0, 0o755),
                Node::File { size, mode } => (size, mode),
            };
            let (path, header) = (path.to_owned(), Box::new(header));
            Ok(Entry {
                path,
                body,
                size,
                mode,
                header,
            })
        };
        let plain = |size: u64| Node::File { size, mode: 0o644 };
        let mut rest: Vec<Entry> = Vec::new();
        let mut folders: BTreeSet<&str> = BTreeSet::from([""]);
        for (index, file) in manifest.files.iter().enumerate() {
            folders.extend(file.path.match_indices('/').map(|(end, _)| &file.path[..end]));
            let node = Node::File {
                size: file.size,
                mode: file.mode.bits(),
            };
            rest.push(entry(&file.path, Body::File(index), node)?);
        }
        for folder in folders {
            rest.push(entry(folder, Body::Folder, Node::Folder)?);
        }
        rest.push(entry(SHA256SUMS, Body::Sums, plain(sums.len() as u64))?);
        if signed {
            let length = Signature::length(manifest);
            rest.push(entry(SIGNATURE, Body::Signature, plain(length))?);
        }
        rest.sort_by_key(Entry::sort_key);
        let mut entries = vec![entry(BUNDLE_JSON, Body::Manifest, plain(bundle_json.len() as u64))?];
        entries.extend(rest);

        let mut chunks = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            chunks.extend(cut(entry.size).map(|(start, length)| Chunk {
                entry: index,
                start,
                length,
            }));
        }
        chunks.push(Chunk {
            entry: entries.len(),
            start: 0,
            length: END,
        });
        Ok(Layout {
            entries,
            chunks,
            id,
            bundle_json,
            sums,
        })
    }

    /// The entry that a chunk is a part of; `None` for the end of the archive.
    pub fn entry(&self, chunk: Chunk) -> Option<&Entry> {
        self.entries.get(chunk.entry)
    }

    /// How many bytes of the archive each of `files` files takes, by the lengths of the members.
    pub fn packed_sizes(&self, files: usize, members: &[u32]) -> Vec<u64> {
        let mut sizes = vec![0; files];
        for (chunk, length) in self.chunks.iter().zip(members) {
            if let Some(Body::File(index)) = self.entry(*chunk).map(|entry| entry.body) {
                sizes[index] += u64::from(*length);
            }
        }
        sizes
    }

    /// The ranges of a chunk's bytes: of its header, its content and its padding. The content's place in the file is
    /// the chunk's start less one block, or 0.
    pub fn parts(&self, chunk: Chunk) -> Parts<std::ops::Range<usize>> {
        let size = self.entry(chunk).map_or(0, |entry| entry.size);
        let block = if self.entry(chunk).is_some() { BLOCK } else { 0 };
        let at = |place: u64| place.clamp(chunk.start, chunk.start + chunk.length) - chunk.start;
        let (header, content) = (at(block) as usize, at(block + size) as usize);
        Parts {
            header: 0..header,
            content: header..content,
            padding: content..chunk.length as usize,
        }
    }
}

/// How many members the files of a manifest need at least.
pub(crate) fn members(manifest: &Manifest) -> u64 {
    manifest.files.iter().map(|file| cut(file.size).len() as u64).sum()
}

impl Entry {
    /// Folders sort by their name with the `/` that the archive gives them.
    fn sort_key(&self) -> String {
        match self.body {
            Body::Folder if self.path.is_empty() => String::new(),
            Body::Folder => format!("{}/", self.path),
            _ => self.path.clone(),
        }
    }
}

/// Start and length of each member of an entry with `size` bytes of content.
pub(crate) fn cut(size: u64) -> impl ExactSizeIterator<Item = (u64, u64)> {
    let stream = BLOCK + size + tar::padding(size);
    // At most 8 GiB in cuts of 4 MiB.
    let cuts = stream.div_ceil(CUT) as u32;
    (0..cuts)
        .map(u64::from)
        .map(move |index| (index * CUT, CUT.min(stream - index * CUT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_json_is_first_and_the_rest_is_sorted() {
        let layout = Layout::new(&crate::manifest::tests::example(), true).unwrap();
        let names: Vec<String> = layout.entries.iter().map(|e| tar::stated_name(&e.header)).collect();
        let top = "quantykube-0.1.0-linux-amd64";
        let expected = [
            "/bundle.json",
            "/",
            "/SHA256SUMS",
            "/SHA256SUMS.minisig",
            "/bin/",
            "/bin/quantykube-store",
            "/run",
        ];
        assert_eq!(names, expected.map(|name| format!("{top}{name}")));
        assert!(names[1..].is_sorted());
    }

    #[test]
    fn a_manifest_that_claims_too_much_is_refused_before_it_costs_memory() {
        let mut manifest = crate::manifest::tests::example();
        manifest.files[0].size = crate::manifest::SIZE_MAX;
        let most = manifest.files[0].clone();
        manifest.files.extend((0..7).map(|_| most.clone()));
        assert!(matches!(Layout::new(&manifest, false), Err(Error::Manifest(text)) if text.contains("gzip members")));
    }

    #[test]
    fn chunks_cover_every_byte_once() {
        for size in [0, 1, 512, CUT - 512, CUT - 511, CUT, 3 * CUT + 5] {
            let chunks: Vec<(u64, u64)> = cut(size).collect();
            let mut next = 0;
            for (start, length) in &chunks {
                assert_eq!(*start, next);
                assert!((1..=CUT).contains(length));
                next += length;
            }
            assert_eq!(next, 512 + size + tar::padding(size));
        }
    }

    #[test]
    fn parts_are_the_header_the_content_and_zeros() {
        let mut manifest = crate::manifest::tests::example();
        manifest.files[0].size = CUT - 512 + 3;
        let layout = Layout::new(&manifest, false).unwrap();
        let of_file: Vec<Chunk> = layout
            .chunks
            .iter()
            .copied()
            .filter(|c| layout.entry(*c).is_some_and(|e| e.body == Body::File(0)))
            .collect();
        assert_eq!(of_file.len(), 2);
        let cut = CUT as usize;
        let first = layout.parts(of_file[0]);
        assert_eq!(
            (first.header, first.content, first.padding),
            (0..512, 512..cut, cut..cut)
        );
        let last = layout.parts(of_file[1]);
        assert_eq!((last.header, last.content, last.padding), (0..0, 0..3, 3..512));
        let end = layout.parts(*layout.chunks.last().unwrap());
        assert_eq!((end.header, end.content, end.padding), (0..0, 0..0, 0..1024));
    }
}
