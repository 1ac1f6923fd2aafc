//! As whom a thread acts on the lower file system.
//!
//! The kernel has checked permissions before it asks (`default_permissions`), so a serving thread
//! keeps its capabilities, whoever the caller is; it takes on the caller's file-system ids only so
//! that what is created belongs to the caller and counts against the caller's quota. For that, the
//! thread runs with `SECBIT_NO_SETUID_FIXUP` (changing ids leaves capabilities alone), a umask of
//! its own, and without `CAP_SYS_RESOURCE` (which would ignore quotas).
//!
//! `CAP_FSETID` is what makes the lower file system keep set-user-id and set-group-id bits when a
//! file is written or truncated. A request whose caller lacks it says so (KILLPRIV_V2); the thread
//! then puts it down, and the lower file system clears the bits itself, atomically with the change.
//!
//! All of it belongs to one thread (raw system calls; the C library would change every thread) and
//! is changed only when it differs from what the thread did last.

use crate::config::IdMap;
use std::cell::Cell;
use thrufs::{Context, Errno, Result};
use thrufs_sys::cred::{self, Capabilities, CapabilitySets};

/// The user and group by whose credentials lower files are registered: those that own nothing.
const REGISTRAR_ID: u32 = 65_534;

/// What has a thread do to files of others what their owners may do.
pub(crate) const OF_OWNERS: Capabilities = Capabilities::FOWNER
    .union(Capabilities::CHOWN)
    .union(Capabilities::LINUX_IMMUTABLE);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Acting {
    uid: u32,
    gid: u32,
    umask: u32,
    keeps_set_ids: bool,
    /// What the thread may do while it keeps set-id bits.
    capabilities: Capabilities,
    /// Those of the thread, but for what is effective.
    sets: CapabilitySets,
}

thread_local! {
    /// What the calling thread acts as; nothing before it first served a request.
    static ACTING: Cell<Option<Acting>> = const { Cell::new(None) };
}

/// The rules by which threads of one server change who they are.
pub(crate) struct Credentials {
    /// Whether this process may act as others at all.
    switches: bool,
    server_uid: u32,
    server_gid: u32,
    effective: Capabilities,
}

impl Credentials {
    /// Looks at what this process may do. To be called before serving threads are started: they
    /// inherit the thread's `SECBIT_NO_SETUID_FIXUP`.
    pub(crate) fn of_this_process() -> Result<Credentials> {
        let mut effective = cred::thread_effective()?;
        let may_act = effective.contains(Capabilities::SETUID | Capabilities::SETGID);
        let switches = may_act && cred::keep_capabilities_on_setuid().is_ok();
        if !may_act {
            tracing::info!("serving as an ordinary user: new files belong to the server's user");
        } else if !switches {
            tracing::warn!(
                "cannot keep capabilities while acting as callers (requires CAP_SETPCAP at start): new \
                 files belong to the server's user"
            );
        }
        effective.remove(Capabilities::SYS_RESOURCE);
        Ok(Credentials {
            switches,
            server_uid: rustix::process::geteuid().as_raw(),
            server_gid: rustix::process::getegid().as_raw(),
            effective,
        })
    }

    pub(crate) fn server_uid(&self) -> u32 {
        self.server_uid
    }

    pub(crate) fn server_gid(&self) -> u32 {
        self.server_gid
    }

    /// Whether modes and ACLs beneath do not hold this process back.
    pub(crate) fn overrides_modes(&self) -> bool {
        self.effective.contains(Capabilities::DAC_OVERRIDE)
    }

    /// Whether the kernel may take lower files from this process for passthrough: it has
    /// CAP_SYS_ADMIN, if perhaps in the wrong user namespace.
    pub(crate) fn may_register(&self) -> bool {
        self.effective.contains(Capabilities::SYS_ADMIN)
    }

    /// Whether the lower file system lets this process change what belongs to others.
    pub(crate) fn overrides_owners(&self) -> bool {
        self.effective.contains(Capabilities::FOWNER)
    }

    /// Whether threads can act as others.
    pub(crate) fn switches(&self) -> bool {
        self.switches
    }

    fn prepare_thread(&self) -> Result<Acting> {
        cred::unshare_fs_attributes()?;
        cred::set_umask(0);
        if self.switches {
            cred::keep_capabilities_on_setuid()?;
        }
        // The process may have given up more since this value was made.
        let sets = cred::thread_sets()?;
        let capabilities = self.effective & sets.permitted;
        cred::set_effective(sets, capabilities)?;
        let acting = Acting {
            uid: cred::current_fsuid(),
            gid: cred::current_fsgid(),
            umask: 0,
            keeps_set_ids: capabilities.contains(Capabilities::FSETID),
            capabilities,
            sets,
        };
        ACTING.set(Some(acting));
        Ok(acting)
    }

    fn acting(&self) -> Result<Acting> {
        match ACTING.get() {
            Some(acting) => Ok(acting),
            None => self.prepare_thread(),
        }
    }

