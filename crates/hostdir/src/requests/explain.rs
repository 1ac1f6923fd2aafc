//! Explains how a file is served, without a request of the kernel.
//!
//! The path is walked beneath the source, never through the mount, where the server would wait for itself.
//! Nothing is counted, cached or changed.

use crate::config::CacheMode;
use crate::explanation::{
    CacheState, Explanation, FileKind, LowerState, NodeState, Opens, WindowUse,
};
use crate::host::{Host, HostDir};
use crate::judge::{PASSTHROUGH, StatSource};
use crate::stat::{stat_open, stat_with_birth};
use crate::tree::{
    Inode, LowerMount, MapConditions, Obstacle, mount_id_mask, open_beneath, opened_identity,
};
use rustix::fs::{AtFlags, OFlags, ResolveFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Errno, Result};
use thrufs_policy::{Access, DataPath, FilePath, FileType, Subject};

/// Most components of a path: as deep as inodes without handles are found again.
pub const EXPLAINED_DEPTH_MAX: usize = 4096;

impl HostDir {
    /// Explains how the file at the end of `components`, names beneath the root, is served. Symbolic links
    /// are not followed.
    ///
    /// # Errors
    ///
    /// `ENAMETOOLONG` beyond [`EXPLAINED_DEPTH_MAX`], `EINVAL` for an invalid name, `ENOTDIR` for a
    /// component that is no directory, `EXDEV` on a submount that no client has looked into, and those of
    /// `openat2(2)` and `statx(2)`.
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

#[derive(Default)]
struct DataPathReport {
    data_path: Option<DataPath>,
    reason: String,
    rule: Option<String>,
    backing: Option<u32>,
}

struct Step {
    fd: OwnedFd,
    mount: Arc<LowerMount>,
}

impl Host {
    fn explain(&self, components: &[&CStr]) -> Result<Explanation> {
        let (inode, mount, stat) = self.find_beneath(components)?;
        let inode = inode.as_ref();
        let kind = FileKind::of_mode(stat.stx_mode.into());
        let path = components
            .iter()
            .map(|name| name.to_bytes())
            .collect::<Vec<_>>()
            .join(&b'/');
        let report = match kind {
            FileKind::Regular => self.data_path_report(inode, &mount, &stat, &path),
            _ => DataPathReport {
                reason: why_without_data(kind).to_owned(),
                ..DataPathReport::default()
            },
        };
        Ok(Explanation {
            kind,
            ino: mount.client_ino(stat.stx_ino),
            data_path: report.data_path,
            reason: report.reason,
            rule: report.rule,
            backing: report.backing,
            opens: inode.map_or_else(Opens::default, |inode| self.opens_of(inode)),
            locked_by_mount: inode.is_some_and(|inode| self.files.is_locked_by_mount(inode)),
            window: (kind == FileKind::Regular)
                .then(|| self.window_use(inode, components, &stat, &path))
                .flatten(),
            cache: self.cache_state(inode),
            node: inode.map(|inode| NodeState {
                id: inode.node().0,
                lookups: inode.lookups(),
                descriptor_held: !inode.cached_descriptor_is_gone(),
                dormant: inode.dormant.load(Ordering::Relaxed) && inode.lookups() == 0,
            }),
            lower: LowerState {
                file_system: name_of(mount.magic()).map(str::to_owned),
                magic: mount.magic(),
                handles: mount.has_handles(),
                remote: mount.is_remote(),
                memory: mount.is_memory(),
            },
        })
    }

    fn data_path_report(
        &self,
        inode: Option<&Arc<Inode>>,
        mount: &LowerMount,
        stat: &Statx,
        path: &[u8],
    ) -> DataPathReport {
        let (wanted, rule) = self.wanted(path, stat);
        let current = inode.and_then(|inode| {
            let uses = inode.uses();
            let current = uses.as_ref()?;
            Some(((current.path, current.obstacle), current.backing()))
        });
        let expected = self.files.expected_path(mount, &wanted);
        let ((path, obstacle), backing) = current.unwrap_or((expected, None));
        let mut reason = self.reason(path, obstacle);
        if current.is_none() {
            reason.insert_str(0, "not open; it would be: ");
        } else if path != expected.0 {
            reason.push_str("; opened before the policy or the file changed");
        }
        DataPathReport {
            data_path: Some(path),
            reason,
            rule,
            backing: backing.map(|id| id.0.cast_unsigned()),
        }
    }

    /// The data path that the policy demands, and the rule that says so.
    fn wanted(&self, path: &[u8], stat: &Statx) -> (FilePath, Option<String>) {
        let Some(rules) = self.judge.active_policy() else {
            return (PASSTHROUGH, None);
        };
        let subject = Subject {
            path,
            file_type: FileType::RegularFile,
            source: &StatSource(stat),
        };
        let wanted = rules.policy.file_path(&subject);
        let rule = wanted.rule.and_then(|rule| rules.policy.rule(rule));
        (wanted, rule.map(|rule| rule.to_string()))
    }

