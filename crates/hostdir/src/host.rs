//! A served directory: owns the tables (nodes, mounts, policy), and is the only way from an inode to a
//! descriptor. Looks one component up, opens by handle or by name, and makes room under the budget of
//! descriptors. Answers no request itself.

use crate::config::{Config, ConfigError, FileHandles};
use crate::credentials::Credentials;
use crate::files::Listings;
use crate::files::OpenDirectory;
use crate::files::OpenFile;
use crate::files::Passthrough;
use crate::files::{USER_OWNERS_MAX, USERS_OWNERS_MAX};
use crate::judge::Rules;
use crate::ledger::Strongbox;
use crate::ledger::{Ledger, Notes};
use crate::policy::Policy;
use crate::quota::UserQuotas;
use crate::resources::Resources;
use crate::statistics::Statistics;
use crate::tree::DescriptorLimits;
use crate::tree::Descriptors;
use crate::tree::Identity;
use crate::tree::Slots;
use crate::tree::{Descriptor, Inode};
use crate::tree::{KnownName, Noting};
use crate::tree::{LowerMount, Mounts, open_beneath};
use crate::tree::{NewInode, Nodes};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;
use thrufs_sys::handle::{self, FileHandleBuf};
use thrufs_sys::proc_fd;

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The source cannot be opened.
    #[error("cannot open the directory {path} to serve it: {source}")]
    Source {
        /// The path as it was given.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The source is not a directory.
    #[error("{0} is not a directory: only directories can be served")]
    NotADirectory(PathBuf),
    /// Two options exclude each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `FileHandles::Mandatory`, and there are none.
    #[error(
        "the source has no file handles that this process may open (inode_file_handles=mandatory); it \
         needs a file system that has some, and CAP_DAC_READ_SEARCH"
    )]
    NoHandles,
    /// The system refused something that serving needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The mask of each statx(2) for a client.
pub(crate) const BASIC: StatxFlags = StatxFlags::BASIC_STATS;

/// Most attempts to read a name, its handle and its attributes consistently while the file is being
/// replaced.
const ATTEMPTS_MAX: usize = 16;

/// Most levels to climb to find an inode without a file handle again.
const CLIMB_MAX: usize = 4096;

/// A file system that serves a directory of the host.
///
/// One value serves one mount or share, through its implementation of [`thrufs::FileSystem`].
pub struct HostDir {
    pub(crate) host: Arc<Host>,
}

/// The parts of a [`HostDir`], shared with its housekeeping thread.
pub(crate) struct Host {
    pub(crate) config: Config,
    pub(crate) nodes: Nodes,
    pub(crate) mounts: Mounts,
    pub(crate) descriptors: Descriptors,
    pub(crate) credentials: Credentials,
    pub(crate) files: Slots<OpenFile>,
    pub(crate) directories: Slots<OpenDirectory>,
    pub(crate) listings: Listings,
    pub(crate) passthrough: Passthrough,
    pub(crate) rules: Rules,
    /// Of open directories, and of open files with a descriptor here.
    pub(crate) quotas: Arc<UserQuotas>,
    /// Of owners of shared locks.
    pub(crate) lock_quotas: Arc<UserQuotas>,
    /// Of removed inodes that only their descriptor leads to.
    pub(crate) removed_quotas: Arc<UserQuotas>,
    pub(crate) locks: crate::files::LockOwners,
    pub(crate) lock_waits: crate::files::Waits,
    pub(crate) retries: crate::tree::Retries,
    /// The locks of a session that was saved.
    pub(crate) suspended: crate::succession::Suspended,
    /// The ledger, for a process that resumes the session.
    pub(crate) notes: Option<Arc<Notes>>,
    /// Descriptors for a process that resumes the session.
    pub(crate) strongbox: Option<Arc<dyn Strongbox>>,
    pub(crate) root: Arc<Inode>,
    /// Whether close(2) needs no FLUSH; set by INIT.
    pub(crate) may_skip_flush: AtomicBool,
    /// Whether the kernel above checks modes and sees no ACLs; set by INIT.
    pub(crate) kernel_ignores_acls: AtomicBool,
    /// Whether submounts are announced; set by INIT.
    pub(crate) announces_submounts: AtomicBool,
    /// Directories that ignore case were logged once.
    pub(crate) logged_folded_case: AtomicBool,
    pub(crate) waiting: crate::filter::Waiting,
}

