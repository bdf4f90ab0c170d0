//! What real etcds wrote is read as they mean it.

use std::fs::File;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Permission};
use quantykube_etcd_files::bolt::Seeking;
use quantykube_etcd_files::etcd::{Alarm, AlarmKind, Database};
use serde_json::Value;

use crate::world::{Etcd, Kind, dump, dump_of, fill, hashes, hashes_of, records, rng, run, same, some_revisions};

async fn a_snapshot_is_read(kind: Kind) {
    let mut rng = rng();
    let etcd = Etcd::start(kind);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 160).await;
    let expected = dump(&mut client).await;
    assert!(expected.keys.len() > 50 && expected.leases.len() > 3 && expected.revision > 60);
    assert!(expected.keys.values().any(|seen| seen.lease != 0 && seen.version > 1));

    let path = etcd.save();
    let database = Database::open(File::open(&path).unwrap()).unwrap();
    assert!(database.verify_sum().unwrap());
    let report = database.check().unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    same(&dump_of(&database), &expected);
    let seeking = Database::open(Seeking::new(File::open(&path).unwrap())).unwrap();
    same(&dump_of(&seeking), &expected);
    assert!(records(&database) > expected.keys.len(), "no history was read");

    assert!(database.compact_revision().unwrap().is_some(), "nothing was compacted");

    let output = run(kind
        .snapshot_tool()
        .args(["snapshot", "status", "-w", "json"])
        .arg(&path));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = database.status().unwrap();
    assert_eq!(told["hash"], status.hash);
    assert_eq!(told["revision"], status.revision);
    match kind {
        Kind::Current => {
            assert_eq!(told["totalKey"], status.keys);
            assert_eq!(status.version.as_deref(), Some("3.6.0"));
        }
        // Before 3.6 every record of every bucket was counted.
        Kind::Debian => assert_eq!(status.version, None),
    }

    let members = client.member_list().await.unwrap();
    let found = database.members().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id, members.members()[0].id());
    assert_eq!(found[0].name, "test");
    assert_eq!(found[0].client_urls, members.members()[0].client_urls());
    let meta = database.meta().unwrap();
    assert!(meta.consistent_index.unwrap() > 60);
    assert_eq!(meta.term.is_some(), kind == Kind::Current);
    if let Some(conf_state) = meta.conf_state {
        assert_eq!(conf_state.voters, [found[0].id]);
    }
    assert!(database.cluster().unwrap().version.is_some());
    assert_eq!(database.alarms().unwrap(), []);

    let etcd = etcd.restarted();
    let mut client = etcd.client().await;
    let revisions = some_revisions(kind, &database, &mut rng);
    assert_eq!(
        hashes_of(&database, &revisions),
        hashes(&mut client, &revisions).await,
        "{revisions:?}"
    );
}

#[tokio::test]
async fn a_snapshot_of_the_current_etcd_is_read() {
    a_snapshot_is_read(Kind::Current).await;
}

#[tokio::test]
async fn a_snapshot_of_the_old_etcd_is_read() {
    a_snapshot_is_read(Kind::Debian).await;
}

/// A stopped member's own file: with free pages that no list names, and small buckets inside the root's page.
#[tokio::test]
async fn a_stopped_members_file_is_read() {
    let mut rng = rng();
    let mut etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 60).await;
    client.user_add("ann", "secret", None).await.unwrap();
    client.role_add("reader").await.unwrap();
    client
        .role_grant_permission("reader", Permission::read("/registry/").with_prefix())
        .await
        .unwrap();
    client.user_grant_role("ann", "reader").await.unwrap();
    let mut whose = AlarmOptions::new();
    whose.with_member(7);
    client
        .alarm(AlarmAction::Activate, AlarmType::Nospace, Some(whose))
        .await
        .unwrap();
    let expected = dump(&mut client).await;
    etcd.stop();

    let database = Database::open(File::open(etcd.db()).unwrap()).unwrap();
    assert!(!database.verify_sum().unwrap());
    let report = database.check().unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert!(report.free > 0, "no page is free: the check saw nothing of them");
    assert!(report.buckets >= 11, "{} buckets", report.buckets);
    same(&dump_of(&database), &expected);

    let alarm = Alarm {
        member: 7,
        kind: AlarmKind::NoSpace,
    };
    assert_eq!(database.alarms().unwrap(), [alarm]);

    let auth = database.auth().unwrap();
    assert!(!auth.enabled && auth.revision > 1);
    assert_eq!(auth.users[0].name, b"ann");
    assert_eq!(auth.users[0].roles, [b"reader"]);
    let allowed = &auth.roles[0].permissions[0];
    assert!(allowed.read && !allowed.write);
    assert_eq!(
        (&allowed.key[..], &allowed.range_end[..]),
        (&b"/registry/"[..], &b"/registry0"[..])
    );
}

/// etcdutl raises the revision by a record that is no key, and only schedules the compaction: etcd does it when it starts.
#[tokio::test]
async fn a_bumped_revision_is_read_as_etcd_does() {
    let mut rng = rng();
    let etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 60).await;
    let mut expected = dump(&mut client).await;
    expected.revision += 1000;
    let folder = tempfile::tempdir().unwrap();
    run(Kind::Current
        .snapshot_tool()
        .args([
            "snapshot",
            "restore",
            "--bump-revision",
            "1000",
            "--mark-compacted",
            "--data-dir",
        ])
        .arg(folder.path().join("etcd"))
        .arg(etcd.save()));

    let database = Database::open(File::open(folder.path().join("etcd/member/snap/db")).unwrap()).unwrap();
    let meta = database.meta().unwrap();
    assert_eq!(meta.scheduled_compact.unwrap().main, expected.revision);
    assert_ne!(meta.finished_compact, meta.scheduled_compact);
    assert_eq!(database.compact_revision().unwrap(), Some(expected.revision));
    assert!(database.check().unwrap().is_sound());
    same(&dump_of(&database), &expected);
    let head = [expected.revision];
    let hash = hashes_of(&database, &head);

    // The first start compacts, and remembers the hash as of before; the second has only what it finds.
    let etcd = Etcd::start_in(Kind::Current, folder);
    same(&dump(&mut etcd.client().await).await, &expected);
    let etcd = etcd.restarted();
    assert_eq!(hashes(&mut etcd.client().await, &head).await, hash);
}
