//! The callers that change the file.

use thrufs_sys::cred::{self, Capabilities};
use thrufs_testing::user::{MEMBER, TEAM};
use thrufs_tests::prelude::*;

/// The files' group: [`MEMBER`] alone is in it.
pub const GROUP: u32 = TEAM;

/// The files' owner, not in their group.
pub const OWNER: u32 = ALICE.uid;

/// A caller, as seen from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// Root with every capability.
    Root,
    /// Root without CAP_FSETID.
    RootWithoutFsetid,
    /// The file's owner.
    Owner,
    /// The same, with CAP_FSETID alone.
    OwnerWithFsetid,
    /// Another user, in the file's group.
    Member,
    /// Another user.
    Other,
}

impl Caller {
    pub const ALL: &[Caller] = &[
        Caller::Root,
        Caller::RootWithoutFsetid,
        Caller::Owner,
        Caller::OwnerWithFsetid,
        Caller::Member,
        Caller::Other,
    ];

    /// The group of what the caller makes.
    pub fn gid(self) -> u32 {
        match self {
            Caller::Root | Caller::RootWithoutFsetid => 0,
            Caller::Owner | Caller::OwnerWithFsetid => ALICE.gid,
            Caller::Member => MEMBER.gid,
            Caller::Other => BOB.gid,
        }
    }

    #[track_caller]
    pub fn run<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
        match self {
            Caller::Root => body(),
            Caller::RootWithoutFsetid => in_a_thread(|| {
                let effective = cred::thread_effective().unwrap();
                cred::set_effective(
                    cred::thread_sets().unwrap(),
                    effective - Capabilities::FSETID,
                )
                .unwrap();
                body()
            }),
            Caller::Owner => ALICE.run(body),
            Caller::OwnerWithFsetid => in_a_thread(|| {
                cred::keep_capabilities_on_setuid().unwrap();
                // Inherited by the thread that it starts.
                ALICE.run(|| {
                    cred::set_effective(cred::thread_sets().unwrap(), Capabilities::FSETID)
                        .unwrap();
                    body()
                })
            }),
            Caller::Member => MEMBER.run(body),
            Caller::Other => BOB.run(body),
        }
    }
}

/// Capabilities belong to a thread, as ids do.
fn in_a_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let ran = thread::scope(|scope| scope.spawn(body).join());
    ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
