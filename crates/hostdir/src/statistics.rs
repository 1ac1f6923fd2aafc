//! Statistics of a served directory.

use serde::Serialize;
use std::fmt;

/// The sizes of its tables at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Inodes that the kernel has looked up, and forgotten ones kept for `export`.
    pub inodes: usize,
    /// Of these, the forgotten ones: at most [`exported_nodes_max`](crate::Config::exported_nodes_max).
    pub exported_nodes: usize,
    /// Descriptors cached for inodes.
    pub descriptors: usize,
    /// Descriptors evicted because the budget was used up.
    pub descriptors_evicted: u64,
    /// Files that clients have open.
    pub open_files: usize,
    /// Directories that clients have open.
    pub open_directories: usize,
    /// Lower mounts, with the source's own.
    pub mounts: usize,
    /// Owners of shared POSIX locks.
    pub lock_owners: usize,
    /// Lower files registered for passthrough.
    pub backing_files: usize,
    /// Opens and locks refused by a user's quota of descriptors
    /// ([`user_descriptors_max`](crate::Config::user_descriptors_max)).
    pub refused_to_users: u64,
    /// Following changes beneath; `None` where the kernel asks again.
    pub following: Option<Following>,
}

/// Following changes beneath, counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Following {
    /// Directories and files that are watched now: at most [`follow_marks`](crate::Config::follow_marks).
    pub marks: usize,
    /// Events of changes that others made.
    pub events: u64,
    /// Messages to the kernel above.
    pub notifications: u64,
    /// Times that events were lost, so that all that the kernel keeps was dropped.
    pub losses: u64,
    /// Times that a file became silent: it was written often and not looked at, and is not reported until it is.
    pub silenced: u64,
    /// The longest time from reading an event until the kernel above was told, microseconds.
    pub lag_max_us: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inodes={} exported_nodes={} descriptors={} evicted={} open_files={} open_directories={} mounts={} \
             lock_owners={} backing_files={} refused_to_users={}{}",
            self.inodes,
            self.exported_nodes,
            self.descriptors,
            self.descriptors_evicted,
            self.open_files,
            self.open_directories,
            self.mounts,
            self.lock_owners,
            self.backing_files,
            self.refused_to_users,
            self.following.map_or_else(String::new, |it| it.to_string())
        )
    }
}

impl fmt::Display for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " follow_marks={} follow_events={} follow_notifications={} follow_losses={} follow_silenced={} follow_lag_max_us={}",
            self.marks,
            self.events,
            self.notifications,
            self.losses,
            self.silenced,
            self.lag_max_us
        )
    }
}
