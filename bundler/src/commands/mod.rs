//! One file for each command.

pub mod apply;
pub mod build;
pub mod completions;
pub mod delta;
pub mod diff;
pub mod extract;
pub mod fill;
pub mod find_images;
pub mod init;
pub mod inspect;
pub mod join;
pub mod keygen;
pub mod lock;
pub mod man;
pub mod sbom;
pub mod schema;
pub mod seed;
pub mod split;
pub mod user_data;
pub mod verify;
