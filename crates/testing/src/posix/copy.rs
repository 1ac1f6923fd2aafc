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
    at_the_end_copies_nothing:
        "pattern from 100; open @a from r; open @b to rw,creat,excl; copy @a 100 @b 0 10;
         copy @a 5000 @b 0 10; is @b size 0; copy @a 90 @b 0 1000; is @b size 10",
    sees_what_was_just_written:
        "open @a from rw,creat,excl; open @b to rw,creat,excl; fill @a 0 20000 5;
         fill @a 20000 20000 6; copy @a 0 @b 0 40000; close @{a,b}; filled to 0 20000 5;
         filled to 20000 20000 6",
    replaces_what_was_cached:
        "pattern from 20000; file to; fill to 0 20000 9; open @a from r; open @b to rw;
         filled @b 0 20000 9; copy @a 0 @b 0 20000; filled @b 0 20000 pattern 0",
};

fn moves_both_offsets(env: &Env) {
    env.file("from", [7; 1000]);
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
