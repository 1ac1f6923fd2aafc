//! truncate by path and by descriptor.

use crate::fence::truncate::truncate;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    shrinks_by_descriptor,
    shrinks_by_path,
    grows_with_zeros,
    to_the_same_size,
    shrink_then_grow_shows_zeros,
    within_a_page_zeroes_the_rest,
    of_an_open_file_by_path,
    changes_mtime_and_ctime [WriteThrough, TruncateToSameSize],
    by_descriptor_changes_mtime_and_ctime [WriteThrough],
    to_zero_and_back,
    far_beyond,
    errors,
    needs_write_permission_by_path,
    open_descriptor_keeps_its_right,
    of_a_directory_is_eisdir,
    read_only_mode_for_root,
};

fn shrinks_by_descriptor(env: &Env) {
    env.file("file", "0123456789");
    let file = env.open("file", OFlags::RDWR);
    file.set_len(4).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4);
    drop(file);
    assert_eq!(env.read("file"), b"0123");
    env.agree("file");
}

fn shrinks_by_path(env: &Env) {
    let path = env.file("file", "0123456789");
    truncate(&path, 3).unwrap();
    assert_eq!(env.stat("file").st_size, 3);
    assert_eq!(env.read("file"), b"012");
    env.agree("file");
}

fn grows_with_zeros(env: &Env) {
    let path = env.file("file", "abc");
    truncate(&path, 10_000).unwrap();
    let content = env.read("file");
    assert_eq!(content.len(), 10_000);
    assert_eq!(&content[..3], b"abc");
    assert!(content[3..].iter().all(|byte| *byte == 0));
    env.agree("file");
}

fn to_the_same_size(env: &Env) {
    let path = env.file("file", "abc");
    truncate(&path, 3).unwrap();
    assert_eq!(env.read("file"), b"abc");
    env.agree("file");
}

fn shrink_then_grow_shows_zeros(env: &Env) {
    let path = env.file("file", vec![b'x'; 20_000]);
    let file = env.open("file", OFlags::RDWR);
    let mut buffer = vec![0; 20_000];
    file.read_exact_at(&mut buffer, 0).unwrap();
    file.set_len(5000).unwrap();
    truncate(&path, 20_000).unwrap();
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer[..5000].iter().all(|byte| *byte == b'x'));
    assert!(
        buffer[5000..].iter().all(|byte| *byte == 0),
        "old bytes came back"
    );
    drop(file);
    env.agree("file");
}

fn within_a_page_zeroes_the_rest(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.set_len(100).unwrap();
    file.write_all_at(&[2; 1], 4000).unwrap();
    let mut buffer = [9; 4001];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer[..100].iter().all(|byte| *byte == 1));
    assert!(buffer[100..4000].iter().all(|byte| *byte == 0));
    assert_eq!(buffer[4000], 2);
    drop(file);
    env.agree("file");
}

fn of_an_open_file_by_path(env: &Env) {
    let path = env.file("file", "");
    let mut file = env.open("file", OFlags::RDWR);
    file.write_all(b"0123456789").unwrap();
    truncate(&path, 5).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    // The offset stays at 10: a hole.
    file.write_all(b"X").unwrap();
    drop(file);
    assert_eq!(env.read("file"), b"01234\0\0\0\0\0X");
    env.agree("file");
}

fn changes_mtime_and_ctime(env: &Env) {
    let path = env.file("file", "0123456789");
    for len in [10, 4, 4000] {
        let before = env.stat("file");
        tick();
        truncate(&path, len).unwrap();
        let after = env.stat("file");
        assert!((after.st_mtime, after.st_mtime_nsec) > (before.st_mtime, before.st_mtime_nsec));
        assert!((after.st_ctime, after.st_ctime_nsec) > (before.st_ctime, before.st_ctime_nsec));
    }
    env.agree("file");
}

/// Whether the size changes or not, on every file system.
fn by_descriptor_changes_mtime_and_ctime(env: &Env) {
    env.file("file", "0123456789");
    let file = env.open("file", OFlags::RDWR);
    for len in [10, 10, 4, 4] {
        let before = env.stat("file");
        tick();
        file.set_len(len).unwrap();
        let after = env.stat("file");
        assert!((after.st_mtime, after.st_mtime_nsec) > (before.st_mtime, before.st_mtime_nsec));
        assert!((after.st_ctime, after.st_ctime_nsec) > (before.st_ctime, before.st_ctime_nsec));
    }
    env.agree("file");
}

fn to_zero_and_back(env: &Env) {
    let file = env.create("file");
    for round in 1..50u8 {
        file.write_all_at(&vec![round; 6000], 0).unwrap();
        file.set_len(0).unwrap();
        file.set_len(3000).unwrap();
        let mut buffer = vec![9; 6000];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 3000);
        assert!(
            buffer[..3000].iter().all(|byte| *byte == 0),
            "round {round}"
        );
    }
    drop(file);
    env.agree("file");
}

fn far_beyond(env: &Env) {
    let path = env.file("file", "x");
    truncate(&path, 1 << 42).unwrap();
    assert_eq!(env.stat("file").st_size, 1 << 42);
    assert_eq!(fs::metadata(env.beneath("file")).unwrap().len(), 1 << 42);
    truncate(&path, 1).unwrap();
    env.agree("file");
}

fn errors(env: &Env) {
    let path = env.file("file", "kept");
    fails(truncate(&path, -1), Errno::INVAL);
    fails(truncate(&env.path("missing"), 0), Errno::NOENT);
    fails(truncate(&env.path("file/below"), 0), Errno::NOTDIR);
    rustix::fs::mkfifoat(CWD, env.path("fifo"), Mode::RWXU).unwrap();
    fails(truncate(&env.path("fifo"), 0), Errno::INVAL);
    assert_eq!(env.read("file"), b"kept");
}

fn needs_write_permission_by_path(env: &Env) {
    let path = env.file("file", "kept");
    ALICE.run(|| fails(truncate(&path, 0), Errno::ACCESS));
    env.chmod("file", 0o646);
    ALICE.run(|| truncate(&path, 2).unwrap());
    assert_eq!(env.read("file"), b"ke");
    env.agree("file");
}

fn open_descriptor_keeps_its_right(env: &Env) {
    let path = env.file("file", "0123456789");
    env.chmod("file", 0o666);
    let file = ALICE.run(|| open(&path, OFlags::RDWR).unwrap());
    env.chmod("file", 0o600);
    ALICE.run(|| {
        file.set_len(5).unwrap();
        file.write_all_at(b"X", 0).unwrap();
        fails(open(&path, OFlags::RDONLY), Errno::ACCESS);
    });
    drop(file);
    assert_eq!(env.read("file"), b"X1234");
    env.agree("file");
}

fn of_a_directory_is_eisdir(env: &Env) {
    fails(truncate(&env.dir("dir"), 0), Errno::ISDIR);
}

fn read_only_mode_for_root(env: &Env) {
    let path = env.file("file", "0123456789");
    env.chmod("file", 0o000);
    truncate(&path, 5).unwrap();
    assert_eq!(env.read("file"), b"01234");
    env.agree("file");
}
