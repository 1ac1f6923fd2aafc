//! Whether the kernel may keep cached data of a file from one open to the next.
//!
//! A version is a file's size and times. An open that finds the version by which the cache was filled keeps
//! the cache, any other open drops it. That requires that every change of data changes the version, which
//! three things prevent:
//!
//! * Times advance in steps, of a clock tick or, on some file systems, of two seconds: two changes within a
//!   step look the same.
//! * A file system sets the time *before* it copies the written data. A read in between sees the last
//!   version with old data.
//! * A store through a shared mapping sets the time once, and then not again for long.
//!
//! So a version counts only if it was some time old when an open found it ([`SETTLED`]), as in git's index,
//! and if the file was not open for writing then: later writes, by processes that open the file later, give
//! another version. Without leases (files of other users without CAP_LEASE, file systems without leases) no
//! writer is detected; there, a write(2) that lasts longer than [`SETTLED`] after it has set the time, and
//! stores through a mapping, can be missed.
//!
//! It counts from the release of that open on, when the kernel has certainly dropped its earlier cache:
//! until the open is answered, another open may not keep that.
//!
//! The kernel's attributes may be older than the data. It reads no further than the size it knows, so an
//! open of a file that has changed since they were reported makes it refresh them, once it has been told of
//! the change: it would ignore an answer that such a notification overtakes.

use super::Files;
use crate::stat::content_version;
use crate::tree::{Inode, LowerMount};
use rustix::fs::{Statx, StatxTimestamp};
use std::time::Duration;
use thrufs::LowerFile;
use thrufs_sys::clock::coarse_time;
use thrufs_sys::lease;

/// How old a version must be. FAT has steps of two seconds, and a tick is up to 10 ms.
const SETTLED: Duration = Duration::from_millis(2_100);

/// The same for times of another machine: its clock may be behind ours.
const SETTLED_REMOTE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The cached data is of the file's version.
    pub(crate) keeps_cache: bool,
    /// The version that counts once the open is released, or 0.
    pub(crate) version: u64,
}

/// How long before `now` the file last changed; `None` for a time in the future.
fn age(stat: &Statx, now: Duration) -> Option<Duration> {
    let changed = |time: &StatxTimestamp| match u64::try_from(time.tv_sec) {
        Ok(seconds) => Duration::new(seconds, time.tv_nsec),
        Err(_before_1970) => Duration::ZERO,
    };
    now.checked_sub(changed(&stat.stx_mtime).max(changed(&stat.stx_ctime)))
}

/// Whether the last change is older than the required age, so that another one gives another version.
pub(super) fn is_settled(mount: &LowerMount, stat: &Statx) -> bool {
    let margin = if mount.is_remote {
        SETTLED_REMOTE
    } else {
        SETTLED
    };
    age(stat, coarse_time()).is_some_and(|age| age >= margin)
}

impl Files {
    /// What an open of `inode` with the data path cached means for the kernel's cache. `lower` is read-only
    /// unless `writable`.
    pub(crate) fn cached_data(
        &self,
        inode: &Inode,
        lower: &LowerFile,
        writable: bool,
        stat: &Statx,
    ) -> Found {
        let version = content_version(stat);
        if inode.cached_version.get() == version {
            return Found {
                keeps_cache: true,
                version: 0,
            };
        }
        // Our own writers hold the lease off as well.
        let counts = !writable
            && is_settled(inode.mount(), stat)
            && (inode.mount().is_remote || !lease::has_writers(lower).unwrap_or(false));
        Found {
            keeps_cache: false,
            version: if counts { version } else { 0 },
        }
    }

    /// Makes the kernel refresh the attributes of a file that it is opening, if others than in `stat` were last
    /// reported.
    pub(crate) fn refresh_size(&self, inode: &Inode, stat: &Statx) {
        if !inode.reported.is_of(content_version(stat)) {
            self.follow.catch_up(inode);
            self.tree.attributes_changed(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::stat_open;

    fn stat_of(mtime: (i64, u32), ctime: (i64, u32)) -> Statx {
        let file = tempfile::tempfile().unwrap();
        let mut stat = stat_open(&file).unwrap();
        (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec) = mtime;
        (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec) = ctime;
        stat
    }

    #[test]
    fn later_time_counts_and_future_times_do_not() {
        let now = Duration::new(100, 500);
        let old = (10, 0);
        let since = age(&stat_of((98, 400), old), now);
        assert_eq!(since, Some(Duration::from_nanos(2_000_000_100)));
        let since = age(&stat_of(old, (99, 999_999_999)), now);
        assert_eq!(since, Some(Duration::from_nanos(501)));
        assert_eq!(age(&stat_of(old, (100, 501)), now), None);
        assert_eq!(age(&stat_of((i64::MAX / 2, 0), old), now), None);
    }
}
