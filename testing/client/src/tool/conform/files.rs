//! Checks of file operations.

use super::finding::{Finding, Verdict, ensure, fail, skip};
use super::session::{Answer, Check, Session};
use crate::tool::share::Share;
use std::collections::BTreeSet;
use thrufs::{Errno, Result};
use thrufs_abi::layout::SetattrIn;
use thrufs_abi::{LockOwner, NodeId, Opcode, SetattrValid};
use thrufs_testing::{Client, OFFERED_BY_GUESTS};

const fn check(name: &'static str, run: fn(&Session) -> Verdict) -> Check {
    Check { name, run }
}

pub(super) const CHECKS: &[Check] = &[
    check("file-data", data),
    check("file-size", size),
    check("file-unlinked-while-open", unlinked),
    check("file-names", names),
    check("file-links", links),
    check("file-attributes", attributes),
    check("file-extended-attributes", extended_attributes),
    check("directory-listing", listing),
    check("directory-listing-plus", listing_plus),
];

/// `O_RDWR | O_CREAT`.
const CREATE: i32 = 0o102;
const TOP: &str = "thrufs-conform";

pub(super) fn make_top(share: &Share) -> Result<NodeId> {
    let name = format!("{TOP}-{}", std::process::id());
    let entry = share.root().mkdir(NodeId::ROOT, name.as_bytes(), 0o755)?;
    share.counted(entry.nodeid);
    Ok(NodeId(entry.nodeid))
}

pub(super) fn remove_top(session: &Session) {
    let Ok(top) = session.top else { return };
    let root = session.share.root();
    for entry in root.list(top, false).unwrap_or_default() {
        if root.unlink(top, &entry.name).is_err() {
            let _ = root.rmdir(top, &entry.name);
        }
    }
    let name = format!("{TOP}-{}", std::process::id());
    let _ = root.rmdir(NodeId::ROOT, name.as_bytes());
}

struct Open<'a> {
    session: &'a Session,
    top: NodeId,
    name: &'a str,
    node: NodeId,
    fh: u64,
}

impl<'a> Open<'a> {
    fn create(session: &'a Session, name: &'a str) -> std::result::Result<Open<'a>, Finding> {
        let (root, top) = (session.share.root(), session.top()?);
        let (entry, open) = root.create(top, name.as_bytes(), CREATE, 0o640)?;
        session.share.counted(entry.nodeid);
        Ok(Open {
            session,
            top,
            name,
            node: NodeId(entry.nodeid),
            fh: open.fh,
        })
    }

    fn remove(self) -> Result<()> {
        let root = self.session.share.root();
        root.release(self.node, self.fh)?;
        root.unlink(self.top, self.name.as_bytes())
    }
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| ((at * 31 + seed) % 251) as u8)
        .collect()
}

fn data(session: &Session) -> Verdict {
    let root = session.share.root();
    let file = Open::create(session, "data")?;
    let most = session.share.transfer_bytes();
    for (seed, length) in [1, 15, 4095, 4096, 4097, 70_001, most]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(length.min(most), seed);
        for offset in [0, 3, 8191] {
            let written = root.write(file.node, file.fh, offset, &bytes, 0)?;
            ensure(written as usize == bytes.len(), || {
                format!("{written} of {} bytes were written", bytes.len())
            })?;
            let size = bytes.len() as u32;
            let back = root.read(file.node, file.fh, offset, size)?;
            ensure(back == bytes, || {
                format!("{length} bytes at {offset} do not come back as they were written")
            })?;
        }
    }
    root.fsync(file.node, file.fh)?;
    match root.flush(file.node, file.fh, LockOwner(1)) {
        Ok(()) | Err(Errno::ENOSYS) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(file.remove()?)
}

