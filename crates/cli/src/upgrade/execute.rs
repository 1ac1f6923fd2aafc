//! Executing the next program in this process, and what it finds.

use super::request::Request;
use crate::process::Role;
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Executes the program in this role; of all descriptors above the standard files, it gets `handed_over` alone. Returns
/// only with an error.
pub(crate) fn execute(
    request: &Request,
    role: Role,
    paths: [&Path; 2],
    handed_over: &OwnedFd,
) -> io::Error {
    if let Err(errno) = fcntl_setfd(handed_over, FdFlags::empty()) {
        return errno.into();
    }
    let string = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
    let (role, number) = (role.argument(), handed_over.as_raw_fd().to_string());
    let [source, place] = paths.map(Path::as_os_str);
    let arguments = [
        "thrufs".as_ref(),
        role.as_ref(),
        source,
        place,
        number.as_ref(),
    ];
    let environment = std::env::vars_os().map(|(name, value)| {
        let mut both = name.into_vec();
        both.push(b'=');
        both.extend(value.into_vec());
        string(&OsString::from_vec(both))
    });
    let environment: Vec<CString> = environment.collect();
    let program = string(request.program().as_os_str());
    let errno = thrufs_sys::process::execute(&program, &arguments.map(string), &environment);
    let _ = fcntl_setfd(handed_over, FdFlags::CLOEXEC);
    errno.into()
}

/// What was handed over, by the argument of the role.
pub(crate) fn inherited(number: &OsStr) -> io::Result<OwnedFd> {
    let number = number.to_str().and_then(|text| text.parse().ok());
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    Ok(thrufs_sys::inherited::take(number)?)
}
