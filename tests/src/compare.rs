//! The whole of a tree as a value, to compare what a mount shows with what lies beneath.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use thrufs_testing::xattrs;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub links: u64,
    /// The first name in order that is the same inode: two names are hard links of each other when
    /// this is equal.
    pub first_name: PathBuf,
    /// Content of a file, target of a symbolic link, else empty.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Every name below a directory, by its path relative to it; the directory itself is "".
pub type Snapshot = BTreeMap<PathBuf, Node>;

/// Reads the whole tree below `root` without following symbolic links.
pub fn snapshot(root: &Path) -> io::Result<Snapshot> {
    let mut found = Snapshot::new();
    let mut first_names = HashMap::new();
    let mut waiting = vec![PathBuf::new()];
    // Names in order, so that `first_name` does not depend on the order of the directory.
    while let Some(name) = waiting.pop() {
        let path = root.join(&name);
        let stat = rustix::fs::lstat(&path)?;
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path)? {
                names.push(name.join(entry?.file_name()));
            }
            names.sort();
            names.reverse();
            waiting.extend(names);
        }
        let first = first_names
            .entry((stat.st_dev, stat.st_ino))
            .or_insert_with(|| name.clone());
        let node = read_node(&path, &stat, first.clone())?;
        found.insert(name, node);
    }
    Ok(found)
}

fn read_node(path: &Path, stat: &Stat, first_name: PathBuf) -> io::Result<Node> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let content = match kind {
        FileType::RegularFile => fs::read(path)?,
        FileType::Symlink => fs::read_link(path)?.as_os_str().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    if matches!(kind, FileType::RegularFile | FileType::Symlink)
        && content.len() as i64 != stat.st_size
    {
        return Err(io::Error::other(format!(
            "{}: st_size is {}, but {} bytes can be read",
            path.display(),
            stat.st_size,
            content.len()
        )));
    }
    Ok(Node {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev,
        links: stat.st_nlink,
        first_name,
        content,
        xattrs: xattrs(path)?,
    })
}

/// One line per name that differs; empty when the trees are the same.
pub fn differences(left: (&str, &Snapshot), right: (&str, &Snapshot)) -> Vec<String> {
    let mut lines = Vec::new();
    let (left_name, left) = left;
    let (right_name, right) = right;
    for (path, node) in left {
        match right.get(path) {
            None => lines.push(format!(
                "{}: in {left_name}, not in {right_name}",
                path.display()
            )),
            Some(other) if other != node => lines.push(format!(
                "{}: {left_name} has {}, {right_name} has {}",
                path.display(),
                brief(node),
                brief(other)
            )),
            Some(_) => {}
        }
    }
    for path in right.keys().filter(|path| !left.contains_key(*path)) {
        lines.push(format!(
            "{}: in {right_name}, not in {left_name}",
            path.display()
        ));
    }
    lines
}

fn brief(node: &Node) -> String {
    let content = &node.content[..node.content.len().min(48)];
    format!(
        "[mode {:o} owner {}:{} rdev {} links {} as {:?} xattrs {:?} {} bytes \"{}\"]",
        node.mode,
        node.uid,
        node.gid,
        node.rdev,
        node.links,
        node.first_name,
        node.xattrs,
        node.content.len(),
        content.escape_ascii()
    )
}
