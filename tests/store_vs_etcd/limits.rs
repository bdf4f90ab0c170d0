//! What a client may not do, or not more of: where etcd has the same limit, the same answer; where it has none, the
//! store's own words. docs/operations.md lists the limits with their defaults.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use quantykube_etcd_api::*;
use quantykube_tests::{Server, free_port, peer, program};
use rcgen::{CertificateParams, KeyPair};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::calls::make::*;
use crate::servers::{Clients, Kind, Running, block_on};
use crate::watches::{Stream, create};

/// How long something is waited for that must not come.
const NOT_SOON: Duration = Duration::from_millis(500);

/// More calls on one connection than it may have wait in the client, on both servers, and go on when others end.
#[test]
fn streams_of_a_connection() {
    for kind in [Kind::Etcd, Kind::Store] {
        let running = Running::fresh(kind, &["--max-concurrent-streams=3"]);
        block_on(async {
            let mut clients = running.clients().await;
            // The server tells the limit with its first answer.
            clients.kv.put(put("k", "0")).await.expect("a put");
            let mut streams = Vec::new();
            for _ in 0..3 {
                let mut stream = Stream::open(&mut clients, create("k", "", |_| ())).await;
                assert!(stream.next().await.created);
                streams.push(stream);
            }
            let waiting = tokio::time::timeout(NOT_SOON, clients.kv.put(put("k", "1"))).await;
            assert!(waiting.is_err(), "{kind:?}: a fourth stream was served: {waiting:?}");
            let mut other = running.clients().await;
            other.kv.put(put("k", "2")).await.expect("another connection is served");
            streams.pop();
            clients.kv.put(put("k", "3")).await.expect("there is room again");
            for mut stream in streams {
                assert_eq!(stream.next().await.events.len(), 1, "{kind:?}: the watches live");
            }
        });
    }
}

/// Opens a watch stream without asking for a watch.
async fn open(clients: &mut Clients) -> Result<(mpsc::Sender<WatchRequest>, tonic::Streaming<WatchResponse>), Code> {
    let (sender, receiver) = mpsc::channel(4);
    let opened = clients.watch.watch(ReceiverStream::new(receiver)).await;
    opened
        .map(|response| (sender, response.into_inner()))
        .map_err(|status| {
            assert!(status.message().contains("--max-watch-streams"), "{status:?}");
            status.code()
        })
}

/// Streams and watches of all connections are counted; those beyond are refused by name, and all others go on.
#[test]
fn watch_streams_and_watches_in_all() {
    let running = Running::fresh(Kind::Store, &["--max-watch-streams=3", "--max-watches=2"]);
    block_on(async {
        let mut clients = running.clients().await;
        let mut stream = Stream::open(&mut clients, create("k", "", |_| ())).await;
        assert!(stream.next().await.created);
        let mut others = Vec::new();
        for _ in 0..2 {
            others.push(
                open(&mut running.clients().await)
                    .await
                    .expect("a second and a third stream"),
            );
        }
        let refused = open(&mut running.clients().await).await.map(|_| ());
        assert_eq!(refused, Err(Code::ResourceExhausted));
        others.pop();
        // The server hears of the end a moment later.
        while let Err(code) = open(&mut clients).await.map(|stream| others.push(stream)) {
            assert_eq!(code, Code::ResourceExhausted);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }

        let watch = || create("k", "", |request| request.watch_id = 7);
        stream.send(watch()).await;
        assert!(stream.next().await.created, "a second watch");
        let (sender, answers) = &mut others[0];
        sender.send(watch()).await.expect("it is read");
        let answer = answers.message().await.expect("a stream").expect("an answer");
        assert!(answer.created && answer.canceled && answer.watch_id == -1, "{answer:?}");
        assert!(answer.cancel_reason.contains("--max-watches"), "{answer:?}");
        let cancel = WatchRequestUnion::Cancel(WatchCancelRequest { watch_id: 7 });
        let cancel = WatchRequest {
            request_union: Some(cancel),
        };
        stream.send(cancel).await;
        assert!(stream.next().await.canceled);
        sender.send(watch()).await.expect("it is read");
        let answer = answers.message().await.expect("a stream").expect("an answer");
        assert!(answer.created && !answer.canceled, "{answer:?}");
        clients.kv.put(put("k", "1")).await.expect("a put");
        assert_eq!(stream.next().await.events.len(), 1);
        assert_eq!(
            answers
                .message()
                .await
                .expect("a stream")
                .expect("an event")
                .events
                .len(),
            1
        );
    });
}

