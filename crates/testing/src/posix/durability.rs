//! fsync and related calls: what they accept, and that the data are in the lower tree afterwards.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    fsync_brings_data_beneath:
        "open @f file rw,creat,excl; fill @f 0 100000 3; fsync @f; is ^file size 100000;
         filled ^file 0 100000 3; pwrite @f 100000 more; fsync @f; is ^file size 100004",
    fdatasync_brings_data_beneath:
        "open @f file rw,creat,excl; fill @f 0 50000 4; fdatasync @f; is ^file size 50000;
         filled ^file 0 50000 4",
    fsync_of_a_read_only_descriptor:
        "file file x; open @w file w; open @r file r; write @w written by the other; fsync @r;
         is ^file text written by the other",
    fsync_of_a_directory: "dir dir; file dir/file x; open @d dir r,directory; fsync @d",
    syncfs_succeeds,
    synchronous_writes_are_beneath,
    dropped_cache_is_read_again,
    fsync_of_an_unlinked_file:
        "open @f file rw,creat,excl; write @f x; unlink file; fsync @f; write @f y; fsync @f;
         is @f size 2",
    fsync_on_the_wrong_kind:
        "fifo fifo; open @f fifo rw; EINVAL fsync @f; file file; open @p file path;
         EBADF fsync @p",
};

fn syncfs_succeeds(env: &Env) {
    let mut file = env.create("file");
    file.write_all(b"x").unwrap();
    rustix::fs::syncfs(&file).unwrap();
    let dir = env.open("", OFlags::RDONLY | OFlags::DIRECTORY);
    rustix::fs::syncfs(&dir).unwrap();
    assert_eq!(fs::read(env.beneath("file")).unwrap(), b"x");
}

fn synchronous_writes_are_beneath(env: &Env) {
    for (name, flag) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
        let flags = OFlags::WRONLY | OFlags::CREATE | flag;
        let mut file = env.open(name, flags);
        file.write_all(b"at once").unwrap();
        assert_eq!(fs::read(env.beneath(name)).unwrap(), b"at once");
        file.write_all(&[7; 9000]).unwrap();
        assert_eq!(fs::metadata(env.beneath(name)).unwrap().len(), 9007);
    }
}

fn dropped_cache_is_read_again(env: &Env) {
    let mut file = env.create("file");
    file.write_all(&[1; 20_000]).unwrap();
    let advice = rustix::fs::Advice::DontNeed;
    file.sync_data().unwrap();
    rustix::fs::fadvise(&file, 0, None, advice).unwrap();
    let mut content = vec![0; 20_000];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content == [1; 20_000]);
}
