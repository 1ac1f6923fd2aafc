//! Lanes: queues of messages to the kernel above, one for each thread that sends. A message waits as long as a
//! request that holds a directory's lock in the kernel above, so there are several, and each node has its own.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;

/// More wait for each other in vain: all of them together hold up four directories at a time.
pub(super) const LANES: usize = 4;

/// Most messages in one lane. With more, dropping all is cheaper.
const MESSAGES_MAX: usize = 16 * 1024;

/// When a node is tried again that the kernel does not know yet, and how often the time is doubled. The last
/// one is more than four minutes after the answer that was on its way.
const FIRST_RETRY: Duration = Duration::from_millis(1);
const RETRIES: u32 = 18;

/// A name, by its directory.
pub(super) type Name = (NodeId, Box<[u8]>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A name has another node now, or none. With `expire_only`, mounts above on what it has now stay.
    Name { name: Name, expire_only: bool },
    /// Attributes of a node have changed, or data as well. The name is one that led to it.
    Node {
        node: NodeId,
        data: bool,
        name: Option<Name>,
    },
    /// A file is written again and again.
    Silence(NodeId),
    /// So is one that the kernel does not know, of which this is a name.
    SilenceUnknown(Name),
    /// All that the kernel has is to be dropped.
    Repair,
}

impl Message {
    pub(super) fn all_of(node: NodeId) -> Message {
        Message::Node {
            node,
            data: true,
            name: None,
        }
    }
}

#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; LANES],
}

#[derive(Default)]
struct Lane {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<(Message, Instant)>,
    later: Vec<Later>,
    /// How many messages there were. The first has the number 0.
    queued: u64,
    /// The number of the message that is being sent.
    sending: Option<u64>,
    has_ended: bool,
}

/// A message that is sent when it is due.
struct Later {
    due: Instant,
    /// How often it was tried.
    attempts: u32,
    number: u64,
    message: Message,
}

/// The number of messages that no barrier waits for.
const UNNUMBERED: u64 = u64::MAX;

impl State {
    /// Whether all messages before this number are sent, those too that had to be tried again.
    fn has_sent(&self, number: u64) -> bool {
        let taken = self.queued - self.messages.len() as u64;
        taken >= number
            && self.sending.is_none_or(|sending| sending >= number)
            && self.later.iter().all(|later| later.number >= number)
    }
}

/// What a lane does next.
pub(super) enum Next {
    Send(Message, Instant),
    Retry(Message, u32),
    End,
}

impl Lanes {
    /// False if the lane is full.
    #[must_use]
    pub(super) fn push(&self, message: Message, read: Instant) -> bool {
        let lane = self.lane_of(&message);
        let mut state = lane.state.lock();
        if state.messages.len() + state.later.len() >= MESSAGES_MAX {
            return false;
        }
        state.messages.push_back((message, read));
        state.queued += 1;
        drop(state);
        lane.changed.notify_all();
        true
    }

    /// As [`push`](Self::push), to be sent when it is `due`; once, however often it is pushed.
    #[must_use]
    pub(super) fn push_later(&self, message: Message, due: Instant) -> bool {
        let lane = self.lane_of(&message);
        let mut state = lane.state.lock();
        if state.later.iter().any(|later| later.message == message) {
            return true;
        }
        if state.messages.len() + state.later.len() >= MESSAGES_MAX {
            return false;
        }
        state.later.push(Later {
            due,
            attempts: RETRIES,
            number: UNNUMBERED,
            message,
        });
        drop(state);
        lane.changed.notify_all();
        true
    }

    fn lane_of(&self, message: &Message) -> &Lane {
        let node = match message {
            Message::Name { name, .. } | Message::SilenceUnknown(name) => name.0,
            Message::Node { node, .. } | Message::Silence(node) => *node,
            Message::Repair => NodeId::ROOT,
        };
        &self.lanes[node.0 as usize % LANES]
    }

    pub(super) fn replace_all_by_repair(&self) {
        for lane in &self.lanes {
            let state = &mut *lane.state.lock();
            state.messages.clear();
            state.later.clear();
        }
        // There is room.
        let _ = self.push(Message::Repair, Instant::now());
    }

    pub(super) fn end(&self) {
        for lane in &self.lanes {
            lane.state.lock().has_ended = true;
            lane.changed.notify_all();
        }
    }

