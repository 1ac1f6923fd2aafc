//! The behaviour of the specification.

use super::back_end::Sent;
use super::common::{Ground, file, read_only};
use crate::front_end::{Refusal, WindowConfig, WindowError};
use rustix::io::Errno;

#[test]
fn a_mapping_for_reading_refuses_stores() {
    let ground = Ground::new(WindowConfig::as_specified());
    let (window, channel) = (ground.window(), &ground.channel);
    let file = file(8192);
    let flags = 0;
    let by_writer = Sent {
        flags,
        ..Sent::at(0, 4096)
    };
    let by_reader = Sent {
        flags,
        ..Sent::at(4096, 4096)
    };
    assert_eq!(channel.map(by_writer, &file), 0);
    assert_eq!(channel.map(by_reader, read_only(&file)), 0);
    for offset in [0, 4096] {
        let refused = Err(WindowError::Failed(offset, Errno::FAULT));
        assert_eq!(window.write(offset, b"spoiled"), refused);
        assert_eq!(window.hold().copy_in(offset, b"spoiled"), refused);
        let mut seen = [9; 7];
        window.read(offset, &mut seen).unwrap();
        assert_eq!(seen, [0; 7]);
    }
    assert!(window.mappings().iter().all(|mapping| !mapping.writable));
    // For writing, of a descriptor that is for reading.
    assert_ne!(channel.map(Sent::at(8192, 4096), read_only(&file)), 0);
    let refusal = window.counts().last_refusal;
    assert_eq!(refusal, Some(Refusal::Kernel(Errno::ACCESS)));
}

#[test]
fn a_mapping_reaches_beyond_the_end_of_the_file() {
    let ground = Ground::new(WindowConfig::as_specified());
    let (window, channel) = (ground.window(), &ground.channel);
    let file = file(5000);
    assert_eq!(channel.map(Sent::at(0, 2 << 20), &file), 0);
    let mut seen = [9; 8];
    window.read(4996, &mut seen).unwrap();
    assert_eq!(seen, [1, 1, 1, 1, 0, 0, 0, 0]);
    let beyond = Err(WindowError::Failed(8192, Errno::FAULT));
    assert_eq!(window.read(8192, &mut seen), beyond);
    assert_eq!(window.write(8192, b"late"), beyond);
    file.set_len(1 << 20).unwrap();
    window.write(8192, b"in time").unwrap();
    window.read(8192, &mut seen).unwrap();
    assert_eq!(&seen, b"in time\0");
    file.set_len(100).unwrap();
    assert_eq!(window.read(8192, &mut seen), beyond);
}

#[test]
fn nothing_is_announced() {
    let ground = Ground::new(WindowConfig::as_specified());
    let before = ground.back_end.codes();
    assert_eq!(ground.channel.map(Sent::at(0, 4096), file(4096)), 0);
    let mut seen = [9; 4];
    ground.window().read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 4], "in force when it was confirmed");
    assert_eq!(ground.channel.unmap(Sent::at(0, 4096)), 0);
    assert!(ground.window().mappings().is_empty(), "gone as well");
    assert_eq!(ground.back_end.codes(), before);
}

#[test]
fn a_message_is_carried_out_while_the_main_channel_waits() {
    let ground = Ground::new(WindowConfig::as_specified());
    let answer = ground.front_end.on_main_thread(|_| {
        let sent = Sent::at(0, 4096);
        ground.channel.map(sent, file(4096))
    });
    assert_eq!(answer, 0);
}
