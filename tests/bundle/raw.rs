//! A second writer of the format, made from docs/bundle.md alone. It writes what it is told, also what harms.

use std::collections::BTreeSet;
use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub const TOP: &str = "quantykube-1.0.0-linux-amd64";
const MTIME: u64 = 1_767_225_600;
const CUT: usize = 4 << 20;

/// One entry: a header and what follows it, without padding.
#[derive(Clone)]
pub struct Entry {
    pub header: [u8; 512],
    pub data: Vec<u8>,
}

/// The fields of a header.
pub struct Fields<'a> {
    pub name: &'a str,
    pub kind: u8,
    pub mode: u32,
    pub size: u64,
    pub link: &'a str,
}

impl Fields<'_> {
    pub fn header(&self) -> [u8; 512] {
        let mut header = [0; 512];
        let mut put = |at: usize, text: String| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        let long = self.name.len() > 100;
        let cut = self
            .name
            .match_indices('/')
            .find(|(at, _)| self.name.len() - at - 1 <= 100);
        match cut.filter(|_| long) {
            Some((at, _)) => {
                put(0, self.name[at + 1..].into());
                put(345, self.name[..at].into());
            }
            None => put(0, self.name.into()),
        }
        put(100, format!("{:07o}", self.mode));
        put(108, "0000000".into());
        put(116, "0000000".into());
        put(124, format!("{:011o}", self.size));
        put(136, format!("{MTIME:011o}"));
        put(157, self.link.into());
        put(257, "ustar\0".into());
        put(263, "00".into());
        put(329, "0000000".into());
        put(337, "0000000".into());
        header[156] = self.kind;
        sum(&mut header);
        header
    }
}

/// Sets the checksum of a header.
pub fn sum(header: &mut [u8; 512]) {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub fn file(name: &str, mode: u32, data: &[u8]) -> Entry {
    let size = data.len() as u64;
    Entry {
        header: Fields {
            name,
            kind: b'0',
            mode,
            size,
            link: "",
        }
        .header(),
        data: data.to_vec(),
    }
}

pub fn special(name: &str, kind: u8, link: &str) -> Entry {
    Entry {
        header: Fields {
            name,
            kind,
            mode: 0o755,
            size: 0,
            link,
        }
        .header(),
        data: Vec::new(),
    }
}

/// A special entry whose stream is as long as that of a small file, so that the gzip members around it fit bundle.json.
pub fn special_in_place_of_a_file(name: &str, kind: u8, link: &str) -> Entry {
    Entry {
        data: vec![0; 512],
        ..special(name, kind, link)
    }
}

pub fn folder(name: &str) -> Entry {
    special(name, b'5', "")
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A file of a bundle.
pub struct File {
    pub path: String,
    pub data: Vec<u8>,
    /// The size that bundle.json states.
    pub size: u64,
}

pub fn named(path: &str, data: &[u8]) -> File {
    File {
        path: path.into(),
        data: data.to_vec(),
        size: data.len() as u64,
    }
}

pub fn bundle_json(files: &[File], format: u64, needs: &str) -> Vec<u8> {
    bundle_json_of(files, &json!([]), format, needs)
}

fn bundle_json_of(files: &[File], images: &Value, format: u64, needs: &str) -> Vec<u8> {
    let mut list: Vec<_> = files.iter().collect();
    list.sort_by(|a, b| a.path.cmp(&b.path));
    let entry = |file: &&File| {
        json!({
            "kind": "binary", "mode": "0644", "origin": {"spec": "x"}, "path": file.path,
            "sha256": sha256(&file.data), "size": file.size,
        })
    };
    let value = json!({
        "architecture": "amd64", "files": list.iter().map(entry).collect::<Vec<_>>(), "format": format, "images": images,
        "mtime": MTIME, "name": "quantykube", "needs": needs, "version": "1.0.0",
    });
    let mut bytes = serde_json::to_vec_pretty(&value).unwrap();
    bytes.push(b'\n');
    bytes
}

/// The entries of a right bundle of these files; also of wrong names, as right as they can be.
pub fn entries(files: &[File]) -> Vec<Entry> {
    entries_of(files, &json!([]))
}

/// As [`entries`], with the images that bundle.json is to name.
pub fn entries_of(files: &[File], images: &Value) -> Vec<Entry> {
    let bundle_json = bundle_json_of(files, images, 1, "0.1.0");
    let mut sums: Vec<(String, String)> = files
        .iter()
        .map(|file| (file.path.clone(), sha256(&file.data)))
        .collect();
    sums.push(("bundle.json".into(), sha256(&bundle_json)));
    sums.sort();
    let sums: String = sums.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect();
    let mut folders = BTreeSet::from([String::new()]);
    for file in files {
        folders.extend(file.path.match_indices('/').map(|(at, _)| file.path[..=at].to_owned()));
    }
    let mut rest: Vec<(String, Entry)> = vec![("SHA256SUMS".into(), file(&top("SHA256SUMS"), 0o644, sums.as_bytes()))];
    rest.extend(folders.into_iter().map(|path| (path.clone(), folder(&top(&path)))));
    rest.extend(
        files
            .iter()
            .map(|one| (one.path.clone(), file(&top(&one.path), 0o644, &one.data))),
    );
    rest.sort_by(|a, b| a.0.cmp(&b.0));
    let mut entries = vec![file(&top("bundle.json"), 0o644, &bundle_json)];
    entries.extend(rest.into_iter().map(|(_, entry)| entry));
    entries
}

/// The id of a bundle: the digest of its first entry.
pub fn id(entries: &[Entry]) -> String {
    sha256(&entries[0].data)
}

pub fn top(path: &str) -> String {
    format!("{TOP}/{path}")
}

/// One gzip member that declares `declared` bytes of content.
pub fn member(content: &[u8], declared: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(content).unwrap();
    let deflated = encoder.finish().unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let mut member = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 12, 0, b'Q', b'K', 8, 0];
    member.extend((deflated.len() as u32).to_le_bytes());
    member.extend(declared.to_le_bytes());
    member.extend(deflated);
    member.extend(crc.sum().to_le_bytes());
    member.extend(declared.to_le_bytes());
    member
}

/// The members of a row of entries, and that of the archive's end.
pub fn members(entries: &[Entry]) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    for entry in entries {
        let mut stream = entry.header.to_vec();
        stream.extend(&entry.data);
        stream.resize(stream.len().next_multiple_of(512), 0);
        members.extend(stream.chunks(CUT).map(|part| member(part, part.len() as u32)));
    }
    members.push(member(&[0; 1024], 1024));
    members
}

/// The file of a row of members.
pub fn seal(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    let digest = Sha256::digest(&bytes);
    let data = 4 * members.len() + 32 + 4;
    let length = 12 + 4 + data + 10;
    bytes.extend([0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255]);
    bytes.extend((data as u16 + 4).to_le_bytes());
    bytes.extend(b"QT");
    bytes.extend((data as u16).to_le_bytes());
    for member in members {
        bytes.extend((member.len() as u32).to_le_bytes());
    }
    bytes.extend(digest);
    bytes.extend((length as u32).to_le_bytes());
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

pub fn archive(entries: &[Entry]) -> Vec<u8> {
    seal(&members(entries))
}
