//! POSIX access control lists, in the form of their extended attributes.

use super::prelude::*;
use crate::steps::id;

pub(super) const CASES: &[Case] = cases! {
    named_user_gets_in [Acl]:
        "file file x; chmod file 600; alice: EACCES open file r;
         setfacl file access u::rwx,u:alice:r,g::,m::rwx,o::; alice: open file r;
         alice: EACCES open file w; bob: EACCES open file r;
         getfacl file access u::rwx,u:alice:r,g::,m::rwx,o::",
    mask_limits_a_named_user [Acl]:
        "file file x; setfacl file access u::rwx,u:alice:rw,g::,m::r,o::; alice: open file r;
         alice: EACCES open file rw",
    named_group_counts [Acl]:
        "file file x; setfacl file access u::rwx,g::,g:team:rw,m::rwx,o::; member: open file rw;
         bob: EACCES open file r",
    chmod_moves_the_mask [Acl]:
        "file file x; setfacl file access u::rwx,u:alice:rw,g::,m::rw,o::; alice: open file rw;
         chmod file 700; alice: EACCES open file r;
         getfacl file access u::rwx,u:alice:rw,g::,m::,o::",
    group_bits_show_the_mask [Acl]:
        "file file x; chmod file 600; setfacl file access u::rwx,u:alice:rw,g::,m::rx,o::;
         is file mode 750",
    default_list_is_inherited [Acl]:
        "dir dir; setfacl dir default u::rwx,u:alice:rwx,g::,m::rwx,o::; dir dir/sub;
         file dir/file x; getfacl dir/sub default u::rwx,u:alice:rwx,g::,m::rwx,o::;
         getfacl dir/file access u::rw,u:alice:rwx,g::,m::rw,o::",
    default_list_replaces_the_umask [Acl]:
        "dir dir; setfacl dir default u::rwx,g::rwx,o::rw; umask 77; open dir/file r,creat 666;
         dir dir/sub 777; is dir/file mode 666; is dir/sub mode 776",
    removed_list_shuts_out [Acl]:
        "file file x; chmod file 600; setfacl file access u::rwx,u:alice:r,g::,m::r,o::;
         alice: open file r; rmxattr file system.posix_acl_access; alice: EACCES open file r;
         ENODATA getxattr file system.posix_acl_access",
    only_the_owner_sets_a_list [Acl]:
        "file file x; chmod file 666;
         alice: EPERM setfacl file access u::rwx,u:bob:rwx,g::,m::rwx,o::;
         chown file alice alice; alice: setfacl file access u::rwx,u:bob:rwx,g::,m::rwx,o::;
         bob: open file rw",
};

/// The attribute of the `access` or `default` list.
pub(super) fn name(which: &str) -> &'static str {
    match which {
        "default" => "system.posix_acl_default",
        _ => "system.posix_acl_access",
    }
}

/// The attribute's value of entries as `u:alice:rw`: version 2, then tag, permissions, id (acl(5)). What is no entry
/// stays as it is.
pub(super) fn list(entries: &str) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for entry in entries.split(',') {
        let parts: Vec<&str> = entry.split(':').collect();
        if parts.len() != 3 {
            bytes.extend(entry.as_bytes());
            continue;
        }
        let tag: u16 = match (parts[0], parts[1]) {
            ("u", "") => 0x01,
            ("u", _) => 0x02,
            ("g", "") => 0x04,
            ("g", _) => 0x08,
            ("m", _) => 0x10,
            _ => 0x20,
        };
        let bit = |(letter, bit)| u16::from(parts[2].contains(letter)) * bit;
        let permissions: u16 = [('r', 4), ('w', 2), ('x', 1)].map(bit).iter().sum();
        let id = if parts[1].is_empty() {
            u32::MAX
        } else {
            id(parts[1]).unwrap()
        };
        bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
