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
        "open @f file rw,creat,excl; fill @f 67108864 1 120; fsync @f; close @f;
         is file size 67108865 blocks-below 2048; note ^file; same file blocks",
    around_two_and_four_gigabytes:
        "open @f file rw,creat,excl; pwrite @f 2147483645 abcdef; pwrite @f 4294967293 ghijkl;
         pwrite @f 8589934592 xyz; close @f; open @f file rw; pread @f 2147483645 abcdef;
         pread @f 4294967293 ghijkl; pread @f 8589934592 xyz; is @f size 8589934595;
         open @b ^file r; pread @b 4294967293 ghijkl; truncate @f 1",
    far_offsets:
        "open @f file rw,creat,excl; pwrite @f 8796093022331 far; filled @f 8796093022328 3 0;
         pread @f 8796093022331 far; close @f; is {file,^file} size 8796093022334;
         truncate file 1",
    beyond_the_largest_offset,
    vectors,
    zero_length_write: "open @f file rw,creat,excl; pwrite @f 5000; is @f size 0",
    many_small_writes,
    one_large_write,
    large_reads_at_odd_places,
    large_reads_of_a_file_that_shrinks,
    random_writes_match_a_model,
    second_descriptor_sees_at_once,
    written_data_is_beneath_after_close:
        "open @f file rw,creat,excl; fill @f 0 70000 3; close @f; is ^file size 70000;
         filled ^file 0 70000 3",
    write_through_is_beneath_at_once [WriteThrough],
    file_offset_of_seek,
    seek_errors,
    read_into_many_buffers_of_one_page,
    readahead_hint,
    write_after_reopen,
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
    const LENGTH: usize = 1 << 20;
    let bytes = pattern(LENGTH);
    env.file("file", bytes.clone());
    let file = env.open("file", OFlags::RDONLY);
    let other = env.open("file", OFlags::WRONLY);
    std::thread::scope(|scope| {
        let shrinking = scope.spawn(|| {
            for round in 0..200 {
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

fn beyond_the_largest_offset(env: &Env) {
    let file = env.create("file");
    fails(rustix::io::pwrite(&file, b"x", u64::MAX), Errno::INVAL);
    let result = rustix::io::pwrite(&file, b"xy", i64::MAX as u64);
    assert!(
        matches!(result, Err(Errno::FBIG | Errno::INVAL)),
        "nothing can be written at the end of offsets: {result:?}"
    );
    assert_eq!(file.metadata().unwrap().len(), 0);
}

fn vectors(env: &Env) {
    use std::io::{IoSlice, IoSliceMut};
    let mut file = env.create("file");
    let parts = [
        IoSlice::new(b"one "),
        IoSlice::new(b""),
        IoSlice::new(b"two "),
        IoSlice::new(b"3"),
    ];
    assert_eq!(file.write_vectored(&parts).unwrap(), 9);
    let (mut a, mut b) = ([0; 3], [0; 100]);
    file.seek(SeekFrom::Start(1)).unwrap();
    let read = file
        .read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)])
        .unwrap();
    assert_eq!(read, 8);
    assert_eq!((&a, &b[..5]), (b"ne ", &b"two 3"[..]));
    drop(file);
    env.agree("file");
}

fn many_small_writes(env: &Env) {
    let mut file = env.create("file");
    let mut expected = Vec::new();
    for number in 0..5000u32 {
        let text = format!("{number};");
        file.write_all(text.as_bytes()).unwrap();
        expected.extend_from_slice(text.as_bytes());
    }
    drop(file);
    assert!(env.read("file") == expected);
    env.agree("file");
}

fn one_large_write(env: &Env) {
    let content: Vec<u8> = (0..9_000_001u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut file = env.create("file");
    file.write_all(&content).unwrap();
    drop(file);
    assert!(env.read("file") == content);
    env.agree("file");
}

fn random_writes_match_a_model(env: &Env) {
    let file = env.create("file");
    let mut model: Vec<u8> = Vec::new();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..400 {
        let (at, len) = (random(200_000), 1 + random(9000));
        match random(8) {
            0 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            1 | 2 => {
                let mut buffer = vec![0; len];
                let read = file.read_at(&mut buffer, at as u64).unwrap();
                let end = model.len().min(at + len);
                assert!(buffer[..read] == model[at.min(end)..end], "round {round}");
            }
            _ => {
                let bytes = vec![round as u8; len];
                file.write_all_at(&bytes, at as u64).unwrap();
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&bytes);
            }
        }
        assert_eq!(
            file.metadata().unwrap().len(),
            model.len() as u64,
            "round {round}"
        );
    }
    drop(file);
    assert!(env.read("file") == model);
    env.agree("file");
}

fn second_descriptor_sees_at_once(env: &Env) {
    let writer = env.create("file");
    let reader = env.open("file", OFlags::RDONLY);
    for round in 0..100u8 {
        writer
            .write_all_at(&[round; 10], u64::from(round) * 7)
            .unwrap();
        let mut buffer = [0; 10];
        reader
            .read_exact_at(&mut buffer, u64::from(round) * 7)
            .unwrap();
        assert_eq!(buffer, [round; 10]);
        let len = reader.metadata().unwrap().len();
        assert_eq!(len, u64::from(round) * 7 + 10);
    }
}

fn write_through_is_beneath_at_once(env: &Env) {
    let mut file = env.create("file");
    for round in 0..20u8 {
        file.write_all(&[round; 1000]).unwrap();
        let below = fs::read(env.beneath("file")).unwrap();
        assert_eq!(below.len(), (usize::from(round) + 1) * 1000);
        assert_eq!(below.last(), Some(&round));
    }
}

fn file_offset_of_seek(env: &Env) {
    env.file("file", "0123456789");
    let mut file = env.open("file", OFlags::RDWR);
    assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 7);
    assert_eq!(file.seek(SeekFrom::Current(1)).unwrap(), 8);
    let mut buffer = [0; 2];
    file.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"89");
    assert_eq!(file.seek(SeekFrom::Start(100)).unwrap(), 100);
    assert_eq!(env.stat("file").st_size, 10);
    file.write_all_at(b"X", 20).unwrap();
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 21);
}

fn seek_errors(env: &Env) {
    env.file("file", "0123456789");
    let mut file = env.open("file", OFlags::RDWR);
    fails(file.seek(SeekFrom::Current(-1)), Errno::INVAL);
    fails(file.seek(SeekFrom::End(-11)), Errno::INVAL);
    assert_eq!(file.stream_position().unwrap(), 0);
}

fn read_into_many_buffers_of_one_page(env: &Env) {
    let content: Vec<u8> = (0..600_000u32).map(|at| (at / 4096) as u8).collect();
    env.file("file", &content);
    let file = env.open("file", OFlags::RDONLY);
    // Backwards: nothing to read ahead.
    for page in (0..content.len() / 4096).rev() {
        let mut buffer = [0; 4096];
        file.read_exact_at(&mut buffer, page as u64 * 4096).unwrap();
        assert!(buffer.iter().all(|byte| *byte == page as u8), "page {page}");
    }
}

fn readahead_hint(env: &Env) {
    env.file("file", vec![1; 300_000]);
    let file = env.open("file", OFlags::RDONLY);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::WillNeed).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(env.read("file") == vec![1; 300_000]);
}

fn write_after_reopen(env: &Env) {
    for round in 0..30u8 {
        let file = env.open("file", OFlags::RDWR | OFlags::CREATE);
        file.write_all_at(&[round + 1], u64::from(round)).unwrap();
    }
    assert_eq!(env.read("file"), (1..=30).collect::<Vec<u8>>());
    env.agree("file");
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
