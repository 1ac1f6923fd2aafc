//! The privileges of a file, before and after a change.

use rustix::io::Errno;
use thrufs_tests::prelude::*;

const CAPABILITY: &str = "security.capability";

/// Set on a file before it is changed. All users may read and write it in each case, so that every caller
/// gets as far as the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bits {
    /// Set-group-id with an effect: the group may execute.
    SetGroup,
    /// Set-group-id without execution by the group: of old the mark for mandatory locking.
    SetGroupMark,
    /// Set-user-id.
    SetUser,
    /// Set-user-id that no user can execute.
    SetUserOnly,
    /// Both.
    Both,
    /// Set-user-id and the mark.
    SetUserAndMark,
    /// A file capability.
    Capability,
    /// A file capability and set-user-id.
    CapabilityAndSetUser,
    /// A file capability and the mark.
    CapabilityAndMark,
    /// Nothing.
    Nothing,
}

impl Bits {
    /// `struct vfs_cap_data` of revision 2: effective, permitted CAP_NET_RAW.
    pub const NET_RAW: [u8; 20] = [
        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    pub const ALL: &[Bits] = &[
        Bits::SetGroup,
        Bits::SetGroupMark,
        Bits::SetUser,
        Bits::SetUserOnly,
        Bits::Both,
        Bits::SetUserAndMark,
        Bits::Capability,
        Bits::CapabilityAndSetUser,
        Bits::CapabilityAndMark,
        Bits::Nothing,
    ];

    pub fn mode(self) -> u32 {
        match self {
            Bits::SetGroup => 0o2777,
            Bits::SetGroupMark | Bits::CapabilityAndMark => 0o2666,
            Bits::SetUser | Bits::CapabilityAndSetUser => 0o4777,
            Bits::SetUserOnly => 0o4666,
            Bits::Both => 0o6777,
            Bits::SetUserAndMark => 0o6666,
            Bits::Capability => 0o777,
            Bits::Nothing => 0o666,
        }
    }

    /// Set-group-id that is no privilege.
    pub fn has_mark(self) -> bool {
        matches!(
            self,
            Bits::SetGroupMark | Bits::SetUserAndMark | Bits::CapabilityAndMark
        )
    }

    fn has_capability(self) -> bool {
        matches!(
            self,
            Bits::Capability | Bits::CapabilityAndSetUser | Bits::CapabilityAndMark
        )
    }

    /// Sets them, as root.
    #[track_caller]
    pub fn set(self, path: &Path) {
        rustix::fs::chmod(path, Mode::from_raw_mode(self.mode())).unwrap();
        if self.has_capability() {
            rustix::fs::setxattr(path, CAPABILITY, &Bits::NET_RAW, XattrFlags::empty()).unwrap();
        }
    }
}

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Left {
    pub mode: u32,
    pub capability: bool,
    uid: u32,
    gid: u32,
}

impl Left {
    #[track_caller]
    pub fn on(path: &Path) -> Left {
        let stat = rustix::fs::lstat(path).unwrap();
        let mut value = [0u8; 64];
        let capability = match rustix::fs::getxattr(path, CAPABILITY, &mut value) {
            Ok(length) => {
                assert_eq!(value[..length], Bits::NET_RAW);
                true
            }
            Err(Errno::NODATA) => false,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        Left {
            mode: stat.st_mode & 0o7777,
            capability,
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }
}

impl std::fmt::Debug for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let capability = if self.capability { "+cap" } else { "" };
        let Left { mode, uid, gid, .. } = self;
        write!(f, "{mode:04o}{capability} {uid}:{gid}")
    }
}