fn size(session: &Session) -> Verdict {
    let root = session.share.root();
    let file = Open::create(session, "size")?;
    root.write(file.node, file.fh, 10_000, b"end", 0)?;
    let set = |size| SetattrIn {
        valid: SetattrValid::SIZE.bits(),
        size,
        ..SetattrIn::default()
    };
    let mut seen = vec![root.getattr(file.node)?.attr.size];
    seen.push(root.setattr(file.node, &set(5))?.attr.size);
    seen.push(root.setattr(file.node, &set(70))?.attr.size);
    ensure(seen == [10_003, 5, 70], || format!("sizes are {seen:?}"))?;
    let hole = root.read(file.node, file.fh, 0, 100)?;
    ensure(hole == [0; 70], || {
        "a hole does not read as zeroes".to_owned()
    })?;
    Ok(file.remove()?)
}

fn unlinked(session: &Session) -> Verdict {
    let root = session.share.root();
    let file = Open::create(session, "unlinked")?;
    root.unlink(file.top, b"unlinked")?;
    root.write(file.node, file.fh, 0, b"alive", 0)?;
    let back = root.read(file.node, file.fh, 0, 10)?;
    ensure(back == b"alive", || "its data are gone".to_owned())?;
    let missing = root.lookup(file.top, b"unlinked");
    let is_missing = missing.is_err_and(|errno| errno == Errno::ENOENT)
        || missing.is_ok_and(|entry| entry.nodeid == 0);
    ensure(is_missing, || "its name is still there".to_owned())?;
    Ok(root.release(file.node, file.fh)?)
}

fn names(session: &Session) -> Verdict {
    let (root, top) = (session.share.root(), session.top()?);
    for name in [&b"."[..], b"..", b"", b"a/b", b"/etc"] {
        ensure(root.mkdir(top, name, 0o755).is_err(), || {
            format!("a directory `{}` can be made", name.escape_ascii())
        })?;
    }
    let long = [b'x'; 255];
    for name in [&b"\xff\xfe not utf-8"[..], b"new\nline", &long] {
        let entry = root.mkdir(top, name, 0o755)?;
        session.share.counted(entry.nodeid);
        let found = session.share.lookup(top, name)?;
        ensure(found.node == NodeId(entry.nodeid), || {
            format!("`{}` is another node when looked up", name.escape_ascii())
        })?;
        root.rmdir(top, name)?;
    }
    Ok(())
}

fn links(session: &Session) -> Verdict {
    let root = session.share.root();
    let file = Open::create(session, "one")?;
    let linked = root.link(file.node, file.top, b"two")?;
    session.share.counted(linked.nodeid);
    ensure(
        NodeId(linked.nodeid) == file.node && linked.attr.nlink == 2,
        || {
            format!(
                "a link is node {} with {} links",
                linked.nodeid, linked.attr.nlink
            )
        },
    )?;
    root.rename((file.top, b"two"), (file.top, b"three"), 0)?;
    let moved = session.share.lookup(file.top, b"three")?;
    ensure(moved.node == file.node, || {
        "RENAME changes the node".to_owned()
    })?;
    root.unlink(file.top, b"three")?;
    let target = vec![b't'; 4000];
    let link = root.symlink(file.top, b"link", &target)?;
    session.share.counted(link.nodeid);
    let back = root.readlink(NodeId(link.nodeid))?;
    ensure(back == target, || {
        "READLINK gives another target".to_owned()
    })?;
    root.unlink(file.top, b"link")?;
    Ok(file.remove()?)
}

fn attributes(session: &Session) -> Verdict {
    let root = session.share.root();
    let file = Open::create(session, "attributes")?;
    let set = SetattrIn {
        valid: (SetattrValid::MODE | SetattrValid::MTIME).bits(),
        mode: 0o100_604,
        mtime: 1_000_000_000,
        mtimensec: 123_456_789,
        ..SetattrIn::default()
    };
    root.setattr(file.node, &set)?;
    let attr = root.getattr(file.node)?.attr;
    ensure(attr.mode == 0o100_604, || {
        format!("the mode is {:o}", attr.mode)
    })?;
    ensure(attr.mtime == 1_000_000_000, || {
        format!("the time of change is {}", attr.mtime)
    })?;
    Ok(file.remove()?)
}

