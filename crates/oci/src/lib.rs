//! Images as OCI describes them: found in a layout or in an archive of `docker save`, checked, and merged into one
//! layout whose blobs are shared.
//!
//! Nothing is copied here: an [`Image`] says where each of its blobs lies. Manifests and configs are read and hashed;
//! layers are only measured, and whoever copies one compares its digest.

mod archive;
mod carry;
mod digest;
mod docker;
mod error;
mod image;
mod layout;
mod merge;
mod reference;
mod walk;
mod wire;

pub use carry::archive;
pub use digest::Digest;
pub use docker::from_docker_archive;
pub use error::Error;
pub use image::{Blob, DOCUMENT_MAX, Image, Place};
pub use layout::{Missing, from_blobs, from_layout, missing};
pub use merge::{Merged, merge};
pub use reference::Reference;
pub use walk::{Files, Held, Listed, compare, walk};
pub use wire::ACCEPTED;
