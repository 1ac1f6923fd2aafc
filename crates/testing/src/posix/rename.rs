//! rename without flags.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    file_moves_with_its_content,
    replaces_a_file,
    replaced_open_file_stays_readable,
    replaces_an_empty_directory,
    onto_a_full_directory_is_enotempty [NotXfs],
    directory_onto_a_file_is_enotdir,
    file_onto_a_directory_is_eisdir,
    directory_into_itself_is_einval,
    onto_itself_does_nothing,
    between_directories,
    directory_between_directories_changes_dot_dot [NotBtrfs],
    symlink_itself_moves,
    symlink_as_target_is_replaced,
    open_file_follows_its_rename,
    missing_parent_is_enoent,
    dot_and_dot_dot_are_refused,
    out_of_the_tree_is_exdev,
    ctime_of_the_file_changes,
    keeps_owner_mode_times_and_xattrs,
    replaces_a_hard_link,
    chain_of_names,
    full_subtree_moves,
    cached_children_follow_their_directory,
    nodes_move,
    sticky_directory_guards,
    needs_write_on_both_parents,
};

fn rename(env: &Env, from: &str, to: &str) -> rustix::io::Result<()> {
    rustix::fs::rename(env.path(from), env.path(to))
}

fn file_moves_with_its_content(env: &Env) {
    env.file("from", "content");
    let ino = env.stat("from").st_ino;
    rename(env, "from", "to").unwrap();
    env.absent("from");
    assert_eq!(env.read("to"), b"content");
    assert_eq!(env.stat("to").st_ino, ino);
    env.agree("to");
}

fn replaces_a_file(env: &Env) {
    env.file("from", "new");
    env.file("to", "old");
    let ino = env.stat("from").st_ino;
    rename(env, "from", "to").unwrap();
    assert_eq!(env.read("to"), b"new");
    assert_eq!(env.stat("to").st_ino, ino);
    env.absent("from");
    env.agree("to");
}

fn replaced_open_file_stays_readable(env: &Env) {
    env.file("from", "new");
    env.file("to", "old");
    let mut old = env.open("to", OFlags::RDWR);
    rename(env, "from", "to").unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    assert_eq!(old.metadata().unwrap().nlink(), 0);
    old.write_all(b" and written").unwrap();
    assert_eq!(old.metadata().unwrap().len(), 15);
    assert_eq!(env.read("to"), b"new");
}

fn replaces_an_empty_directory(env: &Env) {
    env.dir("from");
    env.file("from/file", "");
    env.dir("to");
    rename(env, "from", "to").unwrap();
    env.absent("from");
    env.agree("to");
    env.agree("to/file");
}

fn onto_a_full_directory_is_enotempty(env: &Env) {
    env.dir("from");
    env.dir("to");
    env.file("to/file", "");
    fails(rename(env, "from", "to"), Errno::NOTEMPTY);
    env.agree("from");
    env.agree("to/file");
}

fn directory_onto_a_file_is_enotdir(env: &Env) {
    env.dir("dir");
    env.file("file", "kept");
    fails(rename(env, "dir", "file"), Errno::NOTDIR);
    assert_eq!(env.read("file"), b"kept");
    env.agree("dir");
}

fn file_onto_a_directory_is_eisdir(env: &Env) {
    env.dir("dir");
    env.file("file", "kept");
    fails(rename(env, "file", "dir"), Errno::ISDIR);
    env.agree("file");
    env.agree("dir");
}

fn directory_into_itself_is_einval(env: &Env) {
    env.dir("dir");
    env.dir("dir/sub");
    fails(rename(env, "dir", "dir/sub/below"), Errno::INVAL);
    fails(rename(env, "dir", "dir/below"), Errno::INVAL);
    fails(rename(env, "dir/sub", "dir"), Errno::NOTEMPTY);
    env.agree("dir/sub");
}

