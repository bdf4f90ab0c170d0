//! One step of a stream of requests, as a value and as a line of JSON. What is at its default is left out.

use serde::{Deserialize, Serialize};

use crate::names::Rev;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A range.
    Range(Range),
    /// A put.
    Put(Put),
    /// A delete.
    Delete(Delete),
    /// A transaction.
    Txn(Txn),
    /// A compaction.
    Compact(Compact),
    /// A lease granted; with `revoke` it is ended at once: its id, or its end, would be the server's own affair.
    Grant(Grant),
    /// A lease ended.
    Revoke(i64),
    /// A lease kept alive.
    KeepAlive(i64),
    /// How long a lease lasts.
    TimeToLive(TimeToLive),
    /// All leases.
    Leases,
    /// The hash at a revision.
    Hash(Rev),
    /// The NOSPACE alarm: 0 asks, 1 raises, 2 takes away.
    Alarm(i32),
    /// Defragmentation.
    Defragment,
    /// A watch created.
    Watch(Watch),
    /// A watch cancelled.
    Cancel(Cancel),
    /// Waits until every watch has shown everything, and compares.
    Barrier,
    /// Both servers ended and started again, ours with SIGKILL; their watches are gone.
    Restart,
}

macro_rules! part {
    ($(#[$about:meta])* $name:ident { $($(#[$says:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$says])* #[serde(skip_serializing_if = "is_default")] pub $field: $kind,)*
        }
    };
}

part! {
    /// See [`Step::Range`].
    Range {
        /// The key.
        key: String,
        /// The end of the range.
        end: String,
        /// Most keys.
        limit: i64,
        /// At which revision.
        rev: Rev,
        /// Order by its number.
        order: i32,
        /// What is sorted by, by its number.
        by: i32,
        /// Without values.
        keys_only: bool,
        /// Only the number.
        count_only: bool,
        /// Served without a round of raft.
        serializable: bool,
        /// Bounds of what is shown.
        min_mod: Rev,
        /// See above.
        max_mod: Rev,
        /// See above.
        min_create: Rev,
        /// See above.
        max_create: Rev,
    }
}

part! {
    /// See [`Step::Put`].
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The lease.
        lease: i64,
        /// Whether what was there is wanted.
        prev_kv: bool,
        /// Whether the value stays.
        ignore_value: bool,
        /// Whether the lease stays.
        ignore_lease: bool,
    }
}

part! {
    /// See [`Step::Delete`].
    Delete {
        /// The key.
        key: String,
        /// The end of the range.
        end: String,
        /// Whether what was there is wanted.
        prev_kv: bool,
    }
}

part! {
    /// A comparison of a transaction.
    Compare {
        /// The key.
        key: String,
        /// The end of the range.
        end: String,
        /// What is compared, by its number.
        target: i32,
        /// How, by its number.
        result: i32,
        /// Compared with this version.
        version: Option<i64>,
        /// Or this revision of creation.
        create: Option<Rev>,
        /// Or this revision.
        modified: Option<Rev>,
        /// Or this value.
        value: Option<String>,
        /// Or this lease.
        lease: Option<i64>,
    }
}

part! {
    /// See [`Step::Txn`].
    Txn {
        /// Comparisons.
        compare: Vec<Compare>,
        /// What is done when they hold.
        success: Vec<Op>,
        /// What is done when they do not.
        failure: Vec<Op>,
    }
}

part! {
    /// See [`Step::Compact`].
    Compact {
        /// The revision.
        rev: Rev,
        /// Whether to wait for the whole of it.
        physical: bool,
    }
}

part! {
    /// See [`Step::Grant`].
    Grant {
        /// The id; 0 for the server's choice.
        id: i64,
        /// How long, in seconds.
        ttl: i64,
        /// Ended at once.
        revoke: bool,
    }
}

part! {
    /// See [`Step::TimeToLive`].
    TimeToLive {
        /// The id.
        id: i64,
        /// Whether its keys are wanted.
        keys: bool,
    }
}

part! {
    /// See [`Step::Watch`].
    Watch {
        /// The number of the stream; it is opened by its first watch.
        stream: u8,
        /// The key.
        key: String,
        /// The end of the range.
        end: String,
        /// Where it starts.
        start: Rev,
        /// The id; 0 for the server's choice.
        id: i64,
        /// Events left out, by the filter's number.
        filters: Vec<i32>,
        /// Whether what was there is wanted.
        prev_kv: bool,
        /// Whether large answers may come in pieces.
        fragment: bool,
        /// Whether it is told of progress.
        progress: bool,
    }
}

part! {
    /// See [`Step::Cancel`].
    Cancel {
        /// The number of the stream.
        stream: u8,
        /// The id of the watch.
        id: i64,
    }
}

/// An operation of a transaction.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A range.
    Range(Range),
    /// A put.
    Put(Put),
    /// A delete.
    Delete(Delete),
    /// A transaction in it.
    Txn(Txn),
    /// An operation that says nothing.
    Nothing,
}

/// A list of steps as text: one line of JSON each; lines that begin with # say something.
pub fn write(steps: &[Step]) -> String {
    let line = |step| serde_json::to_string(step).expect("a step is JSON") + "\n";
    steps.iter().map(line).collect()
}

/// Reads what [`write`] wrote.
pub fn read(text: &str) -> Result<Vec<Step>, String> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(number, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1)))
        .collect()
}
