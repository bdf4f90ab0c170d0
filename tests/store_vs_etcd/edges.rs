//! What a server meets beside plain requests.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use quantykube_etcd_api::health_client::HealthClient;
use quantykube_etcd_api::*;
use quantykube_tests::{Server, free_port, program};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::calls::make::*;
use crate::servers::{Running, block_on, pair};
use crate::watches::{Stream, create};

async fn channel(server: &Running) -> Channel {
    Endpoint::from_shared(server.url())
        .expect("a URL")
        .connect()
        .await
        .expect("a connection")
}

async fn unknown(server: &Running, path: &'static str) -> (Code, String) {
    let mut grpc = tonic::client::Grpc::new(channel(server).await);
    grpc.ready().await.expect("a connection");
    let codec: tonic_prost::ProstCodec<RangeRequest, RangeResponse> = tonic_prost::ProstCodec::default();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    let answer = grpc.unary(tonic::Request::new(range("a", "")), path, codec).await;
    let status: Status = answer.expect_err("an unknown method");
    (status.code(), status.message().to_owned())
}

#[test]
fn unknown_methods_and_health() {
    let (etcd, store) = pair(&[]);
    block_on(async {
        for path in ["/etcdserverpb.KV/Nonsense", "/nonsense.Nonsense/Do"] {
            assert_eq!(unknown(&store, path).await, unknown(&etcd, path).await, "{path}");
        }
        let mut answers = Vec::new();
        for server in [&etcd, &store] {
            let mut health = HealthClient::new(channel(server).await);
            for service in ["", "nonsense"] {
                let request = HealthCheckRequest {
                    service: service.to_owned(),
                };
                let checked = health.check(request.clone()).await;
                answers.push(format!(
                    "{:?}",
                    checked
                        .map(|r| r.into_inner())
                        .map_err(|s| (s.code(), s.message().to_owned()))
                ));
                let mut watched = health.watch(request).await.expect("a stream").into_inner();
                answers.push(format!("{:?}", watched.message().await.expect("an answer")));
            }
        }
        assert_eq!(answers[..4], answers[4..]);
    });
}

/// An API server that loses its clients cancels thousands of watches at once, all on one connection. A server that
/// takes that for an attack cuts the connection under everything else.
#[test]
fn thousands_of_cancels_at_once_are_no_attack() {
    let (_, store) = pair(&[]);
    block_on(async {
        let mut clients = store.clients().await;
        let mut stays = Stream::open(&mut clients, create("k", "", |_| ())).await;
        assert!(stays.next().await.created);
        for _ in 0..3 {
            let mut streams = Vec::new();
            for n in 0..3000 {
                streams.push(Stream::open(&mut clients, create(&format!("key{n}"), "", |_| ())).await);
            }
            drop(streams);
            // Calls cancelled in mid flight as well.
            let mut calls = tokio::task::JoinSet::new();
            for n in 0..1000 {
                let mut kv = clients.kv.clone();
                calls.spawn(async move {
                    let call = kv.put(put(&format!("c{n}"), "x"));
                    let _ = tokio::time::timeout(Duration::from_micros(n * 10), call).await;
                });
            }
            calls.join_all().await;
        }
        clients
            .kv
            .put(put("k", "1"))
            .await
            .expect("the same connection serves on");
        assert_eq!(stays.next().await.events.len(), 1, "and the watch on it lives");
        let begun = Instant::now();
        loop {
            // One watch is left of 9000: the others' streams are gone from the server too.
            let metrics = store.metrics();
            if metrics.contains("etcd_debugging_mvcc_watcher_total 1\n") {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "watches are left behind");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// Bug 19 of etcd: a watch must not starve behind large reads on the same connection.
#[test]
fn a_watch_does_not_starve_behind_large_reads_on_its_connection() {
    let (_, store) = pair(&[]);
    block_on(async {
        let mut clients = store.clients().await;
        let value = "v".repeat(500_000);
        for n in 0..60 {
            clients.kv.put(put(&format!("large{n}"), &value)).await.expect("a put");
        }
        let mut stream = Stream::open(&mut clients, create("small", "", |_| ())).await;
        assert!(stream.next().await.created);
        let mut reads = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let mut kv = clients.kv.clone();
            reads.spawn(async move {
                loop {
                    let read = kv.range(range("large", "largf")).await.expect("a read").into_inner();
                    assert_eq!(read.kvs.len(), 60);
                }
            });
        }
        let mut writer = store.clients().await;
        let mut slowest = Duration::ZERO;
        for n in 0..30 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let begun = Instant::now();
            writer.kv.put(put("small", &n.to_string())).await.expect("a put");
            stream.next().await;
            slowest = slowest.max(begun.elapsed());
        }
        reads.abort_all();
        println!("the slowest event beside large reads came after {slowest:?}");
        assert!(slowest < Duration::from_secs(3), "an event came after {slowest:?}");
    });
}

/// Type=notify: ready when it serves, stopping when told to, and an end in time.
#[test]
fn systemd_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).expect("a socket");
    systemd
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");
    let told = || {
        let mut message = [0; 100];
        let length = systemd.recv(&mut message).expect("systemd is told");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let port = free_port();
    let mut command = Command::new(program("quantykube-store"));
    command
        .env("QUANTYKUBE_STORE_DATA", folder.path().join("store.qks"))
        .env("QUANTYKUBE_STORE_LISTEN", format!("127.0.0.1:{port}"))
        .env("QUANTYKUBE_STORE_CLIENT_CERT_AUTH", "false")
        .env("QUANTYKUBE_STORE_CERT_FILE", "")
        .env("NOTIFY_SOCKET", &socket);
    let mut server = Server::start(&mut command, &folder.path().join("log"));
    assert_eq!(told(), "READY=1");
    server.wait_for_port(port, Duration::from_millis(100));
    // A keep-alive and a health watch that never end by themselves hold nothing up.
    let url = format!("http://127.0.0.1:{port}");
    block_on(async {
        let channel = Endpoint::from_shared(url)
            .expect("a URL")
            .connect()
            .await
            .expect("a connection");
        let mut health = HealthClient::new(channel.clone());
        let mut watched = health
            .watch(HealthCheckRequest::default())
            .await
            .expect("a stream")
            .into_inner();
        watched.message().await.expect("an answer");
        let begun = Instant::now();
        let status = tokio::task::spawn_blocking(move || {
            let status = server.stop(Duration::from_secs(10));
            drop(server);
            status
        });
        assert!(watched.message().await.is_err(), "the stream ends with the server");
        assert_eq!(status.await.expect("it stops").code(), Some(0));
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "it took {:?} to stop",
            begun.elapsed()
        );
    });
    assert_eq!(told(), "STOPPING=1");
}

