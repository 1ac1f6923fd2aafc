//! renameat2 with its flags.

use rustix::fs::RenameFlags;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    noreplace_moves_to_a_free_name,
    noreplace_refuses_what_exists,
    exchange_of_two_files,
    exchange_of_a_file_and_a_directory,
    exchange_between_directories,
    exchange_with_a_missing_name_is_enoent,
    exchange_with_an_own_parent_is_einval,
    exchange_keeps_open_files,
    whiteout_leaves_a_whiteout [NotOverlay],
    unknown_and_contradictory_flags_are_einval,
};

fn rename(env: &Env, from: &str, to: &str, flags: RenameFlags) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, env.path(from), CWD, env.path(to), flags)
}

fn noreplace_moves_to_a_free_name(env: &Env) {
    env.file("from", "content");
    rename(env, "from", "to", RenameFlags::NOREPLACE).unwrap();
    env.absent("from");
    assert_eq!(env.read("to"), b"content");
    env.agree("to");
}

fn noreplace_refuses_what_exists(env: &Env) {
    env.file("from", "from");
    env.file("file", "kept");
    env.dir("dir");
    rustix::fs::symlink("nowhere", env.path("link")).unwrap();
    for to in ["file", "dir", "link", "from"] {
        fails(
            rename(env, "from", to, RenameFlags::NOREPLACE),
            Errno::EXIST,
        );
    }
    assert_eq!(env.read("file"), b"kept");
    env.agree("from");
}

fn exchange_of_two_files(env: &Env) {
    env.file("a", "was a");
    env.file("b", "was b");
    let (a, b) = (env.stat("a").st_ino, env.stat("b").st_ino);
    rename(env, "a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(env.read("a"), b"was b");
    assert_eq!(env.read("b"), b"was a");
    assert_eq!((env.stat("a").st_ino, env.stat("b").st_ino), (b, a));
    env.agree("a");
    env.agree("b");
}

fn exchange_of_a_file_and_a_directory(env: &Env) {
    env.file("file", "content");
    env.dir("dir");
    env.file("dir/inner", "inner");
    rename(env, "file", "dir", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(env.read("dir"), b"content");
    assert_eq!(env.read("file/inner"), b"inner");
    env.agree("dir");
    env.agree("file/inner");
}

fn exchange_between_directories(env: &Env) {
    for dir in ["x", "y"] {
        env.dir(dir);
        env.dir(format!("{dir}/sub"));
        env.file(format!("{dir}/sub/file"), dir);
    }
    rename(env, "x/sub", "y/sub", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(env.read("x/sub/file"), b"y");
    assert_eq!(env.read("y/sub/file"), b"x");
    assert_eq!(env.stat("x/sub/..").st_ino, env.stat("x").st_ino);
    env.agree("x/sub/file");
}

fn exchange_with_a_missing_name_is_enoent(env: &Env) {
    env.file("a", "kept");
    fails(
        rename(env, "a", "missing", RenameFlags::EXCHANGE),
        Errno::NOENT,
    );
    fails(
        rename(env, "missing", "a", RenameFlags::EXCHANGE),
        Errno::NOENT,
    );
    env.agree("a");
}

fn exchange_with_an_own_parent_is_einval(env: &Env) {
    env.dir("dir");
    env.dir("dir/sub");
    fails(
        rename(env, "dir", "dir/sub", RenameFlags::EXCHANGE),
        Errno::INVAL,
    );
    fails(
        rename(env, "dir/sub", "dir", RenameFlags::EXCHANGE),
        Errno::INVAL,
    );
    env.agree("dir/sub");
}

fn exchange_keeps_open_files(env: &Env) {
    env.file("a", "was a");
    env.file("b", "was b");
    let mut a = env.open("a", OFlags::RDWR | OFlags::APPEND);
    rename(env, "a", "b", RenameFlags::EXCHANGE).unwrap();
    a.write_all(b", still").unwrap();
    drop(a);
    assert_eq!(env.read("b"), b"was a, still");
    assert_eq!(env.read("a"), b"was b");
    env.agree("b");
}

fn whiteout_leaves_a_whiteout(env: &Env) {
    env.file("from", "content");
    rename(env, "from", "to", RenameFlags::WHITEOUT).unwrap();
    assert_eq!(env.read("to"), b"content");
    let stat = env.stat("from");
    assert_eq!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::CharacterDevice
    );
    assert_eq!(stat.st_rdev, 0);
    env.agree("from");
    env.agree("to");
}

fn unknown_and_contradictory_flags_are_einval(env: &Env) {
    env.file("a", "a");
    env.file("b", "b");
    let both = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE;
    fails(rename(env, "a", "b", both), Errno::INVAL);
    fails(
        rename(env, "a", "b", RenameFlags::from_bits_retain(1 << 7)),
        Errno::INVAL,
    );
    assert_eq!(env.read("a"), b"a");
    assert_eq!(env.read("b"), b"b");
}
