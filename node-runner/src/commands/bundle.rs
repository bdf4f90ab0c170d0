//! Finding and checking the bundle that this program stands in.

use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure, Unit};
use quantykube_bundle_format::{BUNDLE_JSON, Folder, KeyId, PublicKey, Unverified, Verified};
use quantykube_oci::Listed;

use crate::args::Id;
use crate::commands::layout::{self, InBundle};
use crate::commands::{Context, trust};
use crate::moves::store::{Bundle, File};

/// The files of a bundle that `install store` needs.
const RUNNER: &str = "run";
const STORE: &str = "bin/quantykube-store";
const UNIT: &str = "systemd/quantykube-store.service";
const RECOVER: &str = "systemd/quantykube-recover.service";
const GUARD: &str = "systemd/quantykube-guard.service";
const RESUME: &str = "systemd/quantykube-resume.service";

/// Which bundle is meant, and whose.
#[derive(Debug, Default)]
pub struct Meant {
    /// The id it must have.
    pub id: Option<Id>,
    /// The key it must be signed with, in place of those that the node trusts.
    pub key: Option<PublicKey>,
}

/// Checks every bit of a bundle: an archive, a folder, or where neither is given the folder of this program. Where a key
/// is trusted, the signature comes before all else. Says with which key the bundle is truly signed.
pub fn verify(context: &Context, given: Option<&Path>, meant: &Meant) -> Result<(Verified, Option<KeyId>), Failure> {
    verify_images(context, given, meant).map(|(verified, key, _)| (verified, key))
}

/// As [`verify`], and gives the images of the bundle, too.
pub fn verify_images(
    context: &Context,
    given: Option<&Path>,
    meant: &Meant,
) -> Result<(Verified, Option<KeyId>, Vec<Listed>), Failure> {
    let keys = trust::keys(&context.root, meant.key.as_ref())?;
    let mut signed_by = None;
    let path = match given {
        Some(path) => path.to_owned(),
        None => own_folder()?,
    };
    let (verified, archive) = match path.is_dir() {
        true => {
            let folder = Folder::open(&path)?;
            if !keys.is_empty() {
                signed_by = Some(folder.check_signature(&keys)?);
            }
            let mut progress = context
                .reporter
                .progress("verify", Unit::Bytes, Some(folder.manifest().size()));
            let verified = folder.verify(jobs(), &mut |done, _total| progress.set(done, ""));
            progress.finish();
            (verified?, None)
        }
        false => {
            let archive = Unverified::open(&path)?;
            if !keys.is_empty() {
                signed_by = Some(archive.check_signature(&keys)?);
            }
            let mut progress = context.reporter.progress("verify", Unit::Bytes, Some(archive.length()));
            let verified = archive.verify(jobs(), &mut |done, _total| progress.set(done, ""));
            progress.finish();
            (verified?, Some(archive))
        }
    };
    let found = verified.id().to_string();
    if let Some(id) = meant.id.as_ref().filter(|id| id.text() != found) {
        return Err(Failure::new(
            Exit::NotVerified,
            "other-bundle",
            format!("this bundle's id is {found}, expected {}", id.text()),
        )
        .hint("this is another bundle than the one that was meant; do not install it"));
    }
    let images = layout::walk(&InBundle {
        verified: &verified,
        archive: archive.as_ref(),
    })?;
    Ok((verified, signed_by, images))
}

/// Where a key is trusted, systemd starts no program of a folder before that folder is proven: a move's unit is started from
/// the bundle. Without a key, and where this program stands in no bundle, there is nothing to prove here.
///
/// # Errors
/// As [`verify`].
pub fn prove_before_start(context: &Context, meant: &Meant) -> Result<(), Failure> {
    if trust::keys(&context.root, meant.key.as_ref())?.is_empty() || own_folder().is_err() {
        return Ok(());
    }
    verify(context, None, meant).map(|_| ())
}

/// The folder of this program, where it is a bundle's.
fn own_folder() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Failed, "own-path", "cannot find out where this program stands").because(error)
    })?;
    let folder = program.parent().unwrap_or(Path::new("/")).to_owned();
    match folder.join(BUNDLE_JSON).symlink_metadata() {
        Ok(_) => Ok(folder),
        Err(_) => Err(Failure::new(
            Exit::NotVerified,
            "no-bundle",
            format!("this program stands in {}, which is not the folder of a bundle", folder.display()),
        )
        .hint("extract the bundle (tar xzf FILE) and call ./run in its folder, or name the bundle: quantykube verify FILE")),
    }
}

/// What of a verified folder the move to the store needs.
pub fn for_store(verified: &Verified) -> Result<Bundle, Failure> {
    let root = verified.root().ok_or_else(|| {
        Failure::new(Exit::Usage, "not-extracted", "a move is made from an extracted bundle")
            .hint("extract the bundle (tar xzf FILE) and call ./run in its folder")
    })?;
    let file = |path: &str| match verified.file(path) {
        Some(entry) => Ok(File {
            path: root.join(path),
            sha256: entry.sha256.to_string(),
        }),
        None => Err(
            Failure::new(Exit::Refused, "bundle-lacks", format!("the bundle holds no {path}"))
                .hint("the store's move needs a bundle that was built with the store; the default one is"),
        ),
    };
    Ok(Bundle {
        version: verified.manifest().version.clone(),
        runner: file(RUNNER)?,
        store: file(STORE)?,
        unit: file(UNIT)?,
        recover: file(RECOVER)?,
        resume: file(RESUME)?,
        guard: file(GUARD)?,
    })
}

/// How many threads read.
fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
