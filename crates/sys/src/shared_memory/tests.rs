use super::records::{Bytes, Shared, SharedRecords, Stated, Word};
use super::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const BYTES: usize = 3 * 4096;

fn memory(length: u64) -> OwnedFd {
    let file = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, length).unwrap();
    file
}

fn mapping() -> (OwnedFd, SharedMapping) {
    let file = memory(BYTES as u64);
    let mapping = SharedMapping::new(file.as_fd(), 0, BYTES).unwrap();
    (file, mapping)
}

#[test]
fn copies_of_every_alignment_and_length() {
    let (file, mapping) = mapping();
    let pattern: Vec<u8> = (0..200_u8).map(|byte| byte.wrapping_mul(7)).collect();
    for start in 0..9 {
        for length in 0..40 {
            mapping.copy_in(start, &[0xff; 64]).unwrap();
            mapping.copy_in(start, &pattern[..length]).unwrap();
            let mut seen = [0; 65];
            rustix::io::pread(&file, &mut seen, start as u64).unwrap();
            assert_eq!(&seen[..length], &pattern[..length], "{start}+{length}");
            assert!(seen[length..64].iter().all(|&byte| byte == 0xff));
            let mut copy = vec![1; length];
            mapping.copy_out(start, &mut copy).unwrap();
            assert_eq!(copy, &pattern[..length]);
        }
    }
}

#[test]
fn accesses_outside_are_refused() {
    let (_file, mapping) = mapping();
    assert_eq!(mapping.copy_out(BYTES - 3, &mut [0; 4]), Err(Outside));
    assert_eq!(mapping.copy_in(usize::MAX, &[1]), Err(Outside));
    assert_eq!(mapping.copy_in(BYTES, &[]), Ok(()));
    assert_eq!(mapping.load_u16(BYTES - 1, Ordering::Relaxed), Err(Outside));
    let odd = mapping.load_u16(1, Ordering::Relaxed);
    assert_eq!(odd, Err(Outside), "not aligned");
    assert_eq!(mapping.store_u32(BYTES - 2, 1), Err(Outside));
    assert!(mapping.span(BYTES - 1, 2).is_err());
    assert!(mapping.span(usize::MAX, 2).is_err());
    assert_eq!(mapping.span(BYTES - 1, 1).unwrap().len(), 1);
}

#[test]
fn more_spans_than_one_call_takes() {
    let (_memory, mapping) = mapping();
    let file = memory(4096);
    let spans = (0..SPANS_MAX + 10).map(|number| mapping.span(number, 1).unwrap());
    assert_eq!(write_at(file.as_fd(), spans, 0), Ok(SPANS_MAX));
}

#[test]
fn a_mapping_for_reading_cannot_be_written_to() {
    let file = memory(BYTES as u64);
    rustix::io::pwrite(&file, b"as it was", 0).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let read_only = std::fs::File::open(path).unwrap();
    let refused = SharedMapping::with(read_only.as_fd(), 0, BYTES, Access::ReadWrite);
    assert_eq!(refused.err(), Some(Errno::ACCESS));
    let mapping = SharedMapping::with(read_only.as_fd(), 0, BYTES, Access::Read).unwrap();
    assert_eq!(mapping.copy_in(0, b"spoiled"), Err(Outside));
    assert_eq!(mapping.copy_in(1, b"s"), Err(Outside));
    assert_eq!(mapping.store_u16(0, 1, Ordering::Relaxed), Err(Outside));
    assert_eq!(mapping.store_u32(0, 1), Err(Outside));
    assert_eq!(mapping.store_u64(0, 1, Ordering::Relaxed), Err(Outside));
    assert_eq!(mapping.set_bits(0, 0xff), Err(Outside));
    assert_eq!(mapping.write_bytes(0, b"spoiled"), Err(Errno::FAULT));
    let mut copies = [[0; 9]; 2];
    mapping.copy_out(0, &mut copies[0]).unwrap();
    mapping.read_bytes(0, &mut copies[1]).unwrap();
    assert_eq!(copies, [*b"as it was"; 2]);
}

