//! kill -9 of the move's process, of its follower and of its whole unit, at random moments: with nobody there each move
//! ends as before or moved. A move that nobody starts again waits for `undo`.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use quantykube_test_node::Spawned;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, STORE};

/// The unit that a move runs in.
pub const UNIT: &str = "quantykube-move.service";
const JOURNALS: &str = "/var/lib/quantykube/install";

#[test]
fn killed_at_random_moments_a_move_ends_with_nobody_there() {
    let seed = std::env::var("QUANTYKUBE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("QUANTYKUBE_SEED={seed}");
    let kills: u32 = std::env::var("QUANTYKUBE_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();
    // How long each takes when it is left alone.
    let mut spans = ["install", "undo"].map(|verb| {
        let begun = Instant::now();
        bench.run(&[verb, "store"]).expect(0);
        begun.elapsed()
    });
    bench.node.api_ready(LONG);
    let mut written = Vec::new();
    let (mut done, mut late, mut moved, mut as_before) = (0, 0, 0, 0);
    while done < kills {
        let on_store = bench.serves_from() == STORE;
        let verb = if on_store { "undo" } else { "install" };
        let begun = Instant::now();
        let mut run = bench.spawn(&[verb, "store"]);
        let after = spans[usize::from(on_store)].mul_f64(random.random_range(0.02..0.95));
        let how = HOWS[random.random_range(0..HOWS.len())];
        std::thread::sleep(after);
        if !kill(&bench, &mut run, how) {
            late += 1;
            spans[usize::from(on_store)] = begun.elapsed();
        } else {
            done += 1;
        }
        let status = ended(&bench, &mut run, &original);
        match (status["data"] == "store") == on_store {
            true => as_before += 1,
            false => moved += 1,
        }
        println!(
            "{verb}, {how:?} killed after {:.2} s: {}",
            after.as_secs_f64(),
            status["data"]
        );
        // Acknowledged between two moves; looked for at the end.
        let name = format!("kept-{}", written.len());
        bench.kubectl(&["-n", "moves", "create", "configmap", &name, "--from-literal=a=b"]);
        written.push(name);
    }
    let (compared, _) = bench.objects().unchanged_since(&before);
    for name in &written {
        bench.kubectl(&["-n", "moves", "get", "configmap", name]);
    }
    println!(
        "{compared} objects are as they were, and {} that were written meanwhile are there",
        written.len()
    );
    println!(
        "{kills} kills ({late} more came too late), one after another on one node: {moved} ends were moved, {as_before} as before"
    );
    let state = bench.node.exec(&["systemctl", "is-system-running"]);
    assert_eq!(String::from_utf8_lossy(&state.stdout).trim(), "running");
    left_open(&bench, &original);
}

/// Kills the process of a move as soon as its journal has so many records: at each of them, or, where
/// `QUANTYKUBE_EVERY_RECORD` is not set, at some spread over both ways.
#[test]
fn killed_at_every_record_a_move_ends_with_nobody_there() {
    let every = std::env::var_os("QUANTYKUBE_EVERY_RECORD").is_some();
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();
    let whole = ["install", "undo"].map(|verb| {
        bench.run(&[verb, "store"]).expect(0);
        bench.node.api_ready(LONG);
        records(&log_of(&bench, newest(&bench)))
    });
    println!("an install has {} records, an undo {}", whole[0], whole[1]);
    assert!(
        whole.iter().all(|records| *records > 20),
        "the test understands the log"
    );
    // From the first record, which the plan's journal has when a step begins, to the one before the last.
    let at = |records: usize| -> Vec<usize> {
        let step = if every { 1 } else { records.div_ceil(4) };
        (1..records).step_by(step).collect()
    };
    let mut left = whole.map(at);
    let (mut kills, mut late, mut moved, mut as_before) = (0, 0, 0, 0);
    loop {
        let on_store = bench.serves_from() == STORE;
        let Some(at) = left[usize::from(on_store)].pop() else {
            if left.iter().all(Vec::is_empty) {
                break;
            }
            bench
                .run(&[if on_store { "undo" } else { "install" }, "store"])
                .expect(0);
            bench.node.api_ready(LONG);
            continue;
        };
        let number = newest(&bench) + 1;
        let mut run = bench.spawn(&[if on_store { "undo" } else { "install" }, "store"]);
        let killed = kill_at(&bench, &mut run, number, at);
        let status = ended(&bench, &mut run, &original);
        match killed {
            // The move was over before: it is no kill, and this one is not tried again.
            false => late += 1,
            true => kills += 1,
        }
        match (status["data"] == "store") == on_store {
            true => as_before += 1,
            false => moved += 1,
        }
        let verb = if on_store { "undo" } else { "install" };
        println!("{verb} killed at record {at}: {}", status["data"]);
    }
    let (compared, _) = bench.objects().unchanged_since(&before);
    println!(
        "{kills} kills ({late} came too late): {moved} ends were moved, {as_before} as before, {compared} objects as they were"
    );
    assert!(kills >= 6 && late <= 1 + kills / 10, "{kills} kills, {late} too late");
}

/// The number of the newest journal.
fn newest(bench: &Bench) -> u32 {
    let names = std::fs::read_dir(bench.node.path(JOURNALS))
        .into_iter()
        .flatten()
        .flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.split_once('-')?.0.parse().ok());
    numbers.max().unwrap_or(0)
}

/// A journal's log; nothing where there is none yet.
fn log_of(bench: &Bench, number: u32) -> Vec<u8> {
    let mut entries = std::fs::read_dir(bench.node.path(JOURNALS))
        .into_iter()
        .flatten()
        .flatten();
    let prefix = format!("{number}-");
    let folder = entries.find(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()));
    folder.map_or_else(Vec::new, |folder| {
        std::fs::read(folder.path().join("log")).unwrap_or_default()
    })
}

