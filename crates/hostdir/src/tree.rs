//! The served tree: the inodes that the kernel has looked up, their names, what leads to them, and the mounts
//! beneath. Knows neither open files nor rules.
//!
//! | method of [`Tree`] | |
//! |---|---|
//! | `lookup_name`, `lookup_at`, `lookup_opened`, `lookup_and_keep`, `forget` | a name becomes an inode, with one lookup; lookups are taken back |
//! | `descriptor`, `stat`, `open_inode`, `reopen`, `open_component`, `with_room` | an inode is reached, within the budget of descriptors |
//! | `known`, `hold`, `tracked`, `leads_to`, `path_leads_to` | what stands under a name, without a lookup |
//! | `parent_of`, `must_be_inside`, `is_root`, `mount_of` | up, never above the root |
//! | `keep`, `keep_inode`, `keep_if_last_name`, `forget_place`, `charge_removed` | what would be lost with its last name |
//! | `reference_to_free`, `freeing` | what is freed later |
//! | `was_opened`, `was_closed` | what would be lost with this process |
//! | `record_name`, `record_new_name`, `noting`, `name_changes` | names, under a policy |

mod beneath;
mod dax;
mod dax_state;
mod descriptor_limits;
mod descriptors;
mod folded_case;
mod followed;
mod freeing;
mod housekeeping;
mod idle_expiry;
mod inode;
mod lookup;
mod lower_inode;
mod lower_mount;
mod magic;
mod mounts;
mod names;
mod nodes;
mod noted;
mod open_store;
mod parents;
mod reach;
mod reported;
mod retries;
mod stored_descriptors;
mod storing;
mod uses;
mod wakeup;

pub(crate) use beneath::{End, component, component_of};
pub(crate) use folded_case::folds_case;
pub(crate) use followed::Followed;
pub(crate) use freeing::start as start_freeing;
pub(crate) use housekeeping::start as start_housekeeping;
pub(crate) use inode::{Inode, LowerMount, NewInode, Place};
pub(crate) use lower_inode::Descriptor;
pub use mounts::{Handles, MountProperties};
pub(crate) use mounts::{mount_id_mask, open_beneath, opened_identity};
pub(crate) use names::NAMES_MAX;
pub(crate) use noted::{Noted, set_group_id_stays};
pub(crate) use reported::{ModesBefore, Owner};
pub(crate) use retries::ATTEMPTS_MAX;
pub(crate) use storing::start as start_storing;
pub(crate) use uses::{Obstacle, Use};

use crate::config::{Config, FileHandles};
use crate::credentials::Credentials;
use crate::ledger::{FdStore, Ledger, StateTables};
use crate::quota::UserQuotas;
use crate::setup_error::{SetupError, system};
use crate::stat::stat_with_birth;
use dax::Dax;
pub(crate) use dax::MapConditions;
use descriptor_limits::DescriptorLimits;
use descriptors::Descriptors;
use freeing::Freeing;
use mounts::Mounts;
use names::NameChanges;
use nodes::Nodes;
use open_store::OpenStore;
use parking_lot::Mutex;
use retries::Retries;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use thrufs::Notifier;
use thrufs_abi::NodeId;
use thrufs_sys::proc_fd;

/// The inodes of a served directory, and the way to them.
pub(crate) struct Tree {
    pub(crate) root: Arc<Inode>,
    pub(crate) nodes: Nodes,
    pub(crate) mounts: Mounts,
    pub(crate) descriptors: Descriptors,
    pub(crate) limits: DescriptorLimits,
    pub(crate) credentials: Credentials,
    /// Of removed inodes that only their descriptor leads to.
    pub(crate) removed_quotas: Arc<UserQuotas>,
    pub(crate) retries: Retries,
    /// The ledger, for a process that resumes the session.
    pub(crate) tables: Option<Arc<StateTables>>,
    /// Descriptors for a process that resumes the session.
    pub(crate) fd_store: Option<Arc<dyn FdStore>>,
    /// Stores those of open files.
    pub(crate) open_store: Arc<OpenStore>,
    /// How many inodes have a stored descriptor. Locked while one is stored or discarded, but for a node that
    /// is forgotten.
    stored: Mutex<usize>,
    /// Descriptors were discarded, and may not be closed yet.
    discarded: AtomicBool,
    pub(crate) dax: Dax,
    pub(crate) freeing: Arc<Freeing>,
    /// To the kernel above; set by INIT.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Whether inodes record their names, for rules on paths.
    pub(crate) tracks_names: bool,
    pub(crate) name_changes: NameChanges,
    /// Directories that ignore case were logged once.
    logged_folded_case: AtomicBool,
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Ends the threads: otherwise some per session would pile up.
        self.mounts.wakeup.notify();
        self.freeing.end();
        self.open_store.end();
    }
}

