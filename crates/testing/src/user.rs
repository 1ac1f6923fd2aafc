//! Running code as another user.
//!
//! In Linux, user and group ids belong to a thread (only the C library makes them process-wide). So a thread of
//! its own suffices, without a process or unsafe code.

use std::panic::resume_unwind;
use std::thread;

use rustix::process::{Gid, Uid};

/// A user with supplementary groups.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// Real, effective, saved and file-system user id.
    pub uid: u32,
    /// Real, effective, saved and file-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// An ordinary user.
pub const ALICE: User = User {
    uid: 4001,
    gid: 4001,
    groups: &[],
};

/// Another ordinary user, without a common group with [`ALICE`].
pub const BOB: User = User {
    uid: 4002,
    gid: 4002,
    groups: &[],
};

/// The group of which only [`MEMBER`] is a member, as a supplementary one.
pub const TEAM: u32 = 4100;

/// A user with several supplementary groups, [`TEAM`] among them.
pub const MEMBER: User = User {
    uid: 4003,
    gid: 4003,
    groups: &[4098, 4099, TEAM, 4101],
};

impl User {
    /// Runs `body` as this user, without capabilities, and returns its result. Needs root.
    ///
    /// # Panics
    ///
    /// With the panic of `body`, or if the ids cannot be changed.
    #[track_caller]
    pub fn run<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
        let ran = thread::scope(|scope| {
            scope
                .spawn(move || {
                    self.become_user();
                    body()
                })
                .join()
        });
        ran.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn become_user(self) {
        let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&groups).expect("only root can act as others");
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("only root can act as others");
        // Last: this drops the capabilities.
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("only root can act as others");
    }
}
