//! Files and directories that clients have open: data paths, cached versions, privileges that a change takes
//! away, locks. Knows the [tree](crate::tree) and the [judge](crate::judge), and no request on names.
//!
//! | method of [`Files`] | |
//! |---|---|
//! | `open`, `enter_lower`, `enter_passthrough`, `audit`, `release` | an open file, from OPEN or CREATE to RELEASE |
//! | `use_file`, `may_use_passthrough`, `expected_path`, `route_of`, `resume_use` | the data path that all opens of an inode share |
//! | `file`, `file_of`, `lower`, `open_again_raw`, `close_file` | an open file and its lower file |
//! | `file_for`, `is_opened_by_kernel` | a file that the kernel has opened by itself |
//! | `read`, `write`, `flush`, `fsync`, `fallocate`, `lseek`, `copy_file_range` | requests on its data |
//! | `change_content`, `clear_privileges`, `drop_privileges`, `drop_privileges_of_others` | set-id bits and capabilities |
//! | `change_attributes`, `change_file`, `may_write` | changes of a file that may be redacted |
//! | `withdraw_mappings` | files that a guest maps, under rules that have changed |
//! | `opendir`, `readdir`, `releasedir`, `fsyncdir`, `directory_of` | open directories |
//! | `getlk`, `setlk`, `release_owner`, `held_locks`, `suspend_locks`, `settle_mount_locks` | shared locks |

mod admission;
mod datapath;
mod deadlock;
mod directories;
mod guard;
mod intent;
mod io;
mod kernel_opens;
mod left_open;
mod listings;
mod lock_notifications;
mod lock_owners;
mod lock_placement;
mod locks;
mod mapped;
mod mount_lock;
mod moved_ranges;
mod open;
mod open_directory;
mod open_file;
mod part_read;
mod passthrough;
mod privileges;
mod recording;
mod redacted;
mod suspended;
mod suspended_locks;
mod versions;
mod written_beneath;

pub(crate) use intent::{EXECUTES, executes};
pub(crate) use io::sync;
pub(crate) use left_open::LeftOpen;
pub(crate) use lock_owners::{OwnerCharges, OwnerFile};
pub(crate) use open::{Opening, access, access_name, lower_flags};
pub(crate) use open_directory::OpenDirectory;
pub(crate) use open_file::{NewOpenFile, OpenFile, lock_kind, lock_number};
pub(crate) use privileges::SET_IDS;
pub(crate) use suspended::RANGES_MAX;

use crate::config::Config;
use crate::filter::Waiting;
use crate::follow::Follow;
use crate::judge::Judge;
use crate::quota::UserQuotas;
use crate::slots::Slots;
use crate::tree::Tree;
use deadlock::Waits;
use left_open::Left;
use listings::Listings;
use lock_owners::{LockOwners, USER_OWNERS_MAX, USERS_OWNERS_MAX};
use mount_lock::MountLocks;
use part_read::PartRead;
use passthrough::Passthrough;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use suspended::Suspended;

/// What clients have open.
pub(crate) struct Files {
    config: Arc<Config>,
    tree: Arc<Tree>,
    judge: Arc<Judge>,
    follow: Arc<Follow>,
    pub(crate) files: Slots<OpenFile>,
    pub(crate) directories: Slots<OpenDirectory>,
    /// What a process that died had open.
    pub(crate) left: Left,
    pub(crate) listings: Listings,
    /// Of directories that the kernel has opened by itself.
    part_read: PartRead,
    /// Whether OPENDIR is answered with ENOSYS; set by INIT.
    pub(crate) kernel_opens_directories: AtomicBool,
    /// The same for OPEN and FLUSH.
    pub(crate) kernel_opens_files: AtomicBool,
    pub(crate) passthrough: Passthrough,
    /// Of open directories, and of open files with a descriptor here.
    pub(crate) quotas: Arc<UserQuotas>,
    /// Of owners of shared locks.
    pub(crate) lock_quotas: Arc<UserQuotas>,
    pub(crate) locks: Arc<LockOwners>,
    pub(crate) mount_locks: Arc<MountLocks>,
    lock_waits: Waits,
    /// The locks of a session that was saved.
    suspended: Suspended,
    /// Whether the kernel keeps no written data that a FLUSH sends; set by INIT.
    pub(crate) may_skip_flush: AtomicBool,
    /// Whether POSIX locks are kept here; set by INIT.
    pub(crate) keeps_locks: AtomicBool,
    /// Opens that cannot be mapped shared.
    pub(crate) unmapped_opens: AtomicU64,
    /// Requests that wait for a redacted file.
    waiting: Waiting,
}

impl Files {
    pub(crate) fn new(
        config: Arc<Config>,
        (tree, judge, follow): (Arc<Tree>, Arc<Judge>, Arc<Follow>),
    ) -> Files {
        let locks = Arc::<LockOwners>::default();
        let mount_locks = MountLocks::new(Arc::clone(&locks), Arc::clone(&tree));
        let (limits, server_uid) = (tree.limits, tree.credentials.server_uid);
        Files {
            config,
            tree,
            judge,
            follow,
            files: Slots::starting_at(1),
            directories: Slots::starting_at(1),
            left: Left::default(),
            listings: Listings::beside(limits.inodes),
            part_read: PartRead::default(),
            kernel_opens_directories: AtomicBool::new(false),
            kernel_opens_files: AtomicBool::new(false),
            passthrough: Passthrough::default(),
            quotas: UserQuotas::new(limits.user, limits.users, server_uid),
            lock_quotas: UserQuotas::new(USER_OWNERS_MAX, USERS_OWNERS_MAX, server_uid),
            locks,
            mount_locks: Arc::new(mount_locks),
            lock_waits: Waits::default(),
            suspended: Suspended::default(),
            may_skip_flush: AtomicBool::new(false),
            keeps_locks: AtomicBool::new(false),
            unmapped_opens: AtomicU64::new(0),
            waiting: Waiting::new(server_uid),
        }
    }
}
