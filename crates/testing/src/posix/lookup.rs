//! LOOKUP: what exists, what does not, and when changes are visible.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    missing_name_is_enoent:
        "ENOENT {stat,unlink,stat,rmdir,stat,readlink} missing; ENOENT open missing r;
         ENOENT {rename,link} missing other; ENOENT chmod missing 600; ENOENT chown missing 1 1;
         ENOENT {stat,dir} missing/below; absent missing",
    missing_name_that_then_exists:
        "ENOENT stat {file,dir,link,hard,moved,fifo}; file {file,from}; dir dir;
         symlink file link; link file hard; rename from moved; fifo fifo;
         stat {file,dir,link,hard,moved,fifo}",
    name_that_then_is_gone:
        "file {file,moved}; dir dir; stat {file,dir,moved}; unlink file; rmdir dir;
         rename moved elsewhere; absent {file,dir,moved}",
    file_as_directory_is_enotdir:
        "file file; ENOTDIR {stat,dir,unlink,rmdir} file/below; ENOTDIR open file/below r;
         ENOTDIR open file/below w,creat; ENOTDIR symlink target file/below;
         ENOTDIR rename file/below other; ENOTDIR open file r,directory; ENOTDIR list file",
    dot_and_dot_dot: "dir {dir,dir/inner}; is {dir/.,dir/inner/..,dir/inner/../inner/../.} ino dir",
    dot_dot_across_rename:
        "dir {a,b,a/child}; open @c a/child r,directory; is @c/.. ino a; rename a/child b/child;
         is @c/.. ino b",
    inode_numbers_are_stable:
        "dir dir; note dir; file file 1; file file changed content; rename file dir/name;
         file dir/other; same dir ino; note dir/name; chmod dir/name 600;
         rename dir/name renamed; file renamed again; same renamed ino; open @f renamed r;
         same @f ino; link renamed hard; same hard ino",
    inode_numbers_differ_between_files,
    one_device_in_the_tree: "dir dir; file dir/file; note .; same {dir,dir/file} dev",
    open_directory_outlives_its_rename:
        "dir before; open @d before r,directory; rename before after; open @f @d/file rw,creat;
         write @f still here; close @f; is after/file text still here",
    relative_to_a_directory_descriptor:
        "dir dir; open @d dir r,directory; dir @d/sub; symlink sub @d/link;
         is dir names link sub; rename @d/sub @d/renamed; unlink @d/link; rmdir @d/renamed;
         is dir names",
    o_path_descriptor:
        "file file content; open @p file path; is @p size 7; EBADF read @p text;
         EBADF chmod @p 700; open @f @p r; read @f content",
    type_bits:
        "file file; dir dir; symlink x link; fifo fifo;
         is {file,dir,link,fifo} type {file,dir,link,fifo}",
};

fn inode_numbers_differ_between_files(env: &Env) {
    let mut seen = std::collections::HashSet::new();
    for number in 0..200 {
        let name = format!("f{number}");
        env.file(&name, "");
        assert!(
            seen.insert(env.stat(&name).st_ino),
            "{name} has the inode number of another file"
        );
    }
}
