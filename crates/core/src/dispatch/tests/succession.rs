//! A session that one dispatcher saves and another goes on with.

use super::*;
use crate::backing::Services;
use std::io;

fn saved(dispatcher: &Dispatcher<RecordingFs>) -> Vec<u8> {
    let mut state = Vec::new();
    dispatcher.save(&mut state).unwrap();
    state
}

fn restored(fs: RecordingFs, state: &[u8]) -> io::Result<Dispatcher<RecordingFs>> {
    let dispatcher = Dispatcher::new(Arc::new(fs));
    dispatcher.restore(&mut &*state)?;
    Ok(dispatcher)
}

fn kind(result: io::Result<Dispatcher<RecordingFs>>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn another_dispatcher_resumes_a_saved_session() {
    let first = connected(RecordingFs::default());
    let state = saved(&first);
    let second = restored(RecordingFs::default(), &state).unwrap();
    assert_eq!(
        second.features().unwrap().flags,
        first.features().unwrap().flags
    );
    assert_eq!(
        second.file_system().calls(),
        ["started", "restore saved by the fs"]
    );
    // It answers in the dialect that was agreed on, and knows that INIT was.
    let getattr = request(Opcode::Getattr).arg(&thrufs_abi::layout::GetattrIn::default());
    assert_eq!(ask(&second, &getattr.finish()).unwrap().error, 0);
    let init = ask(&second, &init_request(45, offered())).unwrap();
    assert_eq!(init.error, -libc::EINVAL);
    // And it can be saved once more.
    assert_eq!(saved(&second), state);
}

#[test]
fn the_init_request_is_saved_as_it_was_sent() {
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    assert_eq!(dispatcher.init_request(), None);
    let sent = init_request(45, offered());
    assert_eq!(ask(&dispatcher, &sent).unwrap().error, 0);
    assert_eq!(dispatcher.init_request(), Some(sent));
}

#[test]
fn a_session_before_init_is_saved_as_such() {
    let before = Dispatcher::new(Arc::new(RecordingFs::default()));
    let state = saved(&before);
    let after = restored(RecordingFs::default(), &state).unwrap();
    assert!(after.features().is_none());
    assert!(after.file_system().calls().is_empty());
    assert_eq!(ask(&after, &init_request(45, offered())).unwrap().error, 0);
}

#[test]
fn another_result_of_init_is_refused() {
    let state = saved(&connected(RecordingFs::default()));
    let other = RecordingFs {
        wants_writeback: true,
        ..RecordingFs::default()
    };
    let refused = restored(other, &state);
    assert_eq!(kind(refused), Some(io::ErrorKind::InvalidData));
    let unwilling = RecordingFs {
        refuse_init: Some(Errno::EPERM),
        ..RecordingFs::default()
    };
    let refused = restored(unwilling, &state).err().unwrap();
    assert!(
        refused.to_string().contains("refused to start"),
        "{refused}"
    );
}

#[test]
fn malformed_saved_sessions_are_refused() {
    let state = saved(&connected(RecordingFs::default()));
    for length in 0..state.len() {
        let refused = kind(restored(RecordingFs::default(), &state[..length]));
        assert_eq!(
            refused,
            Some(io::ErrorKind::UnexpectedEof),
            "{length} bytes"
        );
    }
    // Magic, version, length, and the opcode of the request.
    for at in [0, 8, 15, 16 + 4] {
        let mut bent = state.clone();
        bent[at] ^= 0x55;
        let refused = kind(restored(RecordingFs::default(), &bent));
        assert_eq!(refused, Some(io::ErrorKind::InvalidData), "byte {at}");
    }
}

#[test]
fn a_session_of_a_dead_process_is_resumed_by_its_init() {
    let sent = init_request(45, offered());
    let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
    dispatcher.resume(&sent, Services::unavailable()).unwrap();
    assert_eq!(dispatcher.file_system().calls(), ["started", "recover"]);
    assert!(
        dispatcher.resume(&sent, Services::unavailable()).is_err(),
        "once"
    );

    for bytes in [&[][..], &sent[..50], &request(Opcode::Statfs).finish()] {
        let dispatcher = Dispatcher::new(Arc::new(RecordingFs::default()));
        let error = dispatcher
            .resume(bytes, Services::unavailable())
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(dispatcher.file_system().calls().is_empty());
    }
}

#[test]
fn a_file_system_without_save_and_open_is_unsupported() {
    struct Plain;
    impl FileSystem for Plain {
        fn lookup(
            &self,
            _: &Context<'_>,
            _: NodeId,
            _: thrufs_abi::Name<'_>,
        ) -> Result<crate::Entry> {
            Err(Errno::ENOENT)
        }

        fn getattr(
            &self,
            _: &Context<'_>,
            _: NodeId,
            _: Option<thrufs_abi::FileHandle>,
        ) -> Result<crate::Attributes> {
            Err(Errno::ENOENT)
        }
    }
    let dispatcher = Dispatcher::new(Arc::new(Plain));
    let init = init_request(45, offered());
    assert_eq!(ask(&dispatcher, &init).unwrap().error, 0);
    // After which a kernel opens without asking.
    let open = request(Opcode::Open).arg(&thrufs_abi::layout::OpenIn::default());
    let answer = ask(&dispatcher, &open.finish()).unwrap();
    assert_eq!(answer.error, -libc::ENOSYS);
    let refused = dispatcher.save(&mut Vec::new()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    let refused = Dispatcher::new(Arc::new(Plain))
        .resume(&init, Services::unavailable())
        .unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}
