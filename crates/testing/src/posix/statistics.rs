//! statfs and statvfs.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    block_counts_are_those_beneath,
    file_counts_are_those_beneath,
    every_object_answers,
    by_descriptor,
    written_data_takes_room [NotBtrfs],
    missing_is_enoent,
    unprivileged_callers_too,
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
    env.file("file", "");
    env.dir("dir");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    let total = rustix::fs::statvfs(env.path("")).unwrap().f_blocks;
    for name in ["file", "dir", "link", "fifo"] {
        assert_eq!(
            rustix::fs::statvfs(env.path(name)).unwrap().f_blocks,
            total,
            "{name}"
        );
    }
}

fn by_descriptor(env: &Env) {
    let file = env.create("file");
    let by_path = rustix::fs::statvfs(env.path("file")).unwrap();
    let by_descriptor = rustix::fs::fstatvfs(&file).unwrap();
    assert_eq!(by_path.f_blocks, by_descriptor.f_blocks);
    assert_eq!(by_path.f_fsid, by_descriptor.f_fsid);
    rustix::fs::unlink(env.path("file")).unwrap();
    assert_eq!(
        rustix::fs::fstatvfs(&file).unwrap().f_blocks,
        by_path.f_blocks
    );
}

fn written_data_takes_room(env: &Env) {
    // Much more than the other cases give back meanwhile.
    const LEN: u64 = 96 << 20;
    let free = || {
        let vfs = rustix::fs::statvfs(env.path("")).unwrap();
        vfs.f_bfree * vfs.f_frsize
    };
    let before = free();
    let file = env.create("file");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LEN).unwrap();
    let after = free();
    assert!(
        after < before && before - after >= LEN / 2,
        "free: {before}, then {after}"
    );
}

fn missing_is_enoent(env: &Env) {
    fails(rustix::fs::statvfs(env.path("missing")), Errno::NOENT);
    env.file("file", "");
    fails(rustix::fs::statvfs(env.path("file/below")), Errno::NOTDIR);
}

fn unprivileged_callers_too(env: &Env) {
    let path = env.file("file", "");
    env.chmod("file", 0);
    let total = rustix::fs::statvfs(&path).unwrap().f_blocks;
    ALICE.run(|| assert_eq!(rustix::fs::statvfs(&path).unwrap().f_blocks, total));
}
