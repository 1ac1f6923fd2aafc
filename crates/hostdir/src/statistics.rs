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
    /// Whether they are not counted, since the kernel opens files by itself.
    pub kernel_opens_files: bool,
    /// Directories that clients have open.
    pub open_directories: usize,
    /// Lower mounts, with the source's own.
    pub mounts: usize,
    /// Owners of shared POSIX locks.
    pub lock_owners: usize,
    /// Files that the mount has locked as a whole, since programs above lock ranges of them and may map them.
    pub mount_locks: usize,
    /// Opens that cannot be mapped shared, since a program beneath had the file open for writing.
    pub unmapped_opens: u64,
    /// Whether files may be under passthrough.
    pub passthrough: bool,
    /// Lower files registered for passthrough.
    pub backing_files: usize,
    /// Opens and locks refused by a user's quota of descriptors
    /// ([`user_descriptors_max`](crate::Config::user_descriptors_max)).
    pub refused_to_users: u64,
    /// Following changes beneath; `None` where the kernel asks again.
    pub following: Option<Following>,
    /// The DAX window; `None` without one.
    pub dax: Option<DaxCounts>,
}

/// Files that a guest looked up, by whether it maps them, and what the machine monitor can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DaxCounts {
    /// Whether the machine monitor maps beyond the end of a file.
    pub maps_beyond_end: bool,
    /// Whether it maps what is open for reading.
    pub maps_read_only: bool,
    /// Files that the guest was told to map.
    pub files: u64,
    /// Files that it was not: none of those that are to be mapped.
    pub unnamed: u64,
    /// The same: smaller than [`dax_bytes_min`](crate::Config::dax_bytes_min).
    pub too_small: u64,
    /// The same: the monitor maps whole pages, and the file does not end with one.
    pub part_of_page: u64,
    /// The same: the monitor maps what is open for writing alone, and the file cannot be.
    pub read_only: u64,
    /// The same: rules restrict it, or may.
    pub rules: u64,
    /// Files whose mapping was withdrawn, because rules have changed.
    pub withdrawn: u64,
    /// Requests to map what is not open, not to be mapped, or not to be written.
    pub refused: u64,
}

/// Following changes beneath, counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Following {
    /// Directories and files that are watched now: at most [`follow_marks`](crate::Config::follow_marks).
    pub marks: usize,
    /// Whether the file system beneath is watched as a whole, instead of each directory in use.
    pub whole: bool,
    /// Events of changes that others made.
    pub events: u64,
    /// Messages to the kernel above.
    pub notifications: u64,
    /// Times that events were lost, so that all that the kernel keeps was dropped.
    pub losses: u64,
    /// Times that a file became silent: it was written often and not looked at, and is not reported until it is.
    pub silenced: u64,
    /// Times that notifications were late, so that answers were valid for a second at most: somebody holds the lock
    /// of a directory above for long.
    pub late: u64,
    /// The longest time from reading an event until the kernel above was told, or until now if it was not,
    /// microseconds.
    pub lag_max_us: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inodes={} exported_nodes={} descriptors={} evicted={} open_files={} open_directories={} mounts={} \
             lock_owners={} mount_locks={} unmapped_opens={} backing_files={} refused_to_users={} \
             kernel_opens_files={}{}{}",
            self.inodes,
            self.exported_nodes,
            self.descriptors,
            self.descriptors_evicted,
            self.open_files,
            self.open_directories,
            self.mounts,
            self.lock_owners,
            self.mount_locks,
            self.unmapped_opens,
            self.backing_files,
            self.refused_to_users,
            u8::from(self.kernel_opens_files),
            self.following.map_or_else(String::new, |it| it.to_string()),
            self.dax.map_or_else(String::new, |it| it.to_string())
        )
    }
}

impl fmt::Display for DaxCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " dax_maps_beyond_end={} dax_maps_read_only={} dax_files={} dax_unnamed={} dax_too_small={} \
             dax_part_of_page={} dax_read_only={} dax_rules={} dax_withdrawn={} dax_refused={}",
            self.maps_beyond_end,
            self.maps_read_only,
            self.files,
            self.unnamed,
            self.too_small,
            self.part_of_page,
            self.read_only,
            self.rules,
            self.withdrawn,
            self.refused
        )
    }
}

impl fmt::Display for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " follow_marks={} follow_events={} follow_notifications={} follow_losses={} follow_silenced={} follow_late={} \
             follow_lag_max_us={}",
            self.marks,
            self.events,
            self.notifications,
            self.losses,
            self.silenced,
            self.late,
            self.lag_max_us
        )
    }
}
