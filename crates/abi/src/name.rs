//! Names: single components of a path.

use std::ffi::CStr;
use std::fmt;

/// The longest name that the kernel sends, in bytes (`FUSE_NAME_MAX` since 6.15; 1024 before). The lower
/// file system may refuse shorter ones.
pub const NAME_BYTES_MAX: usize = 4095;

/// A name in a request: one component, neither empty nor with a slash, ended by a NUL.
///
/// `.` and `..` can occur (NFS file handles are resolved by them): see [`is_dot`](Name::is_dot) and
/// [`is_dot_dot`](Name::is_dot_dot).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a CStr);

/// Not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

impl fmt::Display for BadName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("not a name of a file: it is empty, too long or has a slash")
    }
}

impl std::error::Error for BadName {}

impl<'a> Name<'a> {
    /// Checks that `name` is one component.
    ///
    /// # Errors
    /// When it is empty, longer than [`NAME_BYTES_MAX`], or has a slash.
    pub fn new(name: &'a CStr) -> Result<Name<'a>, BadName> {
        let bytes = name.to_bytes();
        let fits = !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX;
        if fits && !bytes.contains(&b'/') {
            Ok(Name(name))
        } else {
            Err(BadName)
        }
    }

    /// With its NUL, as system calls want it.
    #[must_use]
    pub const fn as_cstr(&self) -> &'a CStr {
        self.0
    }

    /// Without its NUL.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0.to_bytes()
    }

    /// Whether it is `.`.
    #[must_use]
    pub fn is_dot(&self) -> bool {
        self.as_bytes() == b"."
    }

    /// Whether it is `..`.
    #[must_use]
    pub fn is_dot_dot(&self) -> bool {
        self.as_bytes() == b".."
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_is_escaped() {
        let shown = format!("{:?}", Name::new(c"a\n\xff").unwrap());
        assert_eq!(shown, "\"a\\n\\xff\"");
    }
}
