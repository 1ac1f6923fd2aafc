//! Which mount is counted.

use crate::Outcome;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::path::Path;

/// The number by which the kernel knows a FUSE mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection(pub(super) u32);

impl Connection {
    /// Of what is mounted at `mount`, or above it. Sends no request.
    pub(crate) fn of(mount: &Path) -> Outcome<Connection> {
        let failed = |error: Errno| format!("{}: {error}", mount.display());
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let stat = statx(CWD, mount, flags, StatxFlags::empty()).map_err(failed)?;
        // As the kernel itself packs it: twenty bits of minor, above them the major, which is zero unless
        // it is a FUSE mount of a block device.
        Ok(Connection((stat.stx_dev_major << 20) | stat.stx_dev_minor))
    }
}