    /// Waits until all messages that were queued so far are sent: again, where the kernel did not know their
    /// node yet. False at `deadline`, true once it has ended.
    pub(super) fn flush(&self, deadline: Instant) -> bool {
        self.lanes.iter().all(|lane| {
            let mut state = lane.state.lock();
            let target = state.queued;
            while !state.has_sent(target) && !state.has_ended {
                if lane.changed.wait_until(&mut state, deadline).timed_out() {
                    return false;
                }
            }
            true
        })
    }

    /// What a lane does next. It ends with the connection.
    pub(super) fn next(&self, lane: usize) -> Next {
        self.lanes[lane].next()
    }

    /// A lane has done what was [next](Self::next), with this result.
    pub(super) fn done(&self, lane: usize, work: Next, sent: Result<bool>) {
        let lane = &self.lanes[lane];
        let mut state = lane.state.lock();
        let number = state.sending.take().unwrap_or(UNNUMBERED);
        let (message, attempts) = match work {
            Next::Send(message, _) => (message, 0),
            Next::Retry(message, attempts) => (message, attempts),
            Next::End => return,
        };
        match sent {
            Ok(false) if attempts < RETRIES => {
                let due = Instant::now() + FIRST_RETRY * (1 << attempts);
                state.later.push(Later {
                    due,
                    attempts: attempts + 1,
                    number,
                    message,
                });
            }
            Ok(_) => {}
            Err(Errno::ENOTCONN) => state.has_ended = true,
            Err(error) => tracing::debug!(?message, %error, "the kernel refused a notification"),
        }
        drop(state);
        lane.changed.notify_all();
    }
}

impl Lane {
    fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return Next::End;
            }
            let now = Instant::now();
            if let Some(at) = state.later.iter().position(|later| later.due <= now) {
                let later = state.later.swap_remove(at);
                state.sending = Some(later.number);
                return Next::Retry(later.message, later.attempts);
            }
            if let Some((message, read)) = state.messages.pop_front() {
                let taken = state.queued - state.messages.len() as u64;
                state.sending = Some(taken - 1);
                return Next::Send(message, read);
            }
            match state.later.iter().map(|later| later.due).min() {
                Some(due) => drop(self.changed.wait_until(&mut state, due)),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(node: u64) -> Message {
        Message::Node {
            node: NodeId(node),
            data: false,
            name: None,
        }
    }

    fn taken(lanes: &Lanes, lane: usize) -> (Message, Next) {
        let next = lanes.next(lane);
        match &next {
            Next::Send(message, _) | Next::Retry(message, _) => (message.clone(), next),
            Next::End => unreachable!("it has not ended"),
        }
    }

    #[test]
    fn full_lane_is_replaced_by_a_repair() {
        let (lanes, now) = (Lanes::default(), Instant::now());
        let lane = LANES as u64;
        for number in 0..MESSAGES_MAX as u64 {
            assert!(lanes.push(about(lane * number), now));
        }
        assert!(!lanes.push(about(lane), now));
        assert!(lanes.push(about(lane + 1), now), "another lane has room");
        lanes.replace_all_by_repair();
        let root = NodeId::ROOT.0 as usize % LANES;
        let (message, next) = taken(&lanes, root);
        assert_eq!(message, Message::Repair);
        assert!(!lanes.flush(Instant::now()), "it is not done");
        lanes.done(root, next, Ok(true));
        assert!(lanes.flush(Instant::now()), "nothing else is left");
    }

    #[test]
    fn node_that_is_about_to_be_known_is_tried_again() {
        let lanes = Lanes::default();
        assert!(lanes.push(about(0), Instant::now()));
        for attempts in 0..3 {
            let (message, next) = taken(&lanes, 0);
            assert_eq!(message, about(0));
            assert_eq!(matches!(next, Next::Retry(_, _)), attempts > 0);
            lanes.done(0, next, Ok(false));
        }
        assert_eq!(lanes.lanes[0].state.lock().later.len(), 1);
        let (_, next) = taken(&lanes, 0);
        lanes.done(0, next, Err(Errno::ENOTCONN));
        assert!(matches!(lanes.next(0), Next::End));
    }

    #[test]
    fn later_message_is_sent_once_and_in_time() {
        let lanes = Lanes::default();
        let due = Instant::now() + Duration::from_millis(20);
        assert!(lanes.push_later(about(0), due));
        assert!(lanes.push_later(about(0), due + Duration::from_secs(60)));
        let (message, next) = taken(&lanes, 0);
        assert!(Instant::now() >= due);
        assert_eq!(message, about(0));
        lanes.done(0, next, Ok(false));
        assert!(lanes.lanes[0].state.lock().later.is_empty());
    }
}
