//! unlink and rmdir.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    unlink_removes_a_file:
        "file file content; unlink file; absent file; ENOENT unlink file; is . names",
    rmdir_removes_an_empty_directory:
        "dir dir; file dir/file; unlink dir/file; rmdir dir; absent dir",
    rmdir_of_a_full_directory_is_enotempty:
        "dir {dir,outer,outer/inner}; file dir/file; ENOTEMPTY rmdir {dir,outer};
         stat {dir/file,outer/inner}",
    same_name_can_be_used_again:
        "file name first; is name text first; unlink name; dir name; rmdir name; symlink x name;
         unlink name; file name second; is name text second; unlink name; absent name",
    directory_in_use_by_a_descriptor:
        "dir dir; open @d dir r,directory; note @d; rmdir dir; absent dir; is @d links 0;
         ENOENT open @d/file w,creat 700; ENOENT dir @d/sub; dir dir; file dir/x; unlike dir ino;
         ENOENT stat @d/x",
};
