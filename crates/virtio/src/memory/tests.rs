use super::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use thrufs::OutOfLineData;

/// A file in memory of `length` bytes.
pub(crate) fn memory_file(length: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, length).unwrap();
    file
}

fn region(guest: u64, length: u64) -> Region {
    Region::map(guest, guest + 0x7000_0000, length, memory_file(length), 0).unwrap()
}

#[test]
fn ranges_that_wrap_are_refused() {
    let file = memory_file(0x1000);
    assert!(Region::map(u64::MAX - 5, 0, 0x1000, &file, 0).is_err());
    assert!(Region::map(0, u64::MAX - 5, 0x1000, &file, 0).is_err());
    let regions = Regions::new(vec![region(0x1000, 0x1000)]).unwrap();
    let mut extents = Vec::new();
    let located = regions.locate_all(u64::MAX - 1, 4, &mut extents);
    assert_eq!(located, Err(Outside));
    assert_eq!(regions.locate_all(0x1ffe, 4, &mut extents), Err(Outside));
    assert_eq!(regions.locate_all(0xfff, 1, &mut extents), Err(Outside));
    assert_eq!(regions.locate_all(0x2000, 1, &mut extents), Err(Outside));
    assert!(regions.locate_user(u64::MAX, 2).is_err());
    assert!(regions.locate_user(0x7000_1fff, 2).is_err());
    assert!(regions.locate_user(0x7000_1ffe, 2).is_ok());
}

#[test]
fn a_range_may_span_regions_that_touch() {
    let regions = Regions::new(vec![region(0x1000, 0x1000), region(0x2000, 0x1000)]).unwrap();
    let mut extents = Vec::new();
    regions.locate_all(0x1ffc, 8, &mut extents).unwrap();
    assert_eq!(extents.len(), 2);
    let pieces = Pieces::new(&regions, &extents, 0, usize::MAX);
    assert_eq!(pieces.copy_from(b"abcdefghij"), 8);
    let mut copy = [0; 8];
    regions.copy_out(0x1ffc, &mut copy).unwrap();
    assert_eq!(&copy, b"abcdefgh");
    assert_eq!(regions.copy_out(0x2ffc, &mut copy), Err(Outside));
}

#[test]
fn adjacent_extents_are_merged() {
    let regions = Regions::new(vec![region(0x1000, 0x4000), region(0x5000, 0x1000)]).unwrap();
    let located = |ranges: &[(u64, usize)]| {
        let mut extents = Vec::new();
        for &(address, length) in ranges {
            regions.locate_all(address, length, &mut extents).unwrap();
        }
        let lengths = extents.iter().map(|extent| extent.length);
        lengths.collect::<Vec<_>>()
    };
    assert_eq!(located(&[(0x1000, 0x1000), (0x2000, 0x800)]), [0x1800]);
    let backwards = located(&[(0x2000, 0x1000), (0x1000, 0x1000)]);
    assert_eq!(backwards, [0x1000, 0x1000]);
    assert_eq!(located(&[(0x1000, 16), (0x1011, 16)]), [16, 16]);
    assert_eq!(located(&[(0x1000, 16), (0x1008, 16)]), [16, 16]);
    assert_eq!(located(&[(0x4000, 0x1000), (0x5000, 0x10)]), [0x1000, 0x10]);
}

#[test]
fn pieces_skip_copy_and_read_across_extents() {
    let regions = Regions::new(vec![region(0x1000, 0x1000)]).unwrap();
    let mut extents = Vec::new();
    for (address, length) in [(0x1000, 3), (0x1100, 5), (0x1200, 4)] {
        regions.locate_all(address, length, &mut extents).unwrap();
    }
    let all = Pieces::new(&regions, &extents, 0, usize::MAX);
    assert_eq!(all.copy_from(b"0123456789ab"), 12);
    for skip in 0..14 {
        for length in 0..14 {
            let pieces = Pieces::new(&regions, &extents, skip, length);
            let expected =
                &b"0123456789ab"[skip.min(12)..(skip + length).min(12).max(skip.min(12))];
            assert_eq!(pieces.len(), expected.len());
            let mut copy = [0; 20];
            assert_eq!(pieces.copy_to(&mut copy), expected.len(), "{skip} {length}");
            assert_eq!(&copy[..expected.len()], expected);
            let spans: usize = pieces.spans().map(|span| span.len()).sum();
            assert_eq!(spans, expected.len());
        }
    }
    let file = memory_file(20);
    let middle = Pieces::new(&regions, &extents, 2, 8);
    assert_eq!(middle.write_to(3, file.as_fd(), 1), Ok(5));
    let mut seen = [0; 6];
    rustix::io::pread(&file, &mut seen, 0).unwrap();
    assert_eq!(&seen, b"\x0056789");
    assert_eq!(middle.read_from(0, file.as_fd(), 1, false), Ok(8));
    let mut copy = [0; 12];
    all.copy_to(&mut copy);
    assert_eq!(&copy, b"0156789\0\0\0ab");
}

#[test]
fn parts_of_the_window_are_touched_by_system_calls_alone() {
    let mapped = memory_file(0x1000);
    let window = Region::map_window(0x2000, 0x7000_2000, 0x1000, &mapped, 0).unwrap();
    let regions = Regions::new(vec![region(0x1000, 0x1000), window]).unwrap();
    assert!(regions.locate_user(0x7000_2000, 16).is_err(), "no ring");
    assert!(regions.locate_user(0x7000_1000, 16).is_ok());
    let mut header = [0; 8];
    assert_eq!(regions.copy_out(0x2000, &mut header), Err(Outside));
    let mut extents = Vec::new();
    regions.locate_all(0x1ffc, 8, &mut extents).unwrap();
    let pieces = Pieces::new(&regions, &extents, 0, usize::MAX);
    assert_eq!(pieces.copy_from(b"abcdefgh"), 4);
    assert_eq!(pieces.copy_to(&mut header), 4);
    let file = memory_file(16);
    rustix::io::pwrite(&file, b"12345678", 0).unwrap();
    assert_eq!(pieces.read_from(0, file.as_fd(), 0, false), Ok(8), "data");
    assert_eq!(pieces.write_to(0, file.as_fd(), 8), Ok(8));
    let mut seen = [0; 8];
    rustix::io::pread(&file, &mut seen, 8).unwrap();
    assert_eq!(&seen, b"12345678");
    // It is truncated on the host, also before it is announced.
    ftruncate(&mapped, 0).unwrap();
    let efault = Err(rustix::io::Errno::FAULT);
    let gone = Pieces::new(&regions, &extents[1..], 0, usize::MAX);
    assert_eq!(gone.read_from(0, file.as_fd(), 0, false), efault);
    assert_eq!(gone.write_to(0, file.as_fd(), 0), efault);
    assert!(Region::map_window(0x4000, 0x7000_4000, 0x1000, &mapped, 0).is_ok());
    assert!(Region::map(0x4000, 0x7000_4000, 0x1000, &mapped, 0).is_err());
}

#[test]
fn a_region_is_removed_by_its_exact_addresses() {
    let regions = Regions::new(vec![region(0x1000, 0x1000), region(0x2000, 0x1000)]).unwrap();
    assert!(regions.without(0x1000, 0x7000_1000, 0x800).is_err());
    let fewer = regions.without(0x1000, 0x7000_1000, 0x1000).unwrap();
    assert_eq!(fewer.regions.len(), 1);
    assert!(fewer.locate(0x1000, 1).is_err());
    // The old table is not changed.
    assert!(regions.locate(0x1000, 1).is_ok());
}
