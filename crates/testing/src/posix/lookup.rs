//! LOOKUP: what exists, what does not, and when changes are visible.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    missing_name_is_enoent,
    missing_name_that_then_exists,
    name_that_then_is_gone,
    file_as_directory_is_enotdir,
    dot_and_dot_dot,
    dot_dot_across_rename,
    inode_numbers_are_stable,
    inode_numbers_differ_between_files,
    one_device_in_the_tree,
    open_directory_outlives_its_rename,
    relative_to_a_directory_descriptor,
    o_path_descriptor,
    type_bits,
};

fn missing_name_is_enoent(env: &Env) {
    let path = env.path("missing");
    for _ in 0..3 {
        fails(rustix::fs::lstat(&path), Errno::NOENT);
    }
    fails(open(&path, OFlags::RDONLY), Errno::NOENT);
    fails(rustix::fs::unlink(&path), Errno::NOENT);
    fails(rustix::fs::rmdir(&path), Errno::NOENT);
    fails(rustix::fs::rename(&path, env.path("other")), Errno::NOENT);
    fails(rustix::fs::link(&path, env.path("other")), Errno::NOENT);
    fails(chmod(&path, 0o600), Errno::NOENT);
    fails(chown(&path, Some(1), Some(1)), Errno::NOENT);
    fails(rustix::fs::readlink(&path, Vec::new()), Errno::NOENT);
    fails(rustix::fs::lstat(path.join("below")), Errno::NOENT);
    fails(mkdir(&path.join("below"), 0o755), Errno::NOENT);
    env.absent("missing");
}

fn missing_name_that_then_exists(env: &Env) {
    // Each way to create must replace a negative dentry.
    for name in ["file", "dir", "link", "hard", "moved", "fifo"] {
        fails(rustix::fs::lstat(env.path(name)), Errno::NOENT);
    }
    env.file("file", "");
    env.dir("dir");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    rustix::fs::link(env.path("file"), env.path("hard")).unwrap();
    env.file("from", "");
    rustix::fs::rename(env.path("from"), env.path("moved")).unwrap();
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::from_raw_mode(0o600)).unwrap();
    for name in ["file", "dir", "link", "hard", "moved", "fifo"] {
        env.agree(name);
    }
}

fn name_that_then_is_gone(env: &Env) {
    env.file("file", "");
    env.dir("dir");
    env.file("moved", "");
    for name in ["file", "dir", "moved"] {
        env.stat(name);
    }
    fs::remove_file(env.path("file")).unwrap();
    fs::remove_dir(env.path("dir")).unwrap();
    fs::rename(env.path("moved"), env.path("elsewhere")).unwrap();
    for name in ["file", "dir", "moved"] {
        env.absent(name);
    }
}

fn file_as_directory_is_enotdir(env: &Env) {
    let file = env.file("file", "");
    let below = file.join("below");
    fails(rustix::fs::lstat(&below), Errno::NOTDIR);
    fails(open(&below, OFlags::RDONLY), Errno::NOTDIR);
    fails(open(&below, OFlags::WRONLY | OFlags::CREATE), Errno::NOTDIR);
    fails(mkdir(&below, 0o755), Errno::NOTDIR);
    fails(rustix::fs::unlink(&below), Errno::NOTDIR);
    fails(rustix::fs::rmdir(&below), Errno::NOTDIR);
    fails(rustix::fs::symlink("target", &below), Errno::NOTDIR);
    fails(rustix::fs::rename(&below, env.path("other")), Errno::NOTDIR);
    fails(
        open(&file, OFlags::RDONLY | OFlags::DIRECTORY),
        Errno::NOTDIR,
    );
    fails(fs::read_dir(&file), Errno::NOTDIR);
}

fn dot_and_dot_dot(env: &Env) {
    env.dir("dir");
    env.dir("dir/inner");
    let dir = env.stat("dir").st_ino;
    assert_eq!(env.stat("dir/.").st_ino, dir);
    assert_eq!(env.stat("dir/inner/..").st_ino, dir);
    assert_eq!(env.stat("dir/inner/../inner/../.").st_ino, dir);
}

