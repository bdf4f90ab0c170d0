//! The machine itself: programs are followed, bounded and ended, processes are known by what they are.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quantykube_base::Exit;
use quantykube_journal::system::host::Host;
use quantykube_journal::system::{Call, Ended, Heed};
use quantykube_journal::{Binding, Direction, Ending, Journals, Observer, Op, Pid, Plan, Process, Step, System, Way};

fn shell(script: &str) -> Vec<String> {
    vec!["/bin/sh".into(), "-c".into(), script.into()]
}

fn call(host: &mut Host, folder: &Path, script: &str, timeout: Option<Duration>) -> (Ended, Vec<String>) {
    let argv = shell(script);
    let log = folder.join("out.log");
    let call = Call {
        argv: &argv,
        log: &log,
        move_dir: folder,
        timeout,
        silence: None,
        heed: Heed::All,
    };
    let mut lines = Vec::new();
    let ended = host.run(&call, &mut |line| lines.push(line.to_owned())).unwrap();
    (ended, lines)
}

#[test]
fn programs_are_followed_bounded_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::new();
    let script =
        "read x; echo one; echo two >&2; printf 'three %s %s' \"$QUANTYKUBE_MOVE_DIR\" \"${HOME-none}\"; exit 5";
    let (ended, lines) = call(&mut host, folder.path(), script, None);
    assert_eq!(ended, Ended::Code(5));
    assert_eq!(
        lines,
        ["one", "two", &format!("three {} none", folder.path().display())]
    );
    let (ended, lines) = call(&mut host, folder.path(), "echo again; kill -9 $$", None);
    assert_eq!(
        (ended, lines),
        (Ended::Signal(9), vec!["again".to_owned()]),
        "only what is new is passed on"
    );

    let began = Instant::now();
    let (ended, _) = call(&mut host, folder.path(), "sleep 60", Some(Duration::from_millis(200)));
    assert_eq!(ended, Ended::TimedOut);
    let argv = shell("echo a; sleep 0.2; echo b; sleep 0.2; echo c; sleep 60");
    let log = folder.path().join("silent.log");
    let silent = Call {
        argv: &argv,
        log: &log,
        move_dir: folder.path(),
        timeout: None,
        silence: Some(Duration::from_millis(1500)),
        heed: Heed::All,
    };
    let mut lines = Vec::new();
    let ended = host.run(&silent, &mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(
        (ended, lines.concat()),
        (Ended::Silent, "abc".to_owned()),
        "while it speaks it lives"
    );
    let flag = host.interrupt_flag();
    let setter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        flag.store(Host::PUT_BACK, Ordering::SeqCst);
    });
    let (ended, _) = call(&mut host, folder.path(), "sleep 60", None);
    assert_eq!(ended, Ended::Interrupted);
    setter.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(
        host.run(
            &Call {
                argv: &["/nonexistent".into()],
                log: &folder.path().join("out.log"),
                move_dir: folder.path(),
                timeout: None,
                silence: None,
                heed: Heed::Stop
            },
            &mut |_| {}
        )
        .is_err()
    );
}

