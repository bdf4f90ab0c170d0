//! The bundle: one `.tar.gz` that any `tar xzf` opens and that this crate reads in exactly one encoding.
//!
//! Reading goes in one direction: [`Unverified::open`] looks at the frame and at `bundle.json`, both still claims;
//! [`Unverified::verify`] and [`Unverified::extract`] check every bit and give a [`Verified`]. A folder that `tar`
//! made is checked by [`Folder::open`] and [`Folder::verify`]. Where a key is trusted, `check_signature` of either comes
//! before all else. Writing goes through [`seal`], which settles `bundle.json`, [`Sealed::sign`] and [`Sealed::write`].
//!
//! This crate knows no template, no node and no program's purpose. Every byte of the format is drawn in
//! `docs/bundle.md`.

mod delta;
mod digest;
mod error;
mod extract;
mod fill;
mod folder;
mod gzip;
mod layout;
mod manifest;
mod names;
mod ordered;
mod part;
mod read;
mod signature;
mod source;
mod sums;
mod tar;
mod verified;
mod verify;
mod write;

pub use delta::{Base, Delta, Made, Taken};
pub use digest::{Digest, Hasher, NoDigest};
pub use error::Error;
pub use fill::{Filled, Survey, fill};
pub use folder::Folder;
pub use manifest::{
    Architecture, BUNDLE_JSON, DEFAULT_MTIME, FORMAT, FileEntry, FileMode, Image, Kind, MTIME_MAX, Manifest, NEEDS,
    Origin, SHA256SUMS, SIGNATURE,
};
pub use names::{check_name, check_path, check_paths, check_version};
pub use part::{Cut, PARTS_MAX, Parts, part_name};
pub use read::Unverified;
pub use signature::{KeyError, KeyId, PublicKey, Signature, Signer};
pub use verified::{Verified, Watcher};
pub use write::{Content, Draft, Input, Sealed, Written, seal};
