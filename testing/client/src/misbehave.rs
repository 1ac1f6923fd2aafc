//! What no guest and no virtual machine should do, on purpose: for tests and fuzzers of servers.
//!
//! * [`chain`]: descriptor chains laid out by hand, and a list of faulty ones.
//! * [`socket`]: messages of any size and content on the socket.
//! * [`storm`]: all of that and requests as well, at random.
//! * [`leave_after`]: a front end that is gone after any step of its handshake.
//!
//! A server may refuse a faulty chain in any way that harms nobody else: give it back with nothing
//! written, answer with an error, stop the queue, or close the connection. It must not crash, touch
//! memory that is not the guest's, or fail the next front end.

pub mod chain;
pub mod socket;
pub mod storm;

use crate::front_end::{ConnectError, FrontEnd, FrontEndConfig, Step};
use std::os::unix::net::UnixStream;

/// Makes the handshake up to and including `last`, and closes the socket. False when the server has
/// no such step (a queue that it does not offer).
///
/// # Errors
///
/// When the handshake fails before that.
pub fn leave_after(
    stream: UnixStream,
    config: &FrontEndConfig,
    last: Step,
) -> Result<bool, ConnectError> {
    let mut watch = |step: Step| {
        if step == last {
            Err(ConnectError::Left)
        } else {
            Ok(())
        }
    };
    match FrontEnd::watched(stream, config, &mut watch) {
        Err(ConnectError::Left) => Ok(true),
        Ok(_) => Ok(false),
        Err(error) => Err(error),
    }
}

/// All steps of a handshake with so many request queues.
#[must_use]
pub fn steps(request_queues: u16) -> Vec<Step> {
    let mut steps = vec![
        Step::Features,
        Step::ProtocolFeatures,
        Step::QueueCount,
        Step::ConfigSpace,
        Step::Owner,
        Step::AcceptFeatures,
        Step::Memory,
    ];
    steps.extend((0..=request_queues).map(Step::Queue));
    steps.extend((0..=request_queues).map(Step::Enable));
    steps
}
