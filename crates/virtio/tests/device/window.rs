//! The DAX window, with a front end that is played by the test: what is asked of it, and when.

mod ground;

use crate::ground::{ALL_FEATURES, SIZE, end, error_of, serve, sessions};
use ground::{
    Ground, MAP, Monitor, RANGE, UNMAP, WINDOW, asked, begin, begin_with, connect, map, mapped,
    region,
};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use thrufs::Opcode;
use thrufs_abi::Reply;
use thrufs_abi::layout::{InitOut, SetupmappingIn};
use thrufs_testing::wait_until;
use thrufs_virtio::DeviceConfig;
use vhost::vhost_user::{VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VringConfigData};

#[test]
fn a_file_is_mapped_and_unmapped_at_the_guest_s_request() {
    let mut ground = begin(false);
    assert_eq!(ground.map(5, 0, RANGE, 2), 0);
    assert_eq!(ground.map(5, RANGE, 0, 3), 0);
    // To be written, too: it is mapped so already.
    assert_eq!(ground.map(5, 0, RANGE, 3), 0);
    let expected = [asked(MAP, 0, RANGE, RANGE), asked(MAP, RANGE, 0, RANGE)];
    assert_eq!(ground.monitor.asked(), expected);
    assert_eq!(ground.device.metrics().window_mappings, 2);
    assert_eq!(ground.unmap(&[(0, RANGE), (RANGE, RANGE)]), 0);
    assert_eq!(ground.monitor.live(), []);
    let metrics = ground.device.metrics();
    assert_eq!(
        (
            metrics.window_mappings,
            metrics.window_maps,
            metrics.window_unmaps
        ),
        (0, 2, 2)
    );
    ground.end();
}

#[test]
fn a_front_end_that_does_not_map_beyond_the_end_is_asked_for_whole_pages() {
    let mut ground = begin(true);
    assert_eq!(ground.map(5, RANGE, 0, 3), 0);
    assert_eq!(ground.map(5, 2 * RANGE, RANGE, 3), 0);
    assert_eq!(ground.monitor.asked(), [asked(MAP, RANGE, 0, RANGE / 2)]);
    assert_eq!(ground.unmap(&[(0, RANGE), (RANGE, RANGE)]), 0);
    assert_eq!(ground.monitor.asked(), [asked(UNMAP, 0, 0, RANGE / 2)]);
    ground.end();
}

#[test]
fn invalid_requests_reach_no_front_end() {
    let mut ground = begin(false);
    assert_eq!(ground.map(5, 0, 0, 3), 0);
    ground.monitor.asked();
    let (inval, acces, badf) = (22, 13, 9);
    let invalid = [
        (5, 0, WINDOW, 3, inval),
        (5, 0, u64::MAX - 4095, 3, inval),
        (5, 0, 4096, 3, inval),
        (5, 0, RANGE - 4096, 3, inval),
        (5, 1, RANGE, 3, inval),
        (5, RANGE, 0, 3, inval),
        (6, 0, 0, 3, inval),
        (5, 0, RANGE + 1, 3, inval),
        (5, u64::MAX - RANGE + 1, RANGE, 3, inval),
        (5, 0, RANGE, 4, inval),
        (7, 0, RANGE, 1, acces),
        (9, 0, RANGE, 2, badf),
    ];
    for (node, offset, at, flags, errno) in invalid {
        let error = ground.map(node, offset, at, flags);
        assert_eq!(error, errno, "node {node}, {offset} at {at}, flags {flags}");
    }
    for range in [
        (0, 4096),
        (4096, RANGE),
        (0, 0),
        (1, RANGE),
        (WINDOW, RANGE),
        (0, u64::MAX),
    ] {
        assert_eq!(ground.unmap(&[range]), inval, "{range:?}");
    }
    assert_eq!(ground.monitor.asked(), []);
    let metrics = ground.device.metrics();
    let refused = [
        metrics.window_refused_range,
        metrics.window_refused_overlap,
        metrics.window_refused_cut,
        metrics.window_refused_write,
    ];
    assert!(refused.iter().all(|&count| count > 0), "{refused:?}");
    assert_eq!(ground.unmap(&[(0, WINDOW)]), 0, "all that is there");
    ground.monitor.asked();
    // As when it is carried out again, after a death.
    assert_eq!(ground.unmap(&[(0, RANGE)]), 0, "twice");
    assert_eq!(ground.monitor.asked(), []);
    ground.end();
}

