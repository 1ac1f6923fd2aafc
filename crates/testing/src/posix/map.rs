//! Memory maps of files, and their consistency with reads and writes.

use super::prelude::*;
use crate::fence::mapping::{Mapping, Sharing};

pub(super) const CASES: &[Case] = cases! {
    shows_the_content [SharedMaps]:
        "file file 0123456789; fill file 10 9000 53; open @f file r; map @m @f 9010 read;
         load @m 0 012345678955; load @m 9008 55",
    store_is_read_at_once [SharedMaps]:
        "file file; fill file 0 10000 1; open @f file rw; map @m @f 10000 shared;
         store @m 5000 stored; pread @f 5000 stored; open @g file r; pread @g 5000 stored",
    write_shows_in_the_map [SharedMaps]:
        "file file; fill file 0 10000 97; open @f file rw; map @m @f 10000 read; load @m 100 aaa;
         pwrite @f 100 {one,two,abc}; load @m 100 abc; pwrite @f 100 xyz; load @m 100 xyz",
    synced_store_is_beneath [SharedMaps]:
        "file file; fill file 0 10000 1; open @f file rw; map @m @f 10000 shared;
         store @m 9000 durable; msync @m; open @b ^file r; pread @b 9000 durable",
    unmapped_store_is_in_the_file [SharedMaps]:
        "file file; fill file 0 10000 1; open @f file rw; map @m @f 10000 shared; close @f;
         store @m 0 first; close @m; open @g file r; pread @g 0 first",
    private_stores_stay_private:
        "file file; fill file 0 10000 1; open @f file r; map @m @f 10000 private;
         store @m 100 mine; load @m 100 mine; close @m; filled file 0 10000 1",
    outlives_its_descriptor_and_name [SharedMaps]:
        "file file; fill file 0 10000 1; open @f file rw; pwrite @f 0 abcd;
         map @m @f 8192 shared; close @f; unlink file; store @m 0 x; load @m 0 xbcd; msync @m;
         absent file",
    rest_of_the_last_page_is_zero [SharedMaps],
    grows_with_the_file [SharedMaps]:
        "file file; fill file 0 4096 97; open @f file rw; map @m @f 8192 shared; load @m 0 a;
         truncate @f 8192; store @m 6000 beyond; pread @f 6000 beyond",
    many_pages [SharedMaps],
    what_was_stored_beneath_is_read_after_an_open [CloseToOpen, HostMaps],
    follows_a_truncating_open [SharedMaps]:
        "file file; fill file 0 10000 1; open @f file rw; map @m @f 8192 shared; store @m 4000 x;
         open file rw,trunc; fill @f 0 4096 98; load @m 0 bbbb; load @m 4000 bb",
};

fn rest_of_the_last_page_is_zero(env: &Env) {
    env.file("file", "abc");
    let file = env.open("file", OFlags::RDWR);
    let map = Mapping::new(&file, 4096, Sharing::Shared).unwrap();
    assert_eq!(map.load(0, 3), b"abc");
    assert!(map.load(3, 4093).iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().unwrap().len(), 3);
}

fn many_pages(env: &Env) {
    const PAGES: usize = 512;
    let file = env.create("file");
    file.set_len(PAGES as u64 * 4096).unwrap();
    let mut map = Mapping::new(&file, PAGES * 4096, Sharing::Shared).unwrap();
    for page in 0..PAGES {
        map.store(page * 4096 + 7, &(page as u32).to_le_bytes());
    }
    map.sync().unwrap();
    drop((map, file));
    let content = env.read("file");
    for page in 0..PAGES {
        assert_eq!(content[page * 4096 + 7..][..4], (page as u32).to_le_bytes());
    }
    env.agree("file");
}

fn what_was_stored_beneath_is_read_after_an_open(env: &Env) {
    let read = || {
        let mut byte = [0];
        let file = env.open("file", OFlags::RDONLY);
        file.read_exact_at(&mut byte, 5000).unwrap();
        byte[0]
    };
    fs::write(env.beneath("file"), vec![b'0'; 10_000]).unwrap();
    assert_eq!(read(), b'0');
    for round in 0..5 {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).open(env.beneath("file"));
        let mut map = Mapping::new(file.unwrap(), 10_000, Sharing::Shared).unwrap();
        // The first store sets the time, and a reader finds the last version of the file.
        map.store(5000, b"a");
        assert_eq!(read(), b'a', "round {round}");
        map.store(5000, b"b");
        drop(map);
        assert_eq!(read(), b'b', "round {round}");
    }
}
