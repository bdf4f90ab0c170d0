//! `SHA256SUMS.minisig`: a signature of `SHA256SUMS` in minisign's format, in one encoding.
//!
//! `bundle.json` does not name it, so that a bundle has the same id signed and unsigned. Both comments follow from
//! `bundle.json`; what is left are the key's id and the two signatures.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::{Error, Manifest, SIGNATURE};

/// What the first line of a signature says.
const UNTRUSTED_COMMENT: &str = "untrusted comment: signature of SHA256SUMS\n";
const TRUSTED_COMMENT: &str = "trusted comment: ";
/// Algorithm, key's id and signature, and the signature of that and the trusted comment; in base64 and with their line
/// feeds.
const LINES_LENGTH: usize = 100 + 1 + 88 + 1;
/// minisign's mark of a signature of the BLAKE2b of a file. That of the file itself is not taken.
const PREHASHED: [u8; 2] = *b"ED";
/// The longest file that is read as a public key, in bytes.
const KEY_FILE_MAX: u64 = 4096;

/// The id of a key as minisign shows it: 16 upper-case hexadecimal digits.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct KeyId([u8; 8]);

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016X}", u64::from_le_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Why something is no public key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is none.
    #[error("it is no public key of minisign: expected a line of 56 characters that begins with RW")]
    NoKey,
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// A public key of minisign.
#[derive(Clone, Debug)]
pub struct PublicKey {
    key: minisign_verify::PublicKey,
    id: KeyId,
    text: String,
}

impl PublicKey {
    /// Reads a key: the line itself, or the file of two lines that minisign writes.
    pub fn parse(text: &str) -> Result<PublicKey, KeyError> {
        let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let line = lines.find(|line| !line.starts_with("untrusted comment:"));
        let line = line.filter(|_| lines.next().is_none()).ok_or(KeyError::NoKey)?;
        let bytes = BASE64_STANDARD.decode(line).map_err(|_| KeyError::NoKey)?;
        let key = minisign_verify::PublicKey::from_base64(line).map_err(|_| KeyError::NoKey)?;
        let id = bytes.get(2..).and_then(|rest| rest.first_chunk());
        Ok(PublicKey {
            key,
            id: KeyId(*id.ok_or(KeyError::NoKey)?),
            text: line.to_owned(),
        })
    }

