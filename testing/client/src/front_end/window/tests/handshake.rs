//! What a window changes in the handshake, and in nothing else.

use super::back_end::{
    GET_CONFIG, GET_SHMEM_CONFIG, GET_VRING_BASE, Offer, SET_BACKEND_REQ_FD, SET_PROTOCOL_FEATURES,
    WINDOW_BYTES, connect,
};
use crate::front_end::{FrontEndConfig, GuestMemory, MigrateError, ProtocolFeatures, WindowConfig};
use std::os::unix::net::UnixStream;

/// The messages to a back end with one request queue.
const WITHOUT_WINDOW: [u32; 20] = [
    1, 15, 16, 17, 24, 3, 2, 5, 8, 10, 9, 13, 12, 8, 10, 9, 13, 12, 18, 18,
];

#[test]
fn without_a_window_the_handshake_has_the_messages_of_before() {
    let (front_end, back_end) = connect(None, Offer::default());
    assert_eq!(back_end.codes(), WITHOUT_WINDOW);
    let used = FrontEndConfig::default().protocol_features;
    assert_eq!(back_end.bodies(SET_PROTOCOL_FEATURES), [[used.bits()]]);
    assert!(front_end.window().is_none());
}

#[test]
fn a_window_is_asked_for_once_and_its_channel_is_given() {
    for config in [WindowConfig::as_specified(), WindowConfig::as_qemu()] {
        let (front_end, back_end) = connect(Some(config), Offer::default());
        let mut expected = WITHOUT_WINDOW.to_vec();
        let after_config = 1 + expected
            .iter()
            .position(|&code| code == GET_CONFIG)
            .unwrap();
        expected.splice(
            after_config..after_config,
            [GET_SHMEM_CONFIG, SET_BACKEND_REQ_FD],
        );
        assert_eq!(back_end.codes(), expected);
        let used = Offer::default().protocol;
        assert_eq!(back_end.bodies(SET_PROTOCOL_FEATURES), [[used.bits()]]);
        assert_eq!(front_end.window().unwrap().size(), WINDOW_BYTES);
        let _channel = back_end.channel();
    }
}

#[test]
fn a_server_that_lacks_what_a_window_needs_has_none() {
    let all = Offer::default().protocol;
    let needed = [
        ProtocolFeatures::SHMEM,
        ProtocolFeatures::BACKEND_REQ,
        ProtocolFeatures::BACKEND_SEND_FD,
        ProtocolFeatures::REPLY_ACK,
        ProtocolFeatures::CONFIGURE_MEM_SLOTS,
    ];
    for lacking in needed {
        let offer = Offer {
            protocol: all - lacking,
            ..Offer::default()
        };
        let (front_end, back_end) = connect(Some(WindowConfig::as_qemu()), offer);
        assert!(front_end.window().is_none());
        // Messages need no answer without REPLY_ACK. This one has one.
        front_end.stop_queue(0).unwrap();
        let codes = back_end.codes();
        assert_eq!(codes, [&WITHOUT_WINDOW[..], &[GET_VRING_BASE]].concat());
        let used = FrontEndConfig::default().protocol_features - lacking;
        assert_eq!(back_end.bodies(SET_PROTOCOL_FEATURES), [[used.bits()]]);
    }
    let offer = Offer {
        window_bytes: 0,
        ..Offer::default()
    };
    let (front_end, back_end) = connect(Some(WindowConfig::as_specified()), offer);
    assert!(front_end.window().is_none());
    assert!(!back_end.codes().contains(&SET_BACKEND_REQ_FD));
}

#[test]
fn a_front_end_with_a_window_refuses_to_migrate() {
    let offer = Offer::default();
    let (front_end, back_end) = connect(Some(WindowConfig::as_specified()), offer);
    let before = back_end.codes();
    let (destination, _other) = UnixStream::pair().unwrap();
    let refused = front_end.migrate_over(destination, GuestMemory::Shared);
    assert!(matches!(refused, Err(MigrateError::Window)));
    assert_eq!(back_end.codes(), before, "nothing was asked of the source");
    // Without a window at the server, there is nothing in the way of it.
    let offer = Offer {
        window_bytes: 0,
        ..offer
    };
    let (front_end, _back_end) = connect(Some(WindowConfig::as_specified()), offer);
    assert!(
        front_end.config.window.is_none(),
        "the destination is not asked for one"
    );
}

#[test]
fn the_channel_ends_with_the_front_end_and_mappings_with_it() {
    let (front_end, back_end) = connect(Some(WindowConfig::as_specified()), Offer::default());
    let channel = back_end.channel();
    let window = front_end.window().unwrap().clone();
    window.pause();
    drop(front_end);
    assert!(super::super::wire::receive(&channel.0).unwrap().is_none());
    assert!(window.counts().ended);
    assert!(window.mappings().is_empty());
}
