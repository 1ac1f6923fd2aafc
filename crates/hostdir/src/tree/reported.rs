//! What was last reported of an inode to the kernel above.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What was last reported of an inode to the kernel above, in ids of the client.
pub(crate) struct ReportedAttributes {
    /// User (upper half) and group. All ones before the first report.
    owner: AtomicU64,
    mode: AtomicU16,
    /// Of size and times, see [`content_version`](crate::stat::content_version).
    version: AtomicU32,
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

const NONE: u64 = u64::MAX;

impl ReportedAttributes {
    pub(crate) const fn none() -> ReportedAttributes {
        ReportedAttributes {
            owner: AtomicU64::new(NONE),
            mode: AtomicU16::new(0),
            version: AtomicU32::new(0),
            owner_changed: AtomicBool::new(false),
        }
    }

    /// Whether this version was reported last.
    pub(crate) fn is_of(&self, version: u64) -> bool {
        self.version.load(Ordering::Relaxed) == version as u32
    }

    /// To be called before the attributes are reported.
    pub(crate) fn report(&self, (uid, gid, mode): (u32, u32, u32), version: u64) {
        self.mode.store(mode as u16, Ordering::Relaxed);
        self.version.store(version as u32, Ordering::Relaxed);
        let now = Owner { uid, gid }.packed();
        let before = self.owner.load(Ordering::Acquire);
        if before == now {
            return;
        }
        if before != NONE {
            self.owner_changed.store(true, Ordering::Relaxed);
        }
        self.owner.store(now, Ordering::Release);
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
