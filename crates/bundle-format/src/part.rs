//! Parts of a bundle that is too large for its carrier.
//!
//! A part is an empty gzip member that says what the part is, and then whole members of the bundle. So `cat` of all parts
//! in order is still a file that any `tar xzf` opens; [`Parts`] checks them and gives the very bytes of the bundle.
//! `docs/bundle.md` draws the bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::gzip::{EMPTY, FIXED};
use crate::read::open_file;
use crate::source::{Piece, Source};
use crate::verified::Watcher;
use crate::{Digest, Error, Hasher, Unverified};

/// The newest format of parts.
const FORMAT: u32 = 1;
/// The length of the member that begins a part.
pub(crate) const HEAD: usize = 16 + DATA + EMPTY.len();
/// The length of what it says.
const DATA: usize = 4 + 4 + 4 + 32 + 32 + 8 + 8 + 8 + 32;
/// The most parts.
pub const PARTS_MAX: usize = 999;

/// What a part says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Head {
    /// From 1.
    number: u32,
    count: u32,
    /// The bundle's id.
    id: Digest,
    /// The digest and the length of the whole bundle.
    whole: Digest,
    whole_length: u64,
    /// Which bytes of the bundle it holds.
    offset: u64,
    length: u64,
}

impl Head {
    fn fields(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(DATA);
        for word in [FORMAT, self.number, self.count] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(&self.whole.0);
        for word in [self.whole_length, self.offset, self.length] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The member. `sum` is of the fields and the part's bytes.
    fn encode(&self, sum: Digest) -> [u8; HEAD] {
        let mut bytes = FIXED.to_vec();
        bytes.extend_from_slice(&(DATA as u16 + 4).to_le_bytes());
        bytes.extend_from_slice(b"QS");
        bytes.extend_from_slice(&(DATA as u16).to_le_bytes());
        bytes.extend_from_slice(&self.fields());
        bytes.extend_from_slice(&sum.0);
        bytes.extend_from_slice(&EMPTY);
        bytes.try_into().expect("a head has one length")
    }

    /// What the member says, and the sum.
    fn decode(bytes: &[u8; HEAD], path: &Path) -> Result<(Head, Digest), Error> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let digest = |at: usize| Digest(bytes[at..at + 32].try_into().expect("thirty-two bytes"));
        let format = word(16);
        if format > FORMAT {
            let (found, known) = (format.into(), FORMAT.into());
            return Err(Error::NewerFile {
                path: path.into(),
                found,
                known,
            });
        }
        let head = Head {
            number: word(20),
            count: word(24),
            id: digest(28),
            whole: digest(60),
            whole_length: long(92),
            offset: long(100),
            length: long(108),
        };
        let sum = digest(116);
        let possible = (1..=PARTS_MAX as u32).contains(&head.count)
            && (1..=head.count).contains(&head.number)
            && head
                .offset
                .checked_add(head.length)
                .is_some_and(|end| end <= head.whole_length);
        match possible && head.encode(sum) == *bytes {
            true => Ok((head, sum)),
            false => Err(Error::Parts(format!(
                "{}: what it says of itself is damaged",
                path.display()
            ))),
        }
    }

    /// Whether another part is of the same split of the same bundle, as far as it says.
    fn fits(&self, other: &Head) -> bool {
        (self.count, self.id, self.whole, self.whole_length) == (other.count, other.id, other.whole, other.whole_length)
    }

    fn says(&self) -> String {
        format!("part {} of {} of bundle {}", self.number, self.count, short(self.id))
    }
}

fn short(id: Digest) -> String {
    id.to_string()[..12].to_owned()
}

/// Whether a file begins as a part does.
pub(crate) fn begins(file: &File) -> bool {
    let mut start = [0; 16];
    file.read_exact_at(&mut start, 0).is_ok() && start[..10] == FIXED && start[12..14] == *b"QS"
}

/// The name of a part: `NAME.part-2-of-9`.
pub fn part_name(name: &str, number: usize, count: usize) -> String {
    let width = count.to_string().len();
    format!("{name}.part-{number:0width$}-of-{count}")
}

/// A bundle cut into parts, each at the end of a member.
#[derive(Debug)]
pub struct Cut<'a> {
    bundle: &'a Unverified,
    heads: Vec<Head>,
}

