//! Random trees through writer and reader, and damage at seeded places.

use std::collections::BTreeMap;
use std::io::Cursor as Bytes;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::bulk::PAGE_SIZE;
use super::meta::Meta;
use super::page::{Header, Page};
use super::{BRANCH, Bucket, Builder, BulkWriter, Count, Db, FREELIST, HEADER, PageWriter, Source};
use crate::error::{ReadError, WriteError};

/// A bucket in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree {
    pub values: BTreeMap<Vec<u8>, Vec<u8>>,
    pub buckets: BTreeMap<Vec<u8>, Tree>,
}

enum Item<'a> {
    Value(&'a [u8]),
    Bucket(&'a Tree),
}

impl Tree {
    fn random(rng: &mut StdRng, depth: usize) -> Tree {
        let mut tree = Tree::default();
        let most = [0, 3, 40, 400, 3000][rng.random_range(0..5)];
        let key_max = [2, 17, 300][rng.random_range(0..3)];
        let value_max = [1, 30, 1200, 6000][rng.random_range(0..4)];
        for _ in 0..rng.random_range(0..=most) {
            let key = bytes(rng, 1, key_max);
            let longest = if rng.random_ratio(1, 200) { 70_000 } else { value_max };
            let value = bytes(rng, 0, longest);
            tree.values.insert(key, value);
        }
        if depth > 0 {
            for _ in 0..rng.random_range(0..6) {
                let name = bytes(rng, 1, 20);
                tree.values.remove(&name);
                tree.buckets.insert(name, Tree::random(rng, depth - 1));
            }
        }
        tree
    }

    fn items(&self) -> BTreeMap<&[u8], Item<'_>> {
        let values = self
            .values
            .iter()
            .map(|(key, value)| (&key[..], Item::Value(&value[..])));
        let buckets = self.buckets.iter().map(|(name, tree)| (&name[..], Item::Bucket(tree)));
        values.chain(buckets).collect()
    }

    fn write(&self, out: &mut BulkWriter<Bytes<Vec<u8>>>) -> Result<(), WriteError> {
        for (key, item) in self.items() {
            match item {
                Item::Value(value) => out.put(key, value)?,
                Item::Bucket(tree) => {
                    out.begin(key);
                    tree.write(out)?;
                    out.end()?;
                }
            }
        }
        Ok(())
    }

    fn measure(&self, out: &mut Builder<Count, ()>) {
        for (key, item) in self.items() {
            match item {
                Item::Value(value) => out.put(Count(key.len()), Count(value.len())).unwrap(),
                Item::Bucket(tree) => {
                    out.begin(Count(key.len()));
                    tree.measure(out);
                    out.end().unwrap();
                }
            }
        }
    }

    pub(crate) fn file(&self) -> Vec<u8> {
        let mut out = BulkWriter::new(Bytes::new(Vec::new())).unwrap();
        self.write(&mut out).unwrap();
        let (file, written) = out.finish().unwrap();
        let file = file.into_inner();
        assert_eq!(file.len() as u64, written.size);
        file
    }

    fn read<S: Source>(bucket: &Bucket<'_, S>) -> Result<Tree, ReadError> {
        let mut tree = Tree::default();
        for entry in bucket.cursor() {
            let entry = entry?;
            if entry.is_bucket {
                let child = bucket.child(&entry)?;
                tree.buckets.insert(entry.key.to_vec(), Tree::read(&child)?);
            } else {
                tree.values.insert(entry.key.to_vec(), entry.value.to_vec());
            }
        }
        Ok(tree)
    }
}

