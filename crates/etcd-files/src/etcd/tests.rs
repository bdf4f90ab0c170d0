//! Golden vectors, and what the writer refuses.

use std::io::{Cursor, Write};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;
use crate::bolt::BulkWriter;
use crate::error::{ReadError, WriteError};

fn rng() -> StdRng {
    let seed = std::env::var("QUANTYKUBE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("QUANTYKUBE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

fn revision(main: i64, sub: i64) -> Revision {
    Revision { main, sub }
}

/// Three records in the buckets `key`, `lease` and `meta`, whose hashes etcd and etcdutl were asked for.
fn golden(compacted: bool) -> Vec<u8> {
    let mut out = BulkWriter::new(Cursor::new(Vec::new())).unwrap();
    out.begin(b"key");
    let records: [(&[u8], &[u8]); 3] = [
        (&revision(2, 0).encode(), b"\x0a\x01a\x10\x02\x18\x02\x20\x01\x2a\x011"),
        (&revision(3, 0).encode(), b"\x0a\x01b\x10\x03\x18\x03\x20\x01\x2a\x012"),
        (b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\x01t", b"\x0a\x01a"),
    ];
    for (key, value) in records {
        out.put(key, value).unwrap();
    }
    out.end().unwrap();
    out.begin(b"lease");
    out.end().unwrap();
    out.begin(b"meta");
    if compacted {
        out.put(b"finishedCompactRev", &revision(2, 0).encode()).unwrap();
    }
    out.end().unwrap();
    out.finish().unwrap().0.into_inner()
}

#[test]
fn hashes_are_etcds_own() {
    let file = golden(true);
    let database = Database::open(&file[..]).unwrap();
    let status = database.status().unwrap();
    assert_eq!((status.hash, status.revision, status.keys), (1522872766, 3, 1));
    assert_eq!(
        database.hash_kv(None).unwrap(),
        HashKv {
            hash: 3215632187,
            revision: 3,
            compact_revision: 2,
        }
    );
    assert!(matches!(database.hash_kv(Some(1)), Err(ReadError::Revision { .. })));
    assert!(matches!(database.hash_kv(Some(4)), Err(ReadError::Revision { .. })));

    let file = golden(false);
    let hash = Database::open(&file[..]).unwrap().hash_kv(None).unwrap();
    assert_eq!((hash.hash, hash.compact_revision), (3435836863, -1));
}

#[test]
fn records_are_encoded_as_etcd_does() {
    let head = Head::new(3, None);
    let mut out = FileWriter::new(Cursor::new(Vec::new()), &head).unwrap();
    out.put(revision(2, 0), b"a", b"1", 2, 1, 0).unwrap();
    out.put(revision(3, 0), b"b", b"2", 3, 1, 0).unwrap();
    out.delete(revision(3, 1), b"a").unwrap();
    let file = out.finish().unwrap().0.into_inner();
    let database = Database::open(&file[..]).unwrap();
    assert_eq!(database.hash_kv(None).unwrap().hash, 3435836863);
    assert!(database.check().unwrap().is_sound());

    let records: Vec<Record> = database
        .records(Revision::default())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(records.len(), 3);
    assert_eq!(
        records[1],
        Record {
            revision: revision(3, 0),
            deleted: false,
            key: Bytes::from_static(b"b"),
            create_revision: 3,
            mod_revision: 3,
            version: 1,
            value: Bytes::from_static(b"2"),
            lease: 0,
        }
    );
    assert!(records[2].deleted && records[2].key == "a");
    let live = database.live(None).unwrap();
    assert_eq!(live.iter().map(|(key, _)| key).collect::<Vec<_>>(), [b"b"]);
    assert_eq!(database.live(Some(2)).unwrap().iter().next().unwrap().0, b"a");
    let values: Vec<Record> = live.records(&database).unwrap().map(Result::unwrap).collect();
    assert_eq!(values, records[1..2]);
}

#[test]
fn the_record_of_a_bumped_revision_is_no_key() {
    let mut out = BulkWriter::new(Cursor::new(Vec::new())).unwrap();
    out.begin(b"key");
    out.put(&revision(500, 0).encode(), b"").unwrap();
    out.end().unwrap();
    out.begin(b"meta");
    out.put(b"scheduledCompactRev", &revision(500, 0).encode()).unwrap();
    out.end().unwrap();
    let file = out.finish().unwrap().0.into_inner();
    let database = Database::open(&file[..]).unwrap();
    assert_eq!(database.revision().unwrap(), 500);
    assert_eq!(database.compact_revision().unwrap(), Some(500));
    assert!(database.live(None).unwrap().is_empty());
    assert_eq!(database.status().unwrap().keys, 1);
}

#[test]
fn the_head_is_the_last_record_or_the_compaction() {
    let head_of = |head: Head, records: &[i64]| {
        let mut out = FileWriter::new(Cursor::new(Vec::new()), &head).unwrap();
        for main in records {
            out.put(revision(*main, 0), b"a", b"1", *main, 1, 0)?;
        }
        let file = out.finish()?.0.into_inner();
        Ok::<i64, WriteError>(Database::open(&file[..]).unwrap().revision().unwrap())
    };
    assert_eq!(head_of(Head::new(1, None), &[]).unwrap(), 1);
    assert_eq!(head_of(Head::new(7, None), &[5, 7]).unwrap(), 7);
    assert_eq!(head_of(Head::new(7, Some(6)), &[5, 7]).unwrap(), 7);
    assert_eq!(
        head_of(Head::new(5_000_000_000, Some(5_000_000_000)), &[5]).unwrap(),
        5_000_000_000
    );
    for (head, records) in [
        (Head::new(8, None), &[5, 7][..]),
        (Head::new(6, None), &[5, 7]),
        (Head::new(8, Some(6)), &[7]),
        (Head::new(2, None), &[]),
    ] {
        assert!(matches!(head_of(head, records), Err(WriteError::Head { .. })));
    }
    assert!(matches!(
        head_of(Head::new(7, None), &[7, 5]),
        Err(WriteError::Order { .. })
    ));
}

#[test]
fn a_live_key_with_an_unknown_lease_is_refused() {
    let mut head = Head::new(4, None);
    head.lease(&Lease {
        id: 77,
        ttl: 600,
        remaining_ttl: 123,
    });
    let begin = || FileWriter::new(Cursor::new(Vec::new()), &head).unwrap();
    let mut out = begin();
    out.put(revision(2, 0), b"gone", b"", 2, 1, 5).unwrap();
    out.put(revision(3, 0), b"again", b"", 3, 1, 6).unwrap();
    out.delete(revision(3, 1), b"gone").unwrap();
    out.put(revision(4, 0), b"again", b"", 3, 2, 77).unwrap();
    let file = out.finish().unwrap().0.into_inner();
    let database = Database::open(&file[..]).unwrap();
    let live = database.live(None).unwrap();
    assert_eq!(database.dangling_leases(&live).unwrap(), []);
    assert_eq!(database.leases().unwrap()[0].remaining_ttl, 123);
    let live = database.live(Some(2)).unwrap();
    assert_eq!(database.dangling_leases(&live).unwrap(), [(b"gone".to_vec(), 5)]);

    let mut out = begin();
    out.put(revision(4, 0), b"left", b"", 4, 1, 5).unwrap();
    let error = out.finish().err().unwrap();
    assert!(matches!(error, WriteError::Lease { keys: 1, lease: 5, .. }), "{error}");
}

/// A stream is the file, its length is known before, and the sum is found.
#[test]
fn a_stream_is_the_measured_file() {
    let mut rng = rng();
    for _ in 0..20 {
        let count = rng.random_range(0..3000);
        let values: Vec<Option<Vec<u8>>> = (0..count)
            .map(|_| {
                let mut value = vec![0; rng.random_range(0..3000)];
                rng.fill_bytes(&mut value);
                rng.random_bool(0.8).then_some(value)
            })
            .collect();
        let head = Head::new(count + 1, None).with_member(
            &Member {
                id: 9,
                ..Member::default()
            },
            4,
            2,
        );
        let key = |number: usize| format!("/registry/{}", number % 300).into_bytes();

        let mut measure = Measure::new(&head).unwrap();
        for (number, value) in values.iter().enumerate() {
            let place = revision(number as i64 + 2, 0);
            match value {
                Some(value) => measure.put(place, key(number).len(), value.len(), 2, 300, 0).unwrap(),
                None => measure.delete(place, key(number).len()).unwrap(),
            }
        }
        let measured = measure.finish().unwrap();

        let mut file = FileWriter::new(Cursor::new(Vec::new()), &head).unwrap();
        let mut stream = SnapshotWriter::new(Hashing::new(Vec::new()), &head, measured).unwrap();
        for (number, value) in values.iter().enumerate() {
            let place = revision(number as i64 + 2, 0);
            match value {
                Some(value) => {
                    file.put(place, &key(number), value, 2, 300, 0).unwrap();
                    stream.put(place, &key(number), value, 2, 300, 0).unwrap();
                }
                None => {
                    file.delete(place, &key(number)).unwrap();
                    stream.delete(place, &key(number)).unwrap();
                }
            }
        }
        let (file, finished) = file.finish().unwrap();
        let (stream, again) = stream.finish().unwrap();
        assert_eq!(finished, again);
        assert_eq!(finished.size, measured.bytes());
        let (mut snapshot, sum) = stream.append().unwrap();
        assert_eq!(snapshot.len() as u64, measured.bytes_with_sum());
        assert_eq!(&snapshot[..file.get_ref().len()], &file.get_ref()[..]);
        assert_eq!(&snapshot[file.get_ref().len()..], sum);

        let database = Database::open(&snapshot[..]).unwrap();
        assert!(database.verify_sum().unwrap());
        assert!(database.check().unwrap().is_sound());
        assert_eq!(database.status().unwrap().hash, finished.status_hash);
        assert_eq!(database.revision().unwrap(), count + 1);
        assert!(!Database::open(&file.get_ref()[..]).unwrap().verify_sum().unwrap());
        let at = rng.random_range(0..snapshot.len());
        snapshot[at] ^= 1;
        if let Ok(database) = Database::open(&snapshot[..]) {
            assert!(matches!(database.verify_sum(), Err(ReadError::Sum { .. })));
        }
    }
}

#[test]
fn records_that_changed_since_they_were_measured_are_refused() {
    let head = Head::new(2, None);
    let mut measure = Measure::new(&head).unwrap();
    measure.put(revision(2, 0), 1, 10, 2, 1, 0).unwrap();
    let measured = measure.finish().unwrap();
    let mut stream = SnapshotWriter::new(Vec::new(), &head, measured).unwrap();
    stream.put(revision(2, 0), b"a", &[0; 10_000], 2, 1, 0).unwrap();
    assert!(matches!(stream.finish(), Err(WriteError::Measured { .. })));
}

#[test]
fn what_is_beside_the_keys_comes_back() {
    let member = Member {
        id: 0x8e9e_05c5_2164_694d,
        peer_urls: vec!["http://localhost:2380".into()],
        is_learner: false,
        name: "default".into(),
        client_urls: vec!["http://localhost:2379".into()],
    };
    let mut head = Head::new(1, None).with_member(&member, 17, 3);
    head.alarm(Alarm {
        member: member.id,
        kind: AlarmKind::NoSpace,
    });
    let (file, _) = FileWriter::new(Cursor::new(Vec::new()), &head)
        .unwrap()
        .finish()
        .unwrap();
    let file = file.into_inner();
    let database = Database::open(&file[..]).unwrap();
    let meta = database.meta().unwrap();
    assert_eq!((meta.consistent_index, meta.term), (Some(17), Some(3)));
    assert_eq!(meta.conf_state.unwrap().voters, [member.id]);
    assert_eq!(meta.storage_version.as_deref(), Some("3.6.0"));
    assert_eq!(database.members().unwrap(), [member]);
    assert_eq!(database.alarms().unwrap().len(), 1);
    assert_eq!(database.cluster().unwrap().version.as_deref(), Some("3.6.0"));

    let copied = Head::new(9, Some(9)).with_identity(&database).unwrap();
    let (file, _) = FileWriter::new(Cursor::new(Vec::new()), &copied)
        .unwrap()
        .finish()
        .unwrap();
    let file = file.into_inner();
    let copy = Database::open(&file[..]).unwrap();
    assert_eq!(copy.revision().unwrap(), 9);
    assert_eq!(copy.members().unwrap(), database.members().unwrap());
    assert_eq!(copy.meta().unwrap().consistent_index, Some(17));
    // The one about space belongs to the old file.
    assert_eq!(copy.alarms().unwrap(), []);
}

/// Wherever the records are damaged, reading ends with an error or a value, never with a panic.
#[test]
fn damaged_records_never_panic() {
    let mut rng = rng();
    let mut errors = 0;
    for _ in 0..400 {
        let mut out = BulkWriter::new(Cursor::new(Vec::new())).unwrap();
        for (bucket, key) in [
            ("alarm", &b"\x08\x01\x10\x01"[..]),
            ("auth", b"authRevision"),
            ("authRoles", b"root"),
            ("authUsers", b"root"),
            ("cluster", b"clusterVersion"),
            ("key", &revision(2, 0).encode()),
            ("lease", &7_u64.to_be_bytes()),
            ("members", b"1"),
            ("meta", b"term"),
        ] {
            let (mut key, mut value) = (key.to_vec(), vec![0; rng.random_range(0..40)]);
            rng.fill_bytes(&mut value);
            // Mostly plausible: small field tags and lengths.
            if let (Some(first), true) = (value.first_mut(), rng.random_bool(0.8)) {
                *first = (rng.random_range(1..7) << 3) | (2 * rng.random_range(0..2));
            }
            if rng.random_bool(0.2) {
                let at = rng.random_range(0..key.len());
                key[at] ^= 1 << rng.random_range(0..8);
            }
            out.begin(bucket.as_bytes());
            out.put(&key, &value).unwrap();
            out.end().unwrap();
        }
        let mut file = Vec::new();
        file.write_all(out.finish().unwrap().0.get_ref()).unwrap();
        let database = Database::open(&file[..]).unwrap();
        let results = [
            database.meta().err(),
            database.revision().err(),
            database.leases().err(),
            database.alarms().err(),
            database.cluster().err(),
            database.members().err(),
            database.removed_members().err(),
            database.auth().err(),
            database.live(None).err(),
            database.hash_kv(None).err(),
            database.status().err(),
        ];
        errors += results.iter().flatten().count();
    }
    assert!(errors > 1000, "only {errors} errors");
}
