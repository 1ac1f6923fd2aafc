//! Extended attributes: GETXATTR, SETXATTR, LISTXATTR, REMOVEXATTR, and POSIX ACLs, whose ids are mapped.
//! Names are mapped by `config::xattr_map`.

use super::acl;
use super::ownership::{Checked, OwnerChange};
use crate::config::IdMap;
use crate::host::Host;
use crate::tree::Inode;
use rustix::fs::{AtFlags, StatxFlags};
use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use thrufs::{Context, Errno, Result};
use thrufs_abi::NodeId;
use thrufs_sys::{attr, xattr};

/// Longest list of names (`XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 65_536;

/// The namespace in which programs keep thumbnails and copies of metadata, among others.
const OF_USERS: &[u8] = b"user.";

const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

fn is_acl(name: &CStr) -> bool {
    matches!(name.to_bytes(), ACL_ACCESS | ACL_DEFAULT)
}

/// Whether only user 0 may set and remove an attribute, by its name above and on the host. The kernel above
/// checks no name in `system.` except POSIX ACLs: it leaves the others, such as NFSv4 and Windows ACLs, to
/// their file system (`xattr_permission` in `fs/xattr.c`), which would check this process.
fn is_unchecked(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"system.") && !is_acl(name)
}

impl Host {
    /// The name of the attribute on the host.
    pub(crate) fn on_host<'a>(&self, name: &'a CStr) -> Result<Cow<'a, CStr>> {
        if !self.config.xattr {
            // The kernel caches that: no such request for the life of the mount.
            return Err(Errno::ENOSYS);
        }
        if is_acl(name) && !self.config.acl {
            return Err(Errno::EOPNOTSUPP);
        }
        match &self.config.xattr_map {
            None => Ok(Cow::Borrowed(name)),
            Some(map) => map.on_host(name),
        }
    }

    /// The name on the host of an attribute that a caller sets or removes.
    fn changed_on_host<'a>(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        name: &'a CStr,
    ) -> Result<Cow<'a, CStr>> {
        let on_host = self.on_host(name)?;
        self.config.writable()?;
        self.files.require_mapped(inode)?;
        let is_checked = !is_unchecked(name) && !is_unchecked(&on_host);
        if !is_checked && context.uid().is_some_and(|uid| uid != 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        if is_acl(name) && !is_acl(&on_host) {
            // To the lower file system it is any attribute.
            let descriptor = self.tree.descriptor(inode)?;
            self.still_permitted(context, inode, descriptor.as_fd(), Checked::Owner)?;
        }
        Ok(on_host)
    }

    pub(crate) fn getxattr(
        &self,
        _: &Context<'_>,
        node: NodeId,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let on_host = self.on_host(name)?;
        let inode = self.tree.nodes.get(node)?;
        self.judge.may_reveal(&inode)?;
        let is_of_users = |name: &CStr| name.to_bytes().starts_with(OF_USERS);
        if (is_of_users(name) || is_of_users(&on_host)) && self.judge.is_redacted(&inode)? {
            return Err(Errno::ENODATA);
        }
        let name = &*on_host;
        let length = self.read_xattr(&inode, name, buffer)?;
        if is_acl(name) && self.config.maps_ids() {
            let filled = buffer.len().min(length);
            translate_acl(&mut buffer[..filled], |map, id| Ok(map.to_client(id)), self)?;
        }
        Ok(length)
    }

    /// Before the first write to a file the kernel asks for its capabilities. An open file has a descriptor
    /// that takes the call directly, at a third of the cost.
    pub(crate) fn read_xattr(
        &self,
        inode: &Arc<Inode>,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<usize> {
        Ok(match inode.lower.opened() {
            // rustix refuses an empty buffer.
            Some(file) if buffer.is_empty() => rustix::fs::fgetxattr_query(&*file, name)?,
            Some(file) => rustix::fs::fgetxattr(&*file, name, &mut *buffer)?,
            None => xattr::get(self.tree.descriptor(inode)?.as_fd(), name, buffer)?,
        })
    }

    pub(crate) fn setxattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: u32,
        clear_set_group_id: bool,
    ) -> Result<()> {
        let inode = &self.tree.nodes.get(node)?;
        self.judge.may_change(inode, context)?;
        let name = &*self.changed_on_host(context, inode, name)?;
        let descriptor = self.tree.descriptor(inode)?;
        let fd = descriptor.as_fd();
        self.tree.credentials.keep_set_ids(true)?;
        self.files.leave_reserved_blocks(context, inode)?;
        let mut value = Cow::Borrowed(value);
        if is_acl(name) && self.config.maps_ids() {
            let to_host = |map: &IdMap, id| map.to_host(id).ok_or(Errno::EINVAL);
            translate_acl(value.to_mut(), to_host, self)?;
            // The ACL may let other users write.
            self.files.drop_privileges_of_others(context.uid(), inode)?;
        }
        let set = || {
            if !is_acl(name) {
                return Ok(xattr::set(fd, name, &value, flags)?);
            }
            let asked = match clear_set_group_id {
                true => OwnerChange::PermissionsOutsideGroup,
                false => OwnerChange::Permissions,
            };
            self.as_owner(context, inode, fd, asked, || {
                // With the ACL the group may execute it.
                if clear_set_group_id && !self.acts_as_owner(context, inode) {
                    drop_set_group_id(fd)?;
                }
                Ok(xattr::set(fd, name, &value, flags)?)
            })
        };
        let set = || self.files.change_attributes(inode, fd, set);
        self.follow.during_change(set)
    }

    pub(crate) fn listxattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        buffer: &mut [u8],
    ) -> Result<usize> {
        if !self.config.xattr {
            return Err(Errno::ENOSYS);
        }
        let inode = self.tree.nodes.get(node)?;
        self.judge.may_reveal(&inode)?;
        let descriptor = self.tree.descriptor(&inode)?;
        let fd = descriptor.as_fd();
        let hides_trusted = context.uid().is_some_and(|uid| uid != 0);
        let hides_acls = !self.config.acl;
        let map = self.config.xattr_map.as_ref();
        let hides_users = self.judge.is_redacted(&inode)?;
        if !hides_trusted && !hides_acls && !hides_users && map.is_none() {
            return Ok(xattr::list(fd, buffer)?);
        }
        let mut all = vec![0; LIST_BYTES_MAX];
        let length = xattr::list(fd, &mut all)?;
        let mut used = 0;
        for name in all[..length].split_inclusive(|&byte| byte == 0) {
            let on_host = name.strip_suffix(b"\0").unwrap_or(name);
            let bare = map.map_or(Some(on_host), |map| map.for_clients(on_host));
            let Some(bare) = bare else { continue };
            // The cut-off part is at the beginning.
            let name = &name[name.len().saturating_sub(bare.len() + 1)..];
            let is_of_users = bare.starts_with(OF_USERS) || on_host.starts_with(OF_USERS);
            let hidden = (hides_trusted && bare.starts_with(b"trusted."))
                || (hides_users && is_of_users)
                || (hides_acls && matches!(bare, ACL_ACCESS | ACL_DEFAULT));
            if hidden {
                continue;
            }
            if !buffer.is_empty() {
                let place = buffer
                    .get_mut(used..used + name.len())
                    .ok_or(Errno::ERANGE)?;
                place.copy_from_slice(name);
            }
            used += name.len();
        }
        Ok(used)
    }

    pub(crate) fn removexattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &CStr,
    ) -> Result<()> {
        let inode = &self.tree.nodes.get(node)?;
        self.judge.may_change(inode, context)?;
        let name = &*self.changed_on_host(context, inode, name)?;
        let descriptor = self.tree.descriptor(inode)?;
        let fd = descriptor.as_fd();
        if is_acl(name) {
            // Without the ACL the group may write what its mask permits.
            self.files.drop_privileges_of_others(context.uid(), inode)?;
        }
        let remove = || {
            let remove = || Ok(xattr::remove(fd, name)?);
            if is_acl(name) {
                self.as_owner(context, inode, fd, OwnerChange::Permissions, remove)
            } else {
                remove()
            }
        };
        let remove = || self.files.change_attributes(inode, fd, remove);
        self.follow.during_change(remove)
    }
}

fn drop_set_group_id(fd: BorrowedFd<'_>) -> Result<()> {
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MODE)?;
    let mode = u32::from(stat.stx_mode);
    if mode & libc::S_ISGID != 0 {
        attr::chmod(fd, mode & 0o7777 & !libc::S_ISGID)?;
    }
    Ok(())
}

/// Translates the ids in an ACL (`linux/posix_acl_xattr.h`; little-endian).
fn translate_acl(
    acl: &mut [u8],
    translate: impl Fn(&IdMap, u32) -> Result<u32>,
    host: &Host,
) -> Result<()> {
    let Some(entries) = acl.get_mut(acl::HEADER_BYTES..) else {
        return Ok(());
    };
    for entry in entries.chunks_exact_mut(acl::ENTRY_BYTES) {
        let map = match u16::from_le_bytes([entry[0], entry[1]]) {
            acl::USER => &host.config.uid_map,
            acl::GROUP => &host.config.gid_map,
            _ => continue,
        };
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        entry[4..].copy_from_slice(&translate(map, id)?.to_le_bytes());
    }
    Ok(())
}
