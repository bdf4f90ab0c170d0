//! A tree of files with two sides: what programs see, and what a power cut leaves.
//!
//! Content becomes durable when its file is synced, a name when its folder is. A rename is one act on both folders,
//! and syncing either makes it durable whole: so do ext4, xfs and btrfs. Nothing else becomes durable by itself; of
//! content that was not synced a cut leaves the first half of what was added.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use crate::system::{Entry, Meta};

type Number = usize;

#[derive(Clone, Debug)]
enum Node {
    File {
        live: Vec<u8>,
        durable: Vec<u8>,
        meta: Meta,
    },
    Dir {
        live: BTreeMap<String, Number>,
        durable: BTreeMap<String, Number>,
        meta: Meta,
    },
    Link(PathBuf),
}

/// Names changed together: folder, name, and what the name stands for now.
type Change = Vec<(Number, String, Option<Number>)>;

/// The tree.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    pending: Vec<Change>,
}

impl Default for Tree {
    fn default() -> Tree {
        let root = Node::Dir {
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            meta: Meta::mode(0o755),
        };
        Tree {
            nodes: vec![root],
            pending: Vec::new(),
        }
    }
}

impl Tree {
    /// What stands at a path.
    pub fn look(&self, path: &Path) -> io::Result<Option<Entry>> {
        let found = match self.find(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(match &self.nodes[found] {
            Node::File { live, meta, .. } => Entry::File(live.len() as u64, meta.clone()),
            Node::Dir { meta, .. } => Entry::Dir(meta.clone()),
            Node::Link(target) => Entry::Link(target.clone()),
        }))
    }

