//! The three times of a file: set explicitly, and updated by changes.

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    set_to_the_nanosecond,
    set_by_descriptor,
    now_is_the_present,
    omit_leaves_a_time,
    setting_moves_ctime,
    of_a_symbolic_link,
    before_the_epoch,
    beyond_32_bits,
    own_times_need_the_owner,
    now_needs_only_write_access,
    write_moves_mtime_and_ctime [WriteThrough],
    chmod_moves_ctime_only,
    set_time_survives_reads_and_close,
};

fn time(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    }
}

fn times(atime: Timespec, mtime: Timespec) -> Timestamps {
    Timestamps {
        last_access: atime,
        last_modification: mtime,
    }
}

fn set(path: &Path, atime: Timespec, mtime: Timespec) -> rustix::io::Result<()> {
    rustix::fs::utimensat(CWD, path, &times(atime, mtime), AtFlags::SYMLINK_NOFOLLOW)
}

fn atime(stat: &Stat) -> (i64, u64) {
    (stat.st_atime, stat.st_atime_nsec)
}

fn mtime(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

fn ctime(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime, stat.st_ctime_nsec)
}

fn set_to_the_nanosecond(env: &Env) {
    let path = env.file("file", "x");
    set(
        &path,
        time(1_000_000_000, 123_456_789),
        time(1_200_000_000, 987_654_321),
    )
    .unwrap();
    let stat = env.stat("file");
    assert_eq!(atime(&stat), (1_000_000_000, 123_456_789));
    assert_eq!(mtime(&stat), (1_200_000_000, 987_654_321));
    let below = rustix::fs::lstat(env.beneath("file")).unwrap();
    assert_eq!((atime(&below), mtime(&below)), (atime(&stat), mtime(&stat)));
}

fn set_by_descriptor(env: &Env) {
    let file = env.create("file");
    rustix::fs::futimens(&file, &times(time(5, 6), time(7, 8))).unwrap();
    let stat = rustix::fs::fstat(&file).unwrap();
    assert_eq!((atime(&stat), mtime(&stat)), ((5, 6), (7, 8)));
    drop(file);
    let dir = env.dir("dir");
    set(&dir, time(9, 10), time(11, 12)).unwrap();
    assert_eq!(mtime(&env.stat("dir")), (11, 12));
    env.agree("file");
    env.agree("dir");
}

/// Whole seconds, by the C library: `rustix` asks a kernel's vDSO, and User-Mode Linux has none that it
/// takes.
fn since_epoch() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_secs().try_into().unwrap()
}

fn now_is_the_present(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(1, 1), time(1, 1)).unwrap();
    set(&path, time(0, UTIME_NOW), time(0, UTIME_NOW)).unwrap();
    let now = since_epoch();
    let stat = env.stat("file");
    assert!(
        (now - stat.st_atime).abs() <= 5,
        "atime is {}",
        stat.st_atime
    );
    assert!(
        (now - stat.st_mtime).abs() <= 5,
        "mtime is {}",
        stat.st_mtime
    );
    env.agree("file");
}

fn omit_leaves_a_time(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(100, 1), time(200, 2)).unwrap();
    set(&path, time(0, UTIME_OMIT), time(300, 3)).unwrap();
    let stat = env.stat("file");
    assert_eq!((atime(&stat), mtime(&stat)), ((100, 1), (300, 3)));
    set(&path, time(400, 4), time(0, UTIME_OMIT)).unwrap();
    let stat = env.stat("file");
    assert_eq!((atime(&stat), mtime(&stat)), ((400, 4), (300, 3)));
    env.agree("file");
}

fn setting_moves_ctime(env: &Env) {
    let path = env.file("file", "x");
    env.stamp("file");
    let before = env.stat("file");
    tick();
    set(&path, time(1, 0), time(1, 0)).unwrap();
    assert!(ctime(&env.stat("file")) > ctime(&before));
}

