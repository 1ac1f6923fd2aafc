//! Explains how a file is served, without a request of the kernel.
//!
//! The path is walked beneath the source, never through the mount, where the server would wait for itself.
//! Nothing is counted, cached or changed.

use crate::config::CacheMode;
use crate::explanation::{
    CacheState, Explanation, FileKind, LowerState, NodeState, Opens, WindowUse,
};
use crate::host::{Host, HostDir};
use crate::judge::{ActivePolicy, OpenFileSource, PASSTHROUGH};
use crate::stat::{stat_open, stat_with_birth};
use crate::tree::{
    Inode, LowerMount, MapConditions, Obstacle, mount_id_mask, open_beneath, opened_identity,
};
use rustix::fs::{AtFlags, OFlags, ResolveFlags, Statx};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thrufs::{Errno, Result};
use thrufs_policy::{Access, DataPath, FilePath, FileType, RuleId, Subject, Visibility};

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

/// What the policy says of a file by one name, for all callers.
struct Ruling {
    wanted: FilePath,
    /// The rule that demands the data path.
    rule: Option<String>,
    restrictions: Vec<String>,
}

struct Step {
    fd: OwnedFd,
    mount: Arc<LowerMount>,
}

struct Found {
    inode: Option<Arc<Inode>>,
    mount: Arc<LowerMount>,
    stat: Statx,
    /// None for the root.
    fd: Option<OwnedFd>,
    /// The rule that hides a directory above.
    hidden_above: Option<RuleId>,
}

