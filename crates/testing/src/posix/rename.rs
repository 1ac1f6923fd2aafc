//! rename without flags.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    file_moves_with_its_content:
        "file from content; note from; rename from to; absent from; is to text content;
         same to ino",
    replaces_a_file:
        "file from new; file to old; note from; rename from to; is to text new; same to ino;
         absent from",
    replaced_open_file_stays_readable:
        "file from new; file to old; open @old to rw; rename from to; read @old old;
         is @old links 0; write @old , and more; is @old size 13; is to text new",
    replaces_an_empty_directory:
        "dir from; file from/file; dir to; rename from to; absent from; stat to/file",
    onto_a_full_directory_is_enotempty [NotXfs]:
        "dir {from,to}; file to/file; ENOTEMPTY rename from to; stat {from,to/file}",
    directory_onto_a_file_is_enotdir:
        "dir dir; file file kept; ENOTDIR rename dir file; is file text kept; stat dir",
    file_onto_a_directory_is_eisdir:
        "dir dir; file file kept; EISDIR rename file dir; stat file; is dir type dir",
    directory_into_itself_is_einval:
        "dir {dir,dir/sub}; EINVAL rename dir dir/sub/below; EINVAL rename dir dir/below;
         ENOTEMPTY rename dir/sub dir; stat dir/sub",
    onto_itself_does_nothing:
        "file file kept; dir dir; rename {file,dir} {file,dir}; is file text kept; stat dir",
    between_directories:
        "dir {a,b}; file a/file moved; rename a/file b/other; is a names; is b names other",
    directory_between_directories_changes_dot_dot [NotBtrfs]:
        "dir {a,b,a/dir,a/dir/sub}; is a links 3; rename a/dir b/dir; is b/dir/.. ino b;
         is a links 2; is b links 3; stat b/dir/sub",
    symlink_itself_moves:
        "file file; symlink file link; rename link moved; stat file; is moved target file;
         absent link",
    symlink_as_target_is_replaced:
        "file file untouched; file from new; symlink file link; rename from link;
         is file text untouched; is link type file text new",
    open_file_follows_its_rename:
        "open @f from rw,creat,excl; write @f before; dir dir; rename from dir/to;
         write @f and after; chmod @f 600; close @f; is dir/to mode 600 text beforeand after",
    missing_parent_is_enoent:
        "file file; ENOENT rename file missing/file; ENOENT rename missing/file file;
         ENOTDIR rename file file/below",
    dot_and_dot_dot_are_refused:
        "dir {dir,dir/sub}; EBUSY rename dir/. other; EBUSY rename dir/sub/.. other;
         EBUSY rename dir/sub dir/.",
    out_of_the_tree_is_exdev:
        "file file kept; EXDEV rename file /proc/self/comm; EXDEV link /proc/self/comm link;
         stat file",
    ctime_of_the_file_changes:
        "file from; stamp from; note from; tick; rename from to; later to ctime; same to mtime",
    keeps_owner_mode_times_and_xattrs:
        "file from x; chown from 21 22; chmod from 4751; setxattr from user.kept value;
         note from; rename from to; same to owner mode mtime; getxattr to user.kept value",
    replaces_a_hard_link:
        "file a first; link a b; file new second; rename new b; is a links 1 text first;
         is b text second",
    chain_of_names,
    full_subtree_moves:
        "dir {a,a/b,a/b/c,x}; file a/b/c/file deep; rename a/b x/y; is x/y/c/file text deep;
         ENOENT stat a/b/c/file",
    cached_children_follow_their_directory:
        "dir {a,b}; file {a,b}/file {a,b}; stat {a,b}/file; ENOENT stat {a,b}/missing;
         rename a c; rename b a; rename c b; is a/file text b; is b/file text a",
    nodes_move:
        "fifo fifo; node null char 700 1 3; rename {fifo,null} {fifo,null}2;
         is null2 type char rdev 1 3; is fifo2 type fifo",
    sticky_directory_guards:
        "shared dir; chmod dir 1777; alice: file dir/alice hers; bob: file dir/bob his;
         bob: EPERM rename dir/alice dir/taken; bob: EPERM rename dir/bob dir/alice;
         bob: rename dir/bob dir/bob2; is dir/alice text hers",
    needs_write_on_both_parents:
        "shared open; dir closed; file closed/kept; alice: file open/file;
         alice: EACCES rename open/file closed/file; alice: EACCES rename closed/kept open/kept;
         stat {open/file,closed/kept}",
};

fn rename(env: &Env, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::rename(env.path(from), env.path(to))
}

fn chain_of_names(env: &Env) {
    env.file("n0", "travels");
    for number in 0..100 {
        rename(env, &format!("n{number}"), &format!("n{}", number + 1)).unwrap();
        fails(
            rustix::fs::lstat(env.path(format!("n{number}"))),
            Errno::NOENT,
        );
    }
    assert_eq!(env.read("n100"), b"travels");
    assert_eq!(env.names(""), ["n100"]);
}
