//! Checks of replies and queues.

use super::finding::{Finding, Verdict, ensure, fail, skip};
use super::session::{Answer, Check, Session};
use crate::front_end::{
    FIRST_REQUEST_QUEUE, HIGH_PRIORITY, QueueGuard, RawDescriptor, SubmitError, descriptor_flags,
};
use crate::misbehave::chain::RawQueue;
use std::collections::HashSet;
use thrufs::Errno;
use thrufs_abi::layout::{ForgetIn, GetattrIn, ReadIn, WriteIn};
use thrufs_abi::{NodeId, Opcode, RequestBuilder};

const fn check(name: &'static str, run: fn(&Session) -> Verdict) -> Check {
    Check { name, run }
}

pub(super) const CHECKS: &[Check] = &[
    check("reply-lengths", lengths),
    check("reply-errors", errors),
    check("reply-unknown-operation", unknown_operation),
    check("queue-direct-descriptors", direct),
    check("queue-any-framing", framing),
    check("queue-full", full),
    check("queue-index-wraps", wraps),
    check("queue-stop-and-start", stop_and_start),
    check("forget-is-given-back", forget),
];

/// Checks after which a server may refuse all requests.
pub(super) const LAST_CHECKS: &[Check] = &[
    check("forget-nonsense", forget_nonsense),
    check("reply-room-too-small", little_room),
    check("reply-malformed-request", malformed),
];

/// More than a ring's 16-bit index counts.
const REQUESTS_TO_WRAP: u32 = 66_000;

fn queue(session: &Session) -> Result<QueueGuard<'_>, Finding> {
    let queue = session.front_end().queue(FIRST_REQUEST_QUEUE);
    queue.ok_or_else(|| Finding::Fail("there is no queue".to_owned()))
}

fn getattr(session: &Session) -> (Vec<u8>, u64) {
    let (request, unique) = session.request(Opcode::Getattr, NodeId::ROOT);
    (request.arg(&GetattrIn::default()).finish(), unique)
}

/// Checks that a request succeeds, with a body of this length if given.
fn succeeds(
    session: &Session,
    (request, unique): (RequestBuilder, u64),
    length: Option<usize>,
) -> Verdict {
    let answer = session.send(&request.finish())?;
    let reply = answer.check(unique)?;
    if reply.error != 0 {
        return Err(Errno::from_raw(-reply.error).into());
    }
    let right = length.is_none_or(|length| reply.body.len() == length);
    ensure(right, || format!("{} bytes of reply", reply.body.len()))
}

fn lengths(session: &Session) -> Verdict {
    let (request, unique) = session.request(Opcode::Getattr, NodeId::ROOT);
    succeeds(
        session,
        (request.arg(&GetattrIn::default()), unique),
        Some(104),
    )?;
    succeeds(
        session,
        session.request(Opcode::Statfs, NodeId::ROOT),
        Some(80),
    )?;
    let (root, top) = (session.share.root(), session.top()?);
    let (entry, open) = root.create(top, b"lengths", 0o102, 0o644)?;
    session.share.counted(entry.nodeid);
    let node = NodeId(entry.nodeid);
    root.write(node, open.fh, 0, &[7; 100], 0)?;
    for (offset, expected) in [(0, 100), (60, 40), (100, 0), (1 << 40, 0)] {
        let (request, unique) = session.request(Opcode::Read, node);
        let arg = ReadIn {
            fh: open.fh,
            offset,
            size: 4096,
            ..ReadIn::default()
        };
        succeeds(session, (request.arg(&arg), unique), Some(expected))?;
    }
    root.release(node, open.fh)?;
    root.unlink(top, b"lengths")?;
    Ok(())
}

fn errors(session: &Session) -> Verdict {
    let (request, unique) = session.request(Opcode::Rmdir, NodeId::ROOT);
    let answer = session.send(&request.name(b"thrufs-conform-not-there").finish())?;
    let reply = answer.check(unique)?;
    ensure(reply.error == -Errno::ENOENT.raw(), || {
        format!("RMDIR of what is not there gives {}", reply.error)
    })
}

fn refused(answer: &Answer, unique: u64, what: &str) -> Verdict {
    let reply = answer.check(unique)?;
    ensure(reply.error < 0, || format!("{what} succeeds"))
}

