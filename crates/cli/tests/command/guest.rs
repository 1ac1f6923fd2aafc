//! A share as a guest sees it, through the test client, the socket, the supervisor and a confined worker.

use crate::ground::share::{Place, mount_at};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use thrufs::layout::SetattrIn;
use thrufs::{Errno, LockOwner, NodeId};
use thrufs_abi::SetattrValid;
use thrufs_client::FrontEndConfig;

/// Longer than one request.
const BIG_BYTES: usize = 5_000_001;
const REQUEST_BYTES: usize = 1 << 20;

const WRITE_ONLY: i32 = 1;
const CREATE: i32 = 0o100;

/// Reads a file as cat(1) in a guest does.
pub fn cat(socket: &Path, path: &str) -> Result<Vec<u8>, Errno> {
    let client = mount_at(socket, &FrontEndConfig::default());
    let root = client.root();
    let node = root.walk(path)?;
    let fh = root.open(node, 0)?.fh;
    let mut bytes = Vec::new();
    loop {
        let part = root.read(node, fh, bytes.len() as u64, REQUEST_BYTES as u32)?;
        if part.is_empty() {
            break;
        }
        bytes.extend(part);
    }
    root.release(node, fh)?;
    root.forget(node, 1);
    client.unmount();
    Ok(bytes)
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
fn read_only_share_refuses_writes() {
    let place = Place::new();
    let _server = place.share("control=none,ro");
    let written = put(&place.socket, "new", b"content");
    assert_eq!(written, Err(Errno::EROFS));
    assert!(!place.dir.join("new").exists());
    assert_eq!(cat(&place.socket, "/file").unwrap(), b"content");
}
