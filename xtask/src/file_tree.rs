//! The files of one image layer, as a tar whose bytes depend only on the files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType, Header};

#[derive(Clone, Debug)]
enum Node {
    Dir { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: String },
}

/// Files, directories and links by absolute path. Parent directories are added automatically.
#[derive(Clone, Debug, Default)]
pub struct FileTree {
    // Sorted by path, so a directory always comes before its entries.
    nodes: BTreeMap<PathBuf, Node>,
}

impl FileTree {
    /// Adds a directory, or sets the mode of one that was added with its content. Fails if the path is used otherwise.
    pub fn dir(&mut self, path: &str, mode: u32) -> Result<()> {
        self.insert(path, Node::Dir { mode })
    }

    /// Adds a file. Fails if the path is used already.
    pub fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) -> Result<()> {
        self.insert(path, Node::File { mode, content })
    }

    /// Adds a symbolic link. `target` is relative to the link's directory, or absolute inside the image.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        self.insert(path, Node::Symlink { target: target.to_owned() })
    }

    fn insert(&mut self, path: &str, node: Node) -> Result<()> {
        let inside = inside_image(path)?;
        for parent in inside.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            let found = self.nodes.entry(parent.to_owned()).or_insert(Node::Dir { mode: 0o755 });
            ensure!(
                matches!(found, Node::Dir { .. }),
                "{path} cannot be put into the image: /{} is not a directory",
                parent.display()
            );
        }
        // A directory that its content added may be inserted again, to set its mode.
        let found = self.nodes.get(&inside);
        let renamed_dir = matches!((found, &node), (Some(Node::Dir { .. }), Node::Dir { .. }));
        ensure!(found.is_none() || renamed_dir, "{path} is put into the image twice");
        self.nodes.insert(inside, node);
        Ok(())
    }

    /// The layer: entries sorted by path, owned by root, dated 1970.
    pub fn to_tar(&self) -> Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, node) in &self.nodes {
            match node {
                Node::Dir { mode } => {
                    append(&mut tar, path, EntryType::Directory, *mode, &[])?;
                }
                Node::File { mode, content } => {
                    append(&mut tar, path, EntryType::Regular, *mode, content)?;
                }
                Node::Symlink { target } => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    tar.append_link(&mut header, path, target)
                        .with_context(|| format!("cannot write the link {}", path.display()))?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

/// Appends one entry without time and owner in its header.
pub(crate) fn append<W: Write>(
    tar: &mut Builder<W>,
    path: &Path,
    kind: EntryType,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(kind, mode, content.len() as u64);
    tar.append_data(&mut header, path, content)
        .with_context(|| format!("cannot write {} to the tar", path.display()))
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn inside_image(path: &str) -> Result<PathBuf> {
    let below_root = Path::new(path).strip_prefix("/");
    let below_root =
        below_root.ok().with_context(|| format!("{path} is not an absolute path in the image"))?;
    ensure!(
        below_root.components().all(|part| matches!(part, Component::Normal(_)))
            && below_root.components().next().is_some(),
        "{path} is not a plain path in the image"
    );
    Ok(below_root.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(tree: &FileTree) -> Vec<String> {
        let bytes = tree.to_tar().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            let link =
                entry.link_name().unwrap().map(|to| format!(" -> {}", to.display())).unwrap_or_default();
            format!("{:o} {}{link}", header.mode().unwrap(), entry.path().unwrap().display())
        });
        entries.collect()
    }

    #[test]
    fn parents_appear_once_and_before_their_content() {
        let mut tree = FileTree::default();
        tree.symlink("/usr/bin/nmstatectl", "knmstate").unwrap();
        tree.file("/usr/bin/knmstate", 0o755, b"x".to_vec()).unwrap();
        tree.dir("/tmp", 0o1777).unwrap();
        let expected = [
            "1777 tmp",
            "755 usr",
            "755 usr/bin",
            "755 usr/bin/knmstate",
            "777 usr/bin/nmstatectl -> knmstate",
        ];
        assert_eq!(listing(&tree), expected);
    }

    #[test]
    fn the_order_of_insertion_does_not_matter() {
        let mut one = FileTree::default();
        one.file("/a/b", 0o644, b"1".to_vec()).unwrap();
        one.dir("/a", 0o700).unwrap();
        let mut other = FileTree::default();
        other.dir("/a", 0o700).unwrap();
        other.file("/a/b", 0o644, b"1".to_vec()).unwrap();
        assert_eq!(one.to_tar().unwrap(), other.to_tar().unwrap());
    }

    #[test]
    fn paths_stay_inside_the_image_and_unambiguous() {
        let mut tree = FileTree::default();
        tree.file("/a", 0o644, vec![]).unwrap();
        for path in ["relative", "/", "/../etc/passwd", "/a", "/a/below-a-file"] {
            assert!(tree.file(path, 0o644, vec![]).is_err(), "{path}");
        }
        assert!(tree.dir("/a", 0o755).is_err(), "a file cannot become a directory");
    }
}
