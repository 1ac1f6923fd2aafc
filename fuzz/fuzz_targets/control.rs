//! What clients say to the control socket of a mount, and what servers answer.
#![no_main]

// Not a library: the module is included, and uses nothing else of the command.
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
        // Escaping may have made it longer than a request may be.
        if body.len() < protocol::REQUEST_BYTES_MAX {
            assert_eq!(Command::decode(body.as_bytes()), Ok(command));
        }
    }
    if let Ok(reply) = Reply::decode(line) {
        let _ = reply.encode();
    }
});
