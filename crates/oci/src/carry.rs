//! One image of a layout as the archive that a runtime imports: an OCI layout in a tar.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::walk::{Listed, blob_path};
use crate::wire::{Index, LayoutMark, OCI_INDEX};

/// Writes the image of the layout in `root` as an archive: its blobs, then what names them, so that a reader that comes to
/// the names has everything. `told` hears how many bytes of blobs were written.
///
/// # Errors
/// A blob that cannot be read, or `out` that takes nothing more.
pub fn archive(root: &Path, image: &Listed, out: &mut dyn Write, told: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    let mut done = 0;
    for (digest, size) in &image.blobs {
        let path = blob_path(*digest);
        let mut file = Told {
            file: quantykube_base::open_regular(&root.join(&path))?,
            done: &mut done,
            told,
        };
        archive.append_data(&mut header(*size), &path, &mut file)?;
    }
    let index = Index {
        manifests: vec![image.descriptor.clone()],
        media_type: Some(OCI_INDEX.into()),
        schema_version: 2,
    };
    let mark = LayoutMark {
        image_layout_version: "1.0.0".into(),
    };
    for (path, bytes) in [
        ("index.json", serde_json::to_vec(&index)?),
        ("oci-layout", serde_json::to_vec(&mark)?),
    ] {
        archive.append_data(&mut header(bytes.len() as u64), path, &bytes[..])?;
    }
    archive.into_inner()?.flush()
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    header
}

struct Told<'a> {
    file: File,
    done: &'a mut u64,
    told: &'a mut dyn FnMut(u64),
}

impl Read for Told<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        *self.done += read as u64;
        (self.told)(*self.done);
        Ok(read)
    }
}
