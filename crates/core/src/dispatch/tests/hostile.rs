//! Requests that no kernel sends.

use super::*;
use thrufs_abi::layout::{ReadIn, WriteIn};

#[test]
fn every_opcode_of_every_length_is_answered_or_refused() {
    let dispatcher = connected(RecordingFs::default());
    let mut buffer = vec![0; 70_000];
    for &opcode in Opcode::ALL {
        for filler in [0_u8, 1, 0x2f, 0x7f, 0xff] {
            for length in 0..180 {
                let request = request(opcode).bytes(&vec![filler; length]).finish();
                let length = dispatcher.answer(&request, &mut buffer);
                assert!(
                    length == 0 || Reply::parse(&buffer[..length]).is_some(),
                    "{opcode:?}"
                );
            }
        }
    }
    assert!(dispatcher.metrics().snapshot().malformed > 1000);
    assert_eq!(dispatcher.metrics().snapshot().panics, 0);
}

#[test]
fn every_prefix_of_a_request_is_refused() {
    let dispatcher = connected(RecordingFs::default());
    let whole = request(Opcode::Lookup).name(b"name").finish();
    for length in 0..whole.len() {
        let before = dispatcher.metrics().snapshot().malformed;
        match ask(&dispatcher, &whole[..length]) {
            Some(reply) => assert_eq!(reply.error, -libc::EINVAL),
            None => assert!(length < 40, "where the number is known, it is answered"),
        }
        assert_eq!(dispatcher.metrics().snapshot().malformed, before + 1);
    }
    assert_eq!(dispatcher.file_system().calls(), Vec::<String>::new());
}

fn error(dispatcher: &Dispatcher<RecordingFs>, request: RequestBuilder) -> i32 {
    -reply_to(dispatcher, request).error
}

#[test]
fn unknown_and_unsupported_opcodes_are_refused() {
    let dispatcher = connected(RecordingFs::default());
    // 4096 is CUSE_INIT.
    for number in [0, 7, 19, 54, 4095, 4096, 4097, u32::MAX] {
        let unknown = RequestBuilder::from_number(number, Unique(8), NodeId(1));
        assert_eq!(error(&dispatcher, unknown), libc::ENOSYS, "{number}");
    }
    assert_eq!(dispatcher.metrics().snapshot().unknown, 8);
    let mapping = request(Opcode::SetupMapping).arg(&[0_u64; 5]);
    assert_eq!(error(&dispatcher, mapping), libc::ENOSYS);
    let removal = request(Opcode::RemoveMapping).arg(&1_u32).bytes(&[0; 16]);
    assert_eq!(error(&dispatcher, removal), libc::ENOSYS);
    let snapshot = dispatcher.metrics().snapshot();
    for opcode in [Opcode::SetupMapping, Opcode::RemoveMapping] {
        let counts = snapshot.operation(opcode).unwrap();
        assert_eq!((counts.requests(), counts.errors), (1, 0), "{opcode:?}");
    }
}

#[test]
fn names_of_several_components_and_dots_are_refused() {
    let dispatcher = connected(RecordingFs::default());
    for name in [&b""[..], b"a/b", b"/", b".", b".."] {
        let rename = request(Opcode::Rename).arg(&3_u64).name(b"good");
        for request in [
            request(Opcode::Mkdir).arg(&[0_u32; 2]),
            request(Opcode::Unlink),
            request(Opcode::Lookup),
            rename,
        ] {
            let refused = error(&dispatcher, request.name(name));
            assert_eq!(refused, libc::EINVAL, "{name:?}");
        }
    }
    assert_eq!(dispatcher.file_system().calls(), Vec::<String>::new());
}

#[test]
fn too_small_reply_buffers_give_an_error() {
    let dispatcher = connected(RecordingFs::default());
    let read = ReadIn {
        size: 4096,
        ..ReadIn::default()
    };
    let requests = [
        request(Opcode::Read).arg(&read).finish(),
        request(Opcode::Lookup).name(b"x").finish(),
        request(Opcode::Getxattr)
            .arg(&[4096_u32, 0])
            .name(b"user.a")
            .finish(),
    ];
    for request in &requests {
        for room in 0..700 {
            let mut buffer = vec![0; room];
            let length = dispatcher.answer(request, &mut buffer);
            assert!(length <= room);
            assert!(room < 16 || Reply::parse(&buffer[..length]).is_some());
        }
    }
}

/// With flags, preadv2(2) and pwritev2(2) take the offset -1 for the file's position.
#[test]
fn reads_and_writes_at_negative_offsets_are_refused() {
    let dispatcher = connected(RecordingFs::default());
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
        let read = ReadIn {
            offset,
            size: 4,
            ..ReadIn::default()
        };
        let read = request(Opcode::Read).arg(&read);
        assert_eq!(error(&dispatcher, read), libc::EINVAL, "{offset:#x}");
        let write = WriteIn {
            offset,
            size: 4,
            ..WriteIn::default()
        };
        let write = request(Opcode::Write).arg(&write).bytes(b"data");
        assert_eq!(error(&dispatcher, write), libc::EINVAL, "{offset:#x}");
    }
    assert_eq!(dispatcher.file_system().calls(), Vec::<String>::new());
}