fn extended_attributes(session: &Session) -> Verdict {
    let root = session.share.root();
    let file = Open::create(session, "xattr")?;
    let value = pattern(1000, 5);
    let set = root.setxattr(file.node, b"user.thrufs", &value, 0);
    if let Err(Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EPERM) = set {
        file.remove()?;
        return skip("it has none");
    }
    set?;
    let back = root.getxattr(file.node, b"user.thrufs")?;
    ensure(back == value, || "another value comes back".to_owned())?;
    let listed = root.listxattr(file.node)?;
    ensure(listed.contains(&b"user.thrufs".to_vec()), || {
        "its name is not listed".to_owned()
    })?;
    root.removexattr(file.node, b"user.thrufs")?;
    let gone = root.getxattr(file.node, b"user.thrufs");
    ensure(gone == Err(Errno::ENODATA), || {
        format!("after removal, {gone:?}")
    })?;
    Ok(file.remove()?)
}

const LISTED: usize = 300;

fn many(session: &Session, top: NodeId) -> Result<BTreeSet<Vec<u8>>> {
    let root = session.share.root();
    let mut names = BTreeSet::new();
    for number in 0..LISTED {
        let name = format!("listed-{number}").into_bytes();
        let (entry, open) = root.create(top, &name, CREATE, 0o644)?;
        session.share.counted(entry.nodeid);
        root.release(NodeId(entry.nodeid), open.fh)?;
        names.insert(name);
    }
    Ok(names)
}

/// Lists the working directory in small parts and compares with the files made.
fn compare_listing(session: &Session, plus: bool) -> Verdict {
    let (root, top) = (session.share.root(), session.top()?);
    let made = many(session, top)?;
    let fh = root.opendir(top)?.fh;
    let (mut listed, mut offset) = (Vec::new(), 0);
    loop {
        let part = root.readdir(top, fh, offset, 1024, plus)?;
        let Some(last) = part.last() else { break };
        offset = last.offset;
        for entry in part {
            if let Some(known) = entry.entry {
                session.share.counted(known.nodeid);
            }
            if entry.name != b"." && entry.name != b".." {
                listed.push(entry.name);
            }
        }
    }
    root.releasedir(top, fh)?;
    let count = listed.len();
    let listed: BTreeSet<_> = listed.into_iter().collect();
    for name in &made {
        root.unlink(top, name)?;
    }
    ensure(listed == made, || {
        format!("of {} names {} are listed", made.len(), listed.len())
    })?;
    ensure(count == made.len(), || {
        format!("{count} entries, some twice")
    })
}

fn listing(session: &Session) -> Verdict {
    compare_listing(session, false)
}

fn listing_plus(session: &Session) -> Verdict {
    if !session.share.has_readdirplus() {
        return skip("READDIRPLUS was not agreed on");
    }
    compare_listing(session, true)
}

pub(super) const AGAIN: &str = "session-again";
pub(super) const END_REPLY: &str = "session-end-reply";

/// Unmounts and mounts again. Returns the reply to DESTROY. Earlier node ids are invalid afterwards.
fn mount_again(session: &Session) -> std::result::Result<(Answer, u64), Finding> {
    let client = session.client();
    let before = session.share.root().getattr(NodeId::ROOT)?.attr.ino;
    session.share.forget_all();
    let (destroy, unique) = session.request(Opcode::Destroy, NodeId(0));
    let answer = session.send(&destroy.finish())?;
    let minor = client.greeting().minor;
    let second = match Client::over_offering(client.carrier(), minor, OFFERED_BY_GUESTS) {
        Ok(second) => second,
        Err(error) => return fail(format!("the second time: {error}")),
    };
    let after = second.root().getattr(NodeId::ROOT)?.attr.ino;
    ensure(before == after, || "the root is another".to_owned())?;
    Ok((answer, unique))
}

/// A guest may mount again on the same connection.
pub(super) fn again(session: &Session) -> Verdict {
    mount_again(session).map(drop)
}

/// DESTROY has a reply.
pub(super) fn end_reply(session: &Session) -> Verdict {
    let (answer, unique) = mount_again(session)?;
    answer.check(unique).map(drop)
}
