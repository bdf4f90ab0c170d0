//! Which keys a bundle must be signed with.

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::PublicKey;

use crate::facts::Root;

/// The folder of the keys that this node trusts: `*.pub`, as quantykube-bundle keygen and minisign write them.
const TRUSTED_KEYS: &str = "/etc/quantykube/trusted-keys";

/// `given` alone where a key was given on the command line, else every trusted key of the node. With none of either, a
/// bundle need not be signed. A key that cannot be read is an error: a typing mistake must not open the door.
pub fn keys(root: &Root, given: Option<&PublicKey>) -> Result<Vec<PublicKey>, Failure> {
    if let Some(key) = given {
        return Ok(vec![key.clone()]);
    }
    let folder = root.at(TRUSTED_KEYS);
    let cannot = |error: std::io::Error| {
        let message = format!("cannot read {TRUSTED_KEYS}; without it nobody knows whether the bundle must be signed");
        Failure::new(Exit::Failed, "trusted-keys", message).because(error)
    };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|ending| ending == "pub") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        PublicKey::read(path).map_err(|error| {
            let message = format!("the trusted key {} cannot be used", path.display());
            Failure::new(Exit::Refused, "trusted-keys", message)
                .because(error)
                .hint("put the file NAME.pub of quantykube-bundle keygen there, or take this one away")
        })
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

    #[test]
    fn a_node_without_keys_trusts_none_in_particular() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(keys(&root, None).unwrap().is_empty());
        std::fs::create_dir_all(root.at(TRUSTED_KEYS)).unwrap();
        assert!(keys(&root, None).unwrap().is_empty());
        let key = PublicKey::parse(KEY).unwrap();
        assert_eq!(keys(&root, Some(&key)).unwrap().len(), 1);
    }

    #[test]
    fn every_key_of_the_folder_counts_and_a_bad_one_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let place = root.at(TRUSTED_KEYS);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("one.pub"), KEY).unwrap();
        std::fs::write(place.join("two.pub"), format!("untrusted comment: two\n{KEY}\n")).unwrap();
        std::fs::write(place.join("notes.txt"), "not a key").unwrap();
        assert_eq!(keys(&root, None).unwrap().len(), 2);
        std::fs::write(place.join("three.pub"), "not a key").unwrap();
        let failure = keys(&root, None).unwrap_err();
        assert_eq!(failure.exit, Exit::Refused);
        assert!(failure.message.contains("three.pub"), "{}", failure.message);
        // What cannot be looked into is not the same as nothing.
        std::fs::remove_dir_all(&place).unwrap();
        std::fs::write(&place, "a file").unwrap();
        assert_eq!(keys(&root, None).unwrap_err().exit, Exit::Failed);
    }
}
