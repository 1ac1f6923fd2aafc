//! copy_file_range and sendfile.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    copies_a_range:
        "pattern from 100000; file to; fill to 0 50000 9; open @a from r; open @b to w;
         copy @a 1000 @b 333 20000; close @b; is to size 50000; filled to 0 333 9;
         filled to 333 20000 pattern 1000; filled to 20333 29667 9",
    copies_a_whole_file:
        "pattern from 3000000; open @a from r; open @b to rw,creat,excl; copy @a 0 @b 0 9000000;
         is @b size 3000000; close @b; filled to 0 3000000 pattern 0",
    moves_both_offsets,
    within_one_file:
        "pattern file 10000; open @f file rw; copy @f 0 @f 20000 10000; close @f;
         is file size 30000; filled file 0 10000 pattern 0; filled file 10000 10000 0;
         filled file 20000 10000 pattern 0",
    overlapping_ranges_are_einval:
        "pattern file 10000; open @f file rw; EINVAL copy @f 0 @f 500 1000;
         filled file 0 10000 pattern 0",
    at_the_end_copies_nothing:
        "pattern from 100; open @a from r; open @b to rw,creat,excl; copy @a 100 @b 0 10;
         copy @a 5000 @b 0 10; is @b size 0; copy @a 90 @b 0 1000; is @b size 10",
    errors:
        "pattern from 100; file to kept; open @a from r; open @r to r; EBADF copy @a 0 @r 0 10;
         open @e to w,append; EBADF copy @a 0 @e 0 10; open @w from w; open @b to w;
         EBADF copy @w 0 @b 0 10; open @d . r,directory; EISDIR copy @d 0 @b 0 10;
         is to text kept",
    sees_what_was_just_written:
        "open @a from rw,creat,excl; open @b to rw,creat,excl; fill @a 0 20000 5;
         fill @a 20000 20000 6; copy @a 0 @b 0 40000; close @{a,b}; filled to 0 20000 5;
         filled to 20000 20000 6",
    replaces_what_was_cached:
        "pattern from 20000; file to; fill to 0 20000 9; open @a from r; open @b to rw;
         filled @b 0 20000 9; copy @a 0 @b 0 20000; filled @b 0 20000 pattern 0",
    sendfile_copies,
};

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
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
