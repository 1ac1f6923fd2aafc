//! Whether the kernel may keep what it has cached of a file's data from one open to the next.
//!
//! A version is a file's size and times. An open that finds the version by which the cache was filled
//! keeps the cache, any other drops it. That is right only if whatever changes the data changes the
//! version, and three things keep it from doing so:
//!
//! * Times advance in steps, of a clock tick or, on some file systems, of two seconds: two changes
//!   within a step look the same.
//! * A file system sets the time *before* it copies what is written. Who reads in between sees the last
//!   version with old data.
//! * A store through a shared map sets the time once, and then no more for long.
//!
//! So a version counts only if it was a while old when an open found it ([`SETTLED`]), as in git's
//! index, and if nobody had the file open for writing then: whatever is written later by whoever opens
//! the file later has another version. Nobody is known to write as long as no lease can be tried (files
//! of others without CAP_LEASE, file systems without leases); there, a call that goes on for longer
//! than that after it has set the time, and a map that is stored to, can be missed.
//!
//! It counts from the release of that open on, when the kernel has dropped for sure what it had before:
//! until its answer has arrived, another open may not keep that.
//!
//! The kernel's attributes may be older than the data. It reads no further than the size it knows, so
//! an open of a file that has changed lately has it ask for them again.

use crate::attributes::content_version;
use crate::host::Host;
use crate::inode::Inode;
use crate::mounts::LowerMount;
use rustix::fs::{Statx, StatxTimestamp};
use std::time::Duration;
use thrufs::LowerFile;
use thrufs_sys::clock::coarse_time;
use thrufs_sys::lease;

/// How old a version must be. FAT counts in steps of two seconds, and a tick is up to 10 ms.
const SETTLED: Duration = Duration::from_millis(2_100);

/// The same where the time is another machine's: how far its clock may be behind ours.
const SETTLED_REMOTE: Duration = Duration::from_secs(60);

/// What an open found out about the data that the kernel may have cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What is cached is of the version that the file has.
    pub(crate) keeps_cache: bool,
    /// The version that counts once the open is released, or 0.
    pub(crate) version: u64,
}

/// How long before `now` the file has changed last; nothing if that is yet to come.
fn age(stat: &Statx, now: Duration) -> Option<Duration> {
    let changed = |time: &StatxTimestamp| match u64::try_from(time.tv_sec) {
        Ok(seconds) => Duration::new(seconds, time.tv_nsec),
        Err(_before_1970) => Duration::ZERO,
    };
    now.checked_sub(changed(&stat.stx_mtime).max(changed(&stat.stx_ctime)))
}

/// Whether the file has not changed for `more` than what a version must be old.
fn is_settled(mount: &LowerMount, stat: &Statx, more: Duration) -> bool {
    let margin = if mount.is_remote() {
        SETTLED_REMOTE
    } else {
        SETTLED
    };
    age(stat, coarse_time()).is_some_and(|age| age >= margin + more)
}

impl Host {
    /// What an open of `inode` that goes by the cache means for what is cached. `lower` is open for
    /// reading alone unless it is `writable`.
    pub(crate) fn cached_data(
        &self,
        inode: &Inode,
        lower: &LowerFile,
        writable: bool,
        stat: &Statx,
    ) -> Found {
        let version = content_version(stat);
        if inode.cached_version() == version {
            return Found {
                keeps_cache: true,
                version: 0,
            };
        }
        // A writer of ours would be found as well.
        let counts = !writable
            && is_settled(inode.mount(), stat, Duration::ZERO)
            && (inode.mount().is_remote() || !lease::has_writers(lower).unwrap_or(false));
        Found {
            keeps_cache: false,
            version: if counts { version } else { 0 },
        }
    }

    /// Has the kernel ask for the attributes of a file that it is opening if they may be older than
    /// what `stat` shows.
    pub(crate) fn refresh_size(&self, inode: &Inode, stat: &Statx) {
        let timeout = self.config.attr_timeout();
        if timeout.is_zero() || is_settled(inode.mount(), stat, timeout) {
            return;
        }
        self.attributes_changed(inode);
    }

    /// Has the kernel ask for the attributes of the node that a request is about, from its answer on.
    /// Where nobody takes notifications (guests), they stay as they are for their time.
    pub(crate) fn attributes_changed(&self, inode: &Inode) {
        if let Some(notifier) = self.rules.notifier()
            && let Err(error) = notifier.expire_attributes(inode.node())
        {
            tracing::trace!(node = ?inode.node(), %error, "cannot invalidate attributes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat_of(mtime: (i64, u32), ctime: (i64, u32)) -> Statx {
        let file = tempfile::tempfile().unwrap();
        let mut stat = crate::files::stat_open(&file).unwrap();
        (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec) = mtime;
        (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec) = ctime;
        stat
    }

    #[test]
    fn the_younger_time_counts_and_the_future_never_does() {
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
