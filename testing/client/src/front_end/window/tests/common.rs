//! What both ways of behaving have in common: refusals, counts, and holding the thread up.

use super::super::wire::{self, NEED_REPLY, SHMEM_MAP, SHMEM_UNMAP};
use super::back_end::{BackEnd, Channel, LIMIT, Offer, Sent, WINDOW_BYTES, connect};
use crate::front_end::{FrontEnd, Refusal, Window, WindowConfig, WindowError};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// A front end with a window, and the test's side of it.
pub(crate) struct Ground {
    pub(crate) front_end: FrontEnd,
    pub(crate) back_end: BackEnd,
    pub(crate) channel: Channel,
}

impl Ground {
    pub(crate) fn new(config: WindowConfig) -> Ground {
        Ground::with_window(config, WINDOW_BYTES)
    }

    pub(crate) fn with_window(config: WindowConfig, window_bytes: u64) -> Ground {
        let offer = Offer {
            window_bytes,
            ..Offer::default()
        };
        let (front_end, back_end) = connect(Some(config), offer);
        let channel = back_end.channel();
        Ground {
            front_end,
            back_end,
            channel,
        }
    }

    pub(crate) fn window(&self) -> &Window {
        self.front_end.window().unwrap()
    }
}

/// For what must not happen: long enough that it mostly would.
pub(crate) const A_WHILE: Duration = Duration::from_millis(100);

const BOTH: [WindowConfig; 2] = [WindowConfig::as_specified(), WindowConfig::as_qemu()];

/// A file of `length` bytes, each of which is the number of its page.
pub(crate) fn file(length: u64) -> File {
    let file = File::from(memfd_create("file", MemfdFlags::CLOEXEC).unwrap());
    let bytes: Vec<u8> = (0..length).map(|at| (at / 4096) as u8).collect();
    file.write_all_at(&bytes, 0).unwrap();
    file
}

/// As `file`, opened for reading.
pub(crate) fn read_only(file: &File) -> File {
    use std::os::fd::AsRawFd as _;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

#[test]
fn a_mapping_shows_its_file_and_takes_stores_until_it_is_removed() {
    for config in BOTH {
        let ground = Ground::new(config);
        let (window, channel) = (ground.window(), &ground.channel);
        let file = file(5 * 4096);
        let (low, high) = (Sent::at(4096, 8192), Sent::at(3 * 4096, 4096));
        let low = Sent {
            file_offset: 2 * 4096,
            ..low
        };
        assert_eq!(channel.map(low, &file), 0);
        assert_eq!(channel.map(high, &file), 0);
        assert!(window.wait_until(LIMIT, |counts| counts.maps == 2));
        let mut seen = [9; 4];
        window.read(2 * 4096 - 2, &mut seen).unwrap();
        assert_eq!(seen, [2, 2, 3, 3], "within a mapping");
        window.read(3 * 4096 - 2, &mut seen).unwrap();
        assert_eq!(seen, [3, 3, 0, 0], "across two");
        window.hold().copy_out(3 * 4096 - 2, &mut seen).unwrap();
        assert_eq!(seen, [3, 3, 0, 0]);
        window.write(4096 + 10, b"by a call").unwrap();
        window.hold().copy_in(3 * 4096, b"by stores").unwrap();
        let mut bytes = [0; 9];
        file.read_exact_at(&mut bytes, 2 * 4096 + 10).unwrap();
        assert_eq!(&bytes, b"by a call");
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"by stores");
        let about = window.mappings();
        assert_eq!((about[0].offset, about[0].length), (4096, 8192));
        assert_eq!((about[0].file_offset, about[0].writable), (8192, true));
        assert_eq!(about[0].file, about[1].file);
        assert_eq!(channel.unmap(low), 0);
        assert!(window.wait_until(LIMIT, |counts| counts.unmaps == 1));
        let gone = window.read(4096, &mut seen);
        assert_eq!(gone, Err(WindowError::Unmapped(4096)));
        let partly = window.write(3 * 4096 - 2, &seen);
        assert_eq!(partly, Err(WindowError::Unmapped(3 * 4096 - 2)));
        let counts = window.counts();
        assert_eq!((counts.live, counts.live_max), (1, 2));
        assert_eq!((counts.messages, counts.answers), (3, 3));
    }
}

