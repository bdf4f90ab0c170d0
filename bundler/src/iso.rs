//! A small writer of ISO 9660 images with Joliet names: one folder, the same bytes for the same inputs.
//!
//! After ECMA-119 and the Joliet specification. All times are one constant, and the order of files is that of their
//! names. Linux and cloud-init read the Joliet side, whose names are as given; the plain side has 8.3 names.
//!
//! ```text
//! sector  0-15   zeros
//!        16      primary volume descriptor
//!        17      supplementary (Joliet) volume descriptor
//!        18      terminator
//!        19-22   path tables: primary little- and big-endian, Joliet little- and big-endian
//!        23-     root folder of the primary side, root folder of the Joliet side, then the files
//! ```

use std::io::{self, Read, Write};

/// A sector, in bytes.
const SECTOR: u64 = 2048;
/// The longest file that one extent holds: whole sectors below 4 GiB.
pub const FILE_MAX: u64 = (u32::MAX as u64 / SECTOR) * SECTOR;
/// 2026-01-01, as the bundle's entries have it: years since 1900, month, day, hour, minute, second, zone.
const TIME: [u8; 7] = [126, 1, 1, 0, 0, 0, 0];
const LONG_TIME: &[u8; 17] = b"2026010100000000\0";
const NO_TIME: &[u8; 17] = b"0000000000000000\0";
const PATH_TABLES: u32 = 19;
const ROOTS: u32 = 23;

/// A file of the image.
pub struct File<R> {
    /// Its name; 1 to 64 characters of the Basic Multilingual Plane.
    pub name: String,
    /// Its length in bytes, at most [`FILE_MAX`].
    pub length: u64,
    /// Its bytes.
    pub content: R,
}

/// Writes an image with the label and the files, in the order of their names.
///
/// # Errors
/// Writing, reading, or a file that has not the length that was told.
pub fn write<R: Read>(out: &mut dyn Write, label: &str, mut files: Vec<File<R>>) -> io::Result<u64> {
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let plain_names: Vec<Vec<u8>> = (0..files.len())
        .map(|n| format!("FILE{n:04}.;1").into_bytes())
        .collect();
    let joliet_names: Vec<Vec<u8>> = files.iter().map(|file| ucs2(&file.name)).collect();
    let sectors_of = |names: &[Vec<u8>]| folder(0, 0, names, &[]).len() as u32 / SECTOR as u32;
    let (plain_sectors, joliet_sectors) = (sectors_of(&plain_names), sectors_of(&joliet_names));
    let (plain_root, joliet_root) = (ROOTS, ROOTS + plain_sectors);
    let mut next = u64::from(joliet_root + joliet_sectors);
    let mut extents = Vec::new();
    for file in &files {
        if file.length > FILE_MAX {
            return Err(io::Error::other(format!(
                "{} has more than {FILE_MAX} bytes",
                file.name
            )));
        }
        let sector = u32::try_from(next).map_err(|_| io::Error::other("the image has too many sectors"))?;
        extents.push((sector, file.length as u32));
        next += file.length.div_ceil(SECTOR);
    }
    let total = u32::try_from(next).map_err(|_| io::Error::other("the image has too many sectors"))?;
    out.write_all(&vec![0; 16 * SECTOR as usize])?;
    out.write_all(&descriptor(false, label, total, plain_root, plain_sectors))?;
    out.write_all(&descriptor(true, label, total, joliet_root, joliet_sectors))?;
    let mut end = vec![0; SECTOR as usize];
    end[..7].copy_from_slice(b"\xffCD001\x01");
    out.write_all(&end)?;
    for root in [plain_root, joliet_root] {
        // The second number is that of the parent folder: the root is its own.
        for (sector, parent) in [
            (root.to_le_bytes(), 1_u16.to_le_bytes()),
            (root.to_be_bytes(), 1_u16.to_be_bytes()),
        ] {
            let mut table = vec![0; SECTOR as usize];
            table[0] = 1;
            table[2..6].copy_from_slice(&sector);
            table[6..8].copy_from_slice(&parent);
            out.write_all(&table)?;
        }
    }
    out.write_all(&folder(plain_root, plain_sectors, &plain_names, &extents))?;
    out.write_all(&folder(joliet_root, joliet_sectors, &joliet_names, &extents))?;
    for file in files {
        let copied = io::copy(&mut file.content.take(file.length + 1), out)?;
        if copied != file.length {
            let message = format!(
                "{} changed while it was read: {copied} bytes, expected {}",
                file.name, file.length
            );
            return Err(io::Error::other(message));
        }
        let rest = (SECTOR - file.length % SECTOR) % SECTOR;
        out.write_all(&vec![0; rest as usize])?;
    }
    Ok(next * SECTOR)
}

fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// A number in both byte orders.
fn both32(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn both16(number: u16) -> [u8; 4] {
    let mut bytes = [0; 4];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// One record of a folder.
fn record(sector: u32, length: u32, is_folder: bool, name: &[u8]) -> Vec<u8> {
    let mut record = vec![0, 0];
    record.extend(both32(sector));
    record.extend(both32(length));
    record.extend(TIME);
    record.extend([if is_folder { 2 } else { 0 }, 0, 0]);
    record.extend(both16(1));
    record.push(name.len() as u8);
    record.extend(name);
    // Records have even lengths.
    if record.len() % 2 == 1 {
        record.push(0);
    }
    record[0] = record.len() as u8;
    record
}

/// A folder in whole sectors; no record crosses from one into the next. Without `extents` its size alone is right.
fn folder(root: u32, sectors: u32, names: &[Vec<u8>], extents: &[(u32, u32)]) -> Vec<u8> {
    let length = sectors * SECTOR as u32;
    let mut bytes = [record(root, length, true, &[0]), record(root, length, true, &[1])].concat();
    for (index, name) in names.iter().enumerate() {
        let (sector, length) = extents.get(index).copied().unwrap_or_default();
        let record = record(sector, length, false, name);
        let left = SECTOR as usize - bytes.len() % SECTOR as usize;
        if record.len() > left {
            bytes.resize(bytes.len() + left, 0);
        }
        bytes.extend(record);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
    bytes
}

fn descriptor(joliet: bool, label: &str, total: u32, root: u32, root_sectors: u32) -> Vec<u8> {
    let mut d = vec![0; SECTOR as usize];
    d[..7].copy_from_slice(if joliet { b"\x02CD001\x01" } else { b"\x01CD001\x01" });
    let fill = |d: &mut [u8], from: usize, length: usize, text: &str| {
        let encoded = if joliet { ucs2(text) } else { text.as_bytes().to_vec() };
        for (at, byte) in d[from..from + length].iter_mut().enumerate() {
            let space = if joliet && at % 2 == 0 { 0 } else { b' ' };
            *byte = encoded.get(at).copied().unwrap_or(space);
        }
        // A field of odd length ends with half a character.
        if joliet && length % 2 == 1 {
            d[from + length - 1] = 0;
        }
    };
    fill(&mut d, 8, 32, "LINUX");
    fill(&mut d, 40, 32, label);
    d[80..88].copy_from_slice(&both32(total));
    if joliet {
        // UCS-2, level 3.
        d[88..91].copy_from_slice(b"%/E");
    }
    d[120..124].copy_from_slice(&both16(1));
    d[124..128].copy_from_slice(&both16(1));
    d[128..132].copy_from_slice(&both16(SECTOR as u16));
    // One folder: a path table of 10 bytes.
    d[132..140].copy_from_slice(&both32(10));
    let tables = PATH_TABLES + if joliet { 2 } else { 0 };
    d[140..144].copy_from_slice(&tables.to_le_bytes());
    d[148..152].copy_from_slice(&(tables + 1).to_be_bytes());
    d[156..190].copy_from_slice(&record(root, root_sectors * SECTOR as u32, true, &[0]));
    for (from, length) in [
        (190, 128),
        (318, 128),
        (446, 128),
        (574, 128),
        (702, 37),
        (739, 37),
        (776, 37),
    ] {
        fill(&mut d, from, length, "");
    }
    for (at, time) in [(813, LONG_TIME), (830, LONG_TIME), (847, NO_TIME), (864, LONG_TIME)] {
        d[at..at + 17].copy_from_slice(time);
    }
    d[881] = 1;
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_length_than_told_and_one_too_long_are_errors() {
        let file = |length, content: &'static [u8]| {
            vec![File {
                name: "a".into(),
                length,
                content,
            }]
        };
        assert!(write(&mut Vec::new(), "x", file(3, b"abc")).is_ok());
        assert!(write(&mut Vec::new(), "x", file(4, b"abc")).is_err());
        assert!(write(&mut Vec::new(), "x", file(2, b"abc")).is_err());
        assert!(write(&mut Vec::new(), "x", file(FILE_MAX + 1, b"abc")).is_err());
    }

    #[test]
    fn the_image_is_as_long_as_it_says() {
        for count in [0_usize, 1, 40, 300] {
            let files = (0..count).map(|n| File {
                name: format!("a rather long name with a number {n}"),
                length: n as u64,
                content: io::repeat(1).take(n as u64),
            });
            let mut image = Vec::new();
            let length = write(&mut image, "cidata", files.collect()).unwrap();
            assert_eq!(image.len() as u64, length);
            let said = u32::from_le_bytes(image[16 * 2048 + 80..][..4].try_into().unwrap());
            assert_eq!(u64::from(said) * SECTOR, length);
        }
    }
}
