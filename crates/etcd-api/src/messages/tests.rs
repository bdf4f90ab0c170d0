//! The bytes on the wire: against bytes taken from a real etcd, and against the messages of another client.

use bytes::Bytes;
use prost::Message;

use super::*;

/// What etcd 3.6.14 stores and sends for key "a", the second of two puts, value "2".
const KEY_VALUE: &[u8] = b"\x0a\x01a\x10\x02\x18\x03\x20\x02\x2a\x012";

#[test]
fn a_key_value_has_etcds_bytes() {
    let kv = KeyValue {
        key: Bytes::from_static(b"a"),
        create_revision: 2,
        mod_revision: 3,
        version: 2,
        value: Bytes::from_static(b"2"),
        lease: 0,
    };
    assert_eq!(kv.encode_to_vec(), KEY_VALUE);
    assert_eq!(KeyValue::decode(KEY_VALUE).unwrap(), kv);
}

/// Encodes ours, decodes and encodes with the other's message, and wants the same bytes back.
fn same<Theirs: Message + Default + std::fmt::Debug>(ours: &impl Message) {
    let bytes = ours.encode_to_vec();
    assert!(!bytes.is_empty());
    let theirs = Theirs::decode(&bytes[..]).expect("the other message takes our bytes");
    assert_eq!(theirs.encode_to_vec(), bytes, "{theirs:?}");
}

#[test]
fn every_field_has_the_number_and_type_that_another_client_uses() {
    use etcd_client::proto as theirs;
    let key = Bytes::from_static(b"key");
    let header = Some(ResponseHeader {
        cluster_id: 1,
        member_id: u64::MAX,
        revision: -3,
        raft_term: 4,
    });
    let kv = KeyValue {
        key: key.clone(),
        create_revision: 1,
        mod_revision: 2,
        version: 3,
        value: key.clone(),
        lease: 4,
    };
    let range = RangeRequest {
        key: key.clone(),
        range_end: key.clone(),
        limit: 1,
        revision: 2,
        sort_order: SortOrder::Descend as i32,
        sort_target: SortTarget::Value as i32,
        serializable: true,
        keys_only: true,
        count_only: true,
        min_mod_revision: 3,
        max_mod_revision: 4,
        min_create_revision: 5,
        max_create_revision: 6,
    };
    let put = PutRequest {
        key: key.clone(),
        value: key.clone(),
        lease: 1,
        prev_kv: true,
        ignore_value: true,
        ignore_lease: true,
    };
    let delete = DeleteRangeRequest {
        key: key.clone(),
        range_end: key.clone(),
        prev_kv: true,
    };
    let compare = |target_union| Compare {
        result: CompareResult::NotEqual as i32,
        target: CompareTarget::Lease as i32,
        key: key.clone(),
        target_union: Some(target_union),
        range_end: key.clone(),
    };
    let op = |request| RequestOp { request: Some(request) };
    let txn = TxnRequest {
        compare: vec![
            compare(TargetUnion::Version(1)),
            compare(TargetUnion::CreateRevision(2)),
            compare(TargetUnion::ModRevision(3)),
            compare(TargetUnion::Value(key.clone())),
            compare(TargetUnion::Lease(4)),
        ],
        success: vec![op(Request::Range(range)), op(Request::Put(put))],
        failure: vec![
            op(Request::DeleteRange(delete)),
            op(Request::Txn(TxnRequest::default())),
        ],
    };
    same::<theirs::PbTxnRequest>(&txn);
    let answer = RangeResponse {
        header: header.clone(),
        kvs: vec![kv.clone()],
        more: true,
        count: 7,
    };
    same::<theirs::PbRangeResponse>(&answer);
    let watch = WatchResponse {
        header: header.clone(),
        watch_id: -1,
        created: true,
        canceled: true,
        compact_revision: 5,
        cancel_reason: "why".to_owned(),
        fragment: true,
        events: vec![Event {
            r#type: EventType::Delete as i32,
            kv: Some(kv.clone()),
            prev_kv: Some(kv),
        }],
    };
    same::<theirs::PbWatchResponse>(&watch);
    let status = StatusResponse {
        header: header.clone(),
        version: "3.6.14".to_owned(),
        db_size: 1,
        leader: 2,
        raft_index: 3,
        raft_term: 4,
        raft_applied_index: 5,
        errors: vec!["one".to_owned(), "two".to_owned()],
        db_size_in_use: 6,
        is_learner: true,
        storage_version: "3.6.0".to_owned(),
        db_size_quota: 7,
        downgrade_info: Some(DowngradeInfo {
            enabled: true,
            target_version: "3.5.0".to_owned(),
        }),
    };
    same::<theirs::PbStatusResponse>(&status);
    let hash = HashKVResponse {
        header: header.clone(),
        hash: u32::MAX,
        compact_revision: -1,
        hash_revision: 9,
    };
    same::<theirs::PbHashKvResponse>(&hash);
    let members = MemberListResponse {
        header: header.clone(),
        members: vec![Member {
            id: 1,
            name: "name".to_owned(),
            peer_urls: vec!["http://a:1".to_owned()],
            client_urls: vec!["http://b:2".to_owned()],
            is_learner: true,
        }],
    };
    same::<theirs::PbMemberListResponse>(&members);
    let lease = LeaseTimeToLiveResponse {
        header: header.clone(),
        id: 1,
        ttl: -1,
        granted_ttl: 3,
        keys: vec![key.clone(), key],
    };
    same::<theirs::PbLeaseTimeToLiveResponse>(&lease);
    let alarms = AlarmResponse {
        header: header.clone(),
        alarms: vec![AlarmMember {
            member_id: 1,
            alarm: AlarmType::Corrupt as i32,
        }],
    };
    same::<theirs::PbAlarmResponse>(&alarms);
}
