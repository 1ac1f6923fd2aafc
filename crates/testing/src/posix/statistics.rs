//! statfs and statvfs.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    block_counts_are_those_beneath,
    file_counts_are_those_beneath,
    every_object_answers,
};

fn block_counts_are_those_beneath(env: &Env) {
    let above = rustix::fs::statvfs(env.path("")).unwrap();
    let below = rustix::fs::statvfs(env.beneath("")).unwrap();
    assert!(above.f_blocks > 0);
    assert_eq!(
        above.f_blocks * above.f_frsize,
        below.f_blocks * below.f_frsize
    );
    assert_eq!(above.f_namemax, below.f_namemax);
    // Other cases write meanwhile: the free room is near, not equal.
    let free = |vfs: &rustix::fs::StatVfs| (vfs.f_bfree * vfs.f_frsize) as i64;
    assert!((free(&above) - free(&below)).abs() < 256 << 20);
    assert!(above.f_bavail <= above.f_bfree && above.f_bfree <= above.f_blocks);
}

fn file_counts_are_those_beneath(env: &Env) {
    let above = rustix::fs::statvfs(env.path("")).unwrap();
    let below = rustix::fs::statvfs(env.beneath("")).unwrap();
    assert_eq!(above.f_files, below.f_files);
    assert!(above.f_ffree <= above.f_files);
}

fn every_object_answers(env: &Env) {
    let (path, file) = (env.file("file", ""), env.open("file", OFlags::RDWR));
    env.chmod("file", 0);
    env.dir("dir");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    let blocks = |name| rustix::fs::statvfs(env.path(name)).unwrap().f_blocks;
    let total = blocks("");
    assert_eq!(["file", "dir", "link", "fifo"].map(blocks), [total; 4]);
    ALICE.run(|| assert_eq!(rustix::fs::statvfs(&path).unwrap().f_blocks, total));
    fs::remove_file(&path).unwrap();
    assert_eq!(rustix::fs::fstatvfs(&file).unwrap().f_blocks, total);
}
