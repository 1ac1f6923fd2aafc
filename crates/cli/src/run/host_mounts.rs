//! The mounts of the host, of which a sandbox of root's has copies: what is unmounted there is unmounted here.
//!
//! A copy keeps its file system in use. As a slave it would go with the original, but mounts that appear later would
//! appear here too, and could show the tree. So the copies are private, and the process that builds the sandbox
//! watches the table of the host. The namespace of the command has slaves of its mounts.
//!
//! In a user namespace, of an ordinary user, copies are locked (mount_namespaces(7)): they stay until the end.

use super::elsewhere::Covers;
use super::error::{Failure, failed_to};
use super::plan::SandboxPlan;
use crate::lookup;
use crate::mount_table::{self, Mount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;

/// Between two looks at the table.
const REST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

pub(super) struct HostMounts {
    /// Opened outside of the sandbox: a table is that of the namespace in which it was opened.
    table: File,
    mounts: Vec<Mount>,
}

impl HostMounts {
    /// Before the mounts are copied. None where the copies will be locked.
    pub(super) fn open(plan: &SandboxPlan) -> io::Result<Option<HostMounts>> {
        if plan.user.change.is_none() {
            return Ok(None);
        }
        let table = mount_table::open()?;
        let mounts = mount_table::read(&table)?;
        Ok(Some(HostMounts { table, mounts }))
    }

    /// Unmounts what the host unmounts, but what `covers` need, until `child` ends.
    pub(super) fn follow(
        mut self,
        copies: &Copies,
        covers: &Covers,
        served: &[&Path],
        child: &Child,
    ) -> Result<(), Failure> {
        let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
            .map_err(failed_to("watch process 1 of the sandbox"))?;
        rustix::process::fchdir(&copies.descriptors).map_err(failed_to("enter /proc/self/fd"))?;
        loop {
            let mut polled = [
                PollFd::new(&ended, PollFlags::IN),
                PollFd::new(&self.table, PollFlags::PRI),
            ];
            let _ = poll(&mut polled, None);
            if !polled[0].revents().is_empty() {
                return Ok(());
            }
            let Ok(now) = mount_table::read(&self.table) else {
                continue;
            };
            // The kernel gives the numbers of what is gone to the next.
            let is_it = |it: &Mount, now: &Mount| {
                (now.id, now.device, &now.path) == (it.id, it.device, &it.path)
            };
            let is_gone = |it: &mut Mount| !now.iter().any(|now| is_it(it, now));
            let gone: Vec<Mount> = self.mounts.extract_if(.., is_gone).collect();
            let on_the_way = |it: &&Mount| served.iter().any(|path| path.starts_with(&it.path));
            for mount in gone.iter().rev().filter(|it| !on_the_way(it)) {
                if let Err(error) = copies.unmount(mount, covers) {
                    tracing::debug!(path = ?mount.path, %error, "still mounted in the sandbox");
                }
            }
            // A host may mount thousands of file systems a second.
            let _ = poll(&mut polled[..1], Some(&REST));
        }
    }
}

/// The mounts of the sandbox. Opened before process 1 covers `/proc`, which does not show this process.
pub(super) struct Copies {
    table: File,
    /// `/proc/self/fd`
    descriptors: OwnedFd,
}

impl Copies {
    pub(super) fn open() -> io::Result<Copies> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Copies {
            table: mount_table::open()?,
            descriptors: rustix::fs::open("/proc/self/fd", flags, Mode::empty())?,
        })
    }

    /// The working directory is that of `descriptors`.
    fn unmount(&self, gone: &Mount, covers: &Covers) -> io::Result<()> {
        let mounts = mount_table::read(&self.table)?;
        let copy = mount_table::on_top_at(&mounts, &gone.path);
        let is_it = |it: &&Mount| it.device == gone.device && it.root == gone.root;
        let Some(copy) = copy.filter(is_it) else {
            return Ok(());
        };
        if covers.need(&mounts, copy) {
            return Ok(());
        }
        // The directories above may be others by now.
        let place = lookup::open_resolved(&copy.path)?;
        let number = place.as_raw_fd().to_string();
        let about = Path::new("../fdinfo").join(&number);
        match mount_table::field(about, "mnt_id:") == Some(copy.id) {
            true => Ok(unmount(number, UnmountFlags::DETACH)?),
            false => Ok(()),
        }
    }
}

/// The mounts in directories that will be covered.
pub(super) struct Beneath(Vec<OwnedFd>);

impl Beneath {
    pub(super) fn open(mounts: &[Mount], places: &[PathBuf]) -> Beneath {
        let is_beneath = |mount: &&Mount| {
            let is_in = |place: &&PathBuf| mount.path != **place && mount.path.starts_with(place);
            let place = places.iter().find(is_in);
            // Others go with it.
            let around = place.and_then(|place| mount_table::holding(mounts, place));
            around.is_some_and(|it| it.id == mount.parent)
        };
        let beneath = mounts.iter().filter(is_beneath);
        Beneath(
            beneath
                .filter_map(|it| lookup::open_resolved(&it.path).ok())
                .collect(),
        )
    }

    /// Once no path leads to them any more. Where they are locked, they stay.
    pub(super) fn unmount(self) {
        for mount in &self.0 {
            let _ = unmount(lookup::descriptor_path(mount), UnmountFlags::DETACH);
        }
    }
}
