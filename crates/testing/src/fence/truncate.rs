//! Truncation by path, for which `rustix` has no call.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `truncate(2)`. A length below zero is passed on, to see it refused.
pub fn truncate(path: &Path, len: i64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends in NUL and outlives the call, which only reads it.
    let result = unsafe { libc::truncate(path.as_ptr(), len) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
