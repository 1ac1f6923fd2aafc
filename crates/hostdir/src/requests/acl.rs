//! Modes for a kernel above that does not see ACLs.
//!
//! In a file with an ACL, the group bits of the mode are the *mask* (acl(5)), not the permissions of the
//! owning group, and the mode does not show named users and groups. So the reported mode grants each class
//! what all of its members are granted, and no more:
//!
//! * group: what its own entry, the mask and every named user (which may be in the group) grant;
//! * others: what their own entry, the mask and every named user and group grant.
//!
//! The kernel derives a mode to be set from the reported one. Classes that it leaves as reported keep their
//! lower permissions, so that `chmod u+x` takes nothing away from the others.

use crate::host::Host;
use crate::stat::stat_open;
use crate::tree::Inode;
use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Errno, Result};

/// `struct posix_acl_xattr_header`: a version in 4 bytes.
pub(crate) const HEADER_BYTES: usize = 4;
/// `struct posix_acl_xattr_entry`: tag and permissions in 2 bytes each, an id in 4.
pub(crate) const ENTRY_BYTES: usize = 8;
pub(crate) const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
pub(crate) const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;

const OF_GROUP: u32 = 0o070;
const OF_OTHERS: u32 = 0o007;

const USUAL_BYTES: usize = 1024;
/// Largest value of an attribute (`XATTR_SIZE_MAX`).
const MOST_BYTES: usize = 65_536;

/// The mode that grants no member of a class more than this ACL does (`linux/posix_acl_xattr.h`;
/// little-endian).
fn without_acl(mode: u32, acl: &[u8]) -> u32 {
    let (mut group, mut mask, mut users, mut named) = (7, 7, 7, None);
    let entries = acl.get(HEADER_BYTES..).unwrap_or_default();
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let permissions = u32::from(u16::from_le_bytes([entry[2], entry[3]]));
        match u16::from_le_bytes([entry[0], entry[1]]) {
            GROUP_OBJ => group = permissions,
            MASK => mask = permissions,
            tag @ (USER | GROUP) => {
                named = Some(named.unwrap_or(7) & permissions);
                users &= if tag == USER { permissions } else { 7 };
            }
            _ => {}
        }
    }
    let others = named.map_or(7, |named| named & mask);
    let most = (group & mask & users) << 3 | others;
    of_owner(mode) | mode & most
}

fn of_owner(mode: u32) -> u32 {
    mode & !(OF_GROUP | OF_OTHERS)
}

impl Host {
    /// The mode reported for a lower file. If its ACL cannot be read, only the owner is granted anything.
    pub(crate) fn reported_mode(&self, inode: &Arc<Inode>, mode: u32) -> u32 {
        let kernel_ignores_acls = self.kernel_ignores_acls.load(Ordering::Relaxed);
        let can_differ = mode != of_owner(mode) && !inode.is_symbolic_link();
        if !(kernel_ignores_acls && can_differ && inode.mount().may_have_acls()) {
            return mode;
        }
        let mut usual = [0; USUAL_BYTES];
        match self.acl_of(inode, &mut usual) {
            Ok(acl) => without_acl(mode, &acl),
            Err(Errno::ENODATA) => mode,
            Err(Errno::EOPNOTSUPP) => {
                if inode.is_regular() || inode.is_directory() {
                    inode.mount().set_without_acls();
                }
                mode
            }
            Err(_) => of_owner(mode),
        }
    }

    /// Whether a file has an ACL, as far as that can be read.
    pub(crate) fn has_acl(&self, inode: &Arc<Inode>) -> bool {
        inode.mount().may_have_acls() && self.acl_of(inode, &mut [0; USUAL_BYTES]).is_ok()
    }

    fn acl_of<'a>(&self, inode: &Arc<Inode>, usual: &'a mut [u8]) -> Result<Cow<'a, [u8]>> {
        let name = c"system.posix_acl_access";
        match self.read_xattr(inode, name, usual) {
            Err(Errno::ERANGE) => {
                let mut all = vec![0; MOST_BYTES];
                let length = self.read_xattr(inode, name, &mut all)?;
                all.truncate(length);
                Ok(Cow::Owned(all))
            }
            length => Ok(Cow::Borrowed(&usual[..length?])),
        }
    }

    /// The mode to set on the lower file for the mode that the kernel asks for.
    pub(crate) fn mode_beneath(
        &self,
        inode: &Arc<Inode>,
        fd: BorrowedFd<'_>,
        asked: u32,
    ) -> Result<u32> {
        if !self.kernel_ignores_acls.load(Ordering::Relaxed) {
            return Ok(asked);
        }
        let beneath = u32::from(stat_open(fd)?.stx_mode);
        let reported = self.reported_mode(inode, beneath);
        let class = |bits| {
            let is_as_reported = (asked ^ reported) & bits == 0;
            bits & if is_as_reported { beneath } else { asked }
        };
        Ok(of_owner(asked) | class(OF_GROUP) | class(OF_OTHERS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut acl = vec![2, 0, 0, 0];
        for (tag, permissions) in entries {
            acl.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            acl.extend([0xff; 4]);
        }
        acl
    }

    #[test]
    fn reported_mode_grants_no_more_than_the_acl() {
        type Entries = &'static [(u16, u16)];
        let cases: &[(Entries, u32, u32)] = &[
            (&[(GROUP_OBJ, 4)], 0o4745, 0o4745),
            (&[(GROUP_OBJ, 4), (MASK, 6)], 0o664, 0o644),
            // A user with more than the group.
            (&[(USER, 7), (GROUP_OBJ, 4), (MASK, 7)], 0o674, 0o644),
            (&[(USER, 0), (GROUP_OBJ, 4), (MASK, 4)], 0o644, 0o600),
            (
                &[(USER, 6), (USER, 5), (GROUP_OBJ, 7), (MASK, 7)],
                0o777,
                0o744,
            ),
            // The entry of a named group takes nothing from the owning group.
            (&[(GROUP_OBJ, 6), (GROUP, 0), (MASK, 6)], 0o664, 0o660),
            (&[(USER, 7), (GROUP_OBJ, 7), (MASK, 1)], 0o717, 0o711),
            (&[], 0o755, 0o755),
        ];
        for (entries, mode, reported) in cases {
            let found = without_acl(libc::S_IFREG | mode, &acl(entries));
            assert_eq!(found, libc::S_IFREG | reported, "{entries:?}: {found:o}");
        }
    }
}