/// The flags of etcd's name set the same limit of a write; the largest transaction is tried at its edge.
#[test]
fn bytes_and_operations_of_a_request() {
    let mut told = Vec::new();
    for kind in [Kind::Etcd, Kind::Store] {
        let running = Running::fresh(kind, &["--max-request-bytes=10000"]);
        block_on(async {
            let mut clients = running.clients().await;
            let mut answers = Vec::new();
            for bytes in [9_900, 10_000, 600_000] {
                let put = clients.kv.put(put("k", &"v".repeat(bytes))).await;
                answers.push(put.err().map(|status| (status.code(), status.message().to_owned())));
            }
            for count in [128, 129] {
                let puts = (0..count).map(|n| Request::Put(put(&format!("k{n}"), "x"))).collect();
                let done = clients.kv.txn(txn(vec![], puts, vec![])).await;
                answers.push(done.err().map(|status| (status.code(), status.message().to_owned())));
            }
            assert!(answers[0].is_none() && answers[3].is_none(), "{kind:?}: {answers:?}");
            told.push(answers);
        });
    }
    assert_eq!(told[0], told[1]);
    assert!(
        told[1][1].is_some() && told[1][2].is_some() && told[1][4].is_some(),
        "{told:?}"
    );
}

/// A ClientHello that speaks nothing newer than the version named (0x0302 is TLS 1.1), with ciphers of every time.
fn hello(version: u16) -> Vec<u8> {
    let version = version.to_be_bytes();
    let mut body = version.to_vec();
    body.extend([7; 32]); // random
    body.push(0); // no session
    // ECDHE with ECDSA: AES-128-GCM of TLS 1.2, AES-128-CBC with SHA-1 of those before.
    body.extend([0, 4, 0xc0, 0x2b, 0xc0, 0x09]);
    body.extend([1, 0]); // no compression
    // Supported groups: P-256; point formats: uncompressed; signatures: ECDSA with P-256 and SHA-256; no renegotiation.
    let extensions = [
        0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3, 0xff, 1, 0, 1, 0, 0, 23, 0, 0,
    ];
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut record = vec![22, 3, 1];
    record.extend((body.len() as u16 + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend((body.len() as u16).to_be_bytes());
    record.extend(body);
    record
}

/// The first record that a server answers: its type, and of an alert what it says.
fn answer(port: u16, version: u16) -> (u8, Option<u8>) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");
    stream.write_all(&hello(version)).expect("it reads");
    let mut record = [0; 7];
    stream.read_exact(&mut record).expect("it answers");
    (record[0], (record[0] == 21).then_some(record[6]))
}

/// TLS 1.0 and 1.1 are refused with an alert before anything else: by etcd with protocol_version (70), by the store with
/// that or with handshake_failure (40). The same hello with 1.2 is answered with a ServerHello.
#[test]
fn old_versions_of_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
    let certificate = certificate.self_signed(&key).expect("a certificate");
    std::fs::write(path("crt"), certificate.pem()).expect("a file");
    std::fs::write(path("key"), key.serialize_pem()).expect("a file");
    let (port, etcd_port, peer_port) = (free_port(), free_port(), free_port());
    let (client, peer_url) = (
        format!("https://127.0.0.1:{etcd_port}"),
        format!("http://127.0.0.1:{peer_port}"),
    );
    let mut etcd = Command::new(peer("etcd"));
    etcd.args(["--log-level", "error", "--data-dir", &path("etcd")])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args([
            "--listen-peer-urls",
            &peer_url,
            "--initial-advertise-peer-urls",
            &peer_url,
        ])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        .args(["--cert-file", &path("crt"), "--key-file", &path("key")]);
    let mut store = Command::new(program("quantykube-store"));
    store
        .args(["--data", &path("store.qks"), "--listen", &format!("127.0.0.1:{port}")])
        .args(["--cert-file", &path("crt"), "--key-file", &path("key")]);
    let mut servers = [
        (Server::start(&mut etcd, &folder.path().join("etcd.log")), etcd_port),
        (Server::start(&mut store, &folder.path().join("store.log")), port),
    ];
    for (server, port) in &mut servers {
        server.wait_for_port(*port, Duration::from_secs(30));
    }
    for version in [0x0301, 0x0302] {
        for (server, (_, port)) in servers.iter().enumerate() {
            let told = answer(*port, version);
            let refused = told == (21, Some(70)) || (server == 1 && told == (21, Some(40)));
            assert!(refused, "server {server}, version {version:#06x}: {told:?}");
        }
    }
    for (_, port) in &servers {
        assert_eq!(answer(*port, 0x0303), (22, None), "TLS 1.2");
    }
}
