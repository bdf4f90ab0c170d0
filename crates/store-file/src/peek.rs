//! What can be told of a file while a server holds it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;
use crate::layout::{HEADER_AT, Header, PAGE};

/// The head at which the import ended that made the file at `path`, if one did. It never changes, so that it can be read
/// while a server writes to the file.
///
/// # Errors
/// A file that cannot be read, a newer format, or neither header copy whole.
pub fn imported_at(path: &Path) -> Result<Option<i64>, Error> {
    let file = File::open(path).map_err(Error::io("opening the file"))?;
    for at in HEADER_AT {
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, at)
            .map_err(Error::io("reading the header"))?;
        // A copy that is being written just now is torn; the other one is not.
        if let Some(header) = Header::decode(&page)? {
            return Ok((header.imported > 0).then_some(header.imported));
        }
    }
    Err(Error::Damaged {
        offset: 0,
        what: "neither copy of the header is whole".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, Import, Options, Store};

    #[test]
    fn the_head_of_the_import_is_told_while_the_file_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.qks");
        let identity = Identity {
            cluster_id: 1,
            member_id: 2,
            raft_term: 3,
        };
        let import = Import::create(&path, identity, 9000).unwrap();
        import.finish().unwrap().publish().unwrap();
        let mut store = Store::open(&path, Options { quota: 0, identity }).unwrap();
        let mut transaction = store.begin(1, 16, false).unwrap();
        transaction.put(bytes::Bytes::from_static(b"k"), bytes::Bytes::from_static(b"v"), 0);
        transaction.commit().unwrap();
        assert_eq!(imported_at(&path).unwrap(), Some(9000));
        store.close().unwrap();
        std::fs::write(&path, vec![7; 9000]).unwrap();
        assert!(matches!(imported_at(&path), Err(Error::Damaged { .. })));
    }
}
