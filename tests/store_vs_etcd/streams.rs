//! `KV.RangeStream` beside a real etcd 3.7, and large answers of `KV.Range`.

use std::time::Duration;

use bytes::Bytes;
use quantykube_etcd_api::kv_client::KVClient;
use quantykube_etcd_api::*;
use quantykube_tests::{Server, peer};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::calls::make::*;
use crate::servers::{Kind, Running, block_on};

const KEYS: usize = 1500;

async fn connect(url: String) -> KVClient<Channel> {
    let endpoint = Endpoint::from_shared(url).expect("a valid URL");
    let channel = endpoint.connect_timeout(Duration::from_secs(5)).connect().await;
    KVClient::new(channel.expect("the server takes connections")).max_decoding_message_size(usize::MAX)
}

/// Keys with values of very different sizes, some written twice, some deleted: 4 MB, the same on both.
async fn fill(kv: &mut KVClient<Channel>) {
    for at in 0..KEYS {
        let key = format!("list/{at:05}");
        let len = [0, 1, 100, 4000, 9000][at % 5];
        for round in 0..=usize::from(at % 7 == 0) {
            let request = PutRequest {
                key: bytes(&key),
                value: Bytes::from(vec![b'a' + (at % 20) as u8; len + round]),
                ..Default::default()
            };
            kv.put(request).await.expect("a put");
        }
        if at % 11 == 0 {
            kv.delete_range(delete(&key, "")).await.expect("a delete");
        }
    }
}

/// All parts of a stream merged into one response, and the number of parts. Only the last has a header.
async fn stream(kv: &mut KVClient<Channel>, request: RangeRequest) -> Result<(RangeResponse, usize), (Code, String)> {
    let refused = |status: Status| (status.code(), status.message().to_owned());
    let mut parts = kv.range_stream(request).await.map_err(refused)?.into_inner();
    let (mut merged, mut count) = (RangeResponse::default(), 0);
    while let Some(part) = parts.message().await.map_err(refused)? {
        assert!(merged.header.is_none(), "a part behind the one with the header");
        let part = part.range_response.expect("a part has a response");
        merged.kvs.extend(part.kvs);
        assert!(
            part.header.is_some() || (!part.more && part.count == 0),
            "more or count before the last part"
        );
        (merged.header, merged.more, merged.count) = (part.header, part.more, part.count);
        count += 1;
    }
    let header = merged.header.as_mut().expect("the last part has a header");
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    Ok((merged, count))
}

#[test]
fn a_streamed_range_is_etcds() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_etcd, port) = Server::etcd(&peer("etcd37"), folder.path(), &[]);
    let store = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let mut theirs = connect(format!("http://127.0.0.1:{port}")).await;
        let mut ours = connect(store.url()).await;
        for kv in [&mut theirs, &mut ours] {
            fill(kv).await;
        }
        let all = range("list/", "list0");
        let mut requests = vec![
            all.clone(),
            range("\0", "\0"),
            range("list/00001", ""),
            range("list/00000", ""),
            range("none", ""),
            range("none/", "none0"),
            range("list0", "list/"),
            range("list/00100", "\0"),
            range("", ""),
            range("", "x"),
        ];
        for limit in [1, 9, 10, 11, 30, 1363, 1364, 5000, -1] {
            requests.push(RangeRequest { limit, ..all.clone() });
        }
        for revision in [1, 2, 500, 1800, 5000, -1] {
            requests.push(RangeRequest {
                revision,
                ..all.clone()
            });
            requests.push(RangeRequest {
                revision,
                limit: 20,
                ..all.clone()
            });
        }
        for (sort_order, sort_target) in [(0, 0), (0, 3), (1, 0), (1, 1), (2, 0), (3, 0), (0, 9)] {
            requests.push(RangeRequest {
                sort_order,
                sort_target,
                limit: 5,
                ..all.clone()
            });
        }
        requests.extend([
            RangeRequest {
                keys_only: true,
                ..all.clone()
            },
            RangeRequest {
                count_only: true,
                ..all.clone()
            },
            RangeRequest {
                count_only: true,
                limit: 3,
                ..all.clone()
            },
            RangeRequest {
                min_mod_revision: 5,
                ..all.clone()
            },
            RangeRequest {
                max_create_revision: 5,
                ..all.clone()
            },
            RangeRequest {
                serializable: true,
                ..all.clone()
            },
        ]);
        let (mut served, mut refused) = (0, 0);
        for compacted in [false, true] {
            if compacted {
                for kv in [&mut theirs, &mut ours] {
                    let request = CompactionRequest {
                        revision: 1000,
                        physical: true,
                    };
                    kv.compact(request).await.expect("a compaction");
                }
            }
            for request in &requests {
                let expected = stream(&mut theirs, request.clone()).await;
                let found = stream(&mut ours, request.clone()).await;
                match (&expected, &found) {
                    (Ok((expected, _)), Ok((found, _))) => {
                        assert_eq!(found, expected, "{request:?}");
                        served += 1;
                    }
                    (Err(expected), Err(found)) => {
                        assert_eq!(found, expected, "{request:?}");
                        refused += 1;
                    }
                    _ => panic!("{request:?}: etcd {expected:?}, the store {found:?}"),
                }
                // Merged it is what the plain call answers, which sorts by a target that is named without an order.
                if let Ok((mut merged, _)) = found
                    && request.sort_target == 0
                {
                    let mut plain = ours.range(request.clone()).await.expect("a range").into_inner();
                    (plain.header, merged.header) = (None, None);
                    assert_eq!(merged, plain, "{request:?}");
                }
            }
        }
        assert!(served > 40 && refused > 10, "{served} served, {refused} refused");
        let (_, parts) = stream(&mut ours, all.clone()).await.expect("a stream");
        assert!(parts > 5, "4 MB in {parts} parts");
    });
}

/// What a list reads stays while it is read: neither writes nor a compaction change what comes.
#[test]
fn a_list_that_is_read_slowly_is_of_one_moment() {
    let store = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let mut kv = connect(store.url()).await;
        fill(&mut kv).await;
        let all = range("list/", "list0");
        let before = kv.range(all.clone()).await.expect("a range").into_inner();
        let mut parts = kv.range_stream(all.clone()).await.expect("a stream").into_inner();
        let mut kvs = Vec::new();
        let mut last = None;
        for round in 0.. {
            if round == 2 {
                for at in 0..KEYS {
                    kv.put(put(&format!("list/{at:05}"), "new")).await.expect("a put");
                }
                let revision = kv.range(range("x", "")).await.expect("a range").into_inner();
                let revision = revision.header.expect("a header").revision;
                let request = CompactionRequest {
                    revision,
                    physical: true,
                };
                kv.compact(request).await.expect("a compaction");
            }
            let Some(part) = parts.message().await.expect("a part") else {
                break;
            };
            let part = part.range_response.expect("a part has a response");
            kvs.extend(part.kvs);
            last = part.header;
        }
        assert!(kvs == before.kvs, "the stream is not of one moment");
        assert_eq!(last, before.header);
        let after = kv.range(all).await.expect("a range").into_inner();
        assert_eq!(after.kvs.len(), KEYS);
        assert!(after.kvs.iter().all(|kv| &kv.value[..] == b"new"));
    });
}