#[test]
fn a_hundred_thousand_set_ups_leave_no_descriptor_and_few_mappings() {
    const AT_ONCE: u64 = SIZE as u64 - 1;
    let mut ground = begin(false);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let mut mapped = 0;
    for round in 0..=100_000 / AT_ONCE {
        let numbers = round * AT_ONCE..(round + 1) * AT_ONCE;
        for number in numbers.clone() {
            let at = number * 4096 % (WINDOW + RANGE);
            let flags = 1 + number % 3;
            ground.submit_map(5 + number % 5, number % 7 * 4096, at, flags);
        }
        for _ in numbers {
            let (head, length) = ground.guest.next_used(1);
            mapped += u64::from(error_of(&ground.guest.reply(1, head, length)) == 0);
        }
        if round % 8 == 0 {
            assert_eq!(ground.unmap(&[(0, WINDOW)]), 0);
        }
    }
    let live = ground.monitor.live();
    assert!(mapped > 100, "{mapped}");
    assert!(live.len() as u64 <= WINDOW / RANGE, "{live:?}");
    assert_eq!(ground.device.metrics().window_mappings, live.len() as u64);
    assert!(
        descriptors() < before + 50,
        "other tests of this process have some"
    );
    ground.end();
}

#[test]
fn there_are_no_more_mappings_than_ranges() {
    let mut ground = begin(false);
    let mut small = |page: u64| {
        let arg = SetupmappingIn {
            len: 4096,
            flags: 3,
            moffset: page * 4096,
            ..SetupmappingIn::default()
        };
        let request = ground
            .guest
            .request(Opcode::SetupMapping, 5)
            .arg(&arg)
            .finish();
        error_of(&ground.guest.transact(1, &request, 16))
    };
    for page in 0..WINDOW / 4096 {
        assert_eq!(small(page), if page < WINDOW / RANGE { 0 } else { 22 });
    }
    assert_eq!(ground.monitor.live().len() as u64, WINDOW / RANGE);
    ground.end();
}

#[test]
fn what_the_front_end_refuses_fails_and_can_be_tried_again() {
    let mut ground = begin(false);
    ground.monitor.change(|state| state.refuses = true);
    assert_eq!(ground.map(5, 0, 0, 3), 5);
    let metrics = ground.device.metrics();
    assert_eq!(
        (metrics.window_monitor_refused, metrics.window_mappings),
        (1, 0)
    );
    ground.monitor.change(|state| state.refuses = false);
    assert_eq!(ground.map(5, 0, 0, 3), 0);
    assert_eq!(ground.monitor.live(), [(0, RANGE)]);
    ground.end();
}

#[test]
fn a_front_end_that_does_not_answer_holds_up_no_other_request() {
    let mut ground = begin(false);
    ground.monitor.hold();
    let head = ground.submit_map(5, 0, 0, 3);
    ground.monitor.wait_for_question();
    let getattr = ground.guest.getattr(1);
    // Another request is answered.
    ground.guest.tell_any(getattr);
    // A stop of the queue does not wait for it, and it is not lost.
    let base = ground.stop();
    ground.guest.start_queue(1, base);
    assert!(ground.is_silent());
    ground.monitor.release();
    assert_eq!(ground.answer_to(head), 0);
    assert_eq!(ground.monitor.asked(), [asked(MAP, 0, 0, RANGE)], "once");
    // The same of one to unmap, which finds its range unmapped when it is carried out again.
    ground.monitor.hold();
    let head = ground.submit_unmap(&[(0, RANGE)]);
    ground.monitor.wait_for_question();
    let base = ground.stop();
    ground.monitor.release();
    wait_until("it is unmapped", || ground.monitor.live().is_empty());
    ground.guest.start_queue(1, base);
    assert_eq!(ground.answer_to(head), 0);
    ground.end();
}

#[test]
fn a_connection_ends_while_the_front_end_does_not_answer() {
    let mut ground = begin(false);
    ground.monitor.hold();
    ground.submit_map(5, 0, 0, 3);
    ground.monitor.wait_for_question();
    ground.end();
}

