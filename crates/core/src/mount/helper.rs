//! Mounting as an unprivileged user: `fusermount3`.
//!
//! The set-user-id helper checks that the user may mount there, opens the device, mounts, and sends the
//! device over the socket whose number is in `_FUSE_COMMFD`.

use super::place::{Place, open_target};
use super::{MountError, MountOptions};
use rustix::mount::MountAttrFlags;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use thrufs_sys::fd_passing;

/// The path of `fusermount3`: in `PATH`, or where distributions install it.
///
/// # Errors
/// [`MountError::NoHelper`]
pub fn unprivileged_helper() -> Result<PathBuf, MountError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = ["/usr/bin", "/bin", "/usr/local/bin", "/sbin", "/usr/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(fixed)
        .map(|directory| directory.join("fusermount3"))
        .find(|candidate| candidate.is_file())
        .ok_or(MountError::NoHelper)
}

fn option_list(options: &MountOptions) -> OsString {
    // A comma or a backslash in a value is escaped by a backslash.
    let escape = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = vec![format!("fsname={}", escape(&options.source))];
    if let Some(subtype) = &options.subtype {
        list.push(format!("subtype={}", escape(subtype)));
    }
    let has = |attribute| options.attributes.contains(attribute);
    let words = [
        (options.is_read_only(), "ro"),
        (has(MountAttrFlags::MOUNT_ATTR_NOEXEC), "noexec"),
        (has(MountAttrFlags::MOUNT_ATTR_NOATIME), "noatime"),
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
    ];
    let given = words.into_iter().filter(|(given, _)| *given);
    list.extend(given.map(|(_, word)| word.to_owned()));
    if let Some(bytes) = options.read_bytes_max {
        list.push(format!("max_read={bytes}"));
    }
    list.join(",").into()
}

/// Mounts on `target` through `fusermount3` and returns the device. The helper adds `nosuid` and `nodev`.
///
/// # Errors
/// [`MountError::NoHelper`], [`MountError::Helper`] with the helper's message, and those of the mount
/// point.
pub fn mount_unprivileged(target: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    Ok(mount_by_helper(target, options, false)?.0)
}

/// A `fusermount3` that unmounts when this process has ended: its socket is closed then.
#[derive(Debug)]
pub(crate) struct AutoUnmount {
    socket: Option<OwnedFd>,
    helper: Child,
}

impl Drop for AutoUnmount {
    /// Lets the helper end: it unmounts what is still mounted.
    fn drop(&mut self) {
        self.socket = None;
        let _ = self.helper.wait();
    }
}

/// As [`mount_unprivileged`]; if `stays`, with a helper that unmounts later.
///
/// # Errors
/// As [`mount_unprivileged`].
pub(crate) fn mount_by_helper(
    target: &Path,
    options: &MountOptions,
    stays: bool,
) -> Result<(OwnedFd, Option<AutoUnmount>), MountError> {
    let mut list = option_list(options);
    if stays {
        list.push(",auto_unmount");
    }
    let (device, socket, helper) = run_helper(target, list)?;
    if stays && let Ok(Some(device)) = device {
        let socket = Some(socket);
        return Ok((device, Some(AutoUnmount { socket, helper })));
    }
    drop(socket);
    let output = helper.wait_with_output().map_err(MountError::HelperRun)?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok((device, None)),
        Err(error) if output.status.success() => Err(MountError::HelperRun(error.into())),
        _ => Err(MountError::Helper(words(&output))),
    }
}

/// Makes the helper mount. Returns the device, our end of the socket, and the helper.
fn run_helper(
    target: &Path,
    list: OsString,
) -> Result<(rustix::io::Result<Option<OwnedFd>>, OwnedFd, Child), MountError> {
    Place::of(&open_target(target)?, target).check()?;
    let helper = unprivileged_helper()?;
    let failed = |errno: rustix::io::Errno| MountError::HelperRun(errno.into());
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).map_err(failed)?;
    // A second descriptor without close-on-exec: another thread's program that is started at this
    // moment inherits it too, until this helper runs.
    let inherited = rustix::io::dup(&theirs).map_err(failed)?;
    drop(theirs);
    let child = Command::new(helper)
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(target)
        .env("_FUSE_COMMFD", inherited.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MountError::HelperRun)?;
    drop(inherited);
    let received = fd_passing::receive(ours.as_fd(), &mut [0; 1], RecvFlags::empty());
    let device = received.map(|received| received.descriptors.into_iter().next());
    Ok((device, ours, child))
}

fn words(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    // Behind the path by which it was started.
    let said = said
        .split_once("fusermount3: ")
        .map_or(said, |(_, said)| said);
    if said.contains("user_allow_other") {
        format!("{said} (add the line user_allow_other to /etc/fuse.conf, or drop allow_other)")
    } else if said.contains("/dev/fuse: Permission denied") {
        format!(
            "{said} (the device must be readable and writable for users, as udev makes it: `chmod 666 /dev/fuse`)"
        )
    } else if said.starts_with("failed to access mountpoint") && said.contains("denied") {
        // This user has looked at it before.
        format!("{said} (root may not enter it: if it is mounted already, unmount it first)")
    } else if said.is_empty() {
        output.status.to_string()
    } else {
        said.to_owned()
    }
}

/// Unmounts the user's own mount on `target` through `fusermount3`.
///
/// # Errors
/// [`MountError::NoHelper`], [`MountError::Helper`] with the helper's message.
pub fn unmount_unprivileged(target: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(unprivileged_helper()?);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(target)
        .stdin(Stdio::null())
        .output()
        .map_err(MountError::HelperRun)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(MountError::Helper(words(&output)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_commas_are_escaped() {
        let mut options = MountOptions::new("a,b\\c");
        options.subtype = Some("thrufs".into());
        options.allow_other = true;
        assert_eq!(
            option_list(&options).to_str(),
            Some("fsname=a\\,b\\\\c,subtype=thrufs,allow_other,default_permissions")
        );
    }
}