fn of_a_symbolic_link(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(50, 0), time(60, 0)).unwrap();
    rustix::fs::symlink("file", env.path("link")).unwrap();
    set(&env.path("link"), time(70, 0), time(80, 0)).unwrap();
    assert_eq!(mtime(&env.stat("link")), (80, 0));
    assert_eq!(mtime(&env.stat("file")), (60, 0));
    let through = times(time(90, 0), time(95, 0));
    rustix::fs::utimensat(CWD, env.path("link"), &through, AtFlags::empty()).unwrap();
    assert_eq!(mtime(&env.stat("link")), (80, 0));
    assert_eq!(mtime(&env.stat("file")), (95, 0));
    env.agree("file");
    env.agree("link");
}

fn before_the_epoch(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(-2, 500), time(-100_000, 7)).unwrap();
    let stat = env.stat("file");
    assert_eq!((atime(&stat), mtime(&stat)), ((-2, 500), (-100_000, 7)));
    env.agree("file");
}

fn beyond_32_bits(env: &Env) {
    let path = env.file("file", "x");
    let late = 1 << 33;
    set(&path, time(late, 0), time(late + 1, 0)).unwrap();
    let stat = env.stat("file");
    assert_eq!((atime(&stat), mtime(&stat)), ((late, 0), (late + 1, 0)));
    env.agree("file");
}

fn own_times_need_the_owner(env: &Env) {
    let path = env.file("file", "x");
    env.chmod("file", 0o666);
    set(&path, time(1, 0), time(2, 0)).unwrap();
    // Write permission does not allow an arbitrary time.
    ALICE.run(|| fails(set(&path, time(3, 0), time(4, 0)), Errno::PERM));
    assert_eq!(mtime(&env.stat("file")), (2, 0));
    env.chown("file", ALICE.uid, ALICE.gid);
    ALICE.run(|| set(&path, time(3, 0), time(4, 0)).unwrap());
    assert_eq!(mtime(&env.stat("file")), (4, 0));
    env.agree("file");
}

fn now_needs_only_write_access(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(1, 0), time(2, 0)).unwrap();
    let now = time(0, UTIME_NOW);
    ALICE.run(|| fails(set(&path, now, now), Errno::ACCESS));
    assert_eq!(mtime(&env.stat("file")), (2, 0));
    env.chmod("file", 0o666);
    ALICE.run(|| set(&path, now, now).unwrap());
    assert!(env.stat("file").st_mtime > 1_000_000_000);
    env.agree("file");
}

fn write_moves_mtime_and_ctime(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(1, 0), time(2, 0)).unwrap();
    let before = env.stat("file");
    tick();
    env.open("file", OFlags::WRONLY).write_all(b"y").unwrap();
    let after = env.stat("file");
    assert!(
        mtime(&after) > ctime(&before),
        "{:?} after {:?}",
        mtime(&after),
        ctime(&before)
    );
    assert!(ctime(&after) > ctime(&before));
    assert_eq!(atime(&after), (1, 0));
    env.agree("file");
}

fn chmod_moves_ctime_only(env: &Env) {
    let path = env.file("file", "x");
    set(&path, time(1, 0), time(2, 0)).unwrap();
    let before = env.stat("file");
    tick();
    env.chmod("file", 0o600);
    let after = env.stat("file");
    assert!(ctime(&after) > ctime(&before));
    assert_eq!((atime(&after), mtime(&after)), ((1, 0), (2, 0)));
    env.agree("file");
}

fn set_time_survives_reads_and_close(env: &Env) {
    // As tar and cp -p do: write, then set the time on the open file, then close.
    let mut file = env.create("file");
    file.write_all(&[7; 10_000]).unwrap();
    rustix::fs::futimens(&file, &times(time(1000, 1), time(2000, 2))).unwrap();
    drop(file);
    assert_eq!(mtime(&env.stat("file")), (2000, 2));
    assert_eq!(env.read("file").len(), 10_000);
    assert_eq!(mtime(&env.stat("file")), (2000, 2));
    env.agree("file");
}
