//! Damage to real files never panics, and what passes the check can be read to its end.

use quantykube_etcd_files::bolt::Source;
use quantykube_etcd_files::etcd::{Database, Revision};
use rand::RngExt;

use crate::world::{Etcd, Kind, fill, rng};

/// Asks everything. Whether it was all well.
fn exercise<S: Source>(source: S) -> bool {
    let Ok(database) = Database::open(source) else {
        return false;
    };
    let pages = database.check().unwrap();
    let whole = database
        .records(Revision::default())
        .is_ok_and(|mut records| records.all(|record| record.is_ok()));
    let contents = [
        database.meta().is_ok(),
        database.leases().is_ok(),
        database.alarms().is_ok(),
        database.cluster().is_ok(),
        database.members().is_ok(),
        database.removed_members().is_ok(),
        database.auth().is_ok(),
        database.live(None).is_ok_and(|live| {
            live.records(&database)
                .is_ok_and(|mut records| records.all(|record| record.is_ok()))
        }),
        database.hash_kv(None).is_ok(),
        database.status().is_ok(),
    ];
    let sum = database.verify_sum().is_ok();
    pages.is_sound() && whole && contents.iter().all(|fine| *fine) && sum
}

#[tokio::test]
async fn damage_to_a_snapshot_is_found_and_never_panics() {
    let mut rng = rng();
    let etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 12).await;
    let file = std::fs::read(etcd.save()).unwrap();
    assert!(exercise(&file[..]));
    let pages = file.len() / 4096;
    let rounds = (48 << 20) / file.len();
    for round in 0..rounds.clamp(20, 150) {
        let mut damaged = file.clone();
        let at = match rng.random_bool(0.7) {
            true => rng.random_range(0..pages) * 4096 + rng.random_range(0..160),
            false => rng.random_range(0..file.len()),
        };
        damaged[at] ^= 1 << rng.random_range(0..8);
        assert!(!exercise(&damaged[..]), "round {round}: the flip at {at} was not found");
        // The same without its sum: most flips hit values and are nobody's to find, but nothing may panic.
        exercise(&damaged[..pages * 4096]);
        let cut = rng.random_range(0..file.len());
        let found = exercise(&file[..cut]);
        // What is cut behind the last used page and at a page's border is a whole database without a sum.
        assert!(
            !found || cut % 512 == 0,
            "round {round}: the cut at {cut} was not found"
        );
    }
}
