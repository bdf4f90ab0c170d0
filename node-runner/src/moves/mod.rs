//! Moves: pure functions from facts to plans.

pub mod etcd_servers;
pub mod places;
pub mod store;
pub mod undo_store;

#[cfg(test)]
mod tests;
