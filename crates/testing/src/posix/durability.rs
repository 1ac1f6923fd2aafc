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
    syncfs_succeeds:
        "open @f file rw,creat,excl; write @f x; syncfs @f; open @d . r,directory; syncfs @d",
    synchronous_writes_are_beneath:
        "open @f file w,creat,sync; write @f at once; is ^file text at once; fill @f end 9000 7;
         is ^file size 9007",
    fsync_of_an_unlinked_file:
        "open @f file rw,creat,excl; write @f x; unlink file; fsync @f; write @f y; fsync @f;
         is @f size 2",
};
