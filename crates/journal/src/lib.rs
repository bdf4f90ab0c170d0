//! Every move on a node: a plan as data, a log written ahead, one loop that runs, resumes and undoes.
//!
//! ```text
//! Plan --Session::run--> steps on a System, each noted in <root>/<n>-<move>/log before and after
//!                        Session::resume and Session::undo go on from the log alone
//! ```
//!
//! This crate knows no etcd, no store, no kubelet and no bundle: only files, units, processes and programs.
//! docs/journal.md draws the files and the table of recovery.

mod boot;
mod error;
mod journals;
mod log;
mod ops;
pub mod plan;
mod recovery;
mod run;
mod state;
pub mod system;

pub use error::Error;
pub use journals::{Ending, Journals, Lister, Observer, Outcome, Session, Status, Summary, Trouble, in_force};
pub use log::LogError;
pub use plan::{Back, Binding, Content, Direction, Op, Pid, Plan, Process, Step, Way};
pub use state::IllegalEvent;
pub use system::{Interrupt, Meta, System};
