//! What a move must know of a closed store file.

use std::path::Path;

use quantykube_store_file::Frozen;

use crate::connect::Source;
use crate::copy::file_error;
use crate::error::Error;
use crate::status::store_revision;

/// A closed store file as it stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileState {
    /// Its head revision.
    pub revision: i64,
    /// The revision at which it was copied from an etcd, if it was.
    pub imported: Option<i64>,
}

impl FileState {
    /// Whether nothing was written to it since it was copied.
    pub fn untouched(self) -> bool {
        self.imported == Some(self.revision)
    }
}

/// Reads a store file that no server holds.
pub fn file_state(path: &Path) -> Result<FileState, Error> {
    let frozen = Frozen::open(path).map_err(|source| file_error(path, source))?;
    Ok(FileState {
        revision: frozen.revision(),
        imported: frozen.imported(),
    })
}

/// The same of a file that `server` may hold: a running one tells its revision itself. Whoever asks sees to it that nobody
/// writes meanwhile.
pub async fn file_state_of(path: &Path, server: &Source) -> Result<FileState, Error> {
    match file_state(path) {
        Err(Error::File {
            source: quantykube_store_file::Error::Locked { .. },
            ..
        }) => Ok(FileState {
            revision: store_revision(server).await?,
            imported: imported_at(path)?,
        }),
        state => state,
    }
}

/// The revision at which a store file was copied from an etcd, if it was; also of a file that a server holds.
pub fn imported_at(path: &Path) -> Result<Option<i64>, Error> {
    quantykube_store_file::imported_at(path).map_err(|source| file_error(path, source))
}
