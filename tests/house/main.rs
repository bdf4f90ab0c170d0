//! House rules as a test: the arrows between crates, where `unsafe` may stand, what no file may hold.

mod arrows;
mod files;
mod promises;