#[test]
fn accesses_outside_of_the_window_fail() {
    let ground = Ground::new(WindowConfig::as_specified());
    let outside = Err(WindowError::Outside);
    assert_eq!(ground.window().read(WINDOW_BYTES - 1, &mut [0; 2]), outside);
    assert_eq!(ground.window().write(u64::MAX, &[0; 2]), outside);
    let at_end = ground.window().read(WINDOW_BYTES, &mut []);
    assert_eq!(at_end, Ok(()));
}

/// Mappings that are refused while there is one at 16384, 8192 bytes long.
fn refused_maps() -> Vec<(Sent, Refusal)> {
    let ok = Sent::at(4096, 4096);
    vec![
        (Sent::at(12288, 8192), Refusal::Overlap),
        (Sent::at(20480, 4096), Refusal::Overlap),
        (Sent::at(16384, 8192), Refusal::Overlap),
        (Sent::at(8192, 1 << 20), Refusal::Overlap),
        (Sent::at(4097, 4096), Refusal::Misaligned),
        (Sent::at(4096, 4095), Refusal::Misaligned),
        (
            Sent {
                file_offset: 512,
                ..ok
            },
            Refusal::Misaligned,
        ),
        (Sent::at(4096, 0), Refusal::OutsideWindow),
        (Sent::at(WINDOW_BYTES, 4096), Refusal::OutsideWindow),
        (Sent::at(WINDOW_BYTES - 4096, 8192), Refusal::OutsideWindow),
        (Sent::at(u64::MAX - 4095, 8192), Refusal::OutsideWindow),
        (Sent { region: 1, ..ok }, Refusal::NoRegion),
        (Sent { flags: 3, ..ok }, Refusal::Malformed),
    ]
}

/// The same for removals.
fn refused_unmaps() -> Vec<(Sent, Refusal)> {
    let whole = Sent::at(16384, 8192);
    vec![
        (Sent::at(16384, 4096), Refusal::NotMapped),
        (Sent::at(20480, 4096), Refusal::NotMapped),
        (Sent::at(16384, 12288), Refusal::NotMapped),
        (Sent::at(12288, 12288), Refusal::NotMapped),
        (Sent::at(4096, 8192), Refusal::NotMapped),
        (Sent::at(16384, 0), Refusal::OutsideWindow),
        (Sent { region: 1, ..whole }, Refusal::NoRegion),
    ]
}

#[test]
fn what_the_specification_forbids_is_refused_and_changes_nothing() {
    for config in BOTH {
        let ground = Ground::new(config);
        let (window, channel) = (ground.window(), &ground.channel);
        let file = file(4 << 20);
        assert_eq!(channel.map(Sent::at(16384, 8192), &file), 0);
        assert!(window.wait_until(LIMIT, |counts| counts.maps == 1));
        let before = window.mappings();
        let mut refused = 0;
        let mut check = |answer: u64, refusal: Refusal| {
            refused += 1;
            assert_ne!(answer, 0, "{refusal:?}");
            let counts = window.counts();
            assert_eq!(counts.last_refusal, Some(refusal));
            assert_eq!(counts.refused, refused);
        };
        for (sent, refusal) in refused_maps() {
            check(channel.map(sent, &file), refusal);
        }
        for (sent, refusal) in refused_unmaps() {
            check(channel.unmap(sent), refusal);
        }
        let body = Sent::at(4096, 4096).body();
        let whole = Sent::at(16384, 8192).body();
        let (one, two) = ([file.as_fd()], [file.as_fd(); 2]);
        let malformed = [
            (SHMEM_MAP, &body[..], &two[..0]),
            (SHMEM_MAP, &body, &two),
            (SHMEM_MAP, &body[1..], &one),
            (SHMEM_UNMAP, &whole, &one),
            (SHMEM_UNMAP, &whole, &two),
            (2, &whole, &[]),
        ];
        for (code, body, files) in malformed {
            channel.send(code, NEED_REPLY, body, files);
            check(channel.answer(code), Refusal::Malformed);
        }
        assert_eq!(window.mappings(), before);
        assert_eq!(channel.unmap(Sent::at(16384, 8192)), 0);
    }
}