fn dot_dot_across_rename(env: &Env) {
    env.dir("a");
    env.dir("b");
    env.dir("a/child");
    let child = env.open("a/child", OFlags::RDONLY | OFlags::DIRECTORY);
    let parent = |dir: &File| {
        rustix::fs::statat(dir, "..", AtFlags::empty())
            .unwrap()
            .st_ino
    };
    assert_eq!(parent(&child), env.stat("a").st_ino);
    fs::rename(env.path("a/child"), env.path("b/child")).unwrap();
    assert_eq!(parent(&child), env.stat("b").st_ino);
}

fn inode_numbers_are_stable(env: &Env) {
    env.file("file", "1");
    env.dir("dir");
    let (file, dir) = (env.stat("file").st_ino, env.stat("dir").st_ino);
    env.file("file", "changed content");
    env.chmod("file", 0o600);
    fs::rename(env.path("file"), env.path("dir/renamed")).unwrap();
    env.file("dir/other", "");
    assert_eq!(env.stat("dir/renamed").st_ino, file);
    assert_eq!(env.stat("dir").st_ino, dir);
    let open = env.open("dir/renamed", OFlags::RDONLY);
    assert_eq!(open.metadata().unwrap().ino(), file);
    rustix::fs::link(env.path("dir/renamed"), env.path("hard")).unwrap();
    assert_eq!(env.stat("hard").st_ino, file);
}

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

fn one_device_in_the_tree(env: &Env) {
    env.dir("dir");
    env.file("dir/file", "");
    let device = env.stat("").st_dev;
    assert_eq!(env.stat("dir").st_dev, device);
    assert_eq!(env.stat("dir/file").st_dev, device);
}

fn open_directory_outlives_its_rename(env: &Env) {
    env.dir("before");
    let dir = env.open("before", OFlags::RDONLY | OFlags::DIRECTORY);
    fs::rename(env.path("before"), env.path("after")).unwrap();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, "file", flags, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&file, b"still here").unwrap();
    drop(file);
    assert_eq!(env.read("after/file"), b"still here");
    env.agree("after/file");
}

fn relative_to_a_directory_descriptor(env: &Env) {
    env.dir("dir");
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    rustix::fs::mkdirat(&dir, "sub", Mode::RWXU).unwrap();
    rustix::fs::symlinkat("sub", &dir, "link").unwrap();
    rustix::fs::renameat(&dir, "sub", &dir, "renamed").unwrap();
    rustix::fs::unlinkat(&dir, "link", AtFlags::empty()).unwrap();
    rustix::fs::unlinkat(&dir, "renamed", AtFlags::REMOVEDIR).unwrap();
    assert!(env.names("dir").is_empty());
}

fn o_path_descriptor(env: &Env) {
    env.file("file", "content");
    let path = env.open("file", OFlags::PATH);
    assert_eq!(path.metadata().unwrap().len(), 7);
    fails(rustix::io::read(&path, &mut [0u8; 4]), Errno::BADF);
    fails(rustix::fs::fchmod(&path, Mode::RWXU), Errno::BADF);
    let reopened = fs::read(format!("/proc/thread-self/fd/{}", fd_number(&path))).unwrap();
    assert_eq!(reopened, b"content");
}

fn fd_number(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

fn type_bits(env: &Env) {
    env.file("file", "");
    env.dir("dir");
    rustix::fs::symlink("x", env.path("link")).unwrap();
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    let kind = |name: &str| FileType::from_raw_mode(env.stat(name).st_mode);
    assert_eq!(kind("file"), FileType::RegularFile);
    assert_eq!(kind("dir"), FileType::Directory);
    assert_eq!(kind("link"), FileType::Symlink);
    assert_eq!(kind("fifo"), FileType::Fifo);
}
