//! The parts of a served directory, and how they are made. Answers no request itself.

use crate::config::{Config, ConfigError, OpenMode};
use crate::files::Files;
use crate::follow::{Follow, MountTable};
use crate::judge::Judge;
use crate::resources::Resources;
use crate::setup_error::{SetupError, system};
use crate::statistics::Statistics;
use crate::tree::{Tree, start_storing};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thrufs_policy::Policy;

/// A file system that serves a directory of the host.
///
/// One value serves one mount or share, through its implementation of [`thrufs::FileSystem`].
pub struct HostDir {
    pub(crate) host: Arc<Host>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tree.stop_storing();
    }
}

/// The parts of a [`HostDir`].
pub(crate) struct Host {
    pub(crate) config: Arc<Config>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) judge: Arc<Judge>,
    pub(crate) follow: Arc<Follow>,
    pub(crate) files: Files,
    /// Whether the kernel above checks modes and sees no ACLs; set by INIT.
    pub(crate) kernel_ignores_acls: AtomicBool,
    /// Whether submounts are announced; set by INIT.
    pub(crate) announces_submounts: AtomicBool,
}

impl Host {
    /// Whether the kernel may open directories by itself, and keep listings until it is told that they changed.
    /// Then it has to check permissions, and no rule may ask who opens a directory.
    pub(crate) fn may_leave_opendir_to_kernel(&self) -> bool {
        self.config.follows() && self.config.default_permissions && !self.judge.has_policy()
    }

    /// Whether the kernel is to open files by itself. `has_better` is whether it can use lower files, or map them in
    /// a window.
    pub(crate) fn is_to_open_files_itself(&self, has_better: bool) -> bool {
        let (config, credentials) = (&self.config, &self.tree.credentials);
        let may_read_the_same =
            credentials.overrides_modes() || !(config.allow_other || config.maps_ids());
        match config.opens {
            OpenMode::Server => false,
            OpenMode::Local => true,
            OpenMode::Auto => {
                config.read_only
                    && !has_better
                    && may_read_the_same
                    && !self.judge.has_policy()
                    && config.may_open_locally().is_ok()
            }
        }
    }

    /// What only this process can tell of `opens=local`, beside the options.
    fn check_local_opens(&self) -> Result<(), ConfigError> {
        let why = if self.judge.has_policy() {
            Err("does not go with a policy, which decides at each open".to_owned())
        } else if self.config.read_only {
            Ok(())
        } else if self.tree.root.mount().is_remote {
            Err("needs ro here: the file system beneath reports errors at close(2)".to_owned())
        } else if !self.tree.credentials.overrides_modes() {
            let problem =
                "needs ro or a server of root's: another may not open what its callers have opened";
            Err(problem.to_owned())
        } else {
            Ok(())
        };
        let is_followed = || {
            self.follow.may_start().map_err(|why| {
                format!("with cache=auto needs a tree whose changes can be followed ({why})")
            })
        };
        why.and_then(|()| is_followed())
            .map_err(ConfigError::OpensNotLocal)
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
    ) -> Result<HostDir, SetupError> {
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
    ) -> Result<HostDir, SetupError> {
        config.check()?;
        if let Some(policy) = &resources.policy {
            config.check_policy(policy)?;
        }
        let Resources {
            policy,
            audit_log,
            programs,
            ledger,
            fd_store,
        } = resources;
        let tree = Tree::new(source, &config, ledger, fd_store, policy.is_some())?;
        let (config, tree) = (Arc::new(config), Arc::new(tree));
        start_storing(&tree);
        let judge = Judge::new(Arc::clone(&tree), &config, policy, audit_log, programs);
        let judge = Arc::new(judge);
        let opened = tree.descriptor(&tree.root);
        let opened = opened.and_then(|root| judge.open_name_lock(root.as_fd()));
        opened.map_err(system("open the source"))?;
        let follow = Arc::new(Follow::new(Arc::clone(&tree), Arc::clone(&config)));
        if judge
            .active_policy()
            .is_some_and(|it| it.policy.uses().hide)
        {
            follow.rules_hide_names();
        }
        let parts = (Arc::clone(&tree), Arc::clone(&judge), Arc::clone(&follow));
        let files = Files::new(Arc::clone(&config), parts);
        let host = Host {
            config,
            tree,
            judge,
            follow,
            files,
            kernel_ignores_acls: AtomicBool::new(false),
            announces_submounts: AtomicBool::new(false),
        };
        if host.config.opens == OpenMode::Local {
            host.check_local_opens()?;
        }
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
    ) -> Result<(), ConfigError> {
        let host = &self.host;
        host.config.check_policy(&policy)?;
        if policy.uses().hide {
            host.follow.rules_hide_names();
        }
        // First, so that each audited open has a log.
        if audit_log.is_some() {
            host.judge.audit_log.replace(audit_log);
        }
        host.judge.reload_rules(policy)?;
        host.files.withdraw_mappings();
        Ok(())
    }

    /// Follows what is mounted and unmounted beneath, by the table of a process that sees the mounts as this one
    /// does. To be called before the session begins. Without a table, or where it cannot be read, the kernel
    /// above sees that a name has been mounted on only when its timeout ends
    /// ([`Config::follow_timeout`](crate::Config::follow_timeout)). Does nothing unless changes are followed.
    pub fn watch_mounts(&self, table: MountTable) {
        self.host.follow.watch_mounts(table);
    }

    /// Waits until the kernel above has been told of all changes that were made beneath so far. Not to be called
    /// by a thread that answers requests.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where changes are not followed, `ETIMEDOUT` after `patience`.
    pub fn settle(&self, patience: Duration) -> thrufs::Result<()> {
        self.host.follow.settle(patience)
    }

    /// The sizes of all tables.
    pub fn statistics(&self) -> Statistics {
        let host = &self.host;
        Statistics {
            inodes: host.tree.nodes.len(),
            exported_nodes: host.tree.nodes.dormant_len(),
            descriptors: host.tree.descriptors.len() + 1,
            descriptors_evicted: host.tree.descriptors.evictions(),
            open_files: host.files.files.len(),
            kernel_opens_files: host.files.kernel_opens_files.load(Ordering::Relaxed),
            open_directories: host.files.directories.len(),
            mounts: host.tree.mounts.len(),
            lock_owners: host.files.locks.count().0,
            mount_locks: host.files.locks.count().1,
            unmapped_opens: host.files.unmapped_opens.load(Ordering::Relaxed),
            passthrough: host.files.passthrough.is_available(),
            backing_files: host.files.passthrough.registered(),
            refused_to_users: [
                &host.files.quotas,
                &host.files.lock_quotas,
                &host.tree.removed_quotas,
            ]
            .iter()
            .map(|shares| shares.refused())
            .sum(),
            following: host.follow.figures(),
            dax: host.tree.dax.figures(),
        }
    }
}