impl Unverified {
    /// Cuts the archive into as few parts as hold less than `size` bytes each. It was verified before: what is read here
    /// must have the digest `whole`.
    pub fn cut(&self, size: u64, whole: Digest) -> Result<Cut<'_>, Error> {
        let trailer = self.trailer.encode().len() as u64;
        let members = self.trailer.members.iter().map(|length| u64::from(*length));
        let members: Vec<u64> = members.chain([trailer]).collect();
        let least = members.iter().max().expect("there is a trailer") + HEAD as u64 + 1;
        if size < least {
            return Err(Error::Parts(format!(
                "a part of this bundle needs {least} bytes or more, {size} were asked for"
            )));
        }
        let room = size - 1 - HEAD as u64;
        let mut lengths = vec![0];
        for member in members {
            match lengths.last_mut() {
                Some(last) if *last + member <= room => *last += member,
                _ => lengths.push(member),
            }
        }
        if lengths.len() > PARTS_MAX {
            return Err(Error::Parts(format!(
                "parts of {size} bytes would be {}, {PARTS_MAX} are the most",
                lengths.len()
            )));
        }
        let count = lengths.len() as u32;
        let mut offset = 0;
        let head = |(index, length): (usize, u64)| {
            let head = Head {
                number: index as u32 + 1,
                count,
                id: self.id(),
                whole,
                whole_length: self.length(),
                offset,
                length,
            };
            offset += length;
            head
        };
        let heads = lengths.into_iter().enumerate().map(head).collect();
        Ok(Cut { bundle: self, heads })
    }

    /// The digest of the whole file, as `sha256sum` says it.
    pub fn sha256(&self, watcher: &mut dyn Watcher) -> Result<Digest, Error> {
        let mut whole = Hasher::new();
        self.copy(0, self.length(), watcher, &mut |bytes| {
            whole.update(bytes);
            Ok(())
        })?;
        Ok(whole.finish())
    }

    fn copy(
        &self,
        offset: u64,
        length: u64,
        watcher: &mut dyn Watcher,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        while done < length {
            let part = &mut buffer[..(length - done).min(1 << 20) as usize];
            self.source
                .read_exact_at(part, offset + done)
                .map_err(Error::io("read", &self.path))?;
            take(part)?;
            done += part.len() as u64;
            watcher.tell(offset + done, self.length())?;
        }
        Ok(())
    }
}

impl Cut<'_> {
    /// How many parts there are.
    pub fn count(&self) -> usize {
        self.heads.len()
    }

    /// The length of a part's file. `index` is from 0.
    pub fn length(&self, index: usize) -> u64 {
        HEAD as u64 + self.heads[index].length
    }

    /// Writes one part into an empty file.
    pub fn write(&self, index: usize, out: &mut File, path: &Path, watcher: &mut dyn Watcher) -> Result<(), Error> {
        let head = self.heads[index];
        let mut sum = Hasher::new();
        sum.update(&head.fields());
        out.write_all(&[0; HEAD]).map_err(Error::io("write", path))?;
        self.bundle.copy(head.offset, head.length, watcher, &mut |bytes| {
            sum.update(bytes);
            out.write_all(bytes).map_err(Error::io("write", path))
        })?;
        // The sum stands at the front.
        out.write_all_at(&head.encode(sum.finish()), 0)
            .map_err(Error::io("write", path))
    }
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: File,
    head: Head,
    sum: Digest,
}

/// Why one file is no part of the set.
enum Bad {
    /// Something to copy again or to take away.
    Named(String),
    Other(Error),
}

