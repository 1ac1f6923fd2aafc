//! fsync and related calls: what they accept, and that the data are in the lower tree afterwards.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    fsync_brings_data_beneath,
    fdatasync_brings_data_beneath,
    fsync_of_a_read_only_descriptor,
    fsync_of_a_directory,
    syncfs_succeeds,
    synchronous_writes_are_beneath,
    dropped_cache_is_read_again,
    fsync_of_an_unlinked_file,
    fsync_on_the_wrong_kind,
    close_brings_data_beneath,
};

fn fsync_brings_data_beneath(env: &Env) {
    let mut file = env.create("file");
    file.write_all(&[3; 100_000]).unwrap();
    rustix::fs::fsync(&file).unwrap();
    assert!(fs::read(env.beneath("file")).unwrap() == [3; 100_000]);
    file.write_all(b"more").unwrap();
    rustix::fs::fsync(&file).unwrap();
    assert_eq!(fs::metadata(env.beneath("file")).unwrap().len(), 100_004);
}

fn fdatasync_brings_data_beneath(env: &Env) {
    let mut file = env.create("file");
    file.write_all(&[4; 50_000]).unwrap();
    rustix::fs::fdatasync(&file).unwrap();
    assert!(fs::read(env.beneath("file")).unwrap() == [4; 50_000]);
}

fn fsync_of_a_read_only_descriptor(env: &Env) {
    env.file("file", "x");
    let mut writer = env.open("file", OFlags::WRONLY);
    let reader = env.open("file", OFlags::RDONLY);
    writer.write_all(b"written by the other").unwrap();
    rustix::fs::fsync(&reader).unwrap();
    rustix::fs::fdatasync(&reader).unwrap();
    assert_eq!(
        fs::read(env.beneath("file")).unwrap(),
        b"written by the other"
    );
}

fn fsync_of_a_directory(env: &Env) {
    env.dir("dir");
    env.file("dir/file", "x");
    let dir = env.open("dir", OFlags::RDONLY | OFlags::DIRECTORY);
    rustix::fs::fsync(&dir).unwrap();
    rustix::fs::fdatasync(&dir).unwrap();
    env.agree("dir/file");
}

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

fn fsync_of_an_unlinked_file(env: &Env) {
    let mut file = env.create("file");
    file.write_all(b"x").unwrap();
    rustix::fs::unlink(env.path("file")).unwrap();
    rustix::fs::fsync(&file).unwrap();
    file.write_all(b"y").unwrap();
    rustix::fs::fsync(&file).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2);
}

fn fsync_on_the_wrong_kind(env: &Env) {
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    let fifo = env.open("fifo", OFlags::RDWR);
    fails(rustix::fs::fsync(&fifo), Errno::INVAL);
    env.file("file", "");
    let path_only = env.open("file", OFlags::PATH);
    fails(rustix::fs::fsync(&path_only), Errno::BADF);
}

fn close_brings_data_beneath(env: &Env) {
    // As a shell script expects: the next program sees the data in either tree.
    let mut file = env.create("file");
    file.write_all(&[5; 30_000]).unwrap();
    drop(file);
    assert!(fs::read(env.beneath("file")).unwrap() == [5; 30_000]);
}
