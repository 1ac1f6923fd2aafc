//! Checks of the DAX window, of servers that have one: on a connection of their own, which maps as specified.

use super::finding::{Finding, Verdict, ensure, skip};
use super::report::Report;
use crate::dax::{DAX_RANGE_BYTES, SETUPMAPPING_READ, SETUPMAPPING_WRITE};
use crate::front_end::{FrontEnd, FrontEndConfig, Window, WindowConfig, WindowError};
use crate::tool::{Connection, ToolError};
use rustix::fs::OFlags;
use thrufs_abi::layout::{RemovemappingOne, SetupmappingIn};
use thrufs_abi::{AttrFlags, NodeId};
use thrufs_testing::{Caller, Client};

const BYTES: usize = DAX_RANGE_BYTES as usize + 4096;
const BOTH: u64 = SETUPMAPPING_READ | SETUPMAPPING_WRITE;

/// A mounted share with an open file of [`BYTES`].
struct Session<'a> {
    caller: Caller<'a, FrontEnd>,
    window: Window,
    node: NodeId,
    fh: u64,
}

type Check = (&'static str, fn(&Session<'_>) -> Verdict);

const CHECKS: &[Check] = &[
    ("window-size", size),
    ("window-loads-and-stores", loads_and_stores),
    ("window-refusals", refusals),
    ("window-of-a-closed-file", closed),
];

pub(super) fn names() -> impl Iterator<Item = String> {
    CHECKS.iter().map(|(name, _)| (*name).to_owned())
}

pub(super) fn run(connection: &Connection, report: &mut Report<'_>) -> Result<(), ToolError> {
    for (name, check) in CHECKS {
        if report.is_wanted(name) {
            report.tell(name, within(connection, *check))?;
        }
    }
    Ok(())
}

fn within(connection: &Connection, check: fn(&Session<'_>) -> Verdict) -> Verdict {
    let config = FrontEndConfig {
        window: Some(WindowConfig::as_specified()),
        ..connection.config()
    };
    let fail = |error: String| Finding::Fail(error);
    let Ok(front_end) = FrontEnd::connect(&connection.socket, &config) else {
        return skip("the server takes no second connection");
    };
    let Some(window) = front_end.window().cloned() else {
        return skip("the server has no DAX window");
    };
    let client = Client::mount_with_window(front_end).map_err(|error| fail(error.to_string()))?;
    let (caller, name) = (client.root(), b"thrufs-conform-window.img");
    let flags = OFlags::RDWR | OFlags::CREATE;
    let (entry, open) = caller.create(NodeId::ROOT, name, flags.bits().cast_signed(), 0o644)?;
    let node = NodeId(entry.nodeid);
    let verdict = fill(&caller, (node, open.fh)).and_then(|()| {
        // A file that a guest maps is one that it has looked up.
        caller.release(node, open.fh)?;
        caller.forget(node, 1);
        let entry = caller.lookup(NodeId::ROOT, name)?;
        if entry.attr.flags & AttrFlags::DAX.bits() == 0 {
            return skip("the server does not have this file mapped");
        }
        let node = NodeId(entry.nodeid);
        let session = Session {
            caller,
            window,
            node,
            fh: caller.open(node, OFlags::RDWR.bits().cast_signed())?.fh,
        };
        check(&session)
    });
    caller.unlink(NodeId::ROOT, name)?;
    client.unmount();
    verdict
}

fn fill(caller: &Caller<'_, FrontEnd>, (node, fh): (NodeId, u64)) -> Verdict {
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
    for (number, part) in data.chunks(1 << 16).enumerate() {
        let offset = (number << 16) as u64;
        caller.write(node, fh, offset, part, 0)?;
    }
    Ok(())
}

impl Session<'_> {
    fn map(&self, at: u64, offset: u64, length: u64, flags: u64) -> thrufs::Result<()> {
        let arg = SetupmappingIn {
            fh: u64::MAX,
            foffset: offset,
            len: length,
            flags,
            moffset: at,
        };
        self.caller.setup_mapping(self.node, &arg)
    }

    fn unmap(&self, moffset: u64, len: u64) -> thrufs::Result<()> {
        let one = RemovemappingOne { moffset, len };
        self.caller.remove_mapping(self.node, &[one])
    }
}

fn size(session: &Session<'_>) -> Verdict {
    let bytes = session.window.size();
    ensure(bytes > 0 && bytes.is_multiple_of(DAX_RANGE_BYTES), || {
        format!("the window has {bytes} bytes, which is no multiple of 2 MiB")
    })
}

fn failed(error: WindowError) -> Finding {
    Finding::Fail(error.to_string())
}

fn loads_and_stores(session: &Session<'_>) -> Verdict {
    session.map(0, DAX_RANGE_BYTES, DAX_RANGE_BYTES, SETUPMAPPING_READ)?;
    session.map(0, DAX_RANGE_BYTES, DAX_RANGE_BYTES, BOTH)?;
    let mut seen = [0; 4096];
    session.window.read(0, &mut seen).map_err(failed)?;
    let read = session
        .caller
        .read(session.node, session.fh, DAX_RANGE_BYTES, 4096)?;
    ensure(read == seen, || {
        "a load is not what READ returns".to_owned()
    })?;
    session.window.write(8, b"stored").map_err(failed)?;
    let read = session
        .caller
        .read(session.node, session.fh, DAX_RANGE_BYTES + 8, 6)?;
    ensure(read == b"stored", || {
        "READ does not return what was stored".to_owned()
    })?;
    session
        .caller
        .write(session.node, session.fh, DAX_RANGE_BYTES, b"written", 0)?;
    session.window.read(0, &mut seen).map_err(failed)?;
    ensure(seen.starts_with(b"written"), || {
        "a load is not what was written".to_owned()
    })?;
    session.unmap(0, DAX_RANGE_BYTES)?;
    let mapped = session.window.mappings().len();
    ensure(mapped == 0, || {
        format!("{mapped} mappings stay after REMOVEMAPPING")
    })
}

fn refusals(session: &Session<'_>) -> Verdict {
    session.map(0, 0, DAX_RANGE_BYTES, SETUPMAPPING_READ)?;
    let size = session.window.size();
    for (what, at, offset, length) in [
        ("a misaligned place", 1, 0, 4096),
        ("a misaligned offset", DAX_RANGE_BYTES, 1, 4096),
        ("a misaligned length", DAX_RANGE_BYTES, 0, 4097),
        ("no byte", DAX_RANGE_BYTES, 0, 0),
        ("a place beyond the window", size, 0, 4096),
        ("a range beyond the window", size - 4096, 0, 8192),
        ("a range that wraps", 4096, 0, u64::MAX - 4095),
        ("a part of another mapping", 4096, 0, 4096),
    ] {
        let mapped = session.map(at, offset, length, SETUPMAPPING_READ);
        ensure(mapped.is_err(), || format!("{what} is mapped"))?;
    }
    let unmapped = session.unmap(0, 4096);
    ensure(unmapped.is_err(), || {
        "a part of a mapping is unmapped".to_owned()
    })?;
    let mut seen = [0; 16];
    session.window.read(0, &mut seen).map_err(failed)?;
    session.unmap(0, DAX_RANGE_BYTES)?;
    Ok(())
}

fn closed(session: &Session<'_>) -> Verdict {
    session.caller.release(session.node, session.fh)?;
    let mapped = session.map(0, 0, DAX_RANGE_BYTES, SETUPMAPPING_READ);
    ensure(mapped.is_err(), || {
        "a file that is not open is mapped".to_owned()
    })
}