/// How many whole records a log has, as docs/journal.md draws it.
fn records(log: &[u8]) -> usize {
    let (mut at, mut found) = (48, 0);
    while let Some(length) = log.get(at..at + 4) {
        at += 20 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        found += usize::from(at <= log.len());
    }
    found
}

/// Waits for the record and kills the process that writes them. Whether there was one.
fn kill_at(bench: &Bench, run: &mut Spawned, number: u32, at: usize) -> bool {
    let begun = Instant::now();
    let mut found = None;
    loop {
        let records = records(&log_of(bench, number));
        if records > 0 && found.is_none() {
            // The bundle's program, or the installed one that goes on.
            let all = ["run", "quantykube"].map(|program| bench.node.processes(program));
            found = all.into_iter().flatten().find(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0).any(|word| word == b"--inside")
            });
        }
        if records >= at {
            let pid = found.and_then(|pid| rustix::process::Pid::from_raw(pid as i32));
            return pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok());
        }
        if run.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return false;
        }
        assert!(
            begun.elapsed() < LONG,
            "the journal {number} has {records} records, and {at} do not come"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What `status` says when the move has ended, after the things that hold however it ended.
fn ended(bench: &Bench, run: &mut Spawned, original: &str) -> Value {
    let _ = run.child.stdout.take();
    let _ = run.wait();
    let status = wait_for_the_end(bench);
    bench.node.api_ready(LONG);
    let on_store = bench.serves_from() == STORE;
    assert_eq!(status["data"], if on_store { "store" } else { "etcd" }, "{status}");
    assert_eq!(bench.is_active("quantykube-store"), on_store);
    assert_eq!(bench.is_enabled("quantykube-store"), on_store);
    if !on_store {
        assert_eq!(bench.manifest(), original);
        assert!(!bench.node.path("/var/lib/quantykube/store/store.qks").exists());
    }
    status
}

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum How {
    /// The process that makes the move.
    Process,
    /// It and its follower.
    Both,
    /// All of the unit.
    Unit,
    /// The process, and the one that goes on from it.
    Twice,
}

const HOWS: [How; 4] = [How::Process, How::Both, How::Unit, How::Twice];

/// Whether there was anything to kill.
fn kill(bench: &Bench, run: &mut Spawned, how: How) -> bool {
    let signal = |whom: &str| {
        let whom = format!("--kill-whom={whom}");
        let output = bench.node.exec(&["systemctl", "kill", &whom, "--signal=KILL", UNIT]);
        output.status.success()
    };
    match how {
        How::Process => signal("main"),
        How::Unit => signal("all"),
        How::Both => {
            let killed = signal("main");
            if run.pid().is_some() && killed {
                run.kill();
            }
            killed
        }
        How::Twice => {
            let killed = signal("main");
            std::thread::sleep(Duration::from_millis(800));
            signal("main") || killed
        }
    }
}

/// Waits until no move runs and none is open; returns what `status` says then.
pub fn wait_for_the_end(bench: &Bench) -> Value {
    let begun = Instant::now();
    loop {
        if !bench.is_active(UNIT) && !is_starting(bench) {
            let status = bench.status();
            if status["openMove"] == Value::Null {
                return status;
            }
            assert!(begun.elapsed() < LONG, "the move is still open: {status}");
        }
        assert!(begun.elapsed() < LONG, "the move still runs");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether the unit waits for its next start.
fn is_starting(bench: &Bench) -> bool {
    let output = bench
        .node
        .exec(&["systemctl", "show", "--property=ActiveState", "--value", UNIT]);
    let state = String::from_utf8_lossy(&output.stdout);
    matches!(state.trim(), "activating" | "deactivating")
}

/// A move that nobody starts again, as after a kill with systemd's own limit reached: `undo` puts it right.
fn left_open(bench: &Bench, original: &str) {
    if bench.serves_from() == STORE {
        bench.run(&["undo", "store"]).expect(0);
        bench.node.api_ready(LONG);
    }
    let before = bench.objects();
    for place in ["copy", "ready"] {
        // As the unit runs it, without the unit.
        bench.node.run(&["rm", "-rf", "/run/alone"]);
        bench.node.run(&["mkdir", "/run/alone"]);
        let run = format!("{}/run", bench.folder);
        let mut run = bench.node.spawn(&[&run, "--inside", "/run/alone", "install", "store"]);
        read_up_to(&mut run, place);
        let status = run.kill();
        assert_eq!(nsenter_signal(status), Some(9), "the kill came too late: {status}");
        assert_ne!(bench.status()["openMove"], Value::Null);
        bench.run(&["undo", "store"]).expect(0);
        bench.node.api_ready(LONG);
        assert_eq!(bench.serves_from(), ETCD, "killed at {place}");
        assert_eq!(bench.manifest(), original, "killed at {place}");
        assert_eq!(bench.status()["openMove"], Value::Null);
        let (compared, _) = bench.objects().unchanged_since(&before);
        println!("killed at {place} and not started again: undo put it back, {compared} objects as they were");
    }
}

/// Reads what a run says up to the beginning of the step `place`, and not a byte more.
pub fn read_up_to(run: &mut Spawned, place: &str) -> Vec<Value> {
    read_until(run, |event| event["event"] == "step" && event["name"] == place)
}

/// Reads what a run says up to an event, and not a byte more.
pub fn read_until(run: &mut Spawned, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
    let output = run.child.stdout.as_mut().unwrap();
    let mut events = Vec::new();
    loop {
        let mut line = Vec::new();
        let mut byte = [0];
        while output.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        assert!(!line.is_empty(), "the move ended before that: {events:#?}");
        let event: Value = serde_json::from_slice(&line).unwrap();
        let reached = is_it(&event);
        events.push(event);
        if reached {
            return events;
        }
    }
}

/// The signal that ended a program in the node: nsenter passes it on as its own end or as 128 + the number.
fn nsenter_signal(status: std::process::ExitStatus) -> Option<i32> {
    status.signal().or(status.code().and_then(|code| code.checked_sub(128)))
}