    /// The content of a file.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match &self.nodes[self.find(path)?] {
            Node::File { live, .. } => Ok(live.clone()),
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// The names in a folder.
    pub fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.folder(self.find(path)?)?.keys().cloned().collect())
    }

    /// Makes a file.
    pub fn create(&mut self, path: &Path, content: &[u8], meta: &Meta) -> io::Result<()> {
        self.add(
            path,
            Node::File {
                live: content.to_vec(),
                durable: Vec::new(),
                meta: meta.clone(),
            },
        )
    }

    /// Makes a link.
    pub fn symlink(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        self.add(path, Node::Link(target.to_owned()))
    }

    /// Makes a folder.
    pub fn make_dir(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        self.add(
            path,
            Node::Dir {
                live: BTreeMap::new(),
                durable: BTreeMap::new(),
                meta: Meta::mode(mode),
            },
        )
    }

    /// Changes a file's content.
    pub fn change(&mut self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let found = self.find(path)?;
        match &mut self.nodes[found] {
            Node::File { live, .. } => {
                change(live);
                Ok(())
            }
            _ => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// Renames, over a file or a link.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let moved = self.find(from)?;
        if let Ok(over) = self.find(to)
            && matches!(self.nodes[over], Node::Dir { .. })
        {
            return Err(ErrorKind::IsADirectory.into());
        }
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = self.parent(to)?;
        self.apply(vec![(old, old_name, None), (new, new_name, Some(moved))]);
        Ok(())
    }

    /// Removes a file, a link or an empty folder.
    pub fn remove(&mut self, path: &Path, folder: bool) -> io::Result<()> {
        match &self.nodes[self.find(path)?] {
            Node::Dir { .. } if !folder => return Err(ErrorKind::IsADirectory.into()),
            Node::Dir { live, .. } if !live.is_empty() => return Err(ErrorKind::DirectoryNotEmpty.into()),
            Node::File { .. } | Node::Link(_) if folder => return Err(ErrorKind::NotADirectory.into()),
            _ => {}
        }
        let (parent, name) = self.parent(path)?;
        self.apply(vec![(parent, name, None)]);
        Ok(())
    }

    /// Makes a file's content or a folder's names durable.
    pub fn sync(&mut self, path: &Path) -> io::Result<()> {
        let found = self.find(path)?;
        if let Node::File { live, durable, .. } = &mut self.nodes[found] {
            durable.clone_from(live);
            return Ok(());
        }
        let mut index = 0;
        while index < self.pending.len() {
            if self.pending[index].iter().any(|(folder, _, _)| *folder == found) {
                let change = self.pending.remove(index);
                // What an earlier change did to the same name is overtaken.
                for earlier in &mut self.pending[..index] {
                    earlier.retain(|(folder, name, _)| !change.iter().any(|(f, n, _)| f == folder && n == name));
                }
                self.make_durable(change);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Power is cut: what was not synced is lost.
    pub fn lose(&mut self) {
        self.pending.clear();
        for node in &mut self.nodes {
            match node {
                Node::File { live, durable, .. } => {
                    if live.starts_with(durable) {
                        let added = live.len() - durable.len();
                        live.truncate(durable.len() + added / 2);
                    }
                    if !live.starts_with(durable) {
                        live.clone_from(durable);
                    }
                    durable.clone_from(live);
                }
                Node::Dir { live, durable, .. } => live.clone_from(durable),
                Node::Link(_) => {}
            }
        }
    }

    /// All is written back, as an orderly stop does.
    pub fn flush(&mut self) {
        self.pending.clear();
        for node in &mut self.nodes {
            match node {
                Node::File { live, durable, .. } => durable.clone_from(live),
                Node::Dir { live, durable, .. } => durable.clone_from(live),
                Node::Link(_) => {}
            }
        }
    }

    /// Every path with what stands there.
    pub fn walk(&self) -> Vec<(PathBuf, Entry)> {
        let mut found = Vec::new();
        let mut folders = vec![(PathBuf::from("/"), 0)];
        while let Some((path, number)) = folders.pop() {
            let Node::Dir { live, .. } = &self.nodes[number] else {
                continue;
            };
            for (name, child) in live {
                let path = path.join(name);
                if let Ok(Some(entry)) = self.look(&path) {
                    if matches!(entry, Entry::Dir(_)) {
                        folders.push((path.clone(), *child));
                    }
                    found.push((path, entry));
                }
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    fn find(&self, path: &Path) -> io::Result<Number> {
        let mut at = 0;
        for part in path.components() {
            if let Component::Normal(name) = part {
                let name = name.to_string_lossy();
                at = *self.folder(at)?.get(name.as_ref()).ok_or(ErrorKind::NotFound)?;
            }
        }
        Ok(at)
    }

    fn folder(&self, number: Number) -> io::Result<&BTreeMap<String, Number>> {
        match &self.nodes[number] {
            Node::Dir { live, .. } => Ok(live),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn parent(&self, path: &Path) -> io::Result<(Number, String)> {
        let name = path
            .file_name()
            .ok_or(ErrorKind::InvalidInput)?
            .to_string_lossy()
            .into_owned();
        let parent = self.find(path.parent().ok_or(ErrorKind::InvalidInput)?)?;
        self.folder(parent)?;
        Ok((parent, name))
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        if self.folder(parent)?.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.apply(vec![(parent, name, Some(number))]);
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        for (folder, name, number) in &change {
            let Node::Dir { live, .. } = &mut self.nodes[*folder] else {
                continue;
            };
            match number {
                Some(number) => live.insert(name.clone(), *number),
                None => live.remove(name),
            };
        }
        self.pending.push(change);
    }

    fn make_durable(&mut self, change: Change) {
        for (folder, name, number) in change {
            let Node::Dir { durable, .. } = &mut self.nodes[folder] else {
                continue;
            };
            match number {
                Some(number) => durable.insert(name, number),
                None => durable.remove(&name),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> &Path {
        Path::new(path)
    }

    #[test]
    fn a_cut_leaves_what_was_synced_and_a_rename_is_whole() {
        let mut tree = Tree::default();
        tree.make_dir(at("/a"), 0o755).unwrap();
        tree.make_dir(at("/b"), 0o755).unwrap();
        tree.sync(at("/")).unwrap();
        tree.create(at("/a/x"), b"content", &Meta::mode(0o600)).unwrap();
        tree.sync(at("/a/x")).unwrap();
        tree.rename(at("/a/x"), at("/b/y")).unwrap();

        let mut lost = tree.clone();
        lost.lose();
        assert!(lost.list(at("/a")).unwrap().is_empty() && lost.list(at("/b")).unwrap().is_empty());

        tree.sync(at("/b")).unwrap();
        tree.sync(at("/a")).unwrap();
        tree.lose();
        assert_eq!(tree.read(at("/b/y")).unwrap(), b"content");
        assert!(
            tree.list(at("/a")).unwrap().is_empty(),
            "the creation must not come back after the rename"
        );
    }

    #[test]
    fn a_cut_tears_an_append() {
        let mut tree = Tree::default();
        tree.create(at("/log"), b"12", &Meta::mode(0o600)).unwrap();
        tree.sync(at("/log")).unwrap();
        tree.sync(at("/")).unwrap();
        tree.change(at("/log"), |bytes| bytes.extend(b"3456")).unwrap();
        tree.lose();
        assert_eq!(tree.read(at("/log")).unwrap(), b"1234");
    }
}
