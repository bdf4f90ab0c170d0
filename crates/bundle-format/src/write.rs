//! Writing a bundle: the same inputs give the same bytes, whatever the machine, the user or the number of threads.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::gzip::{Encoder, MEMBERS_MAX, Trailer};
use crate::layout::{Body, Chunk, Layout};
use crate::manifest::{FORMAT, NEEDS, SIZE_MAX};
use crate::ordered::{Pool, ordered};
use crate::signature::{self, Signature, Signer};
use crate::verified::Watcher;
use crate::{Architecture, Digest, Error, FileEntry, FileMode, Hasher, Image, Kind, Manifest, Origin, Unverified};

/// What a bundle is called and when it was made.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The bundle's name.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// The architecture of everything in it.
    pub architecture: Architecture,
    /// The time of every entry, in seconds since 1970.
    pub mtime: u64,
    /// The images under `images/`.
    pub images: Vec<Image>,
}

/// One file to pack.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its path in the bundle's folder.
    pub path: String,
    /// What it is for.
    pub kind: Kind,
    /// Its mode in the bundle.
    pub mode: FileMode,
    /// Where it came from, as `bundle.json` says it.
    pub origin: Origin,
    /// Where its bytes are.
    pub content: Content,
}

/// Where the bytes of an input are.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Bytes(Vec<u8>),
    /// In a whole file.
    File(PathBuf),
    /// In a part of a file, such as a layer in an archive of images.
    Part {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// In a file of another bundle.
    Entry {
        /// The bundle.
        archive: Arc<Unverified>,
        /// The file in it.
        path: String,
    },
    /// In a file that is open and may have no name.
    Open {
        /// The file.
        file: Arc<File>,
        /// What to call it in messages.
        name: PathBuf,
    },
}

/// A bundle whose inputs were read once: its id is known, its archive not yet written.
#[derive(Debug)]
pub struct Sealed {
    manifest: Manifest,
    layout: Layout,
    signature: Option<Signature>,
    /// In the order of the manifest's files.
    contents: Vec<Packed>,
}

#[derive(Debug)]
struct Packed {
    content: Content,
    /// Compressed already: stored as it is.
    stored: bool,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The bundle's id.
    pub id: Digest,
    /// The archive's length in bytes.
    pub size: u64,
    /// The digest of the whole archive.
    pub sha256: Digest,
    /// The lengths of its members.
    members: Vec<u32>,
}

/// Reads every input once and settles `bundle.json`. `watcher` hears of the bytes read.
pub fn seal(draft: Draft, mut inputs: Vec<Input>, jobs: usize, watcher: &mut dyn Watcher) -> Result<Sealed, Error> {
    inputs.sort_by(|a, b| a.path.cmp(&b.path));
    crate::names::check_paths(inputs.iter().map(|input| input.path.as_str()))?;
    let mut sizes = Vec::with_capacity(inputs.len());
    for input in &inputs {
        let size = input.content.size()?;
        if size > SIZE_MAX {
            return Err(Error::Input {
                path: input.content.name(),
                found: format!("it has {size} bytes, {SIZE_MAX} are the most"),
            });
        }
        sizes.push(size);
    }
    let (total, mut done) = (sizes.iter().sum(), 0);
    let (mut files, mut contents) = (Vec::new(), Vec::new());
    watcher.tell(done, total)?;
    let work = || |index: usize| read_once(&inputs[index].content, sizes[index]);
    ordered(jobs, 1, inputs.len(), work, |index, (sha256, stored)| {
        let Input {
            path,
            kind,
            mode,
            origin,
            content,
        } = inputs[index].clone();
        files.push(FileEntry {
            kind,
            mode,
            origin,
            path,
            sha256,
            size: sizes[index],
        });
        contents.push(Packed { content, stored });
        done += sizes[index];
        watcher.tell(done, total)
    })?;
    let mut images = draft.images;
    images.sort_by(|a, b| a.name.cmp(&b.name));
    let manifest = Manifest {
        architecture: draft.architecture,
        files,
        format: FORMAT,
        images,
        mtime: draft.mtime,
        name: draft.name,
        needs: NEEDS.to_owned(),
        version: draft.version,
    };
    manifest.check()?;
    let layout = Layout::new(&manifest, false)?;
    let members = layout.chunks.len();
    if members > MEMBERS_MAX {
        return Err(Error::Input {
            path: manifest.folder(),
            found: format!("it needs {members} gzip members, {MEMBERS_MAX} are the most"),
        });
    }
    Ok(Sealed {
        manifest,
        layout,
        signature: None,
        contents,
    })
}

impl Sealed {
    /// What the bundle says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The bundle's id.
    pub fn id(&self) -> Digest {
        self.layout.id
    }

