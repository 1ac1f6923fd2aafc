//! symlink and readlink.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    target_is_kept_byte_for_byte,
    size_is_the_length_of_the_target,
    long_targets [NotXfs],
    empty_target_is_enoent,
    is_followed,
    chain_of_links,
    loop_is_eloop,
    nofollow_is_eloop,
    mode_is_all,
    refuses_what_exists,
    readlink_of_others_is_einval,
    replaced_target_is_seen,
    points_out_of_the_tree,
    owner_can_be_changed_without_following,
    dangling_link_can_be_removed,
    in_the_middle_of_a_path,
};

fn symlink(env: &Env, target: impl AsRef<OsStr>, name: &str) {
    rustix::fs::symlink(target.as_ref(), env.path(name)).unwrap();
}

fn target_is_kept_byte_for_byte(env: &Env) {
    let odd = OsStr::from_bytes(b"a//b/../\xff\x01 ./");
    symlink(env, odd, "odd");
    assert_eq!(fs::read_link(env.path("odd")).unwrap().as_os_str(), odd);
    env.agree("odd");
}

fn size_is_the_length_of_the_target(env: &Env) {
    symlink(env, "twelve bytes", "link");
    assert_eq!(env.stat("link").st_size, 12);
}

fn long_targets(env: &Env) {
    // 59 and 60 are where ext4 moves a target out of the inode; 4095 is the longest.
    for len in [1, 59, 60, 255, 256, 1023, 4095] {
        let target = "t".repeat(len);
        let name = format!("link{len}");
        symlink(env, &target, &name);
        assert_eq!(fs::read_link(env.path(&name)).unwrap(), Path::new(&target));
        env.agree(&name);
    }
    let path = env.path("too_long");
    fails(
        rustix::fs::symlink("t".repeat(4096), path),
        Errno::NAMETOOLONG,
    );
}

fn empty_target_is_enoent(env: &Env) {
    fails(rustix::fs::symlink("", env.path("link")), Errno::NOENT);
}

fn is_followed(env: &Env) {
    env.file("file", "content");
    symlink(env, "file", "link");
    assert_eq!(env.read("link"), b"content");
    env.file("link", "written through");
    assert_eq!(env.read("file"), b"written through");
    let followed = rustix::fs::stat(env.path("link")).unwrap();
    assert_eq!(followed.st_ino, env.stat("file").st_ino);
    env.chmod("link", 0o600);
    assert_eq!(env.mode("file"), 0o600);
    env.agree("file");
}

fn chain_of_links(env: &Env) {
    env.file("l0", "end");
    for number in 1..=20 {
        symlink(env, format!("l{}", number - 1), &format!("l{number}"));
    }
    assert_eq!(env.read("l20"), b"end");
}

fn loop_is_eloop(env: &Env) {
    symlink(env, "b", "a");
    symlink(env, "a", "b");
    symlink(env, "self", "self");
    for name in ["a", "self", "a/below"] {
        fails(rustix::fs::stat(env.path(name)), Errno::LOOP);
        fails(env.try_open(name, OFlags::RDONLY), Errno::LOOP);
    }
    env.stat("a");
}

fn nofollow_is_eloop(env: &Env) {
    env.file("file", "");
    symlink(env, "file", "link");
    fails(
        env.try_open("link", OFlags::RDONLY | OFlags::NOFOLLOW),
        Errno::LOOP,
    );
    let path = env.open("link", OFlags::PATH | OFlags::NOFOLLOW);
    assert!(path.metadata().unwrap().file_type().is_symlink());
}

fn mode_is_all(env: &Env) {
    rustix::process::umask(Mode::from_raw_mode(0o077));
    symlink(env, "x", "link");
    assert_eq!(env.mode("link"), 0o777);
    env.agree("link");
}

fn refuses_what_exists(env: &Env) {
    env.file("file", "");
    env.dir("dir");
    symlink(env, "x", "link");
    for name in ["file", "dir", "link"] {
        fails(rustix::fs::symlink("target", env.path(name)), Errno::EXIST);
    }
}

fn readlink_of_others_is_einval(env: &Env) {
    env.file("file", "");
    env.dir("dir");
    for name in ["file", "dir"] {
        fails(
            rustix::fs::readlink(env.path(name), Vec::new()),
            Errno::INVAL,
        );
    }
}

fn replaced_target_is_seen(env: &Env) {
    symlink(env, "first", "link");
    assert_eq!(fs::read_link(env.path("link")).unwrap(), Path::new("first"));
    symlink(env, "second target", "new");
    fs::rename(env.path("new"), env.path("link")).unwrap();
    assert_eq!(
        fs::read_link(env.path("link")).unwrap(),
        Path::new("second target")
    );
    fs::remove_file(env.path("link")).unwrap();
    symlink(env, "third", "link");
    assert_eq!(fs::read_link(env.path("link")).unwrap(), Path::new("third"));
    env.agree("link");
}

fn points_out_of_the_tree(env: &Env) {
    // The client follows links: an absolute target starts at the client's root.
    symlink(env, "/proc/self/comm", "out");
    assert!(!fs::read(env.path("out")).unwrap().is_empty());
    assert_eq!(
        fs::read_link(env.path("out")).unwrap(),
        Path::new("/proc/self/comm")
    );
}

fn owner_can_be_changed_without_following(env: &Env) {
    env.file("file", "");
    symlink(env, "file", "link");
    env.chown("link", 11, 12);
    assert_eq!((env.stat("link").st_uid, env.stat("link").st_gid), (11, 12));
    assert_eq!(env.stat("file").st_uid, 0);
    env.agree("link");
}

fn dangling_link_can_be_removed(env: &Env) {
    symlink(env, "nowhere", "link");
    fails(rustix::fs::stat(env.path("link")), Errno::NOENT);
    fails(rustix::fs::rmdir(env.path("link")), Errno::NOTDIR);
    fs::remove_file(env.path("link")).unwrap();
    env.absent("link");
}

fn in_the_middle_of_a_path(env: &Env) {
    env.dir("real");
    env.dir("real/sub");
    symlink(env, "real", "link");
    env.file("link/sub/file", "x");
    assert_eq!(env.read("real/sub/file"), b"x");
    // ".." is the parent of the target.
    assert_eq!(env.stat("link/sub/..").st_ino, env.stat("real").st_ino);
    env.agree("real/sub/file");
}
