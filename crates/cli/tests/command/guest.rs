//! A share as a guest sees it, through the test client, the socket, the supervisor and a confined worker.

use crate::ground::share::{Place, mount_at};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use thrufs::layout::SetattrIn;
use thrufs::{Errno, LockOwner, NodeId};
use thrufs_abi::SetattrValid;
use thrufs_client::FrontEndConfig;
use thrufs_client::tool::{self, Cat, Conform, Connection, Outcome};

/// Longer than one request.
const BIG_BYTES: usize = 5_000_001;
const REQUEST_BYTES: usize = 1 << 20;

const WRITE_ONLY: i32 = 1;
const CREATE: i32 = 0o100;

/// Output and result of a command of the client.
fn ask(socket: &Path, command: &tool::Command) -> Result<(Outcome, Vec<u8>), String> {
    let mut out = Vec::new();
    let outcome = tool::run(&Connection::to(socket), command, &mut out);
    let outcome = outcome.map_err(|error| error.to_string())?;
    Ok((outcome, out))
}

pub fn cat(socket: &Path, path: &str) -> Result<Vec<u8>, String> {
    let paths = vec![path.to_owned()];
    Ok(ask(socket, &tool::Command::Cat(Cat { paths }))?.1)
}

/// Writes a file as cp(1) in a guest does: an existing one is truncated first.
pub fn put(socket: &Path, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let client = mount_at(socket, &FrontEndConfig::default());
    let root = client.root();
    let (node, fh) = match root.walk(name) {
        Ok(node) => {
            let fh = root.open(node, WRITE_ONLY)?.fh;
            let empty = SetattrIn {
                valid: (SetattrValid::SIZE | SetattrValid::FH).bits(),
                fh,
                ..SetattrIn::default()
            };
            root.setattr(node, &empty)?;
            (node, fh)
        }
        Err(Errno::ENOENT) => {
            let flags = WRITE_ONLY | CREATE;
            let (entry, open) = root.create(NodeId::ROOT, name.as_bytes(), flags, 0o644)?;
            (NodeId(entry.nodeid), open.fh)
        }
        Err(errno) => return Err(errno),
    };
    for (number, part) in bytes.chunks(REQUEST_BYTES).enumerate() {
        let offset = (number * REQUEST_BYTES) as u64;
        let written = root.write(node, fh, offset, part, 0)?;
        assert_eq!(written as usize, part.len());
    }
    root.flush(node, fh, LockOwner(1))?;
    root.release(node, fh)?;
    root.forget(node, 1);
    client.unmount();
    Ok(())
}

/// Aperiodic content.
fn big() -> Vec<u8> {
    (0..BIG_BYTES).map(|at| (at * at % 251) as u8).collect()
}

#[test]
fn files_are_read_and_written_whole() {
    let place = Place::new();
    for options in [
        "cache=auto",
        "cache=never,seccomp=kill",
        "cache=metadata,locks=shared",
    ] {
        let server = place.share(&format!("control=none,{options}"));
        assert_eq!(cat(&place.socket, "/file").unwrap(), b"content");
        assert_eq!(put(&place.socket, "big", &big()), Ok(()), "{options}");
        let beneath = fs::read(place.dir.join("big")).unwrap();
        assert!(beneath == big(), "{options}");
        assert!(cat(&place.socket, "/big").unwrap() == big(), "{options}");
        let said = server.ends_by(Signal::TERM);
        assert!(!said.contains("died"), "{options}: {said}");
    }
}

#[test]
fn share_conforms_to_the_protocol() {
    for (options, has_window) in [("", false), (",dax_window=8M", true)] {
        let place = Place::new();
        let server = place.share(&format!("control=none,seccomp=kill,queues=2{options}"));
        let conform = tool::Command::Conform(Conform::default());
        let (outcome, report) = ask(&place.socket, &conform).unwrap();
        let report = String::from_utf8_lossy(&report);
        assert!(outcome.is_success(), "{report}");
        let checked = report.contains("pass  window-loads-and-stores");
        assert_eq!(checked, has_window, "{report}");
        assert_eq!(cat(&place.socket, "/file").unwrap(), b"content");
        let said = server.ends_by(Signal::TERM);
        assert!(!said.contains("the worker died"), "{said}");
    }
}

#[test]
fn read_only_share_refuses_writes() {
    let place = Place::new();
    let _server = place.share("control=none,ro");
    let written = put(&place.socket, "new", b"content");
    assert_eq!(written, Err(Errno::EROFS));
    assert!(!place.dir.join("new").exists());
    assert_eq!(cat(&place.socket, "/file").unwrap(), b"content");
}
