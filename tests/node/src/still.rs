//! A node brought to a standstill before it is ended: the kernel ends the processes of a namespace one after the other,
//! and one that outlives another for a moment may act on what it sees.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long all processes of a node may take to stop. One that waits for a disk stops when that has answered.
const STANDSTILL: Duration = Duration::from_secs(20);

/// A process as `/proc/PID/stat` tells of it.
struct Process {
    pid: Pid,
    parent: Option<Pid>,
    /// `T` is stopped, `Z` has ended.
    state: char,
}

/// Stops every process of the node whose process 1 is `leader`. Returns the processes outside of the node that have
/// entered it with one: `nsenter` stops itself when its child stops, and needs [`let_go`] afterwards.
///
/// # Panics
/// If one of them does not stop.
pub fn stop_all(leader: Pid) -> Vec<Pid> {
    let begun = Instant::now();
    // Process 1 first: it would start anew what ends.
    let _ = kill_process(leader, Signal::STOP);
    let namespace = namespace(leader).expect("the node's process 1 runs");
    loop {
        let mut inside: Vec<Process> = all()
            .filter(|process| self::namespace(process.pid).as_ref() == Some(&namespace))
            .collect();
        // The youngest are the ones that a move has started.
        inside.sort_by_key(|process| std::cmp::Reverse(process.pid.as_raw_nonzero()));
        let mut moving = 0;
        for process in inside.iter().filter(|process| !matches!(process.state, 'T' | 'Z')) {
            moving += 1;
            let _ = kill_process(process.pid, Signal::STOP);
        }
        if moving == 0 {
            let pids: Vec<Pid> = inside.iter().map(|process| process.pid).collect();
            let of_leader = inside
                .iter()
                .find(|process| process.pid == leader)
                .and_then(|process| process.parent);
            return inside
                .iter()
                .filter_map(|process| process.parent)
                .filter(|parent| !pids.contains(parent) && Some(*parent) != of_leader)
                .collect();
        }
        assert!(
            begun.elapsed() < STANDSTILL,
            "{moving} processes of the node do not stop"
        );
    }
}

/// Continues processes that stopped themselves, until each has ended.
pub fn let_go(entered: &[Pid]) {
    let begun = Instant::now();
    while all().any(|process| entered.contains(&process.pid) && process.state != 'Z') {
        for pid in entered {
            let _ = kill_process(*pid, Signal::CONT);
        }
        assert!(
            begun.elapsed() < STANDSTILL,
            "what entered the node does not end with it"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process namespace that a process lives in; none of one that is gone.
fn namespace(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// All processes of this machine. One that ends meanwhile is left out.
fn all() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc").expect("/proc is there").filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold spaces and parentheses of its own.
        let mut after = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Process {
            pid: Pid::from_raw(pid)?,
            state: after.next()?.chars().next()?,
            parent: Pid::from_raw(after.next()?.parse().ok()?),
        })
    })
}