impl Drop for Host {
    fn drop(&mut self) {
        // Ends the housekeeping thread: otherwise one per session would pile up.
        self.mounts.wakeup().notify();
    }
}

fn system(what: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError::System {
        what,
        source: errno.into(),
    }
}

impl HostDir {
    /// Serves the directory at `source`. Symbolic links in the path are followed now.
    ///
    /// # Errors
    ///
    /// See [`SetupError`].
    pub fn open(
        source: &Path,
        config: Config,
        resources: Resources,
    ) -> std::result::Result<HostDir, SetupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(source, flags, Mode::empty()).map_err(|errno| {
            if errno == rustix::io::Errno::NOTDIR && source.exists() {
                SetupError::NotADirectory(source.into())
            } else {
                SetupError::Source {
                    path: source.into(),
                    source: errno.into(),
                }
            }
        })?;
        HostDir::from_fd(fd, config, resources)
    }

    /// Serves the directory `source`, opened for reading (not `O_PATH`).
    ///
    /// # Errors
    ///
    /// See [`SetupError`].
    pub fn from_fd(
        source: OwnedFd,
        config: Config,
        resources: Resources,
    ) -> std::result::Result<HostDir, SetupError> {
        config.check()?;
        if let Some(policy) = &resources.policy {
            config.check_policy(policy)?;
        }
        proc_fd::prepare().map_err(|errno| SetupError::System {
            what: "open /proc/self/fd (is /proc mounted?)",
            source: errno.into(),
        })?;
        thrufs_sys::lease::prepare().map_err(|errno| SetupError::System {
            what: "ignore SIGIO",
            source: errno.into(),
        })?;
        let credentials =
            Credentials::of_this_process().map_err(system("read this process's capabilities"))?;
        let root_fd = rustix::io::fcntl_dupfd_cloexec(&source, 3)
            .map_err(|errno| system("duplicate the source's descriptor")(errno.into()))?;
        let notes = resources.ledger.map(notes_in).transpose()?;
        let (mounts, mount) = Mounts::of_source(source, notes.clone(), config.file_handles)
            .map_err(system("look at the source's mount"))?;
        if config.file_handles == FileHandles::Mandatory && !mount.has_handles() {
            return Err(SetupError::NoHandles);
        }
        let dormant_max = if config.export {
            config.exported_nodes_max
        } else {
            0
        };
        let nodes = Nodes::new(dormant_max, notes.clone());
        let stat = {
            let flags = AtFlags::EMPTY_PATH;
            rustix::fs::statx(&root_fd, c"", flags, BASIC | StatxFlags::BTIME)
                .map_err(|errno| system("stat the source")(errno.into()))?
        };
        let identity =
            opened_identity(&mount, &root_fd, &stat).map_err(system("identify the source"))?;
        let new = NewInode {
            identity,
            mount: &mount,
            file_type: libc::S_IFDIR,
            place: None,
        };
        let (root, _) = nodes
            .find_or_insert(new)
            .map_err(system("number the root"))?;
        debug_assert_eq!(root.node(), NodeId::ROOT);
        // Never evicted: it is not in the ring.
        root.keep_descriptor(root_fd);
        let limits = DescriptorLimits::of_this_process(
            config.descriptor_budget,
            config.user_descriptors_max,
            root.mount().has_handles(),
        );
        let [removed_user, removed_users, removed_root] = limits.removed;
        let server_uid = credentials.server_uid();
        let host = Host {
            nodes,
            mounts,
            descriptors: Descriptors::new(limits.inodes),
            credentials,
            files: Slots::starting_at(1),
            directories: Slots::starting_at(1),
            listings: Listings::beside(limits.inodes),
            passthrough: Passthrough::default(),
            rules: Rules::new(
                resources.policy,
                resources.audit_log,
                config.callers_are_local,
                resources.programs,
            ),
            quotas: UserQuotas::new(limits.user, limits.users, server_uid),
            lock_quotas: UserQuotas::new(USER_OWNERS_MAX, USERS_OWNERS_MAX, server_uid),
            removed_quotas: UserQuotas::with_root_quota(
                removed_user,
                removed_users,
                removed_root,
                server_uid,
            ),
            locks: crate::files::LockOwners::default(),
            lock_waits: crate::files::Waits::default(),
            retries: crate::tree::Retries::default(),
            suspended: crate::succession::Suspended::default(),
            notes,
            strongbox: resources.strongbox,
            root,
            may_skip_flush: AtomicBool::new(false),
            kernel_ignores_acls: AtomicBool::new(false),
            announces_submounts: AtomicBool::new(false),
            logged_folded_case: AtomicBool::new(false),
            waiting: crate::filter::Waiting::new(server_uid),
            config,
        };
        let opened = host.descriptor(&host.root);
        let opened = opened.and_then(|root| host.rules.open_name_lock(root.as_fd()));
        opened.map_err(system("open the source"))?;
        Ok(HostDir {
            host: Arc::new(host),
        })
    }

    /// Replaces the active policy for all requests that begin from now on, and writes audit records to
    /// `audit_log` if there is one. Open files keep what was granted. On return, the kernel has dropped all
    /// names that are hidden now, and looks up those that were hidden. Not to be called by a thread that
    /// answers requests.
    ///
    /// # Errors
    ///
    /// When the policy does not go with the options, or the directory is served without a policy. The old
    /// policy stays then.
    pub fn replace_policy(
        &self,
        policy: Arc<Policy>,
        audit_log: Option<OwnedFd>,
    ) -> std::result::Result<(), ConfigError> {
        let host = &self.host;
        host.config.check_policy(&policy)?;
        // First, so that each audited open has a log.
        if audit_log.is_some() {
            host.rules.audit_log().replace(audit_log);
        }
        host.reload_rules(policy)
    }

    /// The sizes of all tables.
    pub fn statistics(&self) -> Statistics {
        let host = &self.host;
        Statistics {
            inodes: host.nodes.len(),
            exported_nodes: host.nodes.dormant_len(),
            descriptors: host.descriptors.len() + 1,
            descriptors_evicted: host.descriptors.evictions(),
            open_files: host.files.len(),
            open_directories: host.directories.len(),
            mounts: host.mounts.len(),
            lock_owners: host.locks.len(),
            backing_files: host.passthrough.registered(),
            refused_to_users: [&host.quotas, &host.lock_quotas, &host.removed_quotas]
                .iter()
                .map(|shares| shares.refused())
                .sum(),
        }
    }
}

