//! fallocate, and finding holes and data.

use rustix::fs::{FallocateFlags, SeekFrom as Place};

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    grows_the_file_with_zeros,
    keeps_the_size_when_asked,
    does_not_touch_what_is_there,
    punches_a_hole,
    punch_beyond_the_end,
    zeroes_a_range [ZeroRange],
    collapses_and_inserts [ShiftRange],
    refuses_to_shift [NoShiftRange],
    errors,
    finds_data_and_holes,
    seek_for_data_at_the_end_is_enxio,
    file_without_holes,
};

fn allocate(file: &File, mode: FallocateFlags, at: u64, len: u64) -> rustix::io::Result<()> {
    rustix::fs::fallocate(file, mode, at, len)
}

fn hole() -> FallocateFlags {
    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
}

fn grows_the_file_with_zeros(env: &Env) {
    let file = env.create("file");
    file.write_all_at(b"abc", 0).unwrap();
    allocate(&file, FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    assert!(file.metadata().unwrap().blocks() * 512 >= 100_000);
    drop(file);
    let content = env.read("file");
    assert_eq!(&content[..3], b"abc");
    assert!(content[3..].iter().all(|byte| *byte == 0));
    env.agree("file");
}

fn keeps_the_size_when_asked(env: &Env) {
    let file = env.create("file");
    file.write_all_at(b"abc", 0).unwrap();
    allocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    file.sync_all().unwrap();
    assert!(fs::metadata(env.beneath("file")).unwrap().blocks() * 512 >= 1 << 20);
    drop(file);
    env.agree("file");
}

fn does_not_touch_what_is_there(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[7; 10_000], 0).unwrap();
    allocate(&file, FallocateFlags::empty(), 2000, 3000).unwrap();
    drop(file);
    assert!(env.read("file") == [7; 10_000]);
    env.agree("file");
}

fn punches_a_hole(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[7; 65_536], 0).unwrap();
    let mut content = vec![0; 65_536];
    file.read_exact_at(&mut content, 0).unwrap();
    // Not on page boundaries: the edges are zeroed, the middle is freed.
    allocate(&file, hole(), 5000, 30_000).unwrap();
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content[..5000].iter().all(|byte| *byte == 7));
    assert!(content[5000..35_000].iter().all(|byte| *byte == 0));
    assert!(content[35_000..].iter().all(|byte| *byte == 7));
    file.sync_all().unwrap();
    assert!(fs::metadata(env.beneath("file")).unwrap().blocks() < 128);
    drop(file);
    env.agree("file");
}

fn punch_beyond_the_end(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[7; 10_000], 0).unwrap();
    allocate(&file, hole(), 8000, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10_000);
    drop(file);
    let content = env.read("file");
    assert!(content[..8000].iter().all(|byte| *byte == 7));
    assert!(content[8000..].iter().all(|byte| *byte == 0));
    env.agree("file");
}

fn zeroes_a_range(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[7; 20_000], 0).unwrap();
    allocate(&file, FallocateFlags::ZERO_RANGE, 1000, 9000).unwrap();
    let mut content = vec![1; 20_000];
    file.read_exact_at(&mut content, 0).unwrap();
    assert!(content[1000..10_000].iter().all(|byte| *byte == 0));
    assert!(content[10_000..].iter().all(|byte| *byte == 7));
    // This mode may also make the file longer.
    allocate(&file, FallocateFlags::ZERO_RANGE, 15_000, 10_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 25_000);
    drop(file);
    env.agree("file");
}

fn collapses_and_inserts(env: &Env) {
    let file = env.create("file");
    for block in 0..4u8 {
        file.write_all_at(&[b'a' + block; 4096], u64::from(block) * 4096)
            .unwrap();
    }
    allocate(&file, FallocateFlags::COLLAPSE_RANGE, 4096, 4096).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3 * 4096);
    allocate(&file, FallocateFlags::INSERT_RANGE, 8192, 4096).unwrap();
    drop(file);
    let content = env.read("file");
    let firsts: Vec<u8> = content.chunks(4096).map(|block| block[0]).collect();
    assert_eq!(firsts, [b'a', b'c', 0, b'd']);
}

fn refuses_to_shift(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[7; 16_384], 0).unwrap();
    fails(
        allocate(&file, FallocateFlags::COLLAPSE_RANGE, 4096, 4096),
        Errno::OPNOTSUPP,
    );
    fails(
        allocate(&file, FallocateFlags::INSERT_RANGE, 4096, 4096),
        Errno::OPNOTSUPP,
    );
    drop(file);
    assert!(env.read("file") == [7; 16_384]);
    env.agree("file");
}

fn errors(env: &Env) {
    let file = env.create("file");
    let none = FallocateFlags::empty();
    fails(allocate(&file, none, 0, 0), Errno::INVAL);
    fails(allocate(&file, none, 0, i64::MAX as u64 + 1), Errno::INVAL);
    fails(allocate(&file, none, i64::MAX as u64, 10), Errno::FBIG);
    // A hole may only be punched without a change of the size.
    fails(
        allocate(&file, FallocateFlags::PUNCH_HOLE, 0, 10),
        Errno::OPNOTSUPP,
    );
    let reader = env.open("file", OFlags::RDONLY);
    fails(allocate(&reader, none, 0, 10), Errno::BADF);
    assert_eq!(file.metadata().unwrap().len(), 0);
}

fn finds_data_and_holes(env: &Env) {
    const MIB: u64 = 1 << 20;
    let file = env.create("file");
    file.write_all_at(&[7; 4096], MIB).unwrap();
    file.set_len(4 * MIB).unwrap();
    file.sync_all().unwrap();
    let seek = |place| rustix::fs::seek(&file, place).unwrap();
    assert_eq!(seek(Place::Hole(0)), 0);
    assert_eq!(seek(Place::Data(0)), MIB);
    assert_eq!(seek(Place::Data(MIB + 10)), MIB + 10);
    assert_eq!(seek(Place::Hole(MIB)), MIB + 4096);
    assert_eq!(
        rustix::fs::tell(&file).unwrap(),
        MIB + 4096,
        "the offset moves with the answer"
    );
    fails(
        rustix::fs::seek(&file, Place::Data(MIB + 4096)),
        Errno::NXIO,
    );
}

fn seek_for_data_at_the_end_is_enxio(env: &Env) {
    let file = env.create("file");
    fails(rustix::fs::seek(&file, Place::Data(0)), Errno::NXIO);
    file.write_all_at(b"0123456789", 0).unwrap();
    fails(rustix::fs::seek(&file, Place::Data(10)), Errno::NXIO);
    fails(rustix::fs::seek(&file, Place::Hole(10)), Errno::NXIO);
    fails(rustix::fs::seek(&file, Place::Hole(1000)), Errno::NXIO);
}

fn file_without_holes(env: &Env) {
    let file = env.create("file");
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, Place::Data(100)).unwrap(), 100);
    assert_eq!(rustix::fs::seek(&file, Place::Hole(100)).unwrap(), 8192);
}
