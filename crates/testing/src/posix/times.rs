//! The three times of a file: set explicitly, and updated by changes.

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    set_to_the_nanosecond:
        "file file x; times file 1000000000.123456789 1200000000.987654321;
         is {file,^file} atime 1000000000.123456789 mtime 1200000000.987654321",
    set_by_descriptor:
        "open @f file rw,creat,excl; times @f 5.6 7.8; is @f atime 5.6 mtime 7.8; close @f;
         dir dir; times dir 9.10 11.12; is dir mtime 11.12",
    now_is_the_present,
    omit_leaves_a_time:
        "file file x; times file 100.1 200.2; times file - 300.3;
         is file atime 100.1 mtime 300.3; times file 400.4 -; is file atime 400.4 mtime 300.3",
    setting_moves_ctime:
        "file file x; stamp file; note file; tick; times file 1 1; later file ctime",
    of_a_symbolic_link:
        "file file x; times file 50 60; symlink file link; times link 70 80; is link mtime 80;
         is file mtime 60; open @f link r; times @f 90 95; is link mtime 80; is file mtime 95",
    before_the_epoch:
        "file file x; times file -2.500 -100000.7; is file atime -2.500 mtime -100000.7",
    beyond_32_bits:
        "file file x; times file 8589934592 8589934593; is file atime 8589934592 mtime 8589934593",
    now_needs_only_write_access:
        "file file x; times file 1 2; alice: EACCES times file now now; is file mtime 2;
         chmod file 666; note file; alice: times file now now; later file mtime",
    write_moves_mtime_and_ctime [WriteThrough]:
        "file file x; times file 1 -; note file; tick; open @f file w; write @f y; close @f;
         later file mtime ctime; same file atime",
    chmod_moves_ctime_only:
        "file file x; times file 1 2; note file; tick; chmod file 600; later file ctime;
         same file atime mtime",
    set_time_survives_reads_and_close:
        "open @f file rw,creat,excl; write @f content; times @f 1000.1 2000.2; close @f;
         is file mtime 2000.2 text content; is file mtime 2000.2",
};

fn now_is_the_present(env: &Env) {
    let path = env.file("file", "x");
    let set = |tv_sec, tv_nsec| {
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    set(1, 1);
    set(0, UTIME_NOW);
    let now = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_secs();
    let stat = env.stat("file");
    for time in [stat.st_atime, stat.st_mtime] {
        assert!((now as i64 - time).abs() <= 5, "{time}, now {now}");
    }
    env.agree("file");
}
