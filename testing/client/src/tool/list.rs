//! `ls`.

use super::outcome::ToolError;
use super::share::{Share, failed};
use super::show::{file_type, long_line};
use rustix::fs::FileType;
use std::io::Write;
use thrufs::Errno;
use thrufs_abi::NodeId;
use thrufs_abi::layout::Attr;

/// Arguments of `ls`.
#[derive(Clone, Debug)]
pub struct Ls {
    /// A directory or file of the share.
    pub path: String,
    /// Long format.
    pub long: bool,
    /// Also names that begin with a dot.
    pub all: bool,
}

impl Default for Ls {
    fn default() -> Ls {
        Ls {
            path: "/".to_owned(),
            long: false,
            all: false,
        }
    }
}

struct Line {
    name: Vec<u8>,
    node: NodeId,
    attr: Option<Attr>,
}

pub(crate) fn ls(share: &Share, ls: &Ls, out: &mut dyn Write) -> Result<(), ToolError> {
    let found = share.find(&ls.path)?;
    let mut lines = if file_type(found.attr.mode) == FileType::Directory {
        entries(share, found.node, ls).map_err(|errno| failed(&ls.path, errno))?
    } else {
        vec![Line {
            name: ls.path.clone().into_bytes(),
            node: found.node,
            attr: Some(found.attr),
        }]
    };
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    for line in lines {
        print(share, &line, ls.long, out)?;
    }
    Ok(())
}

fn entries(share: &Share, directory: NodeId, ls: &Ls) -> Result<Vec<Line>, Errno> {
    let plus = ls.long && share.has_readdirplus();
    let mut lines = Vec::new();
    for entry in share.root().list(directory, plus)? {
        let known = entry.entry.filter(|known| known.nodeid != 0);
        if let Some(known) = known {
            share.counted(known.nodeid);
        }
        if entry.name.starts_with(b".") && !ls.all {
            continue;
        }
        let mut line = Line {
            name: entry.name,
            node: NodeId(known.map_or(0, |known| known.nodeid)),
            attr: known.map(|known| known.attr),
        };
        let itself = line.name == b"." || line.name == b"..";
        if ls.long && line.attr.is_none() && !itself {
            // Removed meanwhile: only its name is shown.
            if let Ok(found) = share.lookup(directory, &line.name) {
                (line.node, line.attr) = (found.node, Some(found.attr));
            }
        }
        // LOOKUP of `..` is not allowed; the parent of the root is the root.
        if ls.long && (line.name == b"." || itself && directory == NodeId::ROOT) {
            line.node = directory;
            line.attr = Some(share.root().getattr(directory)?.attr);
        }
        lines.push(line);
    }
    Ok(lines)
}

fn print(share: &Share, line: &Line, long: bool, out: &mut dyn Write) -> Result<(), ToolError> {
    let mut text = Vec::new();
    if long {
        let unknown = "?".to_owned();
        let columns = line.attr.as_ref().map_or(unknown, long_line);
        text.extend_from_slice(columns.as_bytes());
        text.push(b' ');
    }
    text.extend_from_slice(line.name.escape_ascii().to_string().as_bytes());
    let is_link = line
        .attr
        .is_some_and(|attr| file_type(attr.mode) == FileType::Symlink);
    if long
        && is_link
        && let Ok(target) = share.root().readlink(line.node)
    {
        text.extend_from_slice(b" -> ");
        text.extend_from_slice(target.escape_ascii().to_string().as_bytes());
    }
    text.push(b'\n');
    out.write_all(&text)?;
    Ok(())
}