/// A disk without room (here: a limit on the file's size) is no end: writes are refused with the alarm raised, reads and
/// deletes go on, and after compaction there is room again. It starts on the full disk as well.
#[test]
fn a_full_disk_is_not_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let start = || {
        let mut command = Command::new("bash");
        command.args(["-c", "trap '' XFSZ; ulimit -f 60000; exec \"$@\"", "bash"]);
        command
            .arg(program("quantykube-store"))
            .arg("--data")
            .arg(folder.path().join("store.qks"));
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        let mut server = Server::start(&mut command, &folder.path().join("log"));
        server.wait_for_port(port, Duration::from_secs(10));
        server
    };
    let connect = || async move {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL");
        let channel = endpoint.connect().await.expect("a connection");
        let kv = kv_client::KVClient::new(channel.clone());
        (kv, maintenance_client::MaintenanceClient::new(channel))
    };
    let mut server = start();
    let value = "v".repeat(1_000_000);
    let written = block_on(async {
        let (mut kv, _) = connect().await;
        let mut written = 0;
        let status = loop {
            match kv.put(put(&format!("k{written:03}"), &value)).await {
                Ok(_) => written += 1,
                Err(status) => break status,
            }
            assert!(written < 100, "60 MB take no 100");
        };
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "etcdserver: mvcc: database space exceeded");
        assert!(written > 20, "{written} fit");
        let read = kv.range(range("k000", "")).await.expect("reads go on").into_inner();
        assert_eq!(read.kvs[0].value.len(), value.len());
        written
    });
    server.kill();
    let mut server = start();
    block_on(async {
        let (mut kv, mut maintenance) = connect().await;
        kv.put(put("k", "x"))
            .await
            .expect_err("the alarm stands after a restart");
        let deleted = kv
            .delete_range(delete("k", "l"))
            .await
            .expect("deletes go on")
            .into_inner();
        assert_eq!(deleted.deleted, written);
        let revision = deleted.header.expect("a header").revision;
        kv.compact(CompactionRequest {
            revision,
            physical: true,
        })
        .await
        .expect("compaction goes on");
        let begun = Instant::now();
        loop {
            let alarms = maintenance
                .alarm(AlarmRequest::default())
                .await
                .expect("the alarms")
                .into_inner()
                .alarms;
            for alarm in alarms {
                let request = AlarmRequest {
                    action: AlarmAction::Deactivate as i32,
                    member_id: alarm.member_id,
                    alarm: alarm.alarm,
                };
                maintenance.alarm(request).await.expect("disarmed");
            }
            if kv.put(put("k", &value)).await.is_ok() {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "no room after all was deleted and compacted"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert_eq!(server.stop(Duration::from_secs(5)).code(), Some(0));
}