impl Host {
    pub(crate) fn descriptor(&self, inode: &Arc<Inode>) -> Result<Descriptor> {
        self.descriptor_within(inode, CLIMB_MAX)
    }

    fn descriptor_within(&self, inode: &Arc<Inode>, climb: usize) -> Result<Descriptor> {
        if let Some(fd) = inode.cached_descriptor() {
            return Ok(Descriptor::Cached(fd));
        }
        let opened = match inode.identity().handle() {
            Some(handle) => self.open_by_handle(inode, handle, libc::O_PATH | libc::O_NOFOLLOW),
            None => self.walk_again(inode, climb),
        };
        match opened {
            Ok(fd) => Ok(Descriptor::Cached(self.descriptors.keep(inode, fd))),
            Err(error) => match inode.opened() {
                // Its last name is gone, but a client has it open.
                Some(file) => Ok(Descriptor::Opened(file)),
                // Or a retrying thread has just looked it up.
                None => match self.retries.kept(inode.node()) {
                    Some(fd) => Ok(Descriptor::Cached(fd)),
                    None => Err(error),
                },
            },
        }
    }

    fn open_by_handle(
        &self,
        inode: &Inode,
        (kind, bytes): (i32, &[u8]),
        flags: i32,
    ) -> Result<OwnedFd> {
        let anchor = self.anchor_of(inode.mount())?;
        let open = || handle::open_by_handle_parts(anchor.as_fd(), kind, bytes, flags);
        self.with_room(|| Ok(open()?))
    }

    /// The directory against which file handles of a mount are opened.
    pub(crate) fn anchor_of(&self, mount: &LowerMount) -> Result<Arc<OwnedFd>> {
        self.mounts.anchor(mount, |parent| self.descriptor(parent))
    }

    /// Finds an inode without a file handle at its last place.
    fn walk_again(&self, inode: &Arc<Inode>, climb: usize) -> Result<OwnedFd> {
        let (parent, name) = inode.place().ok_or(Errno::ESTALE)?;
        let climb = climb.checked_sub(1).ok_or(Errno::ELOOP)?;
        let parent = self.descriptor_within(&parent, climb)?;
        let (fd, stat) = self.open_component(&parent, &name)?;
        let identity = numbered(inode.identity().mount(), &stat);
        if identity == *inode.identity() && stat.stx_mnt_id == inode.mount().id() {
            Ok(fd)
        } else {
            Err(Errno::ESTALE)
        }
    }

