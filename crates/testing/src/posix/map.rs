//! Memory maps of files, and their consistency with reads and writes.

use super::prelude::*;
use crate::fence::mapping::{Mapping, Sharing};

pub(super) const CASES: &[Case] = cases! {
    shows_the_content [SharedMaps],
    store_is_read_at_once [SharedMaps],
    write_shows_in_the_map [SharedMaps],
    synced_store_is_beneath [SharedMaps],
    unmapped_store_is_in_the_file [SharedMaps],
    private_stores_stay_private,
    two_maps_share [SharedMaps],
    outlives_its_descriptor_and_name [SharedMaps],
    rest_of_the_last_page_is_zero [SharedMaps],
    grows_with_the_file [SharedMaps],
    needs_the_right_open_mode,
    many_pages [SharedMaps],
    what_was_stored_beneath_is_read_after_an_open [CloseToOpen, HostMaps],
};

fn shows_the_content(env: &Env) {
    env.file("file", [b"0123456789".as_slice(), &[5; 9000]].concat());
    let file = env.open("file", OFlags::RDONLY);
    let map = Mapping::new(&file, 9010, Sharing::SharedRead).unwrap();
    assert_eq!(map.load(0, 10), b"0123456789");
    assert!(map.load(10, 9000).iter().all(|byte| *byte == 5));
}

fn store_is_read_at_once(env: &Env) {
    env.file("file", vec![1; 10_000]);
    let file = env.open("file", OFlags::RDWR);
    let mut map = Mapping::new(&file, 10_000, Sharing::Shared).unwrap();
    map.store(5000, b"stored");
    let mut buffer = [0; 6];
    file.read_exact_at(&mut buffer, 5000).unwrap();
    assert_eq!(&buffer, b"stored");
    let other = env.open("file", OFlags::RDONLY);
    other.read_exact_at(&mut buffer, 5000).unwrap();
    assert_eq!(&buffer, b"stored");
}

fn write_shows_in_the_map(env: &Env) {
    env.file("file", vec![1; 10_000]);
    let file = env.open("file", OFlags::RDWR);
    let map = Mapping::new(&file, 10_000, Sharing::SharedRead).unwrap();
    assert_eq!(map.load(100, 3), [1; 3]);
    for round in 2..30u8 {
        file.write_all_at(&[round; 3], 100).unwrap();
        assert_eq!(map.load(100, 3), [round; 3]);
    }
}

fn synced_store_is_beneath(env: &Env) {
    env.file("file", vec![1; 10_000]);
    let file = env.open("file", OFlags::RDWR);
    let mut map = Mapping::new(&file, 10_000, Sharing::Shared).unwrap();
    map.store(9000, b"durable");
    map.sync().unwrap();
    assert_eq!(
        fs::read(env.beneath("file")).unwrap()[9000..9007],
        *b"durable"
    );
    drop((map, file));
    env.agree("file");
}

fn unmapped_store_is_in_the_file(env: &Env) {
    env.file("file", vec![1; 10_000]);
    let file = env.open("file", OFlags::RDWR);
    let mut map = Mapping::new(&file, 10_000, Sharing::Shared).unwrap();
    drop(file);
    map.store(0, b"first");
    drop(map);
    assert_eq!(env.read("file")[..5], *b"first");
    env.agree("file");
}

fn private_stores_stay_private(env: &Env) {
    env.file("file", vec![1; 10_000]);
    let file = env.open("file", OFlags::RDONLY);
    let mut map = Mapping::new(&file, 10_000, Sharing::Private).unwrap();
    map.store(100, b"mine");
    assert_eq!(map.load(100, 4), b"mine");
    drop(map);
    assert!(env.read("file") == [1; 10_000]);
    env.agree("file");
}

fn two_maps_share(env: &Env) {
    env.file("file", vec![1; 8192]);
    let (one, two) = (
        env.open("file", OFlags::RDWR),
        env.open("file", OFlags::RDWR),
    );
    let mut first = Mapping::new(&one, 8192, Sharing::Shared).unwrap();
    let mut second = Mapping::new(&two, 8192, Sharing::Shared).unwrap();
    first.store(10, b"from first");
    assert_eq!(second.load(10, 10), b"from first");
    second.store(5000, b"from second");
    assert_eq!(first.load(5000, 11), b"from second");
}

fn outlives_its_descriptor_and_name(env: &Env) {
    env.file("file", vec![6; 8192]);
    let file = env.open("file", OFlags::RDWR);
    let mut map = Mapping::new(&file, 8192, Sharing::Shared).unwrap();
    drop(file);
    rustix::fs::unlink(env.path("file")).unwrap();
    map.store(0, b"x");
    assert_eq!(map.load(0, 2), b"x\x06");
    map.sync().unwrap();
    env.absent("file");
}

fn rest_of_the_last_page_is_zero(env: &Env) {
    env.file("file", "abc");
    let file = env.open("file", OFlags::RDWR);
    let map = Mapping::new(&file, 4096, Sharing::Shared).unwrap();
    assert_eq!(map.load(0, 3), b"abc");
    assert!(map.load(3, 4093).iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().unwrap().len(), 3);
}

fn grows_with_the_file(env: &Env) {
    env.file("file", vec![1; 4096]);
    let file = env.open("file", OFlags::RDWR);
    // The second page can be accessed once the file extends to it.
    let mut map = Mapping::new(&file, 8192, Sharing::Shared).unwrap();
    assert_eq!(map.load(0, 1), [1]);
    file.set_len(8192).unwrap();
    map.store(6000, b"beyond");
    let mut buffer = [0; 6];
    file.read_exact_at(&mut buffer, 6000).unwrap();
    assert_eq!(&buffer, b"beyond");
    drop((map, file));
    env.agree("file");
}

fn needs_the_right_open_mode(env: &Env) {
    env.file("file", vec![1; 4096]);
    let read_only = env.open("file", OFlags::RDONLY);
    fails(
        Mapping::new(&read_only, 4096, Sharing::Shared),
        Errno::ACCESS,
    );
    let write_only = env.open("file", OFlags::WRONLY);
    fails(
        Mapping::new(&write_only, 4096, Sharing::SharedRead),
        Errno::ACCESS,
    );
    let dir = env.open("", OFlags::RDONLY | OFlags::DIRECTORY);
    fails(Mapping::new(&dir, 4096, Sharing::SharedRead), Errno::NODEV);
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
