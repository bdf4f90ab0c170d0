//! A copy that stopped halfway: which of its bytes are good, and how another copy completes it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::gzip::{CUT, Decoder, FIXED, HEADER, Header};
use crate::read::open_file;
use crate::verified::Watcher;
use crate::{Error, Unverified};

/// What of a damaged or incomplete bundle is whole, as the members themselves say it.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The length of the file.
    pub length: u64,
    /// The ranges of bytes that hold whole members, in order.
    pub good: Vec<Range<u64>>,
    /// How many members those are.
    pub members: u64,
}

impl Survey {
    /// The number of good bytes.
    pub fn bytes(&self) -> u64 {
        self.good.iter().map(|range| range.end - range.start).sum()
    }

    /// Reads the file once. Every member whose header, deflate data and CRC agree is good; behind one that is not, the
    /// next one is looked for.
    pub fn of(path: &Path, watcher: &mut dyn Watcher) -> Result<Survey, Error> {
        let file = open_file(path)?;
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        let mut survey = Survey {
            length,
            good: Vec::new(),
            members: 0,
        };
        let mut decoder = Decoder::new();
        let (mut at, mut member) = (0, Vec::new());
        watcher.tell(0, length)?;
        while at + HEADER as u64 <= length {
            match good_member(&file, path, at, length, &mut decoder, &mut member)? {
                Some(size) => {
                    survey.members += 1;
                    match survey.good.last_mut() {
                        Some(last) if last.end == at => last.end += size,
                        _ => survey.good.push(at..at + size),
                    }
                    at += size;
                }
                None => at = next_start(&file, path, at + 1, length)?,
            }
            watcher.tell(at.min(length), length)?;
        }
        Ok(survey)
    }
}

/// The length of the member at `at`, if it is whole. `member` gets its bytes.
fn good_member(
    file: &File,
    path: &Path,
    at: u64,
    length: u64,
    decoder: &mut Decoder,
    member: &mut Vec<u8>,
) -> Result<Option<u64>, Error> {
    if at + HEADER as u64 > length {
        return Ok(None);
    }
    member.resize(HEADER, 0);
    let read = |bytes: &mut [u8], at| file.read_exact_at(bytes, at).map_err(Error::io("read", path));
    read(member, at)?;
    let Ok(header) = Header::decode(member[..].try_into().expect("one header")) else {
        return Ok(None);
    };
    if at + header.member() > length {
        return Ok(None);
    }
    member.resize(header.member() as usize, 0);
    read(&mut member[HEADER..], at + HEADER as u64)?;
    match decoder.member(header, member, Vec::new()) {
        Ok(_) => Ok(Some(header.member())),
        Err(_) => Ok(None),
    }
}

/// Where, from `at` on, bytes stand that begin a member; the file's length where none do.
fn next_start(file: &File, path: &Path, mut at: u64, length: u64) -> Result<u64, Error> {
    let mut start = FIXED.to_vec();
    start.extend_from_slice(&[12, 0, b'Q', b'K', 8, 0]);
    let mut buffer = vec![0; 1 << 20];
    while at + start.len() as u64 <= length {
        let part = &mut buffer[..(length - at).min(1 << 20) as usize];
        file.read_exact_at(part, at).map_err(Error::io("read", path))?;
        if let Some(found) = part.windows(start.len()).position(|window| window == start) {
            return Ok(at + found as u64);
        }
        // What begins at the end of this part is found in the next one.
        at += (part.len() - start.len() + 1) as u64;
    }
    Ok(length)
}

/// What completing a copy took.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// Bytes that the copy had already.
    pub kept: u64,
    /// Bytes that were written into it.
    pub written: u64,
    /// Bytes that were read of the other copy.
    pub read: u64,
    /// The length of the whole.
    pub length: u64,
}

/// Completes the copy `path`, in its place, from `other`: only members that are not whole in it are read and written.
/// Before the first byte is written it is proven by what is good in it that it is a copy of this very file. The whole is
/// still to be verified.
pub fn fill(path: &Path, other: &Unverified, watcher: &mut dyn Watcher) -> Result<Filled, Error> {
    let not_a_copy = |found: String| Error::NotABundle {
        path: path.into(),
        found,
    };
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(Error::io("open", path))?;
    let data = file.metadata().map_err(Error::io("read", path))?;
    let (length, whole) = (data.len(), other.length());
    if !data.is_file() {
        return Err(not_a_copy("it is no regular file".into()));
    }
    if length > whole {
        return Err(not_a_copy(format!("it has {length} bytes, the other copy {whole}")));
    }
    let members = &other.trailer.members;
    let mut missing = Vec::new();
    let (mut at, mut kept, mut done) = (0, 0, 0);
    let (mut decoder, mut member) = (Decoder::new(), Vec::new());
    watcher.tell(done, whole)?;
    for (index, size) in members.iter().map(|size| u64::from(*size)).enumerate() {
        let expected = u64::from(*members.get(index).expect("the loop is over them"));
        match good_member(&file, path, at, length, &mut decoder, &mut member)? {
            Some(found) if found == expected => kept += size,
            _ => missing.push((index, at)),
        }
        at += size;
        done += size;
        watcher.tell(done.min(length), whole)?;
    }
    if kept == 0 {
        return Err(not_a_copy(
            "no member of the other copy is whole in it, so it is no copy of it".into(),
        ));
    }
    // The same places could be those of another bundle: what is good in both must be the same.
    let mut again = vec![0; CUT as usize];
    let first_good = (0..members.len()).find(|index| missing.iter().all(|(bad, _)| bad != index));
    let first_good = first_good.expect("something was kept");
    let start: u64 = members[..first_good].iter().map(|size| u64::from(*size)).sum();
    let size = members[first_good] as usize;
    member.resize(size, 0);
    again.resize(size, 0);
    file.read_exact_at(&mut member, start)
        .map_err(Error::io("read", path))?;
    let read = |bytes: &mut [u8], at| {
        other
            .source
            .read_exact_at(bytes, at)
            .map_err(Error::io("read", &other.path))
    };
    read(&mut again, start)?;
    if member != again {
        return Err(not_a_copy(format!(
            "its good bytes from {start} on are others than those of {}: it is a copy of another bundle",
            other.path.display()
        )));
    }
    let mut written = 0;
    for (index, at) in missing {
        let damaged = |found: String| Error::Frame {
            path: other.path.clone(),
            offset: at,
            found,
        };
        member.resize(members[index] as usize, 0);
        read(&mut member, at)?;
        let header = member
            .first_chunk()
            .ok_or_else(|| damaged("the table has a member of no length".into()))?;
        let header = Header::decode(header).map_err(damaged)?;
        if header.member() != member.len() as u64 {
            return Err(damaged("the member has another length than the table says".into()));
        }
        decoder.member(header, &member, Vec::new()).map_err(damaged)?;
        file.write_all_at(&member, at).map_err(Error::io("write", path))?;
        written += member.len() as u64;
        watcher.tell(done.min(kept + written), whole)?;
    }
    let trailer = other.trailer.encode();
    let mut there = vec![0; trailer.len()];
    if length < whole || file.read_exact_at(&mut there, at).is_err() || there != trailer {
        file.write_all_at(&trailer, at).map_err(Error::io("write", path))?;
        written += trailer.len() as u64;
    }
    file.sync_all().map_err(Error::io("sync", path))?;
    Ok(Filled {
        kept: whole - written,
        written,
        read: other.bytes_read(),
        length: whole,
    })
}
