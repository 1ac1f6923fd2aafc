//! The ids and capabilities by which a thread acts on the lower file system.
//!
//! The kernel has checked permissions before it asks (`default_permissions`), so a serving thread keeps its
//! capabilities whatever the caller is. It takes on the caller's file-system ids only so that new files
//! belong to the caller and count against its quota. For that, the thread runs with
//! `SECBIT_NO_SETUID_FIXUP` (changing ids leaves capabilities alone), a umask of its own, and without
//! `CAP_SYS_RESOURCE` (which would ignore quotas).
//!
//! With `CAP_FSETID`, the lower file system keeps set-user-id and set-group-id bits of a file that is
//! written or truncated. A request of a caller without it says so (KILLPRIV_V2); the thread then drops it,
//! and the lower file system clears the bits itself, atomically with the change.
//!
//! All of it belongs to one thread (raw system calls; the C library would change every thread) and is
//! changed only when it differs from the thread's state.

use crate::config::IdMap;
use std::cell::Cell;
use thrufs::{Context, Errno, Result};
use thrufs_sys::cred::{self, Capabilities, CapabilitySets};

/// The user and group by which lower files are registered for passthrough: they own nothing.
const REGISTRAR_ID: u32 = 65_534;

/// Capabilities that let a thread change files as their owners may.
pub(crate) const OF_OWNERS: Capabilities = Capabilities::FOWNER
    .union(Capabilities::CHOWN)
    .union(Capabilities::LINUX_IMMUTABLE);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Acting {
    uid: u32,
    gid: u32,
    /// User and group of a caller that the kernel has let it act as.
    known: (u32, u32),
    umask: u32,
    keeps_set_ids: bool,
    capabilities: Capabilities,
    /// Those of the thread, but for what is effective.
    sets: CapabilitySets,
}

impl Acting {
    /// Gives the thread these capabilities, of its own.
    fn with_capabilities(self, capabilities: Capabilities) -> Result<Acting> {
        cred::set_effective(self.sets, capabilities)?;
        let acting = Acting {
            keeps_set_ids: capabilities.contains(Capabilities::FSETID),
            capabilities,
            ..self
        };
        ACTING.set(Some(acting));
        Ok(acting)
    }
}

thread_local! {
    /// What the calling thread acts as; `None` before its first request.
    static ACTING: Cell<Option<Acting>> = const { Cell::new(None) };
}

pub(crate) struct Credentials {
    pub(crate) switches: bool,
    pub(crate) server_uid: u32,
    pub(crate) server_gid: u32,
    effective: Capabilities,
}

