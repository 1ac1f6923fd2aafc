//! Reading and writing: sizes, offsets, holes, large files.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    what_is_written_is_read: "open @f file rw,creat,excl; write @f hello; seek @f 0; read @f hello",
    read_at_the_end_is_empty,
    short_read_before_the_end,
    every_odd_size,
    overwrite_in_the_middle,
    write_beyond_the_end_leaves_zeros,
    sparse_file_is_sparse,
    around_two_and_four_gigabytes,
    far_offsets,
    beyond_the_largest_offset,
    vectors,
    zero_length_write,
    many_small_writes,
    one_large_write,
    large_reads_at_odd_places,
    large_reads_of_a_file_that_shrinks,
    random_writes_match_a_model,
    second_descriptor_sees_at_once,
    written_data_is_beneath_after_close,
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

fn read_at_the_end_is_empty(env: &Env) {
    let file = env.create("file");
    let mut buffer = [9; 16];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 0);
    file.write_all_at(b"abc", 0).unwrap();
    assert_eq!(file.read_at(&mut buffer, 3).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
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

fn overwrite_in_the_middle(env: &Env) {
    env.file("file", vec![b'.'; 10_000]);
    let file = env.open("file", OFlags::WRONLY);
    file.write_all_at(&[b'#'; 3000], 4090).unwrap();
    drop(file);
    let mut expected = vec![b'.'; 10_000];
    expected[4090..7090].fill(b'#');
    assert!(env.read("file") == expected);
    env.agree("file");
}

fn write_beyond_the_end_leaves_zeros(env: &Env) {
    let file = env.create("file");
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"end", 9000).unwrap();
    drop(file);
    let mut expected = vec![0; 9003];
    expected[..5].copy_from_slice(b"start");
    expected[9000..].copy_from_slice(b"end");
    assert!(env.read("file") == expected);
    env.agree("file");
}

fn sparse_file_is_sparse(env: &Env) {
    let file = env.create("file");
    file.write_all_at(b"x", 64 << 20).unwrap();
    rustix::fs::fsync(&file).unwrap();
    drop(file);
    let stat = env.stat("file");
    assert_eq!(stat.st_size, (64 << 20) + 1);
    assert!(
        stat.st_blocks * 512 < 1 << 20,
        "{} blocks for one byte",
        stat.st_blocks
    );
    let below = rustix::fs::lstat(env.beneath("file")).unwrap();
    assert_eq!(stat.st_blocks, below.st_blocks);
}

fn around_two_and_four_gigabytes(env: &Env) {
    let file = env.create("file");
    let marks = [
        (1u64 << 31) - 3,
        (1 << 31) + 5000,
        (1 << 32) - 3,
        (1 << 32) + 5000,
        1 << 33,
    ];
    for (number, mark) in marks.iter().enumerate() {
        // Across the boundary itself.
        file.write_all_at(format!("<{number:4}>").as_bytes(), *mark)
            .unwrap();
    }
    drop(file);
    let file = env.open("file", OFlags::RDONLY);
    for (number, mark) in marks.iter().enumerate() {
        let mut buffer = [0; 6];
        file.read_exact_at(&mut buffer, *mark).unwrap();
        assert_eq!(buffer, format!("<{number:4}>").as_bytes());
    }
    assert_eq!(file.metadata().unwrap().len(), (1 << 33) + 6);
    let below = File::open(env.beneath("file")).unwrap();
    let mut buffer = [0; 6];
    below.read_exact_at(&mut buffer, (1 << 32) - 3).unwrap();
    assert_eq!(&buffer, b"<   2>");
}

fn far_offsets(env: &Env) {
    let file = env.create("file");
    let far = (1u64 << 43) + 123;
    file.write_all_at(b"far", far).unwrap();
    let mut buffer = [9; 6];
    file.read_exact_at(&mut buffer, far - 3).unwrap();
    assert_eq!(&buffer, b"\0\0\0far");
    drop(file);
    assert_eq!(env.stat("file").st_size as u64, far + 3);
    assert_eq!(fs::metadata(env.beneath("file")).unwrap().len(), far + 3);
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

fn zero_length_write(env: &Env) {
    let file = env.create("file");
    assert_eq!(file.write_at(b"", 5000).unwrap(), 0);
    assert_eq!(file.metadata().unwrap().len(), 0);
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

fn written_data_is_beneath_after_close(env: &Env) {
    let mut file = env.create("file");
    file.write_all(&vec![3; 70_000]).unwrap();
    drop(file);
    assert!(fs::read(env.beneath("file")).unwrap() == vec![3; 70_000]);
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
