//! One file for each command.

pub mod build;
pub mod completions;
pub mod extract;
pub mod init;
pub mod inspect;
pub mod keygen;
pub mod man;
pub mod schema;
pub mod verify;