impl Credentials {
    /// Reads what this process may do. To be called before serving threads start: they inherit the thread's
    /// `SECBIT_NO_SETUID_FIXUP`.
    pub(crate) fn of_this_process() -> Result<Credentials> {
        let mut effective = cred::thread_effective()?;
        let may_act = effective.contains(Capabilities::SETUID | Capabilities::SETGID);
        let switches = may_act && cred::keep_capabilities_on_setuid().is_ok();
        let is_root = rustix::process::geteuid().is_root();
        if !may_act && !is_root {
            tracing::debug!("serving as an ordinary user: new files belong to the server's user");
        } else if !may_act {
            tracing::info!(
                "without CAP_SETUID and CAP_SETGID: new files belong to the server's user"
            );
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

    /// Whether this process may ignore modes and ACLs of lower files.
    pub(crate) fn overrides_modes(&self) -> bool {
        self.effective.contains(Capabilities::DAC_OVERRIDE)
    }

    /// Whether this process has CAP_SYS_ADMIN, possibly in the wrong user namespace, and so may be able to
    /// register lower files for passthrough.
    pub(crate) fn may_register(&self) -> bool {
        self.effective.contains(Capabilities::SYS_ADMIN)
    }

    /// Whether this process may change files of other users.
    pub(crate) fn overrides_owners(&self) -> bool {
        self.effective.contains(Capabilities::FOWNER)
    }

    fn prepare_thread(&self) -> Result<Acting> {
        cred::unshare_fs_attributes()?;
        cred::set_umask(0);
        if self.switches {
            cred::keep_capabilities_on_setuid()?;
        }
        // The process may have dropped capabilities since this value was made.
        let sets = cred::thread_sets()?;
        let capabilities = self.effective & sets.permitted;
        let acting = Acting {
            uid: cred::current_fsuid(),
            gid: cred::current_fsgid(),
            known: (self.server_uid, self.server_gid),
            umask: 0,
            keeps_set_ids: false,
            capabilities,
            sets,
        };
        acting.with_capabilities(capabilities)
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
        // They are refused without an error where the server's user namespace has no such id.
        if acting.gid != gid {
            cred::set_fsgid(gid)?;
            acting.gid = gid;
            if ![acting.known.1, self.server_gid, REGISTRAR_ID].contains(&gid) {
                acting.gid = cred::current_fsgid();
                acting.known.1 = acting.gid;
            }
            ACTING.set(Some(acting));
        }
        if acting.uid != uid {
            cred::set_fsuid(uid)?;
            acting.uid = uid;
            if ![acting.known.0, self.server_uid, REGISTRAR_ID].contains(&uid) {
                acting.uid = cred::current_fsuid();
                acting.known.0 = acting.uid;
            }
            ACTING.set(Some(acting));
        }
        Ok(())
    }

    /// Creates as the caller, with this umask. Fails with `EOVERFLOW`, the kernel's answer for an id that a file
    /// system cannot hold, where the caller has none here.
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
        let may_act = Capabilities::SETUID | Capabilities::SETGID;
        let may_act = self.switches && acting.capabilities.contains(may_act);
        if may_act && (acting.uid, acting.gid) != (uid, gid) {
            return Err(Errno::EOVERFLOW);
        }
        let umask = umask & 0o777;
        if acting.umask != umask {
            cred::set_umask(umask);
            acting.umask = umask;
            ACTING.set(Some(acting));
        }
        Ok(())
    }

    /// Acts as the server itself, where the lower file system checks the user.
    pub(crate) fn as_server(&self) -> Result<()> {
        self.become_owner(self.server_uid, self.server_gid)
    }

    /// Takes on a user id that owns nothing, if the thread acts as the server. The group stays: file systems
    /// reserve nothing for root's.
    pub(crate) fn drop_server_ids(&self) -> Result<()> {
        let acting = self.acting()?;
        if acting.uid == self.server_uid {
            self.become_owner(REGISTRAR_ID, acting.gid)?;
        }
        Ok(())
    }

    /// Takes on the credentials by which lower files are registered for passthrough: the kernel keeps them,
    /// and opens and writes the files with them for all callers.
    ///
    /// Not the server's user where the file system reserves blocks for root (`reserves_blocks`); and without
    /// `CAP_SYS_RESOURCE` (no serving thread has it), which would also ignore quotas. With `CAP_FSETID`, so
    /// that root's writes keep set-id bits: for other callers the kernel asks us to clear them first.
    ///
    /// Each change of an id costs 1.4 µs, so the ids of the last caller stay where they may.
    pub(crate) fn as_registrar(&self, reserves_blocks: bool) -> Result<()> {
        if reserves_blocks {
            self.drop_server_ids()?;
        }
        self.keep_set_ids(true)
    }

    pub(crate) fn as_user<T>(
        &self,
        (uid, gid): (u32, u32),
        lacks: Capabilities,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.become_owner(uid, gid)?;
        let before = self.acting()?.capabilities;
        self.acting()?.with_capabilities(before - lacks)?;
        let changed = change();
        // The change may have switched to another user.
        self.acting()?.with_capabilities(before)?;
        changed
    }

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

/// The owner of what this caller creates. No kernel sends a creation without a caller.
fn owner(caller: Option<u32>, map: &IdMap, server: u32) -> Result<u32> {
    let caller = caller.ok_or(Errno::EOVERFLOW)?;
    match map {
        IdMap::Squash(_) => Ok(server),
        map => map.to_host(caller).ok_or(Errno::EOVERFLOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_keeps_its_capabilities_across_an_owners_change() {
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
                // Not changed in between.
                credentials.keep_set_ids(true).unwrap();
                assert!(!has(lacks));
                credentials.as_registrar(true)
            });
            assert_eq!(changed, Ok(()));
            assert!(has(Capabilities::FOWNER));
            assert!(!has(Capabilities::SYS_RESOURCE), "it would ignore quotas");
            credentials.keep_set_ids(false).unwrap();
            assert!(!has(Capabilities::FSETID) && has(Capabilities::FOWNER));
            credentials.keep_set_ids(true).unwrap();
            assert!(has(Capabilities::FSETID));
            // The thread's own state is not mistaken for the user's.
            credentials.become_owner(1001, 1002).unwrap();
            assert_eq!((cred::current_fsuid(), cred::current_fsgid()), (1001, 1002));
        }
    }
}