impl Part {
    fn open(path: &Path) -> Result<Part, Bad> {
        let named = |found: &str| Bad::Named(format!("{}: {found}", path.display()));
        let file = open_file(path).map_err(Bad::Other)?;
        let length = file
            .metadata()
            .map_err(|e| Bad::Other(Error::io("read", path)(e)))?
            .len();
        let mut bytes = [0; HEAD];
        if length < HEAD as u64 {
            return Err(named(&format!(
                "truncated: it has {length} bytes, a part begins with {HEAD}"
            )));
        }
        file.read_exact_at(&mut bytes, 0)
            .map_err(|e| Bad::Other(Error::io("read", path)(e)))?;
        if !begins(&file) {
            return Err(named("it does not begin as a part of a bundle"));
        }
        let (head, sum) = Head::decode(&bytes, path).map_err(|error| match error {
            Error::Parts(text) => Bad::Named(text),
            other => Bad::Other(other),
        })?;
        let expected = HEAD as u64 + head.length;
        match length.cmp(&expected) {
            std::cmp::Ordering::Less => Err(named(&format!(
                "truncated: it has {length} bytes, {} has {expected}",
                head.says()
            ))),
            std::cmp::Ordering::Greater => {
                Err(named(&format!("it has {length} bytes, {} has {expected}", head.says())))
            }
            std::cmp::Ordering::Equal => Ok(Part {
                path: path.into(),
                file,
                head,
                sum,
            }),
        }
    }

    /// Reads all of it and compares with its own sum; gives the bytes to `take`.
    fn check(&self, take: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<bool, Error> {
        let mut sum = Hasher::new();
        sum.update(&self.head.fields());
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        while done < self.head.length {
            let part = &mut buffer[..(self.head.length - done).min(1 << 20) as usize];
            self.file
                .read_exact_at(part, HEAD as u64 + done)
                .map_err(Error::io("read", &self.path))?;
            sum.update(part);
            take(part)?;
            done += part.len() as u64;
        }
        Ok(sum.finish() == self.sum)
    }
}

/// All parts of one bundle, in order. Each says that it is what it must be; [`Parts::join`] proves it.
#[derive(Debug)]
pub struct Parts {
    parts: Vec<Part>,
}

impl Parts {
    /// Exactly these files.
    pub fn of(paths: &[PathBuf]) -> Result<Parts, Error> {
        let mut parts = Vec::new();
        let mut bad = Vec::new();
        for path in paths {
            match Part::open(path) {
                Ok(part) => parts.push(part),
                Err(Bad::Named(text)) => bad.push(text),
                Err(Bad::Other(error)) => return Err(error),
            }
        }
        let Some(first) = parts.first().map(|part| part.head) else {
            return Err(Error::Parts(bad.join("; ")));
        };
        let name = parts[0].path.clone();
        let (parts, foreign): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.head.fits(&first));
        bad.extend(foreign.iter().map(|part| {
            format!(
                "{} is {}, and {} is {}",
                part.path.display(),
                part.head.says(),
                name.display(),
                first.says()
            )
        }));
        Parts::whole(parts, bad)
    }

