//! unlink and rmdir.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    unlink_removes_a_file:
        "file file content; unlink file; absent file; ENOENT unlink file; is . names",
    unlink_of_a_directory_is_eisdir: "dir dir; EISDIR unlink dir; stat dir",
    rmdir_removes_an_empty_directory:
        "dir dir; file dir/file; unlink dir/file; rmdir dir; absent dir",
    rmdir_of_a_full_directory_is_enotempty:
        "dir {dir,outer,outer/inner}; file dir/file; ENOTEMPTY rmdir {dir,outer};
         stat {dir/file,outer/inner}",
    rmdir_of_a_file_is_enotdir:
        "file file; symlink . link; ENOTDIR rmdir {file,link}; stat {file,link}",
    rmdir_of_dot: "dir dir; EINVAL rmdir dir/.; dir dir/sub; ENOTEMPTY rmdir dir/sub/..",
    unlink_leaves_the_target_of_a_symlink:
        "file file kept; symlink file link; unlink link; absent link; is file text kept",
    same_name_can_be_used_again,
    directory_in_use_by_a_descriptor:
        "dir dir; open @d dir r,directory; note @d; rmdir dir; absent dir; is @d links 0;
         ENOENT open @d/file w,creat 700; ENOENT dir @d/sub; dir dir; file dir/x; unlike dir ino;
         ENOENT stat @d/x",
    whole_tree,
};

fn same_name_can_be_used_again(env: &Env) {
    for round in 0..20 {
        env.file("name", format!("round {round}"));
        assert_eq!(env.read("name"), format!("round {round}").as_bytes());
        fs::remove_file(env.path("name")).unwrap();
        env.dir("name");
        fs::remove_dir(env.path("name")).unwrap();
        rustix::fs::symlink("x", env.path("name")).unwrap();
        fs::remove_file(env.path("name")).unwrap();
    }
    env.absent("name");
}

fn whole_tree(env: &Env) {
    env.dir("top");
    for outer in 0..8 {
        env.dir(format!("top/d{outer}"));
        for inner in 0..8 {
            env.file(format!("top/d{outer}/f{inner}"), "x");
            rustix::fs::symlink("..", env.path(format!("top/d{outer}/l{inner}"))).unwrap();
        }
    }
    fs::remove_dir_all(env.path("top")).unwrap();
    env.absent("top");
}
