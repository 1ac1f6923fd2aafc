//! What was last reported of an inode to the kernel above.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use thrufs_sys::clock::coarse_time;

/// How long the kernel above may check a caller by what was reported before: it ignores an answer that a
/// notification overtakes (`fuse_change_attributes`), and that check is by the older attributes.
const IGNORED_MS_MAX: u32 = 1000;

/// What was last reported of an inode to the kernel above, in ids of the client.
pub(crate) struct ReportedAttributes {
    /// User (upper half) and group. All ones before the first report.
    owner: AtomicU64,
    mode: AtomicU16,
    size: AtomicU64,
    /// Of size and times, see [`content_version`](crate::stat::content_version).
    version: AtomicU32,
    /// When others than before were reported of owner and mode, in milliseconds; and the modes before that.
    changed_ms: AtomicU32,
    any_mode_before: AtomicU16,
    all_modes_before: AtomicU16,
    /// Another owner or group was reported than before, without a request to change it.
    owner_changed: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Owner {
    fn packed(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.gid)
    }

    fn unpacked(packed: u64) -> Owner {
        Owner {
            uid: (packed >> 32) as u32,
            gid: packed as u32,
        }
    }
}

/// The bits that any of some modes had, and those that all had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModesBefore {
    pub(crate) any: u32,
    pub(crate) all: u32,
}

const NONE: u64 = u64::MAX;

fn now_ms() -> u32 {
    coarse_time().as_millis() as u32
}

impl ReportedAttributes {
    pub(crate) const fn none() -> ReportedAttributes {
        ReportedAttributes {
            owner: AtomicU64::new(NONE),
            mode: AtomicU16::new(0),
            size: AtomicU64::new(0),
            version: AtomicU32::new(0),
            changed_ms: AtomicU32::new(0),
            any_mode_before: AtomicU16::new(0),
            all_modes_before: AtomicU16::new(0),
            owner_changed: AtomicBool::new(false),
        }
    }

    /// Whether this version was reported last.
    pub(crate) fn is_of(&self, version: u64) -> bool {
        self.version.load(Ordering::Relaxed) == version as u32
    }

    /// Whether these were reported last, and for a while if others were before.
    pub(crate) fn are_known(&self, (uid, gid, mode): (u32, u32, u32), size: u64) -> bool {
        self.owner() == Some(Owner { uid, gid })
            && self.mode() == u32::from(mode as u16)
            && self.size.load(Ordering::Relaxed) == size
            && self.modes_before().is_none()
    }

    /// To be called before the attributes are reported.
    pub(crate) fn report(&self, (uid, gid, mode): (u32, u32, u32), size: u64, version: u64) {
        self.size.store(size, Ordering::Relaxed);
        let now = Owner { uid, gid }.packed();
        let before = self.owner.load(Ordering::Acquire);
        let mode_before = self.mode.load(Ordering::Relaxed);
        if before != NONE && (before, mode_before) != (now, mode as u16) {
            let others = self.modes_before();
            let (any, all) = others.map_or((0, u16::MAX), |it| (it.any as u16, it.all as u16));
            let any = any | mode_before;
            self.any_mode_before.store(any, Ordering::Relaxed);
            let all = all & mode_before;
            self.all_modes_before.store(all, Ordering::Relaxed);
            self.changed_ms.store(now_ms().max(1), Ordering::Relaxed);
        }
        self.mode.store(mode as u16, Ordering::Relaxed);
        self.version.store(version as u32, Ordering::Relaxed);
        if before == now {
            return;
        }
        if before != NONE {
            self.owner_changed.store(true, Ordering::Relaxed);
        }
        self.owner.store(now, Ordering::Release);
    }

    /// The kernel above has been told to ask again.
    pub(crate) fn expire(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// The kernel above takes what was reported last in any case: the answer to a change of its own.
    pub(crate) fn was_set(&self) {
        self.changed_ms.store(0, Ordering::Relaxed);
    }

    /// The modes by which the kernel above may still check callers, besides the one that was reported last. Then the
    /// owner may be another as well.
    pub(crate) fn modes_before(&self) -> Option<ModesBefore> {
        let changed = self.changed_ms.load(Ordering::Relaxed);
        let is_recent = changed != 0 && now_ms().wrapping_sub(changed) < IGNORED_MS_MAX;
        is_recent.then(|| ModesBefore {
            any: self.any_mode_before.load(Ordering::Relaxed).into(),
            all: self.all_modes_before.load(Ordering::Relaxed).into(),
        })
    }

    /// The kernel above has set this owner itself.
    pub(crate) fn set_by_kernel(&self, uid: Option<u32>, gid: Option<u32>) {
        if let Some(before) = self.owner() {
            let uid = uid.unwrap_or(before.uid);
            let gid = gid.unwrap_or(before.gid);
            self.owner
                .store(Owner { uid, gid }.packed(), Ordering::Release);
        }
    }

    pub(crate) fn owner(&self) -> Option<Owner> {
        let owner = self.owner.load(Ordering::Acquire);
        (owner != NONE).then(|| Owner::unpacked(owner))
    }

    pub(crate) fn is_uncertain(&self) -> bool {
        self.owner_changed.load(Ordering::Relaxed) || self.owner.load(Ordering::Relaxed) == NONE
    }

    pub(crate) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed).into()
    }

    pub(crate) fn may_be_sticky(&self) -> bool {
        self.mode() & libc::S_ISVTX != 0 || self.owner().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_before_count_for_a_while_unless_the_kernel_set_one() {
        let reported = ReportedAttributes::none();
        let before = |any, all| Some(ModesBefore { any, all });
        reported.report((1, 1, 0o666), 0, 1);
        assert_eq!(reported.modes_before(), None, "the first");
        assert!(reported.are_known((1, 1, 0o666), 0));
        assert!(!reported.are_known((2, 1, 0o666), 0) && !reported.are_known((1, 1, 0o666), 1));
        reported.report((1, 1, 0o644), 0, 2);
        assert!(!reported.are_known((1, 1, 0o644), 0), "a moment ago");
        reported.report((1, 1, 0o644), 0, 3);
        assert_eq!(reported.modes_before(), before(0o666, 0o666));
        reported.report((1, 1, 0o4600), 0, 4);
        reported.report((1, 1, 0o600), 0, 5);
        assert_eq!(reported.modes_before(), before(0o4666, 0o600));
        reported.was_set();
        assert_eq!(reported.modes_before(), None);
        reported.report((2, 1, 0o600), 0, 5);
        let of_now = before(0o600, 0o600);
        assert_eq!(reported.modes_before(), of_now, "another owner");
        let long_ago = now_ms().wrapping_sub(IGNORED_MS_MAX);
        reported.changed_ms.store(long_ago, Ordering::Relaxed);
        assert_eq!(reported.modes_before(), None);
        reported.report((2, 1, 0o644), 0, 6);
        assert_eq!(reported.modes_before(), of_now, "those long ago are gone");
    }

    #[test]
    fn version_that_has_expired_is_none() {
        let reported = ReportedAttributes::none();
        reported.report((1, 1, 0o644), 0, 7);
        assert!(reported.is_of(7));
        reported.expire();
        assert!(!reported.is_of(7));
    }
}
