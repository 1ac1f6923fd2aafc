//! rename without flags.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    file_moves_with_its_content:
        "file from content; note from; rename from to; absent from; is to text content;
         same to ino",
    replaced_open_file_stays_readable:
        "file from new; file to old; open @old to rw; rename from to; read @old old;
         is @old links 0; write @old , and more; is @old size 13; is to text new",
    replaces_an_empty_directory:
        "dir from; file from/file; dir to; rename from to; absent from; stat to/file",
    onto_a_full_directory_is_enotempty [NotXfs]:
        "dir {from,to}; file to/file; ENOTEMPTY rename from to; stat {from,to/file}",
    between_directories:
        "dir {a,b}; file a/file moved; rename a/file b/other; is a names; is b names other",
    directory_between_directories_changes_dot_dot [NotBtrfs]:
        "dir {a,b,a/dir,a/dir/sub}; is a links 3; rename a/dir b/dir; is b/dir/.. ino b;
         is a links 2; is b links 3; stat b/dir/sub",
    symlink_itself_moves:
        "file file; symlink file link; rename link moved; stat file; is moved target file;
         absent link",
    open_file_follows_its_rename:
        "open @f from rw,creat,excl; write @f before; dir dir; rename from dir/to;
         write @f and after; chmod @f 600; close @f; is dir/to mode 600 text beforeand after",
    ctime_of_the_file_changes:
        "file from; stamp from; note from; tick; rename from to; later to ctime; same to mtime",
    replaces_a_hard_link:
        "file a first; link a b; file new second; rename new b; is a links 1 text first;
         is b text second",
    cached_children_follow_their_directory:
        "dir {a,b}; file {a,b}/file {a,b}; stat {a,b}/file; ENOENT stat {a,b}/missing;
         rename a c; rename b a; rename c b; is a/file text b; is b/file text a",
};
