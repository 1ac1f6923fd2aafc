//! truncate by path and by descriptor.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    shrinks_by_descriptor:
        "file file 0123456789; open @f file rw; truncate @f 4; is @f size 4; close @f;
         is file text 0123",
    grows_with_zeros:
        "file file abc; truncate file 10000; is file size 10000; filled file 3 9997 0;
         truncate file 3; is file text abc",
    shrink_then_grow_shows_zeros:
        "file file; fill file 0 20000 120; open @f file rw; filled @f 0 20000 120;
         truncate @f 5000; truncate file 20000; filled @f 0 5000 120; filled @f 5000 15000 0",
    within_a_page_zeroes_the_rest:
        "open @f file rw,creat,excl; fill @f 0 4096 1; truncate @f 100; fill @f 4000 1 2;
         filled @f 0 100 1; filled @f 100 3900 0; filled @f 4000 1 2",
    of_an_open_file_by_path:
        "file file; open @f file rw; write @f 0123456789; truncate file 5; is @f size 5;
         write @f X; close @f; is file text 01234\\x00\\x00\\x00\\x00\\x00X",
    changes_mtime_and_ctime [WriteThrough, TruncateToSameSize]:
        "file file 0123456789; note file; tick; truncate file 10; later file mtime ctime;
         note file; tick; truncate file 4; later file mtime ctime; note file; tick;
         truncate file 4000; later file mtime ctime",
    by_descriptor_changes_mtime_and_ctime [WriteThrough]:
        "file file 0123456789; open @f file rw; note file; tick; truncate @f 10;
         later file mtime ctime; note file; tick; truncate @f 10; later file mtime ctime;
         note file; tick; truncate @f 4; later file mtime ctime; note file; tick; truncate @f 4;
         later file mtime ctime",
    to_zero_and_back,
    far_beyond:
        "file file x; truncate file 4398046511104; is {file,^file} size 4398046511104;
         truncate file 1",
    open_descriptor_keeps_its_right:
        "file file 0123456789; chmod file 666; alice: open @f file rw; chmod file 600;
         alice: truncate @f 5; alice: pwrite @f 0 X; alice: EACCES open file r; close @f;
         is file text X1234",
    read_only_mode_for_root:
        "file file 0123456789; chmod file 0; truncate file 5; is file text 01234",
};

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
