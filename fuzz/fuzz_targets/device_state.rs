//! The saved state of a device from an untrusted source: it is refused, or encoding what was decoded gives
//! the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use thrufs_virtio::device_state::{WriteSession, read, write};

fuzz_target!(|data: &[u8]| {
    let read_session = |source: &mut dyn Read| {
        let mut session = Vec::new();
        source.read_to_end(&mut session)?;
        Ok(session)
    };
    let Ok((again, session)) = read(&mut &*data, read_session) else {
        return;
    };
    let mut bytes = Vec::new();
    let mut write_session =
        |sink: &mut dyn Write| sink.write_all(session.as_deref().unwrap_or_default());
    let writer: Option<WriteSession<'_>> = session.is_some().then_some(&mut write_session as _);
    write(&mut bytes, &again, writer).expect("memory takes it");
    let second = read(&mut bytes.as_slice(), read_session).expect("what was written is good");
    assert_eq!(second, (again, session));
});