impl Host {
    fn explain(&self, components: &[&CStr]) -> Result<Explanation> {
        let found = self.find_beneath(components)?;
        let (inode, mount, stat) = (found.inode.as_ref(), &found.mount, &found.stat);
        let kind = FileKind::of_mode(stat.stx_mode.into());
        let path = path_of(components);
        let ruling = self.ruling(&found, &path);
        let report = match kind {
            FileKind::Regular => self.data_path_report(inode, mount, &ruling),
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
            restrictions: ruling.restrictions,
            maps_refused: report.data_path.is_some_and(|path| {
                let inode = inode.map(|inode| &**inode);
                let open = || self.open_regular(&found);
                self.files.would_refuse_maps(inode, path, open)
            }),
            window: (kind == FileKind::Regular)
                .then(|| self.window_use(inode, components, stat, &path))
                .flatten(),
            cache: self.cache_state(inode, mount),
            node: inode.map(|inode| NodeState {
                id: inode.node().0,
                lookups: inode.lookups(),
                descriptor_held: inode.lower.has_descriptor(),
                dormant: inode.dormant.load(Ordering::Relaxed) && inode.lookups() == 0,
            }),
            lower: LowerState {
                file_system: name_of(mount.magic).map(str::to_owned),
                magic: mount.magic,
                handles: mount.has_handles,
                remote: mount.is_remote,
                memory: mount.is_memory(),
            },
        })
    }

    fn data_path_report(
        &self,
        inode: Option<&Arc<Inode>>,
        mount: &LowerMount,
        ruling: &Ruling,
    ) -> DataPathReport {
        let current = inode.and_then(|inode| {
            let uses = inode.uses.lock();
            let current = uses.as_ref()?;
            Some(((current.path, current.obstacle), current.backing()))
        });
        let expected = self.files.expected_path(mount, &ruling.wanted);
        let ((path, obstacle), backing) = current.unwrap_or((expected, None));
        let mut reason = self.reason(path, obstacle);
        if current.is_none() && obstacle != Some(Obstacle::OpenedByKernel) {
            reason.insert_str(0, "not open; it would be: ");
        } else if path != expected.0 {
            reason.push_str("; opened before the policy or the file changed");
        }
        DataPathReport {
            data_path: Some(path),
            reason,
            rule: ruling.rule.clone(),
            backing: backing.map(|id| id.0.cast_unsigned()),
        }
    }

    /// For what is asked of its data: its first bytes, and its writers.
    fn open_regular(&self, found: &Found) -> Option<OwnedFd> {
        let is_regular = FileKind::of_mode(found.stat.stx_mode.into()) == FileKind::Regular;
        let fd = found.fd.as_ref().filter(|_| is_regular)?;
        // Without waiting for a lease of another program.
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        self.tree.reopen(fd, flags).ok()
    }

    fn ruling(&self, found: &Found, path: &[u8]) -> Ruling {
        let Some(rules) = self.judge.active_policy() else {
            return Ruling {
                wanted: PASSTHROUGH,
                rule: None,
                restrictions: Vec::new(),
            };
        };
        let policy = &rules.policy;
        let asks_content = policy.uses().content;
        let opened = asks_content.then(|| self.open_regular(found)).flatten();
        let subject = Subject {
            path,
            file_type: FileType::from_raw_mode(found.stat.stx_mode.into()),
            source: &OpenFileSource {
                stat: &found.stat,
                file: opened.as_ref(),
            },
        };
        let mut decision = policy.decide_for_all(&subject);
        decision.hidden = found.hidden_above.or(decision.hidden);
        let mut restrictions = policy.restrictions(&decision);
        if policy.uses().callers {
            restrictions.push("rules on callers are not considered".to_owned());
        }
        let rule = decision.file.rule.and_then(|rule| policy.rule(rule));
        Ruling {
            wanted: decision.file,
            rule: rule.map(|rule| rule.to_string()),
            restrictions,
        }
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
            (DataPath::Cached, CacheMode::Auto) if obstacle == Some(Obstacle::OpenedByKernel) => {
                "data are cached until the source file changes"
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
            return Opens {
                total,
                ..Opens::default()
            };
        }
        let mut opens = Opens {
            by_kernel: self.files.kernel_opens_files.load(Ordering::Relaxed),
            ..Opens::default()
        };
        for (_, file) in self.files.files.iter() {
            if file.node() == node {
                opens.total += 1;
                opens.writable += usize::from(file.writable);
            }
        }
        opens
    }

    fn cache_state(&self, inode: Option<&Arc<Inode>>, mount: &LowerMount) -> CacheState {
        let config = &self.config;
        // What nobody has looked up is followed from the first lookup.
        let followed = inode.map_or(self.follow.is_started() && !mount.is_remote, |inode| {
            self.follow.is_followed(inode)
        });
        let kept = |option: Option<Duration>| option.unwrap_or(config.follow_timeout);
        let (entry_timeout, negative_timeout) = match followed {
            true => (kept(config.entry_timeout), kept(config.negative_timeout)),
            false => (config.entry_timeout(), config.negative_timeout()),
        };
        let attr_timeout = match inode {
            Some(inode) => self.follow.attr_timeout(inode),
            None if followed => kept(config.attr_timeout),
            None => config.attr_timeout(),
        };
        CacheState {
            mode: config.cache,
            followed,
            writeback: config.writeback,
            entry_timeout_s: entry_timeout.as_secs_f64(),
            attr_timeout_s: attr_timeout.as_secs_f64(),
            negative_timeout_s: negative_timeout.as_secs_f64(),
            data_version_remembered: inode.is_some_and(|inode| inode.cached_version.get() != 0),
        }
    }

    /// Walks beneath the source, holding one descriptor at a time.
    fn find_beneath(&self, components: &[&CStr]) -> Result<Found> {
        let root = &self.tree.root;
        let root_fd = self.tree.descriptor(root)?;
        let rules = self.judge.active_policy();
        let mut hidden_above = None;
        let mut at: Option<Step> = None;
        for (depth, name) in components.iter().enumerate() {
            if let (Some(rules), Some(directory), None) = (&rules, &at, hidden_above) {
                let path = path_of(&components[..depth]);
                hidden_above = hidden_by(rules, &path, &stat_open(&directory.fd)?);
            }
            at = Some(match &at {
                None => self.step(root_fd.as_fd(), root.mount(), name)?,
                Some(step) => self.step(step.fd.as_fd(), &step.mount, name)?,
            });
        }
        let Some(Step { fd, mount }) = at else {
            return Ok(Found {
                inode: Some(Arc::clone(root)),
                mount: Arc::clone(root.mount()),
                stat: stat_open(&root_fd)?,
                fd: None,
                hidden_above,
            });
        };
        let stat = stat_with_birth(&fd)?;
        let identity = opened_identity(&mount, &fd, &stat)?;
        Ok(Found {
            inode: self.tree.nodes.find(&identity),
            mount,
            stat,
            fd: Some(fd),
            hidden_above,
        })
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
        let mount = if id == mount.id {
            Arc::clone(mount)
        } else {
            self.tree.mounts.known(id).ok_or(Errno::EXDEV)?
        };
        Ok(Step { fd, mount })
    }
}

fn path_of(components: &[&CStr]) -> Vec<u8> {
    let names: Vec<&[u8]> = components.iter().map(|name| name.to_bytes()).collect();
    names.join(&b'/')
}

/// The rule that hides a directory.
fn hidden_by(rules: &ActivePolicy, path: &[u8], stat: &Statx) -> Option<RuleId> {
    let subject = Subject {
        path,
        file_type: FileType::Directory,
        source: &OpenFileSource { stat, file: None },
    };
    match rules.policy.visibility(&subject) {
        Visibility::Hidden(rule) => Some(rule),
        Visibility::Visible => None,
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
