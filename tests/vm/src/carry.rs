//! A disk that carries a folder into the machine, as a memory stick would.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes an ext4 image of a folder's content.
pub fn make(content: &Path, image: &Path) {
    let bytes = size(content) * 5 / 4 + (64 << 20);
    let file = File::create(image).unwrap_or_else(|err| panic!("cannot make {}: {err}", image.display()));
    file.set_len(bytes.next_multiple_of(1 << 20))
        .expect("a sparse file can be made");
    let output = Command::new("mkfs.ext4")
        .args(["-q", "-m", "0", "-O", "^has_journal", "-d"])
        .arg(content)
        .arg(image)
        .output()
        .expect("mkfs.ext4 can be run");
    assert!(
        output.status.success(),
        "mkfs.ext4: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn size(path: &Path) -> u64 {
    let metadata = fs::symlink_metadata(path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()));
    if !metadata.is_dir() {
        return metadata.len().next_multiple_of(4096);
    }
    let entries = fs::read_dir(path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()));
    let paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    4096 + paths.iter().map(|path| size(path)).sum::<u64>()
}
