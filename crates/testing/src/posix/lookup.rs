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
