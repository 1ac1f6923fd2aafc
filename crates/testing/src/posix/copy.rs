//! copy_file_range and sendfile.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    copies_a_range,
    copies_a_whole_file,
    moves_both_offsets,
    within_one_file,
    overlapping_ranges_are_einval,
    at_the_end_copies_nothing,
    errors,
    sees_what_was_just_written,
    replaces_what_was_cached,
    sendfile_copies,
};

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// Copies all of `len`, as a caller must: one call may copy less.
#[track_caller]
fn copy(from: &File, mut from_at: u64, to: &File, mut to_at: u64, len: usize) -> usize {
    let mut done = 0;
    while done < len {
        let (source, target) = (Some(&mut from_at), Some(&mut to_at));
        match rustix::fs::copy_file_range(from, source, to, target, len - done).unwrap() {
            0 => break,
            copied => done += copied,
        }
    }
    done
}

fn copies_a_range(env: &Env) {
    let data = content(100_000);
    env.file("from", &data);
    env.file("to", vec![9; 50_000]);
    let (from, to) = (
        env.open("from", OFlags::RDONLY),
        env.open("to", OFlags::WRONLY),
    );
    assert_eq!(copy(&from, 1000, &to, 333, 20_000), 20_000);
    drop(to);
    let copied = env.read("to");
    assert_eq!(copied.len(), 50_000);
    assert!(copied[333..20_333] == data[1000..21_000]);
    assert!(
        copied[..333]
            .iter()
            .chain(&copied[20_333..])
            .all(|byte| *byte == 9)
    );
    env.agree("to");
    env.agree("from");
}

fn copies_a_whole_file(env: &Env) {
    let data = content(3_000_000);
    env.file("from", &data);
    let (from, to) = (env.open("from", OFlags::RDONLY), env.create("to"));
    assert_eq!(copy(&from, 0, &to, 0, usize::MAX >> 8), data.len());
    assert_eq!(to.metadata().unwrap().len(), data.len() as u64);
    drop(to);
    assert!(env.read("to") == data);
    env.agree("to");
}

fn moves_both_offsets(env: &Env) {
    env.file("from", content(1000));
    let (from, to) = (env.open("from", OFlags::RDONLY), env.create("to"));
    let copied = rustix::fs::copy_file_range(&from, None, &to, None, 600).unwrap();
    assert_eq!(copied, 600);
    assert_eq!(rustix::fs::tell(&from).unwrap(), 600);
    assert_eq!(rustix::fs::tell(&to).unwrap(), 600);
    let mut at = 10;
    rustix::fs::copy_file_range(&from, Some(&mut at), &to, None, 5).unwrap();
    assert_eq!((at, rustix::fs::tell(&from).unwrap()), (15, 600));
    assert_eq!(rustix::fs::tell(&to).unwrap(), 605);
    env.agree("to");
}

fn within_one_file(env: &Env) {
    let data = content(10_000);
    env.file("file", &data);
    let file = env.open("file", OFlags::RDWR);
    assert_eq!(copy(&file, 0, &file, 20_000, 10_000), 10_000);
    drop(file);
    let result = env.read("file");
    assert_eq!(result.len(), 30_000);
    assert!(result[20_000..] == data);
    assert!(result[10_000..20_000].iter().all(|byte| *byte == 0));
    env.agree("file");
}

fn overlapping_ranges_are_einval(env: &Env) {
    let data = content(10_000);
    env.file("file", &data);
    let file = env.open("file", OFlags::RDWR);
    let (mut from, mut to) = (0, 500);
    let result = rustix::fs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 1000);
    fails(result, Errno::INVAL);
    assert!(env.read("file") == data);
}

fn at_the_end_copies_nothing(env: &Env) {
    env.file("from", content(100));
    let (from, to) = (env.open("from", OFlags::RDONLY), env.create("to"));
    assert_eq!(copy(&from, 100, &to, 0, 10), 0);
    assert_eq!(copy(&from, 5000, &to, 0, 10), 0);
    assert_eq!(to.metadata().unwrap().len(), 0);
    assert_eq!(copy(&from, 90, &to, 0, 1000), 10);
}

fn errors(env: &Env) {
    env.file("from", content(100));
    env.file("to", "kept");
    let (from, to) = (
        env.open("from", OFlags::RDONLY),
        env.open("to", OFlags::RDONLY),
    );
    fails(
        rustix::fs::copy_file_range(&from, None, &to, None, 10),
        Errno::BADF,
    );
    let append = env.open("to", OFlags::WRONLY | OFlags::APPEND);
    fails(
        rustix::fs::copy_file_range(&from, None, &append, None, 10),
        Errno::BADF,
    );
    let write_only = env.open("from", OFlags::WRONLY);
    let target = env.open("to", OFlags::WRONLY);
    fails(
        rustix::fs::copy_file_range(&write_only, None, &target, None, 10),
        Errno::BADF,
    );
    let dir = env.open("", OFlags::RDONLY | OFlags::DIRECTORY);
    fails(
        rustix::fs::copy_file_range(&dir, None, &target, None, 10),
        Errno::ISDIR,
    );
    assert_eq!(env.read("to"), b"kept");
}

fn sees_what_was_just_written(env: &Env) {
    // Nothing is flushed in between.
    let data = content(40_000);
    let (mut from, to) = (env.create("from"), env.create("to"));
    from.write_all(&data).unwrap();
    assert_eq!(copy(&from, 0, &to, 0, 40_000), 40_000);
    drop((from, to));
    assert!(env.read("to") == data);
    env.agree("to");
}

fn replaces_what_was_cached(env: &Env) {
    let data = content(20_000);
    env.file("from", &data);
    env.file("to", vec![9; 20_000]);
    let (from, to) = (
        env.open("from", OFlags::RDONLY),
        env.open("to", OFlags::RDWR),
    );
    let mut buffer = vec![0; 20_000];
    to.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(copy(&from, 0, &to, 0, 20_000), 20_000);
    to.read_exact_at(&mut buffer, 0).unwrap();
    assert!(buffer == data, "old content from a cache");
    drop(to);
    env.agree("to");
}

fn sendfile_copies(env: &Env) {
    let data = content(200_000);
    env.file("from", &data);
    let (from, to) = (env.open("from", OFlags::RDONLY), env.create("to"));
    let mut at = 0;
    while at < 200_000 {
        assert!(rustix::fs::sendfile(&to, &from, Some(&mut at), 200_000).unwrap() > 0);
    }
    drop(to);
    assert!(env.read("to") == data);
    env.agree("to");
}