    /// The part `path`, and from its folder the others of the same split. Whatever else is there is left alone.
    pub fn beside(path: &Path) -> Result<Parts, Error> {
        let first = match Part::open(path) {
            Ok(part) => part,
            Err(Bad::Named(text)) => return Err(Error::Parts(text)),
            Err(Bad::Other(error)) => return Err(error),
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let stem = name_of(path).and_then(|name| Some(name.rsplit_once(".part-")?.0.to_owned()));
        let mut names: Vec<PathBuf> = std::fs::read_dir(folder)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|entry| entry.file_name().into()))
                    .collect()
            })
            .map_err(Error::io("list", folder))?;
        names.sort();
        let (mut parts, mut bad) = (Vec::new(), Vec::new());
        for name in names {
            if Some(name.as_os_str()) == path.file_name() {
                continue;
            }
            // As the user wrote the folder, so that errors name what was typed.
            let other = path.with_file_name(&name);
            // Its name says that it belongs here, whatever else is damaged.
            let meant = name
                .to_str()
                .and_then(|name| name.rsplit_once(".part-"))
                .is_some_and(|(its, rest)| {
                    Some(its) == stem.as_deref() && rest.ends_with(&format!("-of-{}", first.head.count))
                });
            match Part::open(&other) {
                Ok(part) if part.head.fits(&first.head) => parts.push(part),
                Ok(part) if meant => bad.push(format!("{} is {}", other.display(), part.head.says())),
                Err(Bad::Named(text)) if meant => bad.push(text),
                _ => {}
            }
        }
        parts.push(first);
        Parts::whole(parts, bad)
    }

    /// Whether all are there, each once and one after the other; says everything that is wrong.
    fn whole(mut parts: Vec<Part>, mut bad: Vec<String>) -> Result<Parts, Error> {
        parts.sort_by(|a, b| (a.head.number, &a.path).cmp(&(b.head.number, &b.path)));
        let first = parts[0].head;
        let mut found: BTreeMap<u32, &Part> = BTreeMap::new();
        for part in &parts {
            if let Some(other) = found.insert(part.head.number, part) {
                let (a, b, number) = (other.path.display(), part.path.display(), part.head.number);
                bad.push(format!("{a} and {b} are both part {number}"));
            }
        }
        for number in 1..=first.count {
            if !found.contains_key(&number) {
                bad.push(format!("part {number} of {} is missing", first.count));
            }
        }
        if bad.is_empty() {
            let mut next = 0;
            for part in &parts {
                let (path, at) = (part.path.display(), part.head.offset);
                if at != next {
                    bad.push(format!(
                        "{path} begins at byte {at} of the bundle, expected {next}: it is of another split"
                    ));
                }
                next = at + part.head.length;
            }
            if bad.is_empty() && next != first.whole_length {
                let length = first.whole_length;
                bad.push(format!(
                    "the parts end at byte {next} of the bundle, which has {length}"
                ));
            }
        }
        match bad.is_empty() {
            true => Ok(Parts { parts }),
            false => Err(Error::Parts(bad.join("; "))),
        }
    }

    /// The id that the parts give the bundle.
    pub fn id(&self) -> Digest {
        self.parts[0].head.id
    }

    /// The digest that they give the whole file.
    pub fn sha256(&self) -> Digest {
        self.parts[0].head.whole
    }

    /// The length of the whole file.
    pub fn whole_length(&self) -> u64 {
        self.parts[0].head.whole_length
    }

    /// What to call the whole in messages: the first part.
    pub fn name(&self) -> PathBuf {
        self.parts[0].path.clone()
    }

    /// The files, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.path.as_path())
    }

    /// What is good and has another name than `split` gave it, one sentence for each.
    pub fn misnamed(&self) -> Vec<String> {
        let other = |part: &&Part| {
            let expected = part_name("", part.head.number as usize, part.head.count as usize);
            !name_of(&part.path).is_some_and(|name| name.ends_with(&expected))
        };
        let says = |part: &Part| format!("{} is {}", part.path.display(), part.head.says());
        self.parts.iter().filter(other).map(says).collect()
    }

    /// Writes the whole bundle into the empty file `out`, and proves each part and the whole. Every bad part is named.
    pub fn join(&self, out: &mut File, out_path: &Path, watcher: &mut dyn Watcher) -> Result<(), Error> {
        let mut whole = Hasher::new();
        let (mut bad, mut done) = (Vec::new(), 0);
        for part in &self.parts {
            let good = part.check(&mut |bytes| {
                whole.update(bytes);
                done += bytes.len() as u64;
                watcher.tell(done, self.whole_length())?;
                out.write_all(bytes).map_err(Error::io("write", out_path))
            })?;
            if !good {
                bad.push(damaged(part));
            }
        }
        if bad.is_empty() && whole.finish() != self.sha256() {
            bad.push("each part is whole, and together they are not the bundle".into());
        }
        match bad.is_empty() {
            true => Ok(()),
            false => Err(Error::Parts(bad.join("; "))),
        }
    }

    pub(crate) fn into_source(self) -> Source {
        let piece = |part: Part| Piece {
            length: part.head.length,
            offset: HEAD as u64,
            sum: Some((part.head.fields(), part.sum)),
            file: part.file,
            path: part.path,
        };
        Source::new(self.parts.into_iter().map(piece).collect())
    }
}

fn damaged(part: &Part) -> String {
    format!(
        "{} is damaged: its bytes do not have the checksum that {} says",
        part.path.display(),
        part.head.says()
    )
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// The parts that are the cause of an error, or the error itself.
pub(crate) fn blame(paths: &[PathBuf], error: Error) -> Error {
    let mut bad = Vec::new();
    for path in paths {
        match Part::open(path) {
            Ok(part) => match part.check(&mut |_| Ok(())) {
                Ok(true) => {}
                Ok(false) => bad.push(damaged(&part)),
                Err(_) => return error,
            },
            Err(Bad::Named(text)) => bad.push(text),
            Err(Bad::Other(_)) => return error,
        }
    }
    match bad.is_empty() {
        true => error,
        false => Error::Parts(bad.join("; ")),
    }
}