fn unknown_operation(session: &Session) -> Verdict {
    let unique = session.client().next_unique();
    let request = RequestBuilder::from_number(4000, unique, NodeId::ROOT).finish();
    let answer = session.send(&request)?;
    let reply = answer.check(unique.0)?;
    ensure(reply.error == -Errno::ENOSYS.raw(), || {
        format!("the error is {}, not that of ENOSYS", reply.error)
    })
}

fn malformed(session: &Session) -> Verdict {
    let (request, unique) = session.request(Opcode::Lookup, NodeId::ROOT);
    let answer = session.send(&request.bytes(b"no-end").finish())?;
    refused(&answer, unique, "LOOKUP of a name without an end")?;
    let (request, unique) = session.request(Opcode::Open, NodeId::ROOT);
    let answer = session.send(&request.finish())?;
    refused(&answer, unique, "OPEN without arguments")?;
    let (request, unique) = session.request(Opcode::Mkdir, NodeId::ROOT);
    let answer = session.send(&request.bytes(&[0; 8]).name(b"a/b").finish())?;
    refused(&answer, unique, "MKDIR of a name with a slash")?;
    let (request, unique) = session.request(Opcode::Write, NodeId::ROOT);
    let arg = WriteIn {
        size: 1 << 20,
        ..WriteIn::default()
    };
    let answer = session.send(&request.arg(&arg).bytes(&[1; 10]).finish())?;
    refused(&answer, unique, "WRITE of more than there is")?;
    session.still_serves()
}

/// With less room than the reply needs, no reply may exceed the room.
fn little_room(session: &Session) -> Verdict {
    for room in [16, 17, 100] {
        let (request, _) = getattr(session);
        let reply = session
            .front_end()
            .exchange_on(FIRST_REQUEST_QUEUE, &request, room);
        match reply {
            Ok(reply) => ensure(reply.len() <= room, || {
                format!("{} bytes for room of {room}", reply.len())
            })?,
            Err(error) => return fail(error.to_string()),
        }
    }
    session.still_serves()
}

/// A GETATTR in direct descriptors of `piece` bytes.
fn in_pieces(session: &Session, piece: u32) -> Verdict {
    const REPLY_AT: u32 = 4096;
    const REPLY_BYTES: u32 = 120;
    let (request, unique) = getattr(session);
    let mut queue = queue(session)?;
    let Some(mut raw) = RawQueue::of(&mut queue) else {
        return fail("there is no buffer");
    };
    raw.fill(0, &request);
    let mut parts = Vec::new();
    for (start, length, flags) in [
        (0, request.len() as u32, 0),
        (REPLY_AT, REPLY_BYTES, descriptor_flags::WRITE),
    ] {
        let mut at = 0;
        while at < length {
            parts.push((start + at, piece.min(length - at), flags));
            at += piece;
        }
    }
    let indices = raw.take_descriptors(parts.len());
    if indices.len() < parts.len() {
        return skip("the queue is too small");
    }
    for (number, &(offset, length, flags)) in parts.iter().enumerate() {
        let next = indices.get(number + 1);
        let more = if next.is_some() {
            descriptor_flags::NEXT
        } else {
            0
        };
        let descriptor = RawDescriptor {
            address: raw.scratch(offset as usize),
            length,
            flags: flags | more,
            next: next.copied().unwrap_or_default(),
        };
        raw.put(indices[number], descriptor);
    }
    let token = raw.publish(indices[0], indices);
    raw.queue().notify()?;
    let deadline = session.deadline();
    while raw.queue().wait(Some(deadline))? {
        while let Some(completion) = raw.queue().poll()? {
            let (used, own) = (completion.used_bytes(), Some(completion.token()) == token);
            raw.queue().free(completion);
            if own {
                let mut bytes = vec![0; (used as usize).min(REPLY_BYTES as usize)];
                raw.peek(REPLY_AT as usize, &mut bytes);
                let used = used as usize;
                let answer = Answer { used, bytes };
                let reply = answer.check(unique)?;
                return ensure(reply.error == 0 && reply.body.len() == 104, || {
                    format!("error {}, {} bytes", reply.error, reply.body.len())
                });
            }
        }
    }
    fail("the request was not given back")
}