#[test]
fn bytes_beyond_the_end_of_the_file_are_an_error_and_no_signal() {
    let file = memory(5000);
    let mapping = SharedMapping::with(file.as_fd(), 0, BYTES, Access::ReadWrite).unwrap();
    mapping.write_bytes(4990, b"across it").unwrap();
    let mut seen = [0; 20];
    mapping.read_bytes(4990, &mut seen).unwrap();
    assert_eq!(&seen[..10], b"across it\0");
    let size = rustix::fs::fstat(&file).unwrap().st_size;
    assert_eq!(size, 5000, "a store does not make the file longer");
    assert_eq!(mapping.read_bytes(8192, &mut seen), Err(Errno::FAULT));
    assert_eq!(mapping.read_bytes(8180, &mut seen), Err(Errno::FAULT));
    assert_eq!(mapping.write_bytes(8192, b"late"), Err(Errno::FAULT));
    assert_eq!(
        mapping.read_bytes(BYTES - 3, &mut seen[..4]),
        Err(Errno::INVAL)
    );
    assert_eq!(mapping.write_bytes(BYTES - 3, b"four"), Err(Errno::INVAL));
    ftruncate(&file, BYTES as u64).unwrap();
    mapping.write_bytes(8192, b"in time").unwrap();
    mapping.read_bytes(8192, &mut seen).unwrap();
    assert_eq!(&seen[..8], b"in time\0");
    ftruncate(&file, 0).unwrap();
    assert_eq!(mapping.read_bytes(0, &mut seen), Err(Errno::FAULT));
}

crate::shared_records! {
    struct Pair {
        one: Word,
        bytes: Bytes<3>,
    }
}

#[test]
fn records_are_shared_at_their_places() {
    fn mapped<R: Shared>(file: &OwnedFd, offset: u64, count: usize) -> Result<SharedRecords<R>> {
        SharedRecords::new(file.as_fd(), offset, count)
    }
    assert_eq!(size_of::<Stated<Pair>>(), 40);
    let file = memory(4096 + 400);
    let [writer, reader] = [(); 2].map(|()| mapped::<Stated<Pair>>(&file, 4096, 10).unwrap());
    assert_eq!(writer.len(), 10);
    writer[9].one.store(5);
    writer[9].one.add(u64::MAX);
    writer[9].bytes.put(b"eleven byte").unwrap();
    writer[9].state.raise(3);
    writer[9].state.raise(2);
    assert_eq!((reader[9].state.load(), reader[9].one.load()), (3, 4));
    assert_eq!(reader[9].bytes.get(11).unwrap(), b"eleven byte");
    assert_eq!(reader[9].bytes.get(25), None);
    assert_eq!(writer[9].bytes.put(&[1; 25]), None);
    assert_eq!(reader[8].one.load(), 0);
    let mut state = [0; 8];
    rustix::io::pread(&file, &mut state, 4096 + 9 * 40).unwrap();
    assert_eq!(u64::from_ne_bytes(state), 3, "the state is first");
    for (offset, count) in [(4096, 0), (4096, 11), (4097, 1), (4100, 1), (8192, 1)] {
        let refused = mapped::<Stated<Pair>>(&file, offset, count).map(drop);
        assert_eq!(refused, Err(Errno::INVAL), "{offset}, {count}");
    }
    let refused = mapped::<Word>(&file, 0, usize::MAX).map(drop);
    assert_eq!(refused, Err(Errno::OVERFLOW));
}

#[test]
fn an_offset_within_a_page() {
    let file = memory(3 * 4096);
    rustix::io::pwrite(&file, b"here", 4096 + 100).unwrap();
    let mapping = SharedMapping::new(file.as_fd(), 4096 + 100, 4096).unwrap();
    let mut copy = [0; 4];
    mapping.copy_out(0, &mut copy).unwrap();
    assert_eq!((mapping.len(), &copy), (4096, b"here"));
}

#[test]
fn bits_are_added_to_those_that_are_set() {
    let (file, mapping) = mapping();
    mapping.set_bits(5, 0b0001).unwrap();
    mapping.set_bits(5, 0b0110).unwrap();
    mapping.set_bits(BYTES - 1, 0x80).unwrap();
    assert_eq!(mapping.set_bits(BYTES, 1), Err(Outside));
    let mut bytes = [0; BYTES];
    rustix::io::pread(&file, &mut bytes, 0).unwrap();
    assert_eq!((bytes[4], bytes[5], bytes[6]), (0, 0b0111, 0));
    assert_eq!(bytes[BYTES - 1], 0x80);
}