#[test]
fn a_message_that_wants_no_answer_gets_none() {
    for config in BOTH {
        let ground = Ground::new(config);
        let file = file(8192);
        let (first, second) = (Sent::at(0, 4096), Sent::at(4096, 4096));
        let files = [file.as_fd()];
        ground.channel.send(SHMEM_MAP, 0, &first.body(), &files);
        ground.channel.send(SHMEM_UNMAP, 0, &second.body(), &[]);
        // The next answer is the one to this.
        assert_eq!(ground.channel.map(second, &file), 0);
        assert_eq!(ground.channel.unmap(first), 0);
        let counts = ground.window().counts();
        assert_eq!((counts.refused, counts.answers), (1, 2));
    }
}

#[test]
fn a_malformed_header_ends_the_channel() {
    for (flags, length) in [(2, 0), (1 | NEED_REPLY, 4097_u32)] {
        let ground = Ground::new(WindowConfig::as_specified());
        let header = [SHMEM_UNMAP, flags, length].map(u32::to_ne_bytes);
        let header = header.as_flattened();
        let stream = ground.channel.0.as_fd();
        thrufs_sys::fd_passing::send(stream, header, &[]).unwrap();
        assert!(wire::receive(&ground.channel.0).unwrap().is_none());
        assert!(ground.window().wait_until(LIMIT, |counts| counts.ended));
    }
}

#[test]
fn a_paused_front_end_takes_no_message() {
    for config in BOTH {
        let ground = Ground::new(config);
        let (window, channel) = (ground.window(), &ground.channel);
        window.pause();
        channel.send_map(Sent::at(0, 4096), file(4096));
        assert!(window.has_message(LIMIT));
        assert!(!window.wait_until(A_WHILE, |counts| counts.messages > 0));
        window.resume();
        assert_eq!(channel.answer(SHMEM_MAP), 0);
        assert_eq!(window.counts().messages, 1);
    }
}

#[test]
fn withheld_answers_come_in_their_order() {
    for config in BOTH {
        let config = WindowConfig {
            answers_withheld: true,
            ..config
        };
        let ground = Ground::new(config);
        let (window, channel) = (ground.window(), &ground.channel);
        let mapped = file(8192);
        channel.send_map(Sent::at(0, 4096), &mapped);
        channel.send_map(Sent::at(0, 4096), &mapped);
        channel.send_unmap(Sent::at(0, 4096));
        assert!(window.wait_until(LIMIT, |counts| counts.messages == 3));
        // Waits until the last is carried out.
        window.pause();
        window.resume();
        let counts = window.counts();
        assert_eq!((counts.unmaps, counts.answers), (1, 0));
        assert_eq!(window.withheld_answers(), 3);
        window.answer_again().unwrap();
        assert_eq!(channel.answer(SHMEM_MAP), 0);
        assert_ne!(channel.answer(SHMEM_MAP), 0);
        assert_eq!(channel.answer(SHMEM_UNMAP), 0);
        assert_eq!(channel.map(Sent::at(0, 4096), &mapped), 0);
        window.withhold_answers();
        channel.send_unmap(Sent::at(0, 4096));
        assert!(window.wait_until(LIMIT, |counts| counts.unmaps == 2));
        window.pause();
        assert_eq!((window.counts().answers, window.withheld_answers()), (4, 1));
    }
}

#[test]
fn a_held_window_keeps_its_mappings() {
    let ground = Ground::new(WindowConfig::as_specified());
    let (window, channel) = (ground.window(), &ground.channel);
    assert_eq!(channel.map(Sent::at(0, 4096), file(4096)), 0);
    let held = window.hold();
    channel.send_unmap(Sent::at(0, 4096));
    assert!(window.wait_until(LIMIT, |counts| counts.messages == 2));
    held.copy_in(0, b"still there").unwrap();
    assert_eq!(window.counts().unmaps, 0);
    drop(held);
    assert_eq!(channel.answer(SHMEM_UNMAP), 0);
    assert!(window.mappings().is_empty());
}

#[test]
fn a_reset_ends_all_mappings() {
    for config in BOTH {
        let ground = Ground::new(config);
        let (window, channel) = (ground.window(), &ground.channel);
        let mapped = file(8192);
        assert_eq!(channel.map(Sent::at(0, 4096), &mapped), 0);
        assert_eq!(channel.map(Sent::at(8192, 4096), &mapped), 0);
        assert!(window.wait_until(LIMIT, |counts| counts.maps == 2));
        ground.front_end.reset_device().unwrap();
        assert!(window.mappings().is_empty());
        assert_eq!(window.counts().live, 0);
        assert_eq!(channel.map(Sent::at(0, 8192), &mapped), 0);
    }
}
