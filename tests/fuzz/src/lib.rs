//! The differential fuzzer: the same seeded stream of requests to two servers, every answer and every event compared.
//!
//! ```text
//! seed, slice --generate--> steps --run--> same | differs at step n --shrink--> few steps, as text that can be replayed
//! ```
//! A slice is a number of requests to two fresh servers; slices do not know of each other, so that any of them can be run
//! again by its number. Revisions in steps are named by where they stand ("head-3"), so that a list keeps its meaning when
//! steps are taken out of it.

pub mod answer;
pub mod generate;
pub mod names;
pub mod raw;
pub mod resolve;
pub mod run;
pub mod shrink;
pub mod side;
pub mod step;
pub mod targets;
pub mod watching;