    /// The signature, where it was signed.
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }

    /// Adds a file that was made of what the bundle holds already. Before it is signed.
    pub fn with(self, input: Input) -> Result<Sealed, Error> {
        assert!(self.signature.is_none(), "a signature would no longer fit");
        let Sealed {
            mut manifest,
            mut contents,
            ..
        } = self;
        let size = input.content.size()?;
        let (sha256, stored) = read_once(&input.content, size)?;
        let at = manifest.files.partition_point(|file| file.path < input.path);
        let Input {
            path,
            kind,
            mode,
            origin,
            content,
        } = input;
        manifest.files.insert(
            at,
            FileEntry {
                kind,
                mode,
                origin,
                path,
                sha256,
                size,
            },
        );
        contents.insert(at, Packed { content, stored });
        manifest.check()?;
        Ok(Sealed {
            layout: Layout::new(&manifest, false)?,
            manifest,
            signature: None,
            contents,
        })
    }

    /// Adds a signature of `SHA256SUMS`. The id stays the same. What the signer made is checked.
    pub fn sign(self, signer: &dyn Signer) -> Result<Sealed, Error> {
        let signature = Signature::make(&self.manifest, &self.layout.sums, signer);
        let (path, keys) = (self.manifest.folder(), [signer.public_key().clone()]);
        signature::check(Path::new(&path), Some(&signature), &self.layout.sums, &keys)?;
        let layout = Layout::new(&self.manifest, true)?;
        if layout.chunks.len() > MEMBERS_MAX {
            return Err(Error::Input {
                path,
                found: format!("with its signature it needs more than {MEMBERS_MAX} gzip members"),
            });
        }
        Ok(Sealed {
            layout,
            signature: Some(signature),
            ..self
        })
    }

    /// Writes the archive to `out`, which `out_path` names in errors. `watcher` hears of the bytes packed.
    pub fn write(
        &self,
        out: &mut dyn Write,
        out_path: &Path,
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<Written, Error> {
        let total = self.layout.chunks.iter().map(|chunk| chunk.length).sum();
        let (mut done, mut size) = (0, 0);
        let (mut before_trailer, mut of_file) = (Hasher::new(), Hasher::new());
        let mut members = Vec::with_capacity(self.layout.chunks.len());
        watcher.tell(done, total)?;
        let pool = Pool::default();
        let worker = || {
            let mut encoder = Encoder::new();
            let pool = &pool;
            move |index: usize| {
                let chunk = self.layout.chunks[index];
                let bytes = self.fill(chunk, pool.get())?;
                let member = encoder.member_into(&bytes, self.stored(chunk), pool.get());
                Ok((bytes, member))
            }
        };
        // The taker writes to a disk: some spare pieces keep the workers busy while it waits.
        ordered(
            jobs,
            jobs + 1,
            self.layout.chunks.len(),
            worker,
            |index, (bytes, member): (Vec<u8>, Vec<u8>)| {
                let chunk = self.layout.chunks[index];
                if let Some(Body::File(file)) = self.layout.entry(chunk).map(|entry| entry.body) {
                    of_file.update(&bytes[self.layout.parts(chunk).content]);
                    let last = self.layout.chunks[index + 1].entry != chunk.entry;
                    if last && std::mem::take(&mut of_file).finish() != self.manifest.files[file].sha256 {
                        return Err(changed(&self.contents[file].content));
                    }
                }
                before_trailer.update(&member);
                out.write_all(&member).map_err(Error::io("write", out_path))?;
                size += member.len() as u64;
                members.push(u32::try_from(member.len()).expect("a member is little longer than its bytes"));
                done += chunk.length;
                pool.put(bytes);
                pool.put(member);
                watcher.tell(done, total)
            },
        )?;
        let mut whole = before_trailer.clone();
        let trailer = Trailer {
            members: members.clone(),
            sha256: before_trailer.finish(),
        }
        .encode();
        whole.update(&trailer);
        out.write_all(&trailer).map_err(Error::io("write", out_path))?;
        Ok(Written {
            id: self.layout.id,
            size: size + trailer.len() as u64,
            sha256: whole.finish(),
            members,
        })
    }

    /// Reads every input again and packs it for nobody: what a second build gives.
    pub fn again(&self, jobs: usize, watcher: &mut dyn Watcher) -> Result<Written, Error> {
        for (file, packed) in self.manifest.files.iter().zip(&self.contents) {
            let (found, _) = read_once(&packed.content, file.size)?;
            if found != file.sha256 {
                return Err(changed(&packed.content));
            }
        }
        self.write(&mut io::sink(), Path::new("nowhere"), jobs, watcher)
    }

    /// How many bytes of the archive each file takes, in the manifest's order.
    pub(crate) fn packed_sizes(&self, written: &Written) -> Vec<u64> {
        self.layout.packed_sizes(self.manifest.files.len(), &written.members)
    }

    /// A bundle whose `bundle.json` is known already. Each content must have the digest that it gives: writing proves it.
    pub(crate) fn rebuilt(
        manifest: Manifest,
        signature: Option<Signature>,
        contents: Vec<Content>,
    ) -> Result<Sealed, Error> {
        let layout = Layout::new(&manifest, signature.is_some())?;
        let mut packed = Vec::with_capacity(contents.len());
        for (content, file) in contents.into_iter().zip(&manifest.files) {
            let mut start = vec![0; file.size.min(START as u64) as usize];
            content.read_at(0, &mut start)?;
            let stored = compressed_already(&start);
            packed.push(Packed { content, stored });
        }
        Ok(Sealed {
            manifest,
            layout,
            signature,
            contents: packed,
        })
    }

    /// All bytes of one file, by its index in the manifest.
    pub(crate) fn bytes_of(&self, index: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.manifest.files[index].size as usize];
        self.contents[index].content.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    fn stored(&self, chunk: Chunk) -> bool {
        match self.layout.entry(chunk).map(|entry| entry.body) {
            Some(Body::File(index)) => self.contents[index].stored,
            _ => false,
        }
    }

    /// The uncompressed bytes of a chunk, in the memory of `bytes`.
    fn fill(&self, chunk: Chunk, mut bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        bytes.resize(chunk.length as usize, 0);
        let parts = self.layout.parts(chunk);
        // The end of the archive is all padding.
        bytes[parts.padding.clone()].fill(0);
        let Some(entry) = self.layout.entry(chunk) else {
            return Ok(bytes);
        };
        bytes[parts.header.clone()].copy_from_slice(&entry.header[..parts.header.len()]);
        let offset = chunk.start.saturating_sub(crate::tar::BLOCK);
        let content = &mut bytes[parts.content];
        let part = offset as usize..offset as usize + content.len();
        match entry.body {
            Body::Manifest => content.copy_from_slice(&self.layout.bundle_json[part]),
            Body::Sums => content.copy_from_slice(&self.layout.sums[part]),
            Body::Signature => {
                let signature = self.signature.as_ref().expect("its layout has a signature");
                content.copy_from_slice(&signature.bytes()[part]);
            }
            Body::File(index) => self.contents[index].content.read_at(offset, content)?,
            Body::Folder => {}
        }
        Ok(bytes)
    }
}