    /// Opens a component `O_PATH`, without following symbolic links, and reads its attributes.
    pub(crate) fn open_component(
        &self,
        parent: impl AsFd,
        name: &std::ffi::CStr,
    ) -> Result<(OwnedFd, Statx)> {
        for _ in 0..ATTEMPTS_MAX {
            let resolve = ResolveFlags::NO_SYMLINKS;
            let opened = self.with_room(|| open_beneath(&parent, name, OFlags::PATH, resolve));
            match opened {
                Ok(fd) => {
                    let mask = BASIC | StatxFlags::BTIME | crate::tree::mount_id_mask();
                    let stat = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, mask)?;
                    return Ok((fd, stat));
                }
                // A concurrent rename: the kernel cannot tell whether the walk stayed beneath.
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EAGAIN)
    }

    pub(crate) fn open_inode(&self, inode: &Arc<Inode>, flags: i32) -> Result<OwnedFd> {
        if inode.mount().is_remote() {
            self.credentials.as_server()?;
        }
        let flags = flags | libc::O_CLOEXEC | libc::O_NOCTTY;
        if let Some(handle) = inode.identity().handle() {
            match self.open_by_handle(inode, handle, flags) {
                Err(Errno::ESTALE) => {}
                other => return other,
            }
        }
        let descriptor = self.descriptor(inode)?;
        self.reopen(descriptor.as_fd(), flags)
    }

    pub(crate) fn reopen(&self, fd: impl AsFd, flags: i32) -> Result<OwnedFd> {
        let flags = OFlags::from_bits_retain((flags & !libc::O_NOFOLLOW) as u32);
        self.with_room(|| Ok(proc_fd::reopen(fd.as_fd(), flags)?))
    }

    /// Runs `open`, and once more after evicting descriptors of inodes if the process has none left.
    pub(crate) fn with_room<T>(&self, mut open: impl FnMut() -> Result<T>) -> Result<T> {
        match open() {
            Err(Errno::EMFILE) => {
                self.descriptors.shrink(64);
                open()
            }
            result => result,
        }
    }

    pub(crate) fn lookup_name(
        &self,
        parent: &Arc<Inode>,
        name: &std::ffi::CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        let parent_fd = self.descriptor(parent)?;
        self.lookup_at(parent, parent_fd.as_fd(), name)
    }

    pub(crate) fn lookup_at(
        &self,
        parent: &Arc<Inode>,
        parent_fd: impl AsFd,
        name: &std::ffi::CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        let parent_fd = parent_fd.as_fd();
        if !self.rules.has_policy() {
            return self.lookup_unnamed(parent, parent_fd, name);
        }
        for _ in 0..ATTEMPTS_MAX {
            let since = self.rules.names_state();
            let (inode, stat) = self.lookup_unnamed(parent, parent_fd, name)?;
            if self.record_name(&inode, parent.node(), name.to_bytes(), &stat, since) {
                return Ok((inode, stat));
            }
            self.forget(inode.node(), 1);
        }
        let (inode, stat) = self.lookup_unnamed(parent, parent_fd, name)?;
        let name = KnownName::new(parent.node(), name.to_bytes());
        inode.names().record_uncertain(self.noting(&inode), name);
        Ok((inode, stat))
    }

