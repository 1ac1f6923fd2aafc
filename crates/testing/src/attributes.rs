//! Reads all extended attributes of a file, to compare trees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// All extended attributes of a name, symbolic links not followed. None where the file system has
/// none.
pub fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; 65_536];
    let len = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    for name in list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 65_536];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
