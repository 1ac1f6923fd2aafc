//! Deliberate protocol violations of guests and virtual machines, for tests and fuzzers of servers.
//!
//! * [`chain`]: raw descriptor chains, and a list of faulty ones.
//! * [`socket`]: arbitrary messages on the socket.
//! * [`storm`]: both, and requests, at random.
//! * [`leave_after`]: a front end that disconnects after any step of its handshake.
//!
//! A server may refuse a faulty chain by returning it unwritten, by an error, by stopping the queue or by
//! closing the connection. It must not crash, touch memory outside the guest's, or fail the next front end.

pub mod chain;
pub mod socket;
pub mod storm;

use crate::front_end::{ConnectError, FrontEnd, FrontEndConfig, Step};
use std::os::unix::net::UnixStream;

/// Makes the handshake up to and including `last` and closes the socket. False when the step does not occur
/// (a queue that the server does not have).
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

/// All steps of a handshake with `request_queues`.
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