impl Tree {
    /// The tree beneath `source`, a directory that is open for reading.
    pub(crate) fn new(
        source: OwnedFd,
        config: &Config,
        ledger: Option<Ledger>,
        fd_store: Option<Arc<dyn FdStore>>,
        tracks_names: bool,
    ) -> Result<Tree, SetupError> {
        proc_fd::check().map_err(|errno| SetupError::System {
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
        let tables = ledger.map(tables_in).transpose()?;
        let (mounts, mount) = Mounts::of_source(source, tables.clone(), config)
            .map_err(system("look at the source's mount"))?;
        if config.file_handles == FileHandles::Mandatory && !mount.has_handles {
            return Err(SetupError::NoHandles);
        }
        let dormant_max = if config.export {
            config.exported_nodes_max
        } else {
            0
        };
        let nodes = Nodes::new(dormant_max, tables.clone());
        let root = enter_root(&nodes, &mount, root_fd)?;
        let limits = DescriptorLimits::of_this_process(
            config.descriptor_budget,
            config.user_descriptors_max,
            root.mount().has_handles,
        );
        let [removed_user, removed_users, removed_root] = limits.removed;
        let server_uid = credentials.server_uid;
        Ok(Tree {
            root,
            nodes,
            mounts,
            descriptors: Descriptors::new(limits.inodes),
            limits,
            removed_quotas: UserQuotas::with_root_quota(
                removed_user,
                removed_users,
                removed_root,
                server_uid,
            ),
            credentials,
            retries: Retries::new(tables.clone()),
            dax: Dax::new(config, tables.clone()),
            freeing: Arc::default(),
            tables,
            fd_store,
            open_store: Arc::default(),
            stored: Mutex::new(0),
            discarded: AtomicBool::new(false),
            notifier: OnceLock::new(),
            tracks_names,
            name_changes: NameChanges::default(),
            logged_folded_case: AtomicBool::new(false),
        })
    }

    /// Where the kernel above takes notifications: not in a guest.
    pub(crate) fn connected_notifier(&self) -> Option<&Notifier> {
        let notifier = self.notifier.get();
        notifier.filter(|notifier| notifier.is_connected())
    }

    /// Expires the kernel's attributes of the node that a request is about, after its answer. Guests take
    /// no notifications: there they time out.
    pub(crate) fn attributes_changed(&self, inode: &Inode) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.expire_attributes(inode.node())
        {
            tracing::trace!(node = ?inode.node(), %error, "cannot invalidate attributes");
        }
        inode.reported.expire();
    }
}

fn tables_in(ledger: Ledger) -> Result<Arc<StateTables>, SetupError> {
    let tables = StateTables::new(ledger).map_err(|source| SetupError::System {
        what: "map the ledger",
        source,
    })?;
    Ok(Arc::new(tables))
}

/// The first node, which the kernel knows without a lookup.
fn enter_root(
    nodes: &Nodes,
    mount: &Arc<LowerMount>,
    fd: OwnedFd,
) -> Result<Arc<Inode>, SetupError> {
    let stat = stat_with_birth(&fd).map_err(system("stat the source"))?;
    let identity = opened_identity(mount, &fd, &stat).map_err(system("identify the source"))?;
    let new = NewInode {
        identity,
        mount,
        file_type: libc::S_IFDIR,
        place: None,
    };
    let (root, _) = nodes
        .find_or_insert(new)
        .map_err(system("number the root"))?;
    debug_assert_eq!(root.node(), NodeId::ROOT);
    // Never evicted: it is not in the ring.
    root.lower.keep_descriptor(fd);
    Ok(root)
}