#[test]
fn a_session_begins_with_an_empty_window() {
    let mut ground = begin(false);
    assert_eq!(ground.map(5, 0, 0, 3), 0);
    // A guest that is reset says nothing.
    ground.guest.init().unwrap();
    assert_eq!(ground.monitor.live(), []);
    assert_eq!(ground.map(5, RANGE, 0, 3), 0, "the place is free");
    let destroy = ground.guest.request(Opcode::Destroy, 0).finish();
    ground.monitor.asked();
    ground.monitor.hold();
    let head = ground.guest.submit(1, &destroy, 16);
    ground.monitor.wait_for_question();
    // Before the answer: then the guest may stop the device.
    assert!(ground.is_silent());
    ground.monitor.release();
    assert_eq!(ground.guest.next_used(1).0, head);
    assert_eq!(ground.monitor.live(), []);
    assert_eq!(ground.device.metrics().window_mappings, 0);
    ground.guest.init().unwrap();
    assert_eq!(ground.map(5, RANGE, 0, 3), 0);
    ground.end();
}

#[test]
fn destroy_does_not_wait_for_a_front_end_that_stops_the_queue() {
    let mut ground = begin(false);
    assert_eq!(ground.map(5, 0, 0, 3), 0);
    ground.monitor.asked();
    ground.monitor.hold();
    let destroy = ground.guest.request(Opcode::Destroy, 0).finish();
    let head = ground.guest.submit(1, &destroy, 16);
    ground.monitor.wait_for_question();
    let base = ground.stop();
    ground.monitor.release();
    ground.guest.start_queue(1, base);
    assert_eq!(ground.guest.next_used(1).0, head);
    wait_until("unmapped", || ground.monitor.live().is_empty());
    ground.end();
}

/// A monitor that stops the queue answers nothing until that is done.
#[test]
fn init_is_carried_out_again_when_the_queue_is_stopped_meanwhile() {
    let mut ground = connect(false);
    ground.monitor.hold();
    let init = ground.guest.init_request();
    let head = ground.guest.submit(1, &init, 4096);
    ground.monitor.wait_for_question();
    let base = ground.stop();
    ground.monitor.release();
    ground.guest.start_queue(1, base);
    let (used, length) = ground.guest.next_used(1);
    assert_eq!(used, head);
    let reply = ground.guest.reply(1, head, length);
    let reply = Reply::parse(&reply).unwrap();
    assert_eq!(reply.error, 0);
    let out: InitOut = reply.structure().unwrap();
    assert_eq!(out.map_alignment, 12, "with the window");
    ground.end();
}

#[test]
fn without_a_channel_there_is_no_window() {
    let (_, serving, mut guest) = {
        let make = sessions(&mapped(tempfile::tempfile().unwrap(), &Arc::default()));
        let config = DeviceConfig {
            window_bytes: NonZeroU64::new(WINDOW),
            ..DeviceConfig::default()
        };
        serve(make, config, ALL_FEATURES)
    };
    assert_eq!(guest.init().unwrap().map_alignment, 0);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 38, "ENOSYS");
    end(serving, guest);
}

#[test]
fn a_mapping_is_confirmed_to_the_guest_once_it_is_announced() {
    let mut ground = connect(true);
    let front_end = ground.guest.front_end.clone();
    ground
        .monitor
        .change(|state| state.announces_to = Some(front_end));
    ground.guest.init().unwrap();
    assert_eq!(ground.map(5, 0, 0, 3), 0);
    let file = ground.monitor.take_file();
    ground.monitor.asked();
    ground
        .monitor
        .change(|state| state.holds_announcements = true);
    let head = ground.submit_map(5, 0, RANGE, 3);
    ground.monitor.wait_for_question();
    // After a worker's death, that of another mapping may come late.
    let other = region(2 * RANGE, RANGE, file.as_raw_fd());
    ground.guest.front_end.add_mem_region(&other).unwrap();
    assert!(ground.is_silent());
    ground
        .monitor
        .change(|state| state.holds_announcements = false);
    assert_eq!(ground.guest.next_used(1).0, head);
    ground.monitor.change(|state| state.announces_to = None);
    ground.end();
}