fn onto_itself_does_nothing(env: &Env) {
    env.file("file", "kept");
    env.dir("dir");
    rename(env, "file", "file").unwrap();
    rename(env, "dir", "dir").unwrap();
    assert_eq!(env.read("file"), b"kept");
    env.agree("dir");
}

fn between_directories(env: &Env) {
    env.dir("a");
    env.dir("b");
    env.file("a/file", "moved");
    rename(env, "a/file", "b/other").unwrap();
    assert!(env.names("a").is_empty());
    assert_eq!(env.names("b"), ["other"]);
    env.agree("b/other");
}

fn directory_between_directories_changes_dot_dot(env: &Env) {
    env.dir("a");
    env.dir("b");
    env.dir("a/dir");
    env.dir("a/dir/sub");
    assert_eq!(env.stat("a").st_nlink, 3);
    rename(env, "a/dir", "b/dir").unwrap();
    assert_eq!(env.stat("b/dir/..").st_ino, env.stat("b").st_ino);
    assert_eq!((env.stat("a").st_nlink, env.stat("b").st_nlink), (2, 3));
    env.agree("b/dir/sub");
    env.agree("a");
    env.agree("b");
}

fn symlink_itself_moves(env: &Env) {
    env.file("file", "");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    rename(env, "link", "moved").unwrap();
    assert!(env.exists("file"));
    assert_eq!(fs::read_link(env.path("moved")).unwrap(), Path::new("file"));
    env.absent("link");
}

fn symlink_as_target_is_replaced(env: &Env) {
    env.file("file", "untouched");
    env.file("from", "new");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    rename(env, "from", "link").unwrap();
    assert_eq!(env.read("file"), b"untouched");
    assert_eq!(env.read("link"), b"new");
    assert!(FileType::from_raw_mode(env.stat("link").st_mode).is_file());
    env.agree("link");
}

fn open_file_follows_its_rename(env: &Env) {
    let mut file = env.create("from");
    file.write_all(b"before ").unwrap();
    env.dir("dir");
    rename(env, "from", "dir/to").unwrap();
    file.write_all(b"after").unwrap();
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600)).unwrap();
    drop(file);
    assert_eq!(env.read("dir/to"), b"before after");
    assert_eq!(env.mode("dir/to"), 0o600);
    env.agree("dir/to");
}

fn missing_parent_is_enoent(env: &Env) {
    env.file("file", "");
    fails(rename(env, "file", "missing/file"), Errno::NOENT);
    fails(rename(env, "missing/file", "file"), Errno::NOENT);
    fails(rename(env, "file", "file/below"), Errno::NOTDIR);
    env.agree("file");
}

fn dot_and_dot_dot_are_refused(env: &Env) {
    env.dir("dir");
    env.dir("dir/sub");
    fails(rename(env, "dir/.", "other"), Errno::BUSY);
    fails(rename(env, "dir/sub/..", "other"), Errno::BUSY);
    fails(rename(env, "dir/sub", "dir/."), Errno::BUSY);
    env.agree("dir/sub");
}

fn out_of_the_tree_is_exdev(env: &Env) {
    env.file("file", "kept");
    let elsewhere = Path::new("/proc/self/comm");
    fails(rustix::fs::rename(env.path("file"), elsewhere), Errno::XDEV);
    fails(rustix::fs::link(elsewhere, env.path("link")), Errno::XDEV);
    env.agree("file");
}

fn ctime_of_the_file_changes(env: &Env) {
    env.file("from", "");
    env.stamp("from");
    let before = env.stat("from");
    tick();
    rename(env, "from", "to").unwrap();
    let after = env.stat("to");
    let ctime = |stat: &rustix::fs::Stat| (stat.st_ctime, stat.st_ctime_nsec);
    assert!(ctime(&after) > ctime(&before));
    assert_eq!(after.st_mtime, before.st_mtime);
}

