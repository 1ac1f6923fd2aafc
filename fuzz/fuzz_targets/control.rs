//! Requests to the control socket of a mount, and replies of its server.
#![no_main]

// The command is no library, so its module is included by path.
#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/cli/src/control/protocol.rs"]
mod protocol;

use libfuzzer_sys::fuzz_target;
use protocol::{Command, Reply};

fuzz_target!(|line: &[u8]| {
    if let Ok(command) = Command::decode(line) {
        if let Command::Explain { components } = &command {
            for name in components {
                let name = name.to_bytes();
                assert!(!name.is_empty() && name != b"." && name != b"..");
                assert!(!name.contains(&b'/') && name.len() <= 255);
            }
        }
        let written = command.encode();
        let body = written.strip_suffix('\n').expect("a line");
        assert!(!body.contains('\n'));
        // Escaping may exceed the limit of a request.
        if body.len() < protocol::REQUEST_BYTES_MAX {
            assert_eq!(Command::decode(body.as_bytes()), Ok(command));
        }
    }
    if let Ok(reply) = Reply::decode(line) {
        let _ = reply.encode();
    }
});
