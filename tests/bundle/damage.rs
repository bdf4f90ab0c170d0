//! Truncated files and flipped bits: never success, nothing written.

use crate::workbench::{AMD64, Workbench, elf, tree};

/// xorshift, so that a failure can be seen again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn seed() -> u64 {
    let given = std::env::var("QUANTYKUBE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(20_261_129);
    println!("QUANTYKUBE_SEED={seed}");
    seed
}

#[track_caller]
fn refused(bench: &Workbench, bytes: &[u8], extract: bool, what: &str, names: &[&str]) {
    bench.put("bad.tar.gz", bytes);
    let before = tree(&bench.path("out"));
    let ran = match extract {
        true => bench.run(&["extract", "bad.tar.gz", "out"]),
        false => bench.run(&["verify", "bad.tar.gz"]),
    };
    assert_eq!(ran.code, Some(3), "{what}: {}", ran.err);
    ran.failed(3, names);
    assert!(tree(&bench.path("out")) == before, "{what} wrote something");
}

#[test]
fn truncated_everywhere() {
    let bench = Workbench::new();
    let whole = std::fs::read(bench.default_bundle()).unwrap();
    let mut places = vec![
        0,
        1,
        2,
        10,
        23,
        24,
        25,
        100,
        whole.len() - 1,
        whole.len() - 10,
        whole.len() - 11,
    ];
    places.extend((1..100).map(|part| whole.len() * part / 100));
    for (index, place) in places.into_iter().enumerate() {
        let what = format!("{place} of {} bytes", whole.len());
        refused(
            &bench,
            &whole[..place],
            index % 4 == 0,
            &what,
            &["truncated", &format!("ends at byte {place}")],
        );
    }
}

#[test]
fn flipped_bits() {
    let seed = seed();
    let bench = Workbench::new();
    // Small, so that many places can be tried.
    bench.put("quantykube", &elf(AMD64, false, 200_000, 1));
    let whole = std::fs::read(bench.default_bundle()).unwrap();
    let trailer =
        whole.len() - u32::from_le_bytes(whole[whole.len() - 14..whole.len() - 10].try_into().unwrap()) as usize;
    assert_eq!(&whole[trailer + 12..trailer + 14], b"QT");
    // Every byte of the first header and of the trailer, and anything between.
    let mut places: Vec<usize> = (0..24).chain(trailer..whole.len()).collect();
    let mut random = Random(seed);
    places.extend((0..250).map(|_| 24 + random.below(trailer - 24)));
    for (index, place) in places.into_iter().enumerate() {
        let mut bad = whole.clone();
        let bit = random.below(8);
        bad[place] ^= 1 << bit;
        refused(&bench, &bad, index % 5 == 0, &format!("bit {bit} of byte {place}"), &[]);
    }
}

#[test]
fn a_thousand_flipped_bytes() {
    let seed = seed();
    let bench = Workbench::new();
    bench.put("quantykube", &elf(AMD64, false, 100_000, 1));
    bench.put("quantykube-store", &elf(AMD64, false, 50_000, 2));
    let whole = std::fs::read(bench.default_bundle()).unwrap();
    let mut random = Random(seed | 1);
    for index in 0..1000 {
        let (place, other) = (random.below(whole.len()), 1 + random.below(255));
        let mut bad = whole.clone();
        bad[place] ^= other as u8;
        refused(&bench, &bad, index % 20 == 0, &format!("byte {place} ^ {other}"), &[]);
    }
}

#[test]
fn other_files() {
    let bench = Workbench::new();
    refused(&bench, b"hello", false, "text", &["does not begin as a gzip file"]);
    let mut plain = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut plain, &[0; 2000]).unwrap();
    refused(
        &bench,
        &plain.finish().unwrap(),
        false,
        "another gzip",
        &["not the canonical one"],
    );
    bench.run(&["verify", "out"]).failed(3, &["no regular file"]);
    bench
        .run(&["verify", "none.tar.gz"])
        .failed(1, &["none.tar.gz", "No such file"]);
}