#[test]
fn a_process_is_known_by_its_arguments_and_by_its_start() {
    let mut host = Host::new();
    // A number that no other process on this machine has as its argument.
    let mark = format!("{}.{}", 1000 + std::process::id(), std::process::id());
    let mut child = Command::new("/bin/sleep").arg(&mark).spawn().unwrap();
    let process = |args: &[&str]| Process {
        program: "sleep".into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Process::default()
    };
    // Its arguments can be read a moment after it has begun.
    let found = (0..1000)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            host.processes(&process(&[&mark])).unwrap()
        })
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    assert_eq!(found.iter().map(|pid| pid.pid).collect::<Vec<_>>(), [child.id()]);
    assert!(
        host.processes(&process(&[&mark[1..]])).unwrap().is_empty(),
        "a part of an argument is none"
    );
    assert!(
        host.processes(&Process {
            program: "slee".into(),
            ..process(&[&mark])
        })
        .unwrap()
        .is_empty()
    );
    let named = Process {
        program: "any".into(),
        args: vec![],
        pid: Some(found[0]),
        ..Process::default()
    };
    assert_eq!(host.processes(&named).unwrap(), found);
    let other_start = Pid {
        start: found[0].start + 1,
        ..found[0]
    };
    assert!(
        host.processes(&Process {
            pid: Some(other_start),
            ..named.clone()
        })
        .unwrap()
        .is_empty()
    );
    host.terminate(other_start).unwrap();
    assert_eq!(
        host.processes(&named).unwrap(),
        found,
        "a process that only has the number gets no TERM"
    );
    // Held, it is known by its handle. What was seen in another boot names nothing.
    let this_boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let held = Process {
        boot_id: Some(this_boot.trim().to_owned()),
        group: Some("/sys/fs/cgroup".into()),
        ..named.clone()
    };
    host.hold(&held).unwrap();
    assert_eq!(host.processes(&held).unwrap(), found);
    assert!(host.group_stands(&held).unwrap());
    let of_another_boot = Process {
        boot_id: Some("another".into()),
        ..held.clone()
    };
    assert!(host.processes(&of_another_boot).unwrap().is_empty());
    assert!(!host.group_stands(&of_another_boot).unwrap());
    host.terminate(found[0]).unwrap();
    // It is a zombie until it is waited for, and counts as gone.
    let end = Instant::now() + Duration::from_secs(10);
    while !host.processes(&named).unwrap().is_empty() {
        assert!(Instant::now() < end, "it has not ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    host.terminate(found[0]).unwrap();
}

/// What a killed run leaves must not go on by itself.
#[test]
fn a_program_ends_with_the_run_that_started_it() {
    if let Ok(log) = std::env::var("QUANTYKUBE_TEST_LOG") {
        let folder = Path::new(&log).parent().unwrap().to_owned();
        call(&mut Host::new(), &folder, "echo $$; exec sleep 60", None);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("out.log");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_program_ends_with_the_run_that_started_it",
            "--test-threads=1",
        ])
        .env("QUANTYKUBE_TEST_LOG", &log)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let pid = loop {
        assert!(Instant::now() < end, "the program has not started");
        if let Ok(pid) = std::fs::read_to_string(&log).unwrap_or_default().trim().parse::<u32>() {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let lives = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(lives());
    child.kill().unwrap();
    child.wait().unwrap();
    while lives() {
        assert!(Instant::now() < end, "the program outlives the run");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A whole move with programs on the machine, and what its observer hears.
#[test]
fn a_build_is_followed_and_set_aside() {
    #[derive(Default)]
    struct Heard(Vec<String>);
    impl Observer for Heard {
        fn begin(&mut self, forward: bool, number: usize, of: usize, step: &Step) {
            self.0.push(format!(
                "{} {number}/{of} {}",
                if forward { "do" } else { "undo" },
                step.name
            ));
        }
        fn end(&mut self, _forward: bool, step: &Step, result: Result<(), &str>) {
            self.0.push(format!("{} {}", step.name, result.err().unwrap_or("ok")));
        }
        fn line(&mut self, _step: &Step, line: &str) {
            self.0.push(format!("said {line}"));
        }
        fn turn(&mut self, why: &str) {
            self.0.push(why.to_owned());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["etc", "opt"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("etc/machine-id"), "m1\n").unwrap();
    let real = |path: &str| folder.path().join(&path[1..]).display().to_string();
    let build = format!(
        "echo working; echo data > {0} && mv {0} {1}",
        real("/opt/.part"),
        real("/opt/built")
    );
    let plan = Plan {
        format: quantykube_journal::plan::FORMAT,
        name: "build".into(),
        direction: Direction::Install,
        version: "0.1.0".into(),
        undoes: None,
        binding: Binding {
            machine_id: "m1".into(),
            node: "node1".into(),
            cluster: "cafe".into(),
        },
        point_of_no_return: None,
        steps: vec![
            Step::new(
                "build",
                "",
                Op::Build {
                    argv: shell(&build),
                    creates: "/opt/built".into(),
                    partial: vec!["/opt/.part".into()],
                    aside: Some("/opt/aside".into()),
                },
            ),
            Step::new(
                "probe",
                "",
                Op::Probe {
                    argv: shell("echo not yet; exit 1"),
                    timeout_s: 1,
                    way: Way::Forward,
                },
            ),
        ],
    };
    std::fs::write(real("/opt/.part"), "left by a try before").unwrap();
    let mut host = Host::under(folder.path());
    let mut heard = Heard::default();
    let session = Journals::at(Journals::ROOT).lock(&mut host).unwrap();
    let outcome = session.run(&plan, &mut host, &mut heard).unwrap();
    assert_eq!((outcome.ending, outcome.exit), (Ending::AsBefore, Exit::Failed));
    assert_eq!(std::fs::read_to_string(real("/opt/aside")).unwrap(), "data\n");
    assert!(!Path::new(&real("/opt/built")).exists() && !Path::new(&real("/opt/.part")).exists());
    let failure = "probe not within 1 s: /bin/sh ended with exit code 1\n  not yet";
    assert_eq!(
        heard.0,
        [
            "do 1/2 build",
            "said working",
            "build ok",
            "do 2/2 probe",
            "said not yet",
            failure,
            "that failed: putting everything back",
            "undo 2/2 probe",
            "probe ok",
            "undo 1/2 build",
            "build ok",
        ]
    );
}
