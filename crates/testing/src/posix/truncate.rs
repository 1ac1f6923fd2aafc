//! truncate by path and by descriptor.

use crate::fence::truncate::truncate;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    shrinks_by_descriptor:
        "file file 0123456789; open @f file rw; truncate @f 4; is @f size 4; close @f;
         is file text 0123",
    shrinks_by_path: "file file 0123456789; truncate file 3; is file size 3 text 012",
    grows_with_zeros,
    to_the_same_size: "file file abc; truncate file 3; is file text abc",
    shrink_then_grow_shows_zeros,
    within_a_page_zeroes_the_rest,
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
    far_beyond,
    errors:
        "file file kept; EINVAL truncate file -1; ENOENT truncate missing 0;
         ENOTDIR truncate file/below 0; fifo fifo; EINVAL truncate fifo 0; is file text kept",
    needs_write_permission_by_path:
        "file file kept; alice: EACCES truncate file 0; chmod file 646; alice: truncate file 2;
         is file text ke",
    open_descriptor_keeps_its_right:
        "file file 0123456789; chmod file 666; alice: open @f file rw; chmod file 600;
         alice: truncate @f 5; alice: pwrite @f 0 X; alice: EACCES open file r; close @f;
         is file text X1234",
    of_a_directory_is_eisdir: "dir dir; EISDIR truncate dir 0",
    read_only_mode_for_root:
        "file file 0123456789; chmod file 0; truncate file 5; is file text 01234",
};

fn grows_with_zeros(env: &Env) {
    let path = env.file("file", "abc");
    truncate(&path, 10_000).unwrap();
    let content = env.read("file");
    assert_eq!(content.len(), 10_000);
    assert_eq!(&content[..3], b"abc");
    assert!(content[3..].iter().all(|byte| *byte == 0));
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