fn bytes(rng: &mut StdRng, least: usize, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.random_range(least..=most)];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn rng() -> StdRng {
    let seed = std::env::var("QUANTYKUBE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("QUANTYKUBE_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

#[test]
fn a_meta_page_is_bbolts_own() {
    let meta = Meta {
        page_size: 4096,
        root: 5,
        sequence: 0,
        freelist: None,
        pages: 6,
        transaction: 1,
    };
    let golden = "edda0ced02000000001000000000000005000000000000000000000000000000\
                  ffffffffffffffff0600000000000000010000000000000001e3e8bb077e7496";
    let encoded = meta.encode();
    let digits: String = encoded.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, golden);
    assert_eq!(Meta::decode(&encoded).unwrap(), meta);
}

#[test]
fn random_trees_come_back_and_are_sound() {
    let mut rng = rng();
    for round in 0..25 {
        let tree = Tree::random(&mut rng, 3);
        let file = tree.file();

        let db = Db::open(&file[..]).unwrap();
        let report = db.check().unwrap();
        assert!(report.is_sound(), "round {round}: {:?}", report.problems);
        assert_eq!(report.free, 0, "round {round}");
        assert_eq!(Tree::read(&db.root()).unwrap(), tree, "round {round}");

        let mut measure = Builder::<Count, ()>::new(PAGE_SIZE, ());
        tree.measure(&mut measure);
        let layout = measure.finish().unwrap();
        assert_eq!(
            (layout.root, layout.pages),
            (db.meta().root, db.meta().pages),
            "round {round}"
        );
    }
}

#[test]
fn a_cursor_seeks_as_a_map_does() {
    let mut rng = rng();
    let mut tree = Tree::default();
    while tree.values.len() < 20_000 {
        tree.values.insert(bytes(&mut rng, 1, 40), bytes(&mut rng, 0, 60));
    }
    let file = tree.file();
    let db = Db::open(&file[..]).unwrap();
    let root = db.root();
    let mut cursor = root.cursor();
    for _ in 0..20_000 {
        let key = bytes(&mut rng, 0, 3);
        cursor.seek(&key).unwrap();
        let mut expected = tree.values.range(key.clone()..);
        for _ in 0..rng.random_range(1..4) {
            let found = cursor.next().transpose().unwrap();
            let found = found.as_ref().map(|entry| (&entry.key[..], &entry.value[..]));
            assert_eq!(found, expected.next().map(|(key, value)| (&key[..], &value[..])));
        }
        assert_eq!(
            root.get(&key).unwrap().map(|value| value.to_vec()),
            tree.values.get(&key).cloned()
        );
    }
    let last = root.last().unwrap().unwrap();
    assert_eq!(
        (last.key.to_vec(), last.value.to_vec()),
        tree.values.pop_last().unwrap()
    );
}

/// Takes pages and looks at the branches among them.
#[derive(Default)]
struct Branches {
    seen: u64,
    least: u16,
}

impl PageWriter<Count> for Branches {
    fn page(&mut self, header: Header, _: &[u8], _: &Count, length: usize) -> Result<(), WriteError> {
        assert_eq!(length, (usize::try_from(header.overflow).unwrap() + 1) * PAGE_SIZE);
        if header.flags == BRANCH {
            self.least = if self.seen == 0 {
                header.count
            } else {
                self.least.min(header.count)
            };
            self.seen += 1;
        }
        Ok(())
    }
}

/// bbolt panics when it deletes from a page that is its parent's only child.
#[test]
fn no_branch_has_one_child() {
    // Children to a branch: 123, 4, 2 and 2, the last with overflow pages.
    for (key, full) in [(17, 123), (1000, 4), (2000, 2), (9000, 2)] {
        let powers = [full, full * full, full * full * full].map(|power: usize| power.min(16_000));
        let around = powers.iter().flat_map(|power| power.saturating_sub(3)..power + 4);
        for count in (1..400).chain(around) {
            let mut builder = Builder::new(PAGE_SIZE, Branches::default());
            for _ in 0..count {
                builder.put(Count(key), Count(40_000)).unwrap();
            }
            builder.finish().unwrap();
            let branches = builder.out;
            assert_eq!(branches.seen > 0, count > 1);
            assert!(
                branches.seen == 0 || branches.least > 1,
                "{count} keys of {key} bytes: a branch has {} children",
                branches.least
            );
        }
    }
}

/// What stays in memory does not grow with the file.
#[test]
fn nothing_piles_up_while_writing() {
    let mut builder = Builder::new(PAGE_SIZE, Branches::default());
    let mut most = (0, 0);
    for number in 0..1_000_000 {
        builder.put(Count(17), Count(number % 2000)).unwrap();
        let (leaves, branches) = builder.waiting();
        most = (most.0.max(leaves), most.1.max(branches));
    }
    let layout = builder.finish().unwrap();
    assert!(layout.pages > 240_000, "{} pages", layout.pages);
    // Three levels of at most 123 children and two more.
    assert!(most.0 < 1000 && most.1 <= 3 * 125, "{most:?} waited");
}

#[test]
fn objects_of_half_a_page_do_not_waste_the_other_half() {
    for size in [100, 1024, 2100, 3000, 5000] {
        let mut tree = Tree::default();
        for number in 0..2000_u32 {
            tree.values.insert(number.to_be_bytes().to_vec(), vec![7; size]);
        }
        let file = tree.file();
        let used = (2000 * (size + 20)) as f64 / file.len() as f64;
        assert!(used > 0.8, "values of {size} bytes fill {used:.2} of the file");
    }
}

#[test]
fn the_writer_refuses_what_bbolt_cannot_hold() {
    let mut out = BulkWriter::new(Bytes::new(Vec::new())).unwrap();
    out.put(b"b", b"").unwrap();
    assert!(matches!(out.put(b"b", b""), Err(WriteError::Order { .. })));
    assert!(matches!(out.put(b"a", b""), Err(WriteError::Order { .. })));
    assert!(matches!(out.put(b"", b""), Err(WriteError::TooBig { .. })));
    assert!(matches!(out.put(&[b'c'; 32769], b""), Err(WriteError::TooBig { .. })));
    assert!(matches!(out.end(), Err(WriteError::Nesting(_))));
    out.begin(b"c");
    assert!(matches!(out.finish(), Err(WriteError::Nesting(_))));
}

#[test]
fn an_unfinished_file_is_none() {
    let mut out = Bytes::new(Vec::new());
    let mut writer = BulkWriter::new(&mut out).unwrap();
    for number in 0..1000_u32 {
        writer.put(&number.to_be_bytes(), &[1; 100]).unwrap();
    }
    drop(writer);
    let file = out.into_inner();
    assert!(file.len() > 8 * PAGE_SIZE);
    assert!(matches!(Db::open(&file[..]), Err(ReadError::NoMeta { .. })));
}

/// The newest valid meta page counts, whichever copy is torn.
#[test]
fn either_meta_page_is_enough() {
    let mut tree = Tree::default();
    tree.values.insert(b"key".to_vec(), b"value".to_vec());
    let file = tree.file();
    assert_eq!(Db::open(&file[..]).unwrap().meta().transaction, 1);
    for (torn, transaction) in [(0, 1), (PAGE_SIZE, 0)] {
        let mut file = file.clone();
        file[torn + HEADER + 20] ^= 1;
        let db = Db::open(&file[..]).unwrap();
        assert_eq!(db.meta().transaction, transaction);
        assert_eq!(Tree::read(&db.root()).unwrap(), tree);
    }
    let mut both = file;
    both[HEADER] ^= 1;
    both[PAGE_SIZE + HEADER] ^= 1;
    let error = Db::open(&both[..]).unwrap_err().to_string();
    assert!(error.contains("magic number"), "{error}");
}

/// A file with a list of free pages, as bbolt writes it unless told otherwise.
fn with_freelist(tree: &Tree, free: &[u64], extra: usize) -> Vec<u8> {
    let mut file = tree.file();
    let list = file.len() / PAGE_SIZE;
    let mut page = Header {
        id: list as u64,
        flags: FREELIST,
        count: free.len() as u16,
        overflow: 0,
    }
    .encode()
    .to_vec();
    for id in free {
        page.extend_from_slice(&id.to_le_bytes());
    }
    page.resize(PAGE_SIZE * (1 + extra), 0);
    file.extend_from_slice(&page);
    let old = *Db::open(&file[..]).unwrap().meta();
    let meta = Meta {
        freelist: Some(list as u64),
        pages: (list + 1 + extra) as u64,
        transaction: 3,
        ..old
    };
    file[PAGE_SIZE..PAGE_SIZE + 80].copy_from_slice(&meta.encode_page());
    file
}

#[test]
fn a_list_of_free_pages_is_checked() {
    let mut tree = Tree::default();
    tree.values.insert(b"key".to_vec(), b"value".to_vec());
    // Pages: 0, 1 meta, 2 the leaf, 3 the list, 4 and 5 unused.
    let check = |free: &[u64]| {
        let file = with_freelist(&tree, free, 2);
        Db::open(&file[..]).unwrap().check().unwrap()
    };
    let report = check(&[4, 5]);
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!((report.reached, report.free, report.keys), (4, 2, 1));

    let problem = |free: &[u64]| check(free).problems.first().unwrap().to_string();
    assert!(problem(&[4]).contains("page 5 at offset 20480: neither reached nor free"));
    assert!(problem(&[2, 4, 5]).contains("page 3 at offset 12304: free page 2 is in use"));
    assert!(problem(&[4, 5, 5]).contains("free twice"));
    assert!(problem(&[4, 5, 6]).contains("free page 6 is none of 6"));
}

/// The page of a file that holds a branch, and where its elements' children are.
fn first_branch(file: &[u8]) -> (u64, usize) {
    let db = Db::open(file).unwrap();
    let page = (2..db.meta().pages)
        .find(|page| db.page(*page).is_ok_and(|page| !page.leaf))
        .unwrap();
    (page, page as usize * PAGE_SIZE + HEADER + 8)
}

#[test]
fn loops_and_shared_pages_end_with_an_error() {
    let mut tree = Tree::default();
    for number in 0..1000_u32 {
        tree.values.insert(number.to_be_bytes().to_vec(), vec![1; 50]);
    }
    let file = tree.file();
    let (branch, child) = first_branch(&file);
    let second_child = child + 16;
    let first = u64::from_le_bytes(file[child..child + 8].try_into().unwrap());
    for (at, page) in [
        (child, branch),
        (second_child, branch),
        (second_child, first),
        (child, 0),
        (child, u64::MAX),
    ] {
        let mut file = file.clone();
        file[at..at + 8].copy_from_slice(&page.to_le_bytes());
        let db = Db::open(&file[..]).unwrap();
        assert!(!db.check().unwrap().is_sound(), "page {page}");
        let read: Result<Vec<_>, _> = db.root().cursor().collect();
        assert!(matches!(read, Err(ReadError::Damaged { .. })), "page {page}");
    }
}

/// A great branch that is its own child would be in memory once for each level.
#[test]
fn a_great_branch_is_refused_before_it_is_read() {
    let mut tree = Tree::default();
    tree.values.insert(b"k".to_vec(), vec![0; 3 << 20]);
    let mut file = tree.file();
    let branch = Header {
        id: 2,
        flags: BRANCH,
        count: 1,
        overflow: 700,
    };
    file[2 * PAGE_SIZE..2 * PAGE_SIZE + HEADER].copy_from_slice(&branch.encode());
    let db = Db::open(&file[..]).unwrap();
    let error = db.root().last().unwrap_err().to_string();
    assert!(
        error.contains("700 overflow pages, where at most 255 can be"),
        "{error}"
    );
}

#[test]
fn lengths_that_lie_are_errors_with_their_place() {
    let mut tree = Tree::default();
    tree.values.insert(b"a".to_vec(), b"one".to_vec());
    tree.values.insert(b"b".to_vec(), b"two".to_vec());
    let file = tree.file();
    let page = 2 * PAGE_SIZE;
    // Byte, new contents, what the message must say.
    let cases: [(usize, &[u8], &str); 7] = [
        (0, &9_u64.to_le_bytes(), "says that it is page 9"),
        (8, &[7], "neither a branch nor a leaf"),
        (10, &[255, 255], "65535 elements do not fit"),
        (12, &[255, 255, 255, 255], "4294967295 overflow pages"),
        (HEADER + 4, &[0], "claims the bytes"),
        (HEADER + 12, &[255, 255, 255, 255], "claims the bytes"),
        (HEADER + 32, b"c", "does not come after"),
    ];
    for (at, bytes, what) in cases {
        let mut file = file.clone();
        file[page + at..page + at + bytes.len()].copy_from_slice(bytes);
        let db = Db::open(&file[..]).unwrap();
        let error = db.root().last().unwrap_err().to_string();
        assert!(error.starts_with("page 2 at offset "), "{error}");
        assert!(error.contains(what), "{error}");
    }
}

/// Everything that reading offers, on whatever the bytes are.
fn exercise(file: &[u8]) -> bool {
    let Ok(db) = Db::open(file) else { return false };
    let sound = db.check().unwrap().is_sound();
    let whole = Tree::read(&db.root()).is_ok();
    let root = db.root();
    let _ = root.last();
    let _ = root.get(b"key");
    let _ = root.bucket(b"key");
    if sound {
        assert!(whole, "a sound file cannot be read");
    }
    sound
}

#[test]
fn damage_never_panics_and_cuts_are_found() {
    let mut rng = rng();
    let (mut sound, mut damaged) = (0, 0);
    for _ in 0..20 {
        let tree = Tree::random(&mut rng, 1);
        let file = tree.file();
        for _ in 0..(8 << 20) / file.len().max(1 << 17) {
            let mut file = file.clone();
            for _ in 0..rng.random_range(1..4) {
                // Half of the flips where structure is dense: at the beginning of pages.
                let at = match rng.random_bool(0.5) {
                    true => rng.random_range(0..file.len()),
                    false => rng.random_range(0..file.len() / PAGE_SIZE) * PAGE_SIZE + rng.random_range(0..96),
                };
                file[at] ^= 1 << rng.random_range(0..8);
            }
            match exercise(&file) {
                true => sound += 1,
                false => damaged += 1,
            }
            let cut = rng.random_range(0..file.len());
            assert!(!exercise(&file[..cut]), "cut at {cut} of {}", file.len());
        }
    }
    assert!(sound > 0 && damaged > 50, "{sound} sound, {damaged} damaged");
}

#[test]
fn noise_never_panics() {
    let mut rng = rng();
    for _ in 0..2000 {
        let noise = bytes(&mut rng, 0, 3 * PAGE_SIZE);
        assert!(!exercise(&noise));
        // A page of noise with a plausible header.
        let mut page = noise;
        page.resize(PAGE_SIZE, 0);
        let header = Header {
            id: 2,
            flags: rng.random_range(1..3),
            count: rng.random_range(0..300),
            overflow: 0,
        };
        page[..HEADER].copy_from_slice(&header.encode());
        let _ = Page::parse(2, 8192, page.into());
    }
}