impl Content {
    /// What to call it in an error.
    fn name(&self) -> String {
        match self {
            Content::Bytes(_) => "a rendered file".into(),
            Content::File(path) | Content::Part { path, .. } => path.display().to_string(),
            Content::Entry { path, .. } => path.clone(),
            Content::Open { name, .. } => name.display().to_string(),
        }
    }

    fn size(&self) -> Result<u64, Error> {
        match self {
            Content::Bytes(bytes) => Ok(bytes.len() as u64),
            Content::Part { length, .. } => Ok(*length),
            Content::Entry { archive, path } => match archive.manifest().file(path) {
                Some(file) => Ok(file.size),
                None => Err(Error::NoEntry { path: path.clone() }),
            },
            Content::Open { file, name } => file.metadata().map(|data| data.len()).map_err(Error::io("read", name)),
            Content::File(path) => {
                let data = std::fs::metadata(path).map_err(Error::io("read", path))?;
                match data.is_file() {
                    true => Ok(data.len()),
                    false => Err(Error::Input {
                        path: self.name(),
                        found: "it is no regular file".into(),
                    }),
                }
            }
        }
    }

    /// Fills `out` from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let (path, start) = match self {
            Content::Bytes(bytes) => {
                out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
                return Ok(());
            }
            Content::Entry { archive, path } => return archive.read_file(path, offset, out),
            Content::Open { file, name } => {
                return file.read_exact_at(out, offset).map_err(Error::io("read", name));
            }
            Content::File(path) => (path, 0),
            Content::Part { path, offset, .. } => (path, *offset),
        };
        if out.is_empty() {
            return Ok(());
        }
        let file = quantykube_base::open_regular(path).map_err(Error::io("read", path))?;
        match file.read_exact_at(out, start + offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(changed(self)),
            other => other.map_err(Error::io("read", path)),
        }
    }
}

fn changed(content: &Content) -> Error {
    Error::Input {
        path: content.name(),
        found: "it changed while it was being packed".into(),
    }
}

/// The digest of `size` bytes, and whether they are compressed already.
fn read_once(content: &Content, size: u64) -> Result<(Digest, bool), Error> {
    if let Content::Bytes(bytes) = content {
        return Ok((Digest::of(bytes), compressed_already(bytes)));
    }
    let mut hasher = Hasher::new();
    let (mut offset, mut stored) = (0, false);
    let mut buffer = vec![0; 1 << 20];
    while offset < size {
        let part = &mut buffer[..(size - offset).min(1 << 20) as usize];
        content.read_at(offset, part)?;
        if offset == 0 {
            stored = compressed_already(part);
        }
        hasher.update(part);
        offset += part.len() as u64;
    }
    Ok((hasher.finish(), stored))
}

/// As many first bytes as tell.
const START: usize = 8;

/// Whether the first bytes are those of a compressed file: gzip, zstd, xz, bzip2 or zip.
fn compressed_already(start: &[u8]) -> bool {
    const STARTS: [&[u8]; 5] = [
        &[0x1f, 0x8b, 8],
        &[0x28, 0xb5, 0x2f, 0xfd],
        &[0xfd, b'7', b'z', b'X', b'Z', 0],
        b"BZh",
        b"PK\x03\x04",
    ];
    STARTS.iter().any(|magic| start.starts_with(magic))
}
