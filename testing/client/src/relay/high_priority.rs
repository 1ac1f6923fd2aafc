//! The high-priority queue: for requests without a reply (FORGET) and those that must not wait (INTERRUPT).

use super::error::RelayError;
use super::shared::Shared;
use crate::front_end::{HIGH_PRIORITY, Parts, SubmitError};
use std::time::{Duration, Instant};
use thrufs_abi::Opcode;
use thrufs_abi::layout::{BatchForgetIn, ForgetOne, InHeader};
use thrufs_testing::Shape;
use zerocopy::{FromBytes, IntoBytes};

/// Nodes per BATCH_FORGET: as many as the room for arguments holds.
const FORGETS_MAX: usize = 4096;

/// Interval of checking for the relay's end while the queue is full.
const PATIENCE: Duration = Duration::from_millis(100);

/// Whether a request has no reply.
pub(super) fn is_silent(request: &[u8]) -> bool {
    Shape::of(request).reply.is_none()
}

/// Sends a request without a reply, and does not wait for it.
pub(super) fn send(shared: &Shared, request: &[u8]) -> Result<(), RelayError> {
    match InHeader::read_from_prefix(request) {
        Ok((header, body)) if header.opcode == Opcode::BatchForget.number() => {
            for part in parts_of(header, body) {
                send_one(shared, &part)?;
            }
            Ok(())
        }
        _ => send_one(shared, request),
    }
}

/// Splits a BATCH_FORGET: the kernel fills the reader's buffer, which may exceed a queue's buffer.
fn parts_of(header: InHeader, body: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let list = body.get(size_of::<BatchForgetIn>()..).unwrap_or_default();
    let bytes = FORGETS_MAX * size_of::<ForgetOne>();
    list.chunks(bytes).map(move |part| {
        let count = BatchForgetIn {
            count: (part.len() / size_of::<ForgetOne>()) as u32,
            dummy: 0,
        };
        let length = size_of::<InHeader>() + size_of::<BatchForgetIn>() + part.len();
        let header = InHeader {
            len: length as u32,
            ..header
        };
        [header.as_bytes(), count.as_bytes(), part].concat()
    })
}

fn send_one(shared: &Shared, request: &[u8]) -> Result<(), RelayError> {
    let Some(mut queue) = shared.front_end.queue(HIGH_PRIORITY) else {
        return Ok(());
    };
    let shape = Shape::of(request);
    let parts = Parts::of(request, &shape);
    loop {
        while let Some(completion) = queue.poll()? {
            queue.free(completion);
        }
        match queue.submit(&parts, None) {
            Ok(_) => return Ok(queue.notify()?),
            Err(SubmitError::Full) if !shared.is_ending() => {
                queue.wait(Some(Instant::now() + PATIENCE))?;
            }
            // The end of the session forgets the rest.
            Err(_) => return Ok(()),
        }
    }
}
