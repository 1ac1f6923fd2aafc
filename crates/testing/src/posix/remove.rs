//! unlink and rmdir.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    unlink_removes_a_file,
    unlink_of_a_directory_is_eisdir,
    rmdir_removes_an_empty_directory,
    rmdir_of_a_full_directory_is_enotempty,
    rmdir_of_a_file_is_enotdir,
    rmdir_of_dot,
    unlink_leaves_the_target_of_a_symlink,
    same_name_can_be_used_again,
    directory_in_use_by_a_descriptor,
    created_in_a_removed_directory_is_enoent,
    whole_tree,
};

fn unlink_removes_a_file(env: &Env) {
    let path = env.file("file", "content");
    rustix::fs::unlink(&path).unwrap();
    env.absent("file");
    fails(rustix::fs::unlink(&path), Errno::NOENT);
    assert!(env.names("").is_empty());
}

fn unlink_of_a_directory_is_eisdir(env: &Env) {
    let path = env.dir("dir");
    fails(rustix::fs::unlink(&path), Errno::ISDIR);
    env.agree("dir");
}

fn rmdir_removes_an_empty_directory(env: &Env) {
    let path = env.dir("dir");
    env.file("dir/file", "");
    fs::remove_file(env.path("dir/file")).unwrap();
    rustix::fs::rmdir(&path).unwrap();
    env.absent("dir");
}

fn rmdir_of_a_full_directory_is_enotempty(env: &Env) {
    let path = env.dir("dir");
    env.file("dir/file", "");
    fails(rustix::fs::rmdir(&path), Errno::NOTEMPTY);
    env.dir("outer");
    env.dir("outer/inner");
    fails(rustix::fs::rmdir(env.path("outer")), Errno::NOTEMPTY);
    env.agree("dir/file");
    env.agree("outer/inner");
}

fn rmdir_of_a_file_is_enotdir(env: &Env) {
    let path = env.file("file", "");
    fails(rustix::fs::rmdir(&path), Errno::NOTDIR);
    rustix::fs::symlink(".", env.path("link")).unwrap();
    fails(rustix::fs::rmdir(env.path("link")), Errno::NOTDIR);
    env.agree("file");
}

fn rmdir_of_dot(env: &Env) {
    env.dir("dir");
    fails(rustix::fs::rmdir(env.path("dir/.")), Errno::INVAL);
    env.dir("dir/sub");
    fails(rustix::fs::rmdir(env.path("dir/sub/..")), Errno::NOTEMPTY);
}

fn unlink_leaves_the_target_of_a_symlink(env: &Env) {
    env.file("file", "kept");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    fs::remove_file(env.path("link")).unwrap();
    env.absent("link");
    assert_eq!(env.read("file"), b"kept");
}

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

fn directory_in_use_by_a_descriptor(env: &Env) {
    env.dir("dir");
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    fs::remove_dir(env.path("dir")).unwrap();
    let stat = rustix::fs::fstat(&dir).unwrap();
    assert_eq!(stat.st_nlink, 0);
    env.dir("dir");
    assert_ne!(env.stat("dir").st_ino, 0);
    // The descriptor still means the removed one.
    fails(
        rustix::fs::statat(&dir, "x", AtFlags::empty()),
        Errno::NOENT,
    );
}

fn created_in_a_removed_directory_is_enoent(env: &Env) {
    env.dir("dir");
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    fs::remove_dir(env.path("dir")).unwrap();
    let flags = OFlags::WRONLY | OFlags::CREATE;
    fails(
        rustix::fs::openat(&dir, "file", flags, Mode::RWXU),
        Errno::NOENT,
    );
    fails(rustix::fs::mkdirat(&dir, "sub", Mode::RWXU), Errno::NOENT);
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
