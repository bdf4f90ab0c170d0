//! The plain HTTP pages on both servers: probes of kubeadm and monitoring compare their texts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use quantykube_etcd_api::*;
use quantykube_tests::free_port;

use crate::calls::make::put;
use crate::servers::{Clients, Kind, Running, block_on};

/// Status line and body of a page. The lines of a report are sorted: etcd writes them in any order.
fn fetch(port: u16, method: &str, path: &str) -> (String, String) {
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed() > Duration::from_secs(20) => panic!("nothing on port {port}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    let status = head.lines().next().expect("a status line").to_owned();
    let mut lines: Vec<&str> = body.lines().collect();
    if path.starts_with("/livez") || path.starts_with("/readyz") {
        lines.sort_unstable();
    }
    (status, lines.join("\n"))
}

async fn alarm(clients: &mut Clients, action: AlarmAction, alarm: AlarmType) {
    let request = AlarmRequest {
        action: action as i32,
        member_id: clients.member_id().await,
        alarm: alarm as i32,
    };
    clients.maintenance.alarm(request).await.expect("an alarm");
}

#[test]
fn pages_say_the_same() {
    let ports = [free_port(), free_port()];
    let etcd = Running::fresh(
        Kind::Etcd,
        &["--listen-metrics-urls", &format!("http://127.0.0.1:{}", ports[0])],
    );
    let store = Running::fresh(Kind::Store, &["--listen-metrics", &format!("127.0.0.1:{}", ports[1])]);
    // etcd listens a moment before it has a leader, and tells its storage's version as 3.5.0 until its
    // monitor has raised it some seconds later.
    let begun = Instant::now();
    while !fetch(ports[0], "GET", "/readyz").0.ends_with("200 OK")
        || !fetch(ports[0], "GET", "/health").0.ends_with("200 OK")
        || !fetch(etcd.port, "GET", "/version").1.contains(r#""storage":"3.6.0""#)
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "etcd does not get ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    let same = |when: &str| {
        for (method, path) in [
            ("GET", "/health"),
            ("GET", "/health?serializable=true"),
            ("GET", "/health?exclude=NOSPACE"),
            ("GET", "/health?exclude=NOSPACE&exclude=CORRUPT&serializable=true"),
            ("POST", "/health"),
            ("GET", "/livez"),
            ("GET", "/livez?verbose"),
            ("GET", "/livez/serializable_read"),
            ("GET", "/livez/nonsense"),
            ("GET", "/readyz"),
            ("GET", "/readyz?verbose=true"),
            ("GET", "/readyz?verbose&exclude=data_corruption"),
            ("GET", "/readyz/data_corruption"),
            ("POST", "/readyz"),
            ("GET", "/nonsense"),
        ] {
            let (expected, found) = (fetch(ports[0], method, path), fetch(ports[1], method, path));
            assert_eq!(found, expected, "{when}: {method} {path}");
        }
        for path in ["/health", "/version"] {
            let (expected, found) = (fetch(etcd.port, "GET", path), fetch(store.port, "GET", path));
            assert_eq!(found, expected, "{when}: {path} on the client port");
        }
    };
    same("fresh");
    block_on(async {
        let (mut theirs, mut ours) = (etcd.clients().await, store.clients().await);
        for kind in [AlarmType::NoSpace, AlarmType::Corrupt] {
            for clients in [&mut theirs, &mut ours] {
                alarm(clients, AlarmAction::Activate, kind).await;
            }
            same(&format!("{kind:?} raised"));
            for clients in [&mut theirs, &mut ours] {
                alarm(clients, AlarmAction::Deactivate, kind).await;
            }
        }
        same("disarmed");
        for clients in [&mut theirs, &mut ours] {
            for _ in 0..3 {
                clients.kv.put(put("k", "value")).await.expect("a put");
            }
            clients.kv.put(put("", "")).await.expect_err("no key");
        }
    });
    // Names that dashboards and alerts use; where the figure is one of counting, it is the same one.
    let metrics = [
        fetch(ports[0], "GET", "/metrics").1,
        fetch(ports[1], "GET", "/metrics").1,
    ];
    let figure = |page: &String, name: &str| -> Option<f64> {
        let line = page
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    for name in [
        "etcd_server_has_leader",
        "etcd_mvcc_put_total",
        "etcd_debugging_mvcc_keys_total",
        "etcd_debugging_mvcc_current_revision",
        "etcd_server_quota_backend_bytes",
        r#"grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#,
        r#"grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}"#,
    ] {
        let (expected, found) = (figure(&metrics[0], name), figure(&metrics[1], name));
        assert!(expected.is_some(), "etcd has {name}");
        assert_eq!(found, expected, "{name}");
    }
    for name in [
        "etcd_mvcc_db_total_size_in_bytes",
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "etcd_disk_backend_commit_duration_seconds_sum",
        "etcd_server_leader_changes_seen_total",
        "etcd_server_proposals_failed_total",
        "etcd_debugging_mvcc_watcher_total",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
    ] {
        assert!(figure(&metrics[0], name).is_some(), "etcd has {name}");
        assert!(figure(&metrics[1], name).is_some(), "{name} is missing");
    }
}