    fn window_use(
        &self,
        inode: Option<&Arc<Inode>>,
        components: &[&CStr],
        stat: &Statx,
        path: &[u8],
    ) -> Option<WindowUse> {
        let access = || match (inode, self.judge.active_policy()) {
            (Some(inode), _) => self.judge.lasting_access(inode),
            (None, Some(rules)) => rules.policy.lasting_access(path, FileType::RegularFile),
            (None, None) => Some(Access::Change),
        };
        let conditions = MapConditions {
            lasting_access: &access,
            is_mount_read_only: &|| {
                inode.is_some_and(|inode| self.tree.mount_is_read_only(inode).unwrap_or(true))
            },
        };
        let name = components.last()?.to_bytes();
        let inode = inode.map(|inode| &**inode);
        self.tree.dax.explain(inode, name, stat, &conditions)
    }

    fn reason(&self, path: DataPath, obstacle: Option<Obstacle>) -> String {
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

    /// Counted by a scan of all open files: this is rare, and opening stays cheap.
    fn opens_of(&self, inode: &Inode) -> Opens {
        let node = inode.node();
        if inode.is_directory() {
            let directories = self.files.directories.iter();
            let total = directories.filter(|(_, open)| open.node() == node).count();
            return Opens { total, writable: 0 };
        }
        let mut opens = Opens::default();
        for (_, file) in self.files.files.iter() {
            if file.node() == node {
                opens.total += 1;
                opens.writable += usize::from(file.is_writable());
            }
        }
        opens
    }

    fn cache_state(&self, inode: Option<&Arc<Inode>>) -> CacheState {
        let config = &self.config;
        let told = inode.filter(|inode| self.follow.is_followed(inode));
        let attr_timeout = inode.map_or(config.attr_timeout(), |it| self.follow.attr_timeout(it));
        let (entry_timeout, negative_timeout) = match told {
            Some(_) => (
                config.entry_timeout.unwrap_or(config.follow_timeout),
                config.negative_timeout.unwrap_or(config.follow_timeout),
            ),
            None => (config.entry_timeout(), config.negative_timeout()),
        };
        CacheState {
            mode: config.cache,
            followed: told.is_some(),
            writeback: config.writeback,
            entry_timeout_s: entry_timeout.as_secs_f64(),
            attr_timeout_s: attr_timeout.as_secs_f64(),
            negative_timeout_s: negative_timeout.as_secs_f64(),
            data_version_remembered: inode.is_some_and(|inode| inode.has_cached_version()),
        }
    }

    /// Walks beneath the source, holding one descriptor at a time.
    fn find_beneath(
        &self,
        components: &[&CStr],
    ) -> Result<(Option<Arc<Inode>>, Arc<LowerMount>, Statx)> {
        let root = &self.tree.root;
        let root_fd = self.tree.descriptor(root)?;
        let mut at: Option<Step> = None;
        for name in components {
            at = Some(match &at {
                None => self.step(root_fd.as_fd(), root.mount(), name)?,
                Some(step) => self.step(step.fd.as_fd(), &step.mount, name)?,
            });
        }
        let Some(Step { fd, mount }) = at else {
            let mount = Arc::clone(root.mount());
            return Ok((Some(Arc::clone(root)), mount, stat_open(&root_fd)?));
        };
        let stat = stat_with_birth(&fd)?;
        let identity = opened_identity(&mount, &fd, &stat)?;
        Ok((self.tree.nodes.find(&identity), mount, stat))
    }

    /// Walks one component. A submount that no client has looked into is not entered: it might be the mount
    /// that is served, and the server would wait for itself.
    fn step(&self, parent: BorrowedFd<'_>, mount: &Arc<LowerMount>, name: &CStr) -> Result<Step> {
        let resolve = ResolveFlags::NO_MAGICLINKS;
        let fd = self
            .tree
            .with_room(|| open_beneath(parent, name, OFlags::PATH, resolve))?;
        // The mount id, for which no file system is asked.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let id = rustix::fs::statx(&fd, c"", flags, mount_id_mask())?.stx_mnt_id;
        let mount = if id == mount.id() {
            Arc::clone(mount)
        } else {
            self.tree.mounts.known(id).ok_or(Errno::EXDEV)?
        };
        Ok(Step { fd, mount })
    }
}

fn why_without_data(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "a directory is listed, not read",
        FileKind::SymbolicLink => "a symbolic link has a target and no data",
        _ => "the kernel opens fifos, sockets and devices itself",
    }
}

/// The name of a file system by its magic number (`statfs(2)`, `linux/magic.h`).
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
