//! Telling how a file is served, without being asked by the kernel.
//!
//! The path is walked beneath the source, never through the mount: who explains is the server that
//! the mount would wait for. Nothing is counted, kept or changed by it.

use crate::config::CacheMode;
use crate::datapath::{DataPath, Obstacle};
use crate::explanation::{
    self, CacheState, CacheWord, Explanation, FileKind, LowerState, NodeState, Opens,
};
use crate::host::{BASIC, Host, HostDir, opened_identity};
use crate::inode::Inode;
use crate::mounts::{LowerMount, mount_id_mask, open_beneath};
use crate::policy::{FilePath, FileType, Subject};
use crate::rules::{OfStat, STRAIGHT};
use rustix::fs::{AtFlags, OFlags, ResolveFlags, Statx, StatxFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;

/// Most components in a path to be explained: as deep as inodes without handles are found again.
pub const EXPLAINED_DEPTH_MAX: usize = 4096;

impl HostDir {
    /// Tells how the file at the end of `components`, names beneath the root, is served. Symbolic
    /// links are not followed, neither on the way nor at the end.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG` beyond [`EXPLAINED_DEPTH_MAX`], `EINVAL` for what is no name, `ENOTDIR` when
    /// something on the way is no directory, `EXDEV` on a mount beneath that no client has looked
    /// into, and those of `openat2(2)` and `statx(2)`.
    pub fn explain(&self, components: &[&CStr]) -> Result<Explanation> {
        if components.len() > EXPLAINED_DEPTH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if components.iter().any(|name| !is_name(name)) {
            return Err(Errno::EINVAL);
        }
        self.host.explain(components)
    }
}

fn is_name(name: &CStr) -> bool {
    let name = name.to_bytes();
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/')
}

/// How data of a file go.
struct Way {
    data_path: explanation::DataPath,
    reason: String,
    rule: Option<String>,
    backing: Option<u32>,
}

impl Way {
    fn without_data(kind: FileKind) -> Way {
        let reason = match kind {
            FileKind::Directory => "a directory is listed, not read",
            FileKind::SymbolicLink => "a symbolic link has a target and no data",
            _ => "the kernel opens fifos, sockets and devices itself",
        };
        Way {
            data_path: explanation::DataPath::None,
            reason: reason.to_owned(),
            rule: None,
            backing: None,
        }
    }
}

impl From<DataPath> for explanation::DataPath {
    fn from(path: DataPath) -> explanation::DataPath {
        match path {
            DataPath::Passthrough => explanation::DataPath::Passthrough,
            DataPath::Cached => explanation::DataPath::Cached,
            DataPath::Direct => explanation::DataPath::Direct,
            DataPath::Filtered => explanation::DataPath::Filtered,
        }
    }
}

/// What stands at the end of a path.
struct Found {
    inode: Option<Arc<Inode>>,
    mount: Arc<LowerMount>,
    stat: Statx,
}

/// Where a walk has come to.
struct Step {
    fd: OwnedFd,
    mount: Arc<LowerMount>,
}

impl Host {
    fn explain(&self, components: &[&CStr]) -> Result<Explanation> {
        let Found { inode, mount, stat } = self.find_beneath(components)?;
        let inode = inode.as_ref();
        let kind = FileKind::of_mode(stat.stx_mode.into());
        let path = components
            .iter()
            .map(|name| name.to_bytes())
            .collect::<Vec<_>>()
            .join(&b'/');
        let way = self.way_of(inode, &mount, &stat, &path);
        Ok(Explanation {
            kind,
            ino: mount.client_ino(stat.stx_ino),
            data_path: way.data_path,
            reason: way.reason,
            rule: way.rule,
            backing: way.backing,
            opens: inode.map_or(Opens::NONE, |inode| self.opens_of(inode)),
            cache: self.cache_state(inode),
            node: inode.map(|inode| NodeState {
                id: inode.node().0,
                lookups: inode.lookups(),
                descriptor_held: !inode.cached_descriptor_is_gone(),
                dormant: inode.dormant.load(Ordering::Relaxed) && inode.lookups() == 0,
            }),
            lower: lower_state(&mount),
        })
    }

    /// How data of a file go, and why.
    fn way_of(
        &self,
        inode: Option<&Arc<Inode>>,
        mount: &LowerMount,
        stat: &Statx,
        path: &[u8],
    ) -> Way {
        let kind = FileKind::of_mode(stat.stx_mode.into());
        if kind != FileKind::Regular {
            return Way::without_data(kind);
        }
        let (wanted, rule) = self.wanted(path, stat);
        let current = inode.and_then(|inode| {
            let uses = inode.uses();
            let current = uses.as_ref()?;
            Some((current.path(), current.obstacle(), current.backing()))
        });
        let outlook = self.outlook(mount, &wanted);
        let Some((path, obstacle, backing)) = current else {
            let (path, obstacle) = outlook;
            return Way {
                data_path: path.into(),
                reason: format!("not open; it would be: {}", self.because(path, obstacle)),
                rule,
                backing: None,
            };
        };
        let mut reason = self.because(path, obstacle);
        if path != outlook.0 {
            reason.push_str("; opened before the policy or the file changed");
        }
        Way {
            data_path: path.into(),
            reason,
            rule,
            backing: backing.map(|id| id.0.cast_unsigned()),
        }
    }

    /// How the policy would have the data of a file go, and the rule that says so.
    fn wanted(&self, path: &[u8], stat: &Statx) -> (FilePath, Option<String>) {
        let Some(rules) = self.rules.in_force() else {
            return (STRAIGHT, None);
        };
        let subject = Subject {
            path,
            file_type: FileType::RegularFile,
            evidence: &OfStat(stat),
        };
        let wanted = rules.policy.file_path(&subject);
        let rule = wanted.rule.and_then(|rule| rules.policy.rule(rule));
        (wanted, rule.map(|rule| rule.to_string()))
    }

    fn because(&self, path: DataPath, obstacle: Option<Obstacle>) -> String {
        let how = match (path, self.config.cache) {
            (DataPath::Passthrough, _) => "the kernel reads and writes the source file directly",
            (DataPath::Filtered, _) => "redacted by the server",
            (DataPath::Direct, _) | (_, CacheMode::Never | CacheMode::Metadata) => {
                "no data are cached"
            }
            (DataPath::Cached, CacheMode::Auto) => {
                "data are cached while the source file is unchanged at open"
            }
            (DataPath::Cached, CacheMode::Always) => "data are cached until memory is short",
        };
        match obstacle {
            Some(obstacle) => format!("{how}, since: {obstacle}"),
            None => how.to_owned(),
        }
    }

    /// Counted by a look at all that is open: this is asked rarely, and opening stays free of it.
    fn opens_of(&self, inode: &Inode) -> Opens {
        let node = inode.node();
        let mut opens = Opens::NONE;
        if inode.is_directory() {
            let directories = self.directories.iter().map(|(_, it)| it);
            opens.total = directories.filter(|open| open.node() == node).count();
            return opens;
        }
        let files = self.files.iter().map(|(_, file)| file);
        for file in files.filter(|file| file.node() == node) {
            opens.total += 1;
            opens.writable += usize::from(file.is_writable());
        }
        opens
    }

    fn cache_state(&self, inode: Option<&Arc<Inode>>) -> CacheState {
        let config = &self.config;
        CacheState {
            mode: match config.cache {
                CacheMode::Never => CacheWord::Never,
                CacheMode::Metadata => CacheWord::Metadata,
                CacheMode::Auto => CacheWord::Auto,
                CacheMode::Always => CacheWord::Always,
            },
            writeback: config.writeback,
            entry_timeout_s: config.entry_timeout().as_secs_f64(),
            attr_timeout_s: config.attr_timeout().as_secs_f64(),
            negative_timeout_s: config.negative_timeout().as_secs_f64(),
            data_version_remembered: inode.is_some_and(|inode| inode.has_cached_version()),
        }
    }

    /// Walks beneath the source, holding nothing but where it has come to.
    fn find_beneath(&self, components: &[&CStr]) -> Result<Found> {
        let root = self.descriptor(&self.root)?;
        let mut at: Option<Step> = None;
        for name in components {
            let next = match &at {
                None => self.step(root.as_fd(), self.root.mount(), name)?,
                Some(step) => self.step(step.fd.as_fd(), &step.mount, name)?,
            };
            at = Some(next);
        }
        let Some(Step { fd, mount }) = at else {
            return Ok(Found {
                inode: self.nodes.get(NodeId::ROOT).ok(),
                mount: Arc::clone(self.root.mount()),
                stat: rustix::fs::statx(&root, c"", AtFlags::EMPTY_PATH, BASIC)?,
            });
        };
        let mask = BASIC | StatxFlags::BTIME;
        let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, mask)?;
        let identity = opened_identity(&mount, &fd, &stat)?;
        Ok(Found {
            inode: self.nodes.find(&identity),
            mount,
            stat,
        })
    }

    /// One component further. A mount that no client has looked into is not entered: it might be the
    /// one that is served, and who asks the server there waits for itself.
    fn step(&self, parent: BorrowedFd<'_>, mount: &Arc<LowerMount>, name: &CStr) -> Result<Step> {
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let fd = self.with_room(|| open_beneath(parent, name, OFlags::PATH, resolve))?;
        // The id of its mount, for which no file system is asked.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let id = rustix::fs::statx(&fd, c"", flags, mount_id_mask())?.stx_mnt_id;
        let mount = if id == mount.id() {
            Arc::clone(mount)
        } else {
            self.mounts.known(id).ok_or(Errno::EXDEV)?
        };
        Ok(Step { fd, mount })
    }
}

impl Opens {
    const NONE: Opens = Opens {
        total: 0,
        writable: 0,
    };
}

fn lower_state(mount: &LowerMount) -> LowerState {
    LowerState {
        file_system: name_of(mount.magic()).map(str::to_owned),
        magic: mount.magic(),
        handles: mount.has_handles(),
        remote: mount.is_remote(),
        memory: mount.is_memory(),
    }
}

/// What people call the file system with this number (`statfs(2)`, `linux/magic.h`).
fn name_of(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0xf2f5_2010 => "f2fs",
        0x2011_bab0 => "exfat",
        0x4d44 => "vfat",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "smb",
        0x00c3_6400 => "ceph",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        0x7371_7368 => "squashfs",
        0xe0f5_e1e2 => "erofs",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