    /// Reads a file with a key.
    pub fn read(path: &Path) -> Result<PublicKey, KeyError> {
        let failed = |source| KeyError::Io {
            path: path.into(),
            source,
        };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, KEY_FILE_MAX), &mut bytes).map_err(failed)?;
        PublicKey::parse(std::str::from_utf8(&bytes).map_err(|_| KeyError::NoKey)?)
    }

    /// What a person gave: the key itself, or the name of a file with it.
    pub fn given(text: &str) -> Result<PublicKey, KeyError> {
        PublicKey::parse(text).or_else(|_| PublicKey::read(Path::new(text)))
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

/// The line that [`PublicKey::parse`] reads.
impl fmt::Display for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Who can sign. This crate only reads signatures; the one who holds a secret key makes them.
pub trait Signer {
    /// The public half of the key.
    fn public_key(&self) -> &PublicKey;
    /// minisign's two signatures: of the BLAKE2b-512 of `bytes`, and of that signature followed by `trusted_comment`.
    fn sign(&self, bytes: &[u8], trusted_comment: &str) -> ([u8; 64], [u8; 64]);
}

/// A signature that is well formed. Whether it is right, [`check`] says.
#[derive(Clone, Debug)]
pub struct Signature {
    text: String,
    key: KeyId,
}

impl Signature {
    /// The length of a bundle's signature in bytes.
    pub(crate) fn length(manifest: &Manifest) -> u64 {
        let comments = UNTRUSTED_COMMENT.len() + TRUSTED_COMMENT.len() + comment(manifest).len() + 1;
        (comments + LINES_LENGTH) as u64
    }

    /// Signs `sums`, the list of the manifest's bundle.
    pub(crate) fn make(manifest: &Manifest, sums: &[u8], signer: &dyn Signer) -> Signature {
        let comment = comment(manifest);
        let (of_bytes, of_both) = signer.sign(sums, &comment);
        let key = signer.public_key().id();
        Signature {
            text: encode(&comment, key, &of_bytes, &of_both),
            key,
        }
    }

    /// Reads the one encoding.
    pub(crate) fn parse(manifest: &Manifest, bytes: &[u8]) -> Result<Signature, String> {
        let other = || "it is not in the one encoding of a signature of this bundle".to_owned();
        let text = std::str::from_utf8(bytes).map_err(|_| other())?;
        let mut lines = text.split('\n');
        let mut decode = |index| BASE64_STANDARD.decode(lines.nth(index).unwrap_or_default()).ok();
        let (first, second) = (decode(1), decode(1));
        let first = first.filter(|first| first.len() == 74).ok_or_else(other)?;
        let second: [u8; 64] = second.and_then(|bytes| bytes.try_into().ok()).ok_or_else(other)?;
        let key = KeyId(*first[2..].first_chunk().expect("74 bytes"));
        let of_bytes = first[10..].first_chunk().expect("74 bytes");
        match encode(&comment(manifest), key, of_bytes, &second) == text {
            true => Ok(Signature { text: text.into(), key }),
            false => Err(other()),
        }
    }

    /// The id of the key that it says it was made with.
    pub fn key(&self) -> KeyId {
        self.key
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// The trusted comment: it is signed too, and minisign shows it.
fn comment(manifest: &Manifest) -> String {
    format!("{} {}", manifest.folder(), manifest.id())
}

fn encode(comment: &str, key: KeyId, of_bytes: &[u8; 64], of_both: &[u8; 64]) -> String {
    let first = [&PREHASHED[..], &key.0, of_bytes].concat();
    let (first, second) = (BASE64_STANDARD.encode(first), BASE64_STANDARD.encode(of_both));
    format!("{UNTRUSTED_COMMENT}{first}\n{TRUSTED_COMMENT}{comment}\n{second}\n")
}

/// Checks that a signature of `sums` is there and right, made with one of `keys`; says which.
pub(crate) fn check(
    path: &Path,
    signature: Option<&Signature>,
    sums: &[u8],
    keys: &[PublicKey],
) -> Result<KeyId, Error> {
    let Some(signature) = signature else {
        return Err(Error::Unsigned { path: path.into() });
    };
    let wrong = |found: String| Error::Signature {
        path: path.into(),
        found,
    };
    let decoded = minisign_verify::Signature::decode(&signature.text)
        .map_err(|error| wrong(format!("{SIGNATURE} cannot be read: {error}")))?;
    let id = signature.key();
    let mut candidates = keys.iter().filter(|key| key.id() == id).peekable();
    if candidates.peek().is_none() {
        let trusted: Vec<String> = keys.iter().map(|key| key.id().to_string()).collect();
        let trusted = trusted.join(", ");
        return Err(wrong(format!("it is signed with the key {id}, trusted is {trusted}")));
    }
    match candidates.any(|key| key.key.verify(sums, &decoded, false).is_ok()) {
        true => Ok(id),
        false => Err(wrong(format!(
            "its signature says that it is made with the key {id}, and is not one of this bundle by that key"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key and a signature that minisign 0.11 made.
    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

    #[test]
    fn a_key_is_read_from_its_line_and_from_its_file() {
        for text in [
            KEY.to_owned(),
            format!("untrusted comment: minisign public key E7620F1842B4E81F\n{KEY}\n"),
            format!("untrusted comment: of mine\r\n{KEY}\r\n"),
        ] {
            let key = PublicKey::parse(&text).unwrap();
            assert_eq!(key.id().to_string(), "E7620F1842B4E81F");
            assert_eq!(key.to_string(), KEY);
        }
        for bad in ["", "RW", &KEY[1..], &format!("{KEY}\n{KEY}"), &KEY.replace("RW", "AW")] {
            assert!(PublicKey::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_signature_has_one_encoding() {
        let manifest = crate::manifest::tests::example();
        let key = PublicKey::parse(KEY).unwrap().id();
        let text = encode(&comment(&manifest), key, &[7; 64], &[9; 64]);
        assert_eq!(text.len() as u64, Signature::length(&manifest));
        assert_eq!(Signature::parse(&manifest, text.as_bytes()).unwrap().key(), key);
        let other = manifest.id().to_string();
        for bad in [
            String::new(),
            text.trim_end().to_owned(),
            format!("{text}\n"),
            text.replace('\n', "\r\n"),
            text.replacen("signature of", "signature  of", 1),
            text.replace(&other, &"0".repeat(64)),
            text.replacen("==\n", "\n", 1),
            text.replacen("RUQ", "RWQ", 1),
        ] {
            assert_ne!(bad, text);
            assert!(Signature::parse(&manifest, bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_flipped_bit_is_another_signature_or_none() {
        let manifest = crate::manifest::tests::example();
        let key = PublicKey::parse(KEY).unwrap().id();
        let text = encode(&comment(&manifest), key, &[7; 64], &[9; 64]);
        for bit in 0..text.len() * 8 {
            let mut bad = text.clone().into_bytes();
            bad[bit / 8] ^= 1 << (bit % 8);
            if let Ok(signature) = Signature::parse(&manifest, &bad) {
                let decoded = minisign_verify::Signature::decode(&signature.text).unwrap();
                assert_eq!(signature.bytes(), bad);
                assert!(PublicKey::parse(KEY).unwrap().key.verify(b"", &decoded, false).is_err());
            }
        }
    }
}
