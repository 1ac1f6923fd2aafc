//! The behaviour of QEMU.

use super::super::wire::{SHMEM_MAP, SHMEM_UNMAP};
use super::back_end::{ADD_MEM_REG, GET_VRING_BASE, LIMIT, REM_MEM_REG, Sent};
use super::common::{A_WHILE, Ground, file, read_only};
use crate::front_end::{Refusal, WindowConfig};

#[test]
fn a_mapping_is_confirmed_and_then_announced() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let (window, channel) = (ground.window(), &ground.channel);
    let sent = Sent {
        file_offset: 4096,
        ..Sent::at(8192, 16384)
    };
    let held = ground.back_end.hold_announcements();
    assert_eq!(channel.map(sent, file(1 << 20)), 0);
    assert!(window.wait_until(LIMIT, |counts| counts.maps == 1));
    assert_eq!(window.counts().announced, 0);
    drop(held);
    assert!(window.wait_until(LIMIT, |counts| counts.announced == 1));
    let added = ground.back_end.bodies(ADD_MEM_REG);
    let address = window.guest_address(8192);
    assert_eq!(added[0][1..3], [address, 16384]);
    assert_eq!(added[0][4], 4096, "the offset in the file");

    let held = ground.back_end.hold_announcements();
    assert_eq!(channel.unmap(Sent::at(8192, 16384)), 0);
    assert!(window.wait_until(LIMIT, |counts| counts.unmaps == 1));
    assert_eq!(window.counts().withdrawn, 0);
    drop(held);
    assert!(window.wait_until(LIMIT, |counts| counts.withdrawn == 1));
    assert_eq!(ground.back_end.bodies(REM_MEM_REG), added);
    let counts = window.counts();
    assert_eq!(counts.announcements_failed, 0);
    assert!(!counts.announcement_wait_max.is_zero());
}

#[test]
fn the_answer_comes_before_the_mapping_is_in_force() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let (window, channel) = (ground.window(), &ground.channel);
    // The table cannot change while it is held, and the answer comes all the same.
    let held = window.hold();
    assert_eq!(channel.map(Sent::at(0, 4096), file(4096)), 0);
    assert!(held.copy_out(0, &mut [0]).is_err());
    drop(held);
    assert!(window.wait_until(LIMIT, |counts| counts.maps == 1));
    let held = window.hold();
    assert_eq!(channel.unmap(Sent::at(0, 4096)), 0);
    assert!(held.copy_out(0, &mut [0]).is_ok());
}

#[test]
fn what_qemu_cannot_map_is_refused() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let (window, channel) = (ground.window(), &ground.channel);
    let file = file(2 * 4096 + 1);
    let refused = |sent: Sent, refusal| {
        assert_ne!(channel.map(sent, &file), 0);
        assert_eq!(window.counts().last_refusal, Some(refusal));
    };
    refused(Sent::at(0, 3 * 4096), Refusal::BeyondEnd);
    let last_page = Sent {
        file_offset: 2 * 4096,
        ..Sent::at(0, 4096)
    };
    refused(last_page, Refusal::BeyondEnd);
    let far = Sent {
        file_offset: u64::MAX - 4095,
        ..Sent::at(0, 4096)
    };
    refused(far, Refusal::BeyondEnd);
    let for_reading = Sent {
        flags: 0,
        ..Sent::at(0, 4096)
    };
    assert_ne!(channel.map(for_reading, read_only(&file)), 0);
    assert_eq!(window.counts().last_refusal, Some(Refusal::ReadOnly));
    assert_eq!(channel.map(for_reading, &file), 0);
    assert!(window.wait_until(LIMIT, |counts| counts.maps == 1));
    window.write(0, b"for writing all the same").unwrap();
    assert!(window.mappings()[0].writable);
}

#[test]
fn more_regions_than_configured_are_refused() {
    let config = WindowConfig {
        regions_max: 4,
        ..WindowConfig::as_qemu()
    };
    let ground = Ground::new(config);
    let (window, channel) = (ground.window(), &ground.channel);
    let file = file(4096);
    for number in 0..3 {
        assert_eq!(channel.map(Sent::at(number * 4096, 4096), &file), 0);
    }
    let fourth = Sent::at(3 * 4096, 4096);
    assert_ne!(channel.map(fourth, &file), 0, "the RAM is the fourth");
    assert_eq!(window.counts().last_refusal, Some(Refusal::TooMany));
    assert_eq!(channel.unmap(Sent::at(0, 4096)), 0);
    assert_eq!(channel.map(fourth, &file), 0);
}

#[test]
fn no_message_is_taken_while_the_main_thread_is_busy() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let (window, channel) = (ground.window(), &ground.channel);
    ground.front_end.on_main_thread(|_| {
        channel.send_map(Sent::at(0, 4096), file(4096));
        assert!(window.has_message(LIMIT));
        assert!(!window.wait_until(A_WHILE, |counts| counts.messages > 0));
    });
    assert_eq!(channel.answer(SHMEM_MAP), 0);
}

#[test]
fn no_queue_is_stopped_while_the_main_thread_is_busy() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let front_end = &ground.front_end;
    std::thread::scope(|scope| {
        let stopped = front_end.on_main_thread(|_| {
            let stopped = scope.spawn(|| front_end.stop_queue(1));
            std::thread::sleep(A_WHILE);
            assert!(!ground.back_end.codes().contains(&GET_VRING_BASE));
            stopped
        });
        assert!(stopped.join().unwrap().is_ok());
    });
    assert!(ground.back_end.codes().contains(&GET_VRING_BASE));
}

#[test]
fn a_queue_is_stopped_after_the_announcement_in_progress() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let (window, channel) = (ground.window(), &ground.channel);
    let held = ground.back_end.hold_announcements();
    channel.send_map(Sent::at(0, 4096), file(4096));
    assert!(window.wait_until(LIMIT, |counts| counts.maps == 1));
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| ground.front_end.stop_queue(1));
        channel.send_unmap(Sent::at(0, 4096));
        assert!(!ground.back_end.codes().contains(&GET_VRING_BASE));
        drop(held);
        assert!(stopped.join().unwrap().is_ok());
    });
    let codes = ground.back_end.codes();
    let place = |wanted| codes.iter().position(|&code| code == wanted).unwrap();
    assert!(place(ADD_MEM_REG) < place(GET_VRING_BASE));
    assert_eq!(channel.answer(SHMEM_MAP), 0);
    assert_eq!(channel.answer(SHMEM_UNMAP), 0);
}

#[test]
fn a_reset_withdraws_what_was_announced() {
    let ground = Ground::new(WindowConfig::as_qemu());
    let window = ground.window();
    assert_eq!(ground.channel.map(Sent::at(4096, 4096), file(4096)), 0);
    assert!(window.wait_until(LIMIT, |counts| counts.announced == 1));
    ground.front_end.reset_device().unwrap();
    let added = ground.back_end.bodies(ADD_MEM_REG);
    assert_eq!(ground.back_end.bodies(REM_MEM_REG), added);
}