    fn become_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let mut acting = self.acting()?;
        if !self.switches || (acting.uid == uid && acting.gid == gid) {
            return Ok(());
        }
        if acting.gid != gid {
            cred::set_fsgid(gid)?;
            acting.gid = gid;
            ACTING.set(Some(acting));
        }
        if acting.uid != uid {
            cred::set_fsuid(uid)?;
            acting.uid = uid;
            ACTING.set(Some(acting));
        }
        Ok(())
    }

    /// Creates as the caller, under this umask.
    pub(crate) fn create_as(
        &self,
        context: &Context<'_>,
        umask: u32,
        uids: &IdMap,
        gids: &IdMap,
    ) -> Result<()> {
        let uid = owner(context.uid(), uids, self.server_uid)?;
        let gid = owner(context.gid(), gids, self.server_gid)?;
        self.become_owner(uid, gid)?;
        let mut acting = self.acting()?;
        let umask = umask & 0o777;
        if acting.umask != umask {
            cred::set_umask(umask);
            acting.umask = umask;
            ACTING.set(Some(acting));
        }
        Ok(())
    }

    /// Acts as the server itself, where the lower file system looks at who asks.
    pub(crate) fn as_server(&self) -> Result<()> {
        self.become_owner(self.server_uid, self.server_gid)
    }

    /// Acts as whom nothing belongs to, if it acts as the server.
    pub(crate) fn leave_server(&self) -> Result<()> {
        if self.acting()?.uid == self.server_uid {
            self.become_owner(REGISTRAR_ID, REGISTRAR_ID)?;
        }
        Ok(())
    }

    /// Acts as whom lower files are registered for passthrough: the kernel keeps these credentials
    /// and opens and writes the files with them, whoever the caller is.
    ///
    /// An id that owns nothing, since root may use the blocks that a file system reserves; and no
    /// `CAP_SYS_RESOURCE` (no serving thread has it), which would do the same and ignore quotas.
    /// With `CAP_FSETID`, so that root's writes keep set-id bits: for those of others the kernel
    /// asks us to clear them first.
    pub(crate) fn as_registrar(&self) -> Result<()> {
        self.become_owner(REGISTRAR_ID, REGISTRAR_ID)?;
        self.keep_set_ids(true)
    }

    /// Makes a change as this user and group, without the capabilities in `lacks`.
    pub(crate) fn as_user<T>(
        &self,
        (uid, gid): (u32, u32),
        lacks: Capabilities,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.become_owner(uid, gid)?;
        let before = self.acting()?;
        let capabilities = before.capabilities - lacks;
        cred::set_effective(before.sets, capabilities)?;
        ACTING.set(Some(Acting {
            keeps_set_ids: capabilities.contains(Capabilities::FSETID),
            capabilities,
            ..before
        }));
        let changed = change();
        cred::set_effective(before.sets, before.capabilities)?;
        ACTING.set(Some(Acting {
            keeps_set_ids: before.capabilities.contains(Capabilities::FSETID),
            capabilities: before.capabilities,
            // The change may have made it another's.
            ..self.acting()?
        }));
        changed
    }

    /// Sets whether changes to files leave their set-id bits alone.
    pub(crate) fn keep_set_ids(&self, keep: bool) -> Result<()> {
        let mut acting = self.acting()?;
        let mut wanted = acting.capabilities;
        if acting.keeps_set_ids == keep || !wanted.contains(Capabilities::FSETID) {
            return Ok(());
        }
        wanted.set(Capabilities::FSETID, keep);
        cred::set_effective(acting.sets, wanted)?;
        acting.keeps_set_ids = keep;
        ACTING.set(Some(acting));
        Ok(())
    }
}

fn owner(caller: Option<u32>, map: &IdMap, server: u32) -> Result<u32> {
    match (caller, map) {
        (None, _) | (_, IdMap::Squash(_)) => Ok(server),
        // As the kernel answers for an id that the file system cannot hold.
        (Some(id), map) => map.to_host(id).ok_or(Errno::EOVERFLOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_what_it_is_said_to_have_during_and_after_an_owner_s_change() {
        if !rustix::process::geteuid().is_root() {
            thrufs_test_report::skipped("needs root");
            return;
        }
        let credentials = Credentials::of_this_process().unwrap();
        let has = |wanted| cred::thread_effective().unwrap().intersects(wanted);
        let of_group = OF_OWNERS | Capabilities::FSETID;
        for (keeps, lacks) in [(false, of_group), (true, of_group), (false, OF_OWNERS)] {
            credentials.keep_set_ids(keeps).unwrap();
            let changed = credentials.as_user((1001, 1002), lacks, || {
                assert!(!has(lacks));
                credentials.keep_set_ids(false).unwrap();
                assert!(!has(of_group));
                // Nothing gives it back in the midst.
                credentials.keep_set_ids(true).unwrap();
                assert!(!has(lacks));
                credentials.as_registrar()
            });
            assert_eq!(changed, Ok(()));
            assert!(has(Capabilities::FOWNER));
            credentials.keep_set_ids(false).unwrap();
            assert!(!has(Capabilities::FSETID) && has(Capabilities::FOWNER));
            credentials.keep_set_ids(true).unwrap();
            assert!(has(Capabilities::FSETID));
            // It knows as whom it acts, and does not take that for the user.
            credentials.become_owner(1001, 1002).unwrap();
            assert_eq!((cred::current_fsuid(), cred::current_fsgid()), (1001, 1002));
        }
    }
}