fn direct(session: &Session) -> Verdict {
    in_pieces(session, 4096)
}

/// Drivers may split requests anywhere (section 2.7.4).
fn framing(session: &Session) -> Verdict {
    for piece in [1, 7, 16, 41] {
        in_pieces(session, piece)?;
    }
    Ok(())
}

/// With the queue full, each request is answered once.
fn full(session: &Session) -> Verdict {
    let mut queue = queue(session)?;
    let mut sent = HashSet::new();
    loop {
        let (request, unique) = getattr(session);
        match queue.submit_request(&request) {
            Ok(_) => sent.insert(unique),
            Err(SubmitError::Full) => break,
            Err(error) => return Err(error.into()),
        };
    }
    let count = sent.len();
    queue.notify()?;
    let deadline = session.deadline();
    while queue.in_flight() > 0 {
        if !queue.wait(Some(deadline))? {
            return fail(format!("{} of {count} were not answered", sent.len()));
        }
        while let Some(completion) = queue.poll()? {
            let unique = queue.reply_header(&completion).map(|header| header.unique);
            queue.free(completion);
            if !unique.is_some_and(|unique| sent.remove(&unique)) {
                return fail(format!("a reply to {unique:?}, which was not asked"));
            }
        }
    }
    ensure(sent.is_empty(), || {
        format!("{} of {count} are lost", sent.len())
    })
}

fn wraps(session: &Session) -> Verdict {
    const DEPTH: u32 = 64;
    let mut queue = queue(session)?;
    let (request, _) = getattr(session);
    let (mut sent, mut answered) = (0, 0);
    let deadline = session.deadline();
    while answered < REQUESTS_TO_WRAP {
        while sent < REQUESTS_TO_WRAP && sent - answered < DEPTH {
            match queue.submit_request(&request) {
                Ok(_) => sent += 1,
                Err(SubmitError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        queue.notify()?;
        if !queue.wait(Some(deadline))? {
            return fail(format!("no answer after {answered} requests"));
        }
        while let Some(completion) = queue.poll()? {
            let header = queue.reply_header(&completion);
            queue.free(completion);
            answered += 1;
            ensure(header.is_some_and(|header| header.error == 0), || {
                format!("request {answered} failed: {header:?}")
            })?;
        }
    }
    Ok(())
}

/// As when a driver is unloaded and loaded again, with the same rings.
fn stop_and_start(session: &Session) -> Verdict {
    let front_end = session.front_end();
    let problem = |error: crate::ConnectError| Finding::Fail(error.to_string());
    session.still_serves()?;
    let base = front_end.stop_queue(FIRST_REQUEST_QUEUE).map_err(problem)?;
    let expected = queue(session)?.available_index();
    ensure(base == expected, || {
        format!("it stopped at {base}, and {expected} were made available")
    })?;
    front_end
        .restart_queue(FIRST_REQUEST_QUEUE, base)
        .map_err(problem)?;
    session.still_serves()
}

fn forget(session: &Session) -> Verdict {
    let entry = session.share.root().lookup(NodeId::ROOT, b".");
    let node = entry.map_or(NodeId::ROOT, |entry| NodeId(entry.nodeid));
    let (request, _) = session.request(Opcode::Forget, node);
    let request = request.arg(&ForgetIn { nlookup: 1 }).finish();
    let answer = session.send_on(HIGH_PRIORITY, &request)?;
    ensure(answer.used == 0, || {
        format!("{} bytes were written, where there is no room", answer.used)
    })
}

fn forget_nonsense(session: &Session) -> Verdict {
    for (node, nlookup) in [
        (NodeId::ROOT, u64::MAX),
        (NodeId(0), 1),
        (NodeId(u64::MAX), u64::MAX),
        (NodeId(0x7fff_ffff), 0),
    ] {
        let (request, _) = session.request(Opcode::Forget, node);
        let request = request.arg(&ForgetIn { nlookup }).finish();
        session.send_on(HIGH_PRIORITY, &request)?;
    }
    let (request, _) = session.request(Opcode::BatchForget, NodeId(0));
    let request = request.bytes(&[0xff; 8]).finish();
    session.send_on(HIGH_PRIORITY, &request)?;
    session.still_serves()
}
