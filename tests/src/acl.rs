//! POSIX ACLs as the kernel takes them.

use std::path::Path;

use rustix::fs::XattrFlags;

pub const NAME: &str = "system.posix_acl_access";

/// Permissions of the owning group, others, the mask, a named user and a named group. The owner has all.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub group: u16,
    pub others: u16,
    pub mask: Option<u16>,
    pub user: Option<(u32, u16)>,
    pub other_group: Option<(u32, u16)>,
}

impl List {
    /// All permissions for all, without further entries.
    pub const ALL: Self = Self {
        group: 7,
        others: 7,
        mask: None,
        user: None,
        other_group: None,
    };

    pub fn set(self, path: &Path) {
        self.set_with(path, &[]);
    }

    /// The same with more users, of greater ids.
    pub fn set_with(self, path: &Path, users: &[(u32, u16)]) {
        let value = self.value_with(users);
        rustix::fs::setxattr(path, NAME, &value, XattrFlags::empty()).unwrap();
    }

    /// The attribute's value, with these users too.
    pub fn value_with(self, users: &[(u32, u16)]) -> Vec<u8> {
        let user = |(id, permissions)| (0x02, permissions, id);
        let group = |(id, permissions)| (0x08, permissions, id);
        let none = u32::MAX;
        let entries = [(0x01, 7, none)]
            .into_iter()
            .chain(self.user.map(user))
            .chain(users.iter().copied().map(user))
            .chain([(0x04, self.group, none)])
            .chain(self.other_group.map(group))
            .chain(self.mask.map(|mask| (0x10, mask, none)))
            .chain([(0x20, self.others, none)]);
        // `linux/posix_acl_xattr.h`: version 2, then tag, permissions and id.
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend([u16::to_le_bytes(tag), permissions.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }
}