    /// Where the names of an inode are recorded.
    pub(crate) fn noting(&self, inode: &Inode) -> Noting<'_> {
        Noting {
            notes: self.notes.as_deref(),
            node: inode.node(),
        }
    }

    fn lookup_unnamed(
        &self,
        parent: &Arc<Inode>,
        parent_fd: BorrowedFd<'_>,
        name: &std::ffi::CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        if !parent.mount().has_handles() {
            return self.lookup_numbered(parent, parent_fd, name);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let mut buffer = FileHandleBuf::default();
        for _ in 0..ATTEMPTS_MAX {
            let mount_id = match handle::name_to_handle(parent_fd, name, 0, &mut buffer) {
                Ok(id) => id,
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::OVERFLOW) => {
                    return self.lookup_numbered(parent, parent_fd, name);
                }
                Err(error) => return Err(error.into()),
            };
            let stat = rustix::fs::statx(parent_fd, name, flags, BASIC)?;
            let mount = if mount_id == parent.mount().id() {
                Arc::clone(parent.mount())
            } else {
                match self.mounts.enter(mount_id, parent, parent_fd, name) {
                    Err(Errno::ESTALE) => continue,
                    entered => entered?,
                }
            };
            if !mount.has_handles() {
                return self.lookup_numbered(parent, parent_fd, name);
            }
            // Handle and attributes are read by two calls, and must be of one file.
            match mount.handle_is_of(&buffer, stat.stx_ino) {
                Some(true) => {
                    let identity = Identity::by_handle(mount.index(), &buffer);
                    return self.enter_node(identity, &mount, stat, None);
                }
                Some(false) => {}
                // Both by one descriptor.
                None => return self.lookup_numbered(parent, parent_fd, name),
            }
        }
        Err(Errno::ESTALE)
    }

    fn lookup_numbered(
        &self,
        parent: &Arc<Inode>,
        parent_fd: impl AsFd,
        name: &std::ffi::CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        let parent_fd = parent_fd.as_fd();
        let (fd, stat) = self.open_component(parent_fd, name)?;
        let mount = if stat.stx_mnt_id == parent.mount().id() {
            Arc::clone(parent.mount())
        } else {
            self.mounts
                .enter(stat.stx_mnt_id, parent, parent_fd, name)?
        };
        let identity = opened_identity(&mount, &fd, &stat)?;
        let place = (!mount.has_handles()).then(|| {
            Box::new(crate::tree::Place {
                parent: Arc::clone(parent),
                name: name.to_owned(),
            })
        });
        self.enter_node(identity, &mount, stat, Some((fd, place)))
    }

    /// Counts a lookup of the file behind an open descriptor, found as `name` in `parent` (`None` without a
    /// name).
    pub(crate) fn lookup_opened(
        &self,
        parent: &Arc<Inode>,
        name: Option<&std::ffi::CStr>,
        fd: impl AsFd,
    ) -> Result<(Arc<Inode>, Statx)> {
        self.lookup_opened_on(parent.mount(), name.map(|name| (parent, name)), fd)
    }

    /// As [`lookup_opened`](Self::lookup_opened), for a file on `mount`.
    pub(crate) fn lookup_opened_on(
        &self,
        mount: &Arc<LowerMount>,
        found: Option<(&Arc<Inode>, &std::ffi::CStr)>,
        fd: impl AsFd,
    ) -> Result<(Arc<Inode>, Statx)> {
        let mask = BASIC | StatxFlags::BTIME;
        let stat = rustix::fs::statx(fd.as_fd(), c"", AtFlags::EMPTY_PATH, mask)?;
        let identity = opened_identity(mount, fd.as_fd(), &stat)?;
        if mount.has_handles() {
            return self.enter_node(identity, mount, stat, None);
        }
        let place = found.map(|(parent, name)| {
            Box::new(crate::tree::Place {
                parent: Arc::clone(parent),
                name: name.to_owned(),
            })
        });
        let path_fd = self.reopen(fd.as_fd(), libc::O_PATH)?;
        self.enter_node(identity, mount, stat, Some((path_fd, place)))
    }

    fn enter_node(
        &self,
        identity: Identity,
        mount: &Arc<LowerMount>,
        stat: Statx,
        held: Option<(OwnedFd, Option<Box<crate::tree::Place>>)>,
    ) -> Result<(Arc<Inode>, Statx)> {
        let (fd, place) = held.map_or((None, None), |(fd, place)| (Some(fd), place));
        let file_type = u32::from(stat.stx_mode) & libc::S_IFMT;
        let (inode, is_new) = self.nodes.find_or_insert(NewInode {
            identity,
            mount,
            file_type,
            place,
        })?;
        if let Some(fd) = fd.filter(|_| is_new) {
            self.descriptors.keep(&inode, fd);
        }
        Ok((inode, stat))
    }
}

fn notes_in(ledger: Ledger) -> std::result::Result<Arc<Notes>, SetupError> {
    let notes = Notes::new(ledger).map_err(|source| SetupError::System {
        what: "map the ledger",
        source,
    })?;
    Ok(Arc::new(notes))
}

pub(crate) fn opened_identity(mount: &LowerMount, fd: impl AsFd, stat: &Statx) -> Result<Identity> {
    if !mount.has_handles() {
        return Ok(numbered(mount.index(), stat));
    }
    let mut buffer = FileHandleBuf::default();
    handle::name_to_handle(fd, c"", libc::AT_EMPTY_PATH as u32, &mut buffer)?;
    Ok(Identity::by_handle(mount.index(), &buffer))
}

pub(crate) fn numbered(mount: u32, stat: &Statx) -> Identity {
    Identity::by_number(
        mount,
        stat.stx_ino,
        (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
    )
}