/// Its file may be truncated on the host at any time.
#[test]
fn a_part_of_the_window_that_is_announced_holds_no_ring() {
    let mut ground = begin(false);
    assert_eq!(ground.map(5, 0, 0, 3), 0);
    let file = ground.monitor.take_file();
    let announced = |number: u64| region(number * RANGE, RANGE, file.as_raw_fd());
    ground
        .guest
        .front_end
        .add_mem_region(&announced(0))
        .unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    ground
        .guest
        .front_end
        .add_mem_region(&announced(1))
        .unwrap();
    rustix::fs::ftruncate(&file, RANGE).unwrap();
    ground.guest.front_end.get_vring_base(1).unwrap();
    let at = announced(0).userspace_addr;
    let layout = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: at,
        avail_ring_addr: at + 0x1000,
        used_ring_addr: at + 0x2000,
        log_addr: None,
    };
    ground.guest.front_end.set_vring_addr(1, &layout).unwrap();
    let started = ground
        .guest
        .front_end
        .set_vring_kick(1, &ground.guest.queues[1].kick);
    assert!(started.is_err(), "the queue is served");
    ground.end_failed();
}

/// It would take the message for an error.
#[test]
fn a_front_end_that_has_not_agreed_on_it_is_asked_for_nothing() {
    let mut ground = connect(false);
    let features = ground.guest.front_end.get_protocol_features().unwrap();
    let without = features - VhostUserProtocolFeatures::SHMEM;
    ground
        .guest
        .front_end
        .set_protocol_features(without)
        .unwrap();
    let (monitor, channel) = Monitor::start(false);
    ground
        .guest
        .front_end
        .set_backend_request_fd(&channel)
        .unwrap();
    ground.monitor.asked();
    ground.guest.init().unwrap();
    assert_eq!(monitor.asked(), []);
    ground.end();
}

#[test]
fn a_device_without_a_window_offers_none() {
    let make = sessions(&mapped(tempfile::tempfile().unwrap(), &Arc::default()));
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    let offered = guest.front_end.get_protocol_features().unwrap();
    assert!(!offered.contains(VhostUserProtocolFeatures::SHMEM));
    assert_eq!(guest.init().unwrap().map_alignment, 0);
    assert_eq!(map(&mut guest, 5, 0, 0, 3), 38, "ENOSYS");
    end(serving, guest);
}

/// A device whose queue has helper threads, and SETUPMAPPINGs, two for each range, of which a helper has one and is
/// held up in it, as the monitor is. Their heads.
fn taken_by_a_helper() -> (Ground, Vec<u16>) {
    let config = DeviceConfig {
        queue_helpers_max: Some(2),
        ..DeviceConfig::default()
    };
    let mut ground = begin_with(false, config);
    ground.meeting.begin();
    ground.monitor.hold();
    ground.guest.front_end.set_vring_enable(1, false).unwrap();
    let set_up = |number: u64| {
        let range = number % (WINDOW / RANGE);
        ground.submit_map(5, range * 4096, range * RANGE, 3)
    };
    let heads = (0..2 * WINDOW / RANGE).map(set_up).collect();
    ground.guest.front_end.set_vring_enable(1, true).unwrap();
    ground.meeting.wait_for_helper();
    (ground, heads)
}

/// All are answered, and each range was mapped once.
fn all_are_mapped(mut ground: Ground, mut heads: Vec<u16>) {
    ground.monitor.release();
    while !heads.is_empty() {
        let (head, length) = ground.guest.next_used(1);
        assert_eq!(error_of(&ground.guest.reply(1, head, length)), 0);
        let at = heads.iter().position(|submitted| *submitted == head);
        heads.remove(at.expect("an answer to one of them, once"));
    }
    let mut maps = ground.monitor.asked();
    maps.sort_by_key(|asked| asked.at);
    let expected = |range| asked(MAP, range * 4096, range * RANGE, RANGE);
    let expected: Vec<_> = (0..WINDOW / RANGE).map(expected).collect();
    assert_eq!(maps, expected);
    assert!(ground.is_silent());
    ground.end();
}

#[test]
fn what_a_helper_has_taken_is_mapped() {
    let (ground, heads) = taken_by_a_helper();
    ground.meeting.end();
    all_are_mapped(ground, heads);
}

#[test]
fn what_a_helper_has_taken_is_mapped_after_a_stop_of_the_queue() {
    let (mut ground, heads) = taken_by_a_helper();
    let base = std::thread::scope(|scope| {
        let front_end = ground.guest.front_end.clone();
        let stopped = scope.spawn(move || front_end.get_vring_base(1).unwrap());
        assert!(ground.is_silent());
        ground.meeting.end();
        // It waits for the helper, and not for the monitor.
        stopped.join().unwrap()
    });
    ground.guest.start_queue(1, base as u16);
    assert!(ground.is_silent());
    all_are_mapped(ground, heads);
}
