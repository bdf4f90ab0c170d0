//! A folder is believed only when it holds exactly what `bundle.json` says.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use quantykube_bundle_format::{
    Architecture, Content, DEFAULT_MTIME, Draft, Error, FileMode, Folder, Input, Kind, Origin, Unverified, seal,
};

fn input(path: &str, mode: FileMode, bytes: &[u8]) -> Input {
    Input {
        path: path.into(),
        kind: Kind::Binary,
        mode,
        origin: Origin::Spec(path.into()),
        content: Content::Bytes(bytes.to_vec()),
    }
}

/// Builds a bundle and extracts it; the folder of the bundle.
fn extracted(base: &Path) -> PathBuf {
    let draft = Draft {
        name: "quantykube".into(),
        version: "1.0.0".into(),
        architecture: Architecture::Amd64,
        mtime: DEFAULT_MTIME,
        images: vec![],
    };
    let inputs = vec![
        input("run", FileMode::Program, b"a program"),
        input("bin/tool", FileMode::Program, &vec![7; 9 << 20]),
        input("bin/empty", FileMode::Plain, b""),
    ];
    let nothing = &mut |_, _| {};
    let sealed = seal(draft, inputs, 2, nothing).unwrap();
    let path = base.join("b.tar.gz");
    let mut bytes = Vec::new();
    let written = sealed.write(&mut bytes, &path, 2, nothing).unwrap();
    assert_eq!((written.id, written.size), (sealed.id(), bytes.len() as u64));
    fs::write(&path, bytes).unwrap();
    let verified = Unverified::open(&path).unwrap().extract(base, 2, nothing).unwrap();
    assert_eq!(verified.id(), sealed.id());
    verified.root().unwrap().to_owned()
}

fn verify(root: &Path) -> Result<quantykube_bundle_format::Verified, Error> {
    Folder::open(root)?.verify(2, &mut |_, _| {})
}

/// Changes the folder, which must then be refused with a message that has `expected` in it.
#[track_caller]
fn refused(expected: &str, change: impl FnOnce(&Path)) {
    let base = tempfile::tempdir().unwrap();
    let root = extracted(base.path());
    verify(&root).expect("it is right before the change");
    change(&root);
    let error = verify(&root).expect_err("it was changed");
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.exit(), quantykube_base::Exit::NotVerified, "{error}");
}

#[test]
fn a_right_folder_is_believed() {
    let base = tempfile::tempdir().unwrap();
    let root = extracted(base.path());
    let mut last = (0, 0);
    let verified = Folder::open(&root)
        .unwrap()
        .verify(1, &mut |done, total| last = (done, total))
        .unwrap();
    assert_eq!(verified.root(), Some(root.as_path()));
    assert_eq!(verified.file("bin/tool").unwrap().size, 9 << 20);
    assert!(verified.file("bin/none").is_none());
    assert!(last.0 == last.1 && last.1 > 9 << 20, "{last:?}");
    // Its name is its owner's business, as are the bits that a umask takes.
    let renamed = base.path().join("renamed");
    fs::rename(&root, &renamed).unwrap();
    fs::set_permissions(renamed.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(renamed.join("bundle.json"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(verify(&renamed).unwrap().id(), verified.id());
}

#[test]
fn other_bytes() {
    refused("run: sha256 is", |root| {
        fs::write(root.join("run"), b"A program").unwrap()
    });
    refused("has 8 bytes, expected 9", |root| {
        fs::write(root.join("run"), b"aprogram").unwrap()
    });
    refused("SHA256SUMS: sha256 is", |root| {
        let path = root.join("SHA256SUMS");
        let mut sums = fs::read(&path).unwrap();
        sums[0] ^= 1;
        fs::write(path, sums).unwrap();
    });
    refused("not in the canonical encoding", |root| {
        let path = root.join("bundle.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("  \"format\"", "   \"format\"")).unwrap();
    });
}

#[test]
fn another_set_of_files() {
    refused("bin/extra: it is not in the bundle", |root| {
        fs::write(root.join("bin/extra"), b"").unwrap()
    });
    refused("folder: it is not in the bundle", |root| {
        fs::create_dir(root.join("folder")).unwrap()
    });
    refused("bin/empty: it is missing", |root| {
        fs::remove_file(root.join("bin/empty")).unwrap()
    });
    refused("bin: it is missing", |root| {
        fs::remove_dir_all(root.join("bin")).unwrap()
    });
    refused("bundle.json: it is missing", |root| {
        fs::remove_file(root.join("bundle.json")).unwrap()
    });
    refused("run: it must be a regular file", |root| {
        fs::remove_file(root.join("run")).unwrap();
        fs::create_dir(root.join("run")).unwrap();
    });
}

#[test]
fn links() {
    let to_link = |path: PathBuf| {
        let away = path.parent().unwrap().parent().unwrap().join("away");
        fs::rename(&path, &away).unwrap();
        symlink(&away, &path).unwrap();
    };
    refused("run: it is a symbolic link", |root| to_link(root.join("run")));
    refused("bin: it is a symbolic link", |root| to_link(root.join("bin")));
    refused("bundle.json: it is a symbolic link", |root| {
        to_link(root.join("bundle.json"))
    });
}

#[test]
fn modes() {
    for (path, mode, expected) in [
        ("run", 0o644, "its mode is 0644, expected 0755"),
        ("run", 0o4755, "its mode is 4755, expected 0755"),
        ("run", 0o757, "its mode is 0757, expected 0755"),
        ("bin/empty", 0o646, "its mode is 0646, expected 0644"),
        ("bin", 0o777, "its mode is 0777: everybody could put another file there"),
        ("bin/empty", 0o755, "its mode is 0755, expected 0644"),
    ] {
        refused(expected, |root| {
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        });
    }
}

#[test]
fn an_input_that_changes_while_it_is_packed_is_noticed() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("input");
    for after in [&b"other"[..], b"shor", b"longer than"] {
        fs::write(&path, b"bytes").unwrap();
        let input = Input {
            content: Content::File(path.clone()),
            ..input("run", FileMode::Program, b"")
        };
        let draft = Draft {
            name: "quantykube".into(),
            version: "1.0.0".into(),
            architecture: Architecture::Amd64,
            mtime: DEFAULT_MTIME,
            images: vec![],
        };
        let sealed = seal(draft, vec![input], 1, &mut |_, _| {}).unwrap();
        fs::write(&path, after).unwrap();
        let error = sealed
            .write(&mut Vec::new(), Path::new("out"), 1, &mut |_, _| {})
            .unwrap_err();
        assert!(
            error.to_string().contains("changed while it was being packed"),
            "{error}"
        );
        assert_eq!(error.exit(), quantykube_base::Exit::Refused);
    }
}
