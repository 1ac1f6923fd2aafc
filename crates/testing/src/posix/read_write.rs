//! Reading and writing: sizes, offsets, holes, large files.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    what_is_written_is_read: "open @f file rw,creat,excl; write @f hello; seek @f 0; read @f hello",
    read_at_the_end_is_empty:
        "open @f file rw,creat,excl; pread @f 0; write @f abc; pread @f 3; pread @f 1099511627776",
    short_read_before_the_end,
    every_odd_size,
    overwrite_in_the_middle:
        "file file; fill file 0 10000 46; fill file 4090 3000 35; is file size 10000;
         filled file 0 4090 46; filled file 4090 3000 35; filled file 7090 2910 46",
    write_beyond_the_end_leaves_zeros:
        "open @f file rw,creat,excl; pwrite @f 0 start; pwrite @f 9000 end; is @f size 9003;
         pread @f 0 start; filled @f 5 8995 0; pread @f 9000 end",
    sparse_file_is_sparse:
        "open @f file rw,creat,excl; fill @f 8388608 1 120; fsync @f; close @f;
         is file size 8388609 blocks-below 2048; note ^file; same file blocks",
    around_two_and_four_gigabytes:
        "open @f file rw,creat,excl; pwrite @f 2147483645 abcdef; pwrite @f 4294967293 ghijkl;
         pwrite @f 8589934592 xyz; close @f; open @f file rw; pread @f 2147483645 abcdef;
         pread @f 4294967293 ghijkl; pread @f 8589934592 xyz; is @f size 8589934595;
         open @b ^file r; pread @b 4294967293 ghijkl; truncate @f 1",
    far_offsets:
        "open @f file rw,creat,excl; pwrite @f 8796093022331 far; filled @f 8796093022328 3 0;
         pread @f 8796093022331 far; close @f; is {file,^file} size 8796093022334;
         truncate file 1",
    one_large_write:
        "pattern file 9000001; filled file 0 9000001 pattern 0",
    large_reads_at_odd_places,
    large_reads_of_a_file_that_shrinks,
    second_descriptor_sees_at_once:
        "open @f file rw,creat,excl; open @g file r; pwrite @f 0 first; pread @g 0 first;
         is @g size 5; pwrite @f 3 second; pread @g 0 firsecond; is @g size 9",
    written_data_is_beneath_after_close:
        "open @f file rw,creat,excl; fill @f 0 70000 3; close @f; is ^file size 70000;
         filled ^file 0 70000 3",
    write_through_is_beneath_at_once [WriteThrough]:
        "open @f file rw,creat,excl; fill @f end 1000 1; is ^file size 1000; fill @f end 1000 2;
         is ^file size 2000; filled ^file 1000 1000 2",
    poll_is_always_ready,
};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 11 % 253) as u8).collect()
}

fn large_reads_at_odd_places(env: &Env) {
    const LENGTH: usize = 1_500_777;
    let bytes = pattern(LENGTH);
    env.file("file", bytes.clone());
    // Opened each time, for cache modes that drop the cache at open.
    for (at, length) in [
        (0, 128 << 10),
        (0, 512 << 10),
        (1, 131_072),
        (4095, 300_001),
        (LENGTH - 200_000, 256 << 10),
        (LENGTH - 131_072, 131_072),
        (0, 2 << 20),
    ] {
        let file = env.open("file", OFlags::RDONLY);
        let mut buffer = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match file
                .read_at(&mut buffer[filled..], (at + filled) as u64)
                .unwrap()
            {
                0 => break,
                read => filled += read,
            }
        }
        assert_eq!(filled, length.min(LENGTH - at), "{length} at {at}");
        assert!(
            buffer[..filled] == bytes[at..at + filled],
            "{length} at {at}"
        );
    }
}

fn large_reads_of_a_file_that_shrinks(env: &Env) {
    const LENGTH: usize = 512 << 10;
    let bytes = pattern(LENGTH);
    env.file("file", bytes.clone());
    let file = env.open("file", OFlags::RDONLY);
    let other = env.open("file", OFlags::WRONLY);
    std::thread::scope(|scope| {
        let shrinking = scope.spawn(|| {
            for round in 0..50 {
                let length = if round % 2 == 0 {
                    200_123
                } else {
                    LENGTH as u64
                };
                other.set_len(length)?;
            }
            std::io::Result::Ok(())
        });
        let mut buffer = vec![0; LENGTH];
        while !shrinking.is_finished() {
            let read = file.read_at(&mut buffer, 0).unwrap();
            // Truncated bytes come back as zeros.
            let is_right =
                |(at, byte): (usize, &u8)| *byte == bytes[at] || at >= 200_123 && *byte == 0;
            assert!(read <= LENGTH && buffer[..read].iter().enumerate().all(is_right));
        }
        shrinking.join().unwrap().unwrap();
    });
}

fn short_read_before_the_end(env: &Env) {
    env.file("file", vec![5; 5000]);
    let file = env.open("file", OFlags::RDONLY);
    let mut buffer = vec![0; 20_000];
    assert_eq!(file.read_at(&mut buffer, 4990).unwrap(), 10);
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 5000);
    assert!(buffer[..5000].iter().all(|byte| *byte == 5));
    assert!(buffer[5000..].iter().all(|byte| *byte == 0 || *byte == 5));
}

fn every_odd_size(env: &Env) {
    for size in [
        1, 511, 512, 513, 4095, 4096, 4097, 65_535, 65_537, 131_073, 1_048_577,
    ] {
        let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let name = format!("f{size}");
        env.file(&name, &content);
        assert!(env.read(&name) == content, "{size} bytes");
        env.agree(&name);
    }
}

fn poll_is_always_ready(env: &Env) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let file = env.create("file");
    let mut fds = [PollFd::new(&file, PollFlags::IN | PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    assert_eq!(poll(&mut fds, Some(&now)).unwrap(), 1);
    assert_eq!(fds[0].revents(), PollFlags::IN | PollFlags::OUT);
}