fn keeps_owner_mode_times_and_xattrs(env: &Env) {
    env.file("from", "x");
    env.chown("from", 21, 22);
    env.chmod("from", 0o4751);
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(env.path("from"), "user.kept", b"value", none).unwrap();
    let before = env.stat("from");
    rename(env, "from", "to").unwrap();
    let after = env.stat("to");
    assert_eq!(
        (
            after.st_uid,
            after.st_gid,
            after.st_mode,
            after.st_mtime,
            after.st_mtime_nsec
        ),
        (
            before.st_uid,
            before.st_gid,
            before.st_mode,
            before.st_mtime,
            before.st_mtime_nsec
        )
    );
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(env.path("to"), "user.kept", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"value");
    env.agree("to");
}

fn replaces_a_hard_link(env: &Env) {
    env.file("a", "first");
    rustix::fs::link(env.path("a"), env.path("b")).unwrap();
    env.file("new", "second");
    rename(env, "new", "b").unwrap();
    assert_eq!(env.read("a"), b"first");
    assert_eq!(env.read("b"), b"second");
    assert_eq!(env.stat("a").st_nlink, 1);
    env.agree("a");
    env.agree("b");
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

fn full_subtree_moves(env: &Env) {
    env.dir("a");
    env.dir("a/b");
    env.dir("a/b/c");
    env.file("a/b/c/file", "deep");
    env.dir("x");
    rename(env, "a/b", "x/y").unwrap();
    assert_eq!(env.read("x/y/c/file"), b"deep");
    fails(rustix::fs::lstat(env.path("a/b/c/file")), Errno::NOENT);
    env.agree("x/y/c/file");
}

fn cached_children_follow_their_directory(env: &Env) {
    // The names below both directories are known before they change places.
    for dir in ["a", "b"] {
        env.dir(dir);
        env.file(format!("{dir}/file"), dir);
        env.stat(format!("{dir}/file"));
        fails(
            rustix::fs::lstat(env.path(format!("{dir}/missing"))),
            Errno::NOENT,
        );
    }
    rename(env, "a", "c").unwrap();
    rename(env, "b", "a").unwrap();
    rename(env, "c", "b").unwrap();
    assert_eq!(env.read("a/file"), b"b");
    assert_eq!(env.read("b/file"), b"a");
    env.agree("a/file");
    env.agree("b/file");
}

fn nodes_move(env: &Env) {
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(
        CWD,
        env.path("null"),
        FileType::CharacterDevice,
        Mode::RWXU,
        device,
    )
    .unwrap();
    rename(env, "fifo", "fifo2").unwrap();
    rename(env, "null", "null2").unwrap();
    assert_eq!(env.stat("null2").st_rdev, device);
    env.agree("fifo2");
    env.agree("null2");
}

fn sticky_directory_guards(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chmod("dir", 0o1777);
    ALICE.run(|| fs::write(dir.join("alice"), "hers").unwrap());
    BOB.run(|| {
        fs::write(dir.join("bob"), "his").unwrap();
        fails(
            rustix::fs::rename(dir.join("alice"), dir.join("taken")),
            Errno::PERM,
        );
        fails(
            rustix::fs::rename(dir.join("bob"), dir.join("alice")),
            Errno::PERM,
        );
        rustix::fs::rename(dir.join("bob"), dir.join("bob2")).unwrap();
    });
    assert_eq!(env.read("dir/alice"), b"hers");
    env.agree("dir/bob2");
}

fn needs_write_on_both_parents(env: &Env) {
    let open = env.shared_dir("open");
    let closed = env.dir("closed");
    env.file("closed/kept", "");
    ALICE.run(|| {
        fs::write(open.join("file"), "").unwrap();
        fails(
            rustix::fs::rename(open.join("file"), closed.join("file")),
            Errno::ACCESS,
        );
        fails(
            rustix::fs::rename(closed.join("kept"), open.join("kept")),
            Errno::ACCESS,
        );
    });
    env.agree("open/file");
    env.agree("closed/kept");
}
