//! Lanes: queues of messages to the kernel above, one for each thread that sends.
//!
//! A message about a name waits for the lock of its directory in the kernel above, as long as somebody holds it:
//! with a listing into memory that does not come (a map of a file of another FUSE server), for as long as they
//! like. So names have lanes of their own, and what waits for no such lock has others. A lane whose message is on
//! its way for long is *late*: the [reader](super::reader) sees that, and nothing relies on messages any more
//! ([`Losses`](super::losses::Losses)).

use crate::identity::Identity;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{mem, ptr};
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;

/// The lanes of attributes and data come first.
const NODE_LANES: usize = 2;

/// More wait for each other in vain: all of them together hold up four directories at a time.
const NAME_LANES: usize = 4;

pub(super) const LANES: usize = NODE_LANES + NAME_LANES;

/// Most messages in one lane. With more, dropping all is cheaper.
const MESSAGES_MAX: usize = 16 * 1024;

/// Among so many of those that are sent later, a message is not repeated.
const RECENT: usize = 64;

/// When no other is sent behind a message.
pub(super) const GIVEN_UP: Duration = Duration::from_millis(500);

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
    /// The same of a node that the kernel did not know, though an answer about it is on its way: the kernel has
    /// the directory of the name locked until that is installed.
    Arriving {
        node: NodeId,
        data: bool,
        name: Name,
    },
    /// A file is written again and again.
    Silence(NodeId),
    /// So is one that the kernel does not know, of which this is a name.
    SilenceUnknown(Name),
    /// So is one elsewhere on a file system that is marked.
    SilenceElsewhere(Box<Identity>),
    /// All that the kernel has is to be dropped.
    Repair,
    /// Names of this lane were given up, or all was dropped, while a directory may have been listed. A listing installs
    /// what the server has read before, and counts as one that was asked for when it does.
    Listings { lane: usize },
}

impl Message {
    pub(super) fn all_of(node: NodeId) -> Message {
        Message::Node {
            node,
            data: true,
            name: None,
        }
    }

    fn tells_of(&self) -> Told {
        match self {
            Message::Node { node, data, .. } | Message::Arriving { node, data, .. } => {
                let (node, data) = (*node, *data);
                Told::Node { node, data }
            }
            Message::Name { .. } | Message::Listings { .. } => Told::Name,
            // Another message tells of the file.
            Message::Silence(_) | Message::SilenceUnknown(_) | Message::SilenceElsewhere(_) => {
                Told::Nothing
            }
            Message::Repair => Told::All,
        }
    }

    /// What is left of a message that may not wait for the lock of a directory.
    fn without_name(self) -> Option<Message> {
        let Message::Arriving { node, data, .. } = self else {
            return None;
        };
        let name = None;
        Some(Message::Node { node, data, name })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Name,
    Node { node: NodeId, data: bool },
    All,
}

/// What the kernel above has not been told of in time.
#[derive(Default)]
pub(crate) struct Untold {
    /// Names have changed.
    pub(crate) names: bool,
    /// Any node may have.
    pub(crate) all_nodes: bool,
    /// These have.
    pub(crate) nodes: Vec<NodeId>,
    /// How many messages each lane has had.
    queued: [u64; LANES],
}

impl Untold {
    pub(super) fn all() -> Untold {
        Untold {
            names: true,
            all_nodes: true,
            ..Untold::default()
        }
    }

    fn add(&mut self, told: Told) {
        match told {
            Told::Nothing => {}
            Told::Name => self.names = true,
            Told::Node { node, .. } => self.nodes.push(node),
            Told::All => (self.names, self.all_nodes) = (true, true),
        }
    }
}

#[derive(Default)]
pub(super) struct Lanes {
    lanes: [Lane; LANES],
    /// Whether a name was ever given up: opens ask.
    gave_up: AtomicBool,
}

#[derive(Default)]
struct Lane {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<(Message, Instant)>,
    /// In the order in which they came, so nearly in that in which they are due.
    later: VecDeque<Later>,
    /// Until when the thread of the lane waits, at most, unless it is woken.
    waits_until: Option<Instant>,
    /// How many messages there were. The first has the number 0.
    queued: u64,
    /// The message that is being sent.
    sending: Option<Sending>,
    /// Messages are of no use until the one that is being sent has arrived.
    is_given_up: bool,
    /// Of as many messages, names were given up, and when the last was.
    given_up: u64,
    given_up_at: Option<Instant>,
    /// Whether they are to be followed by [`Listings`](Message::Listings).
    may_be_listed: bool,
    /// The kernel asks anew for what as many messages tell.
    asked: u64,
    has_ended: bool,
}

/// A message on its way.
struct Sending {
    number: u64,
    /// When what it tells was read.
    since: Instant,
    of: Told,
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
    fn age(&self) -> Duration {
        let waiting = self.messages.front().map(|(_, read)| *read);
        let sending = self.sending.as_ref().map(|sending| sending.since);
        let oldest = waiting.into_iter().chain(sending).min();
        oldest.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether all messages before this number are sent, those too that had to be tried again.
    fn has_sent(&self, number: u64) -> bool {
        self.has_tried(number) && self.later.iter().all(|later| later.number >= number)
    }

    fn has_tried(&self, number: u64) -> bool {
        let sending = self.sending.as_ref();
        self.taken() >= number && sending.is_none_or(|sending| sending.number >= number)
    }

    fn taken(&self) -> u64 {
        self.queued - self.messages.len() as u64
    }

    /// What the messages tell that are being sent, or wait for that, by their numbers.
    fn unsent(&self) -> impl Iterator<Item = (u64, Told)> {
        let sending = self.sending.iter();
        let sending = sending.map(|sending| (sending.number, sending.of));
        let waiting = self.messages.iter().map(|(message, _)| message.tells_of());
        sending.chain((self.taken()..).zip(waiting))
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.later.clear();
    }

    /// The last message that was queued is not sent.
    fn give_up_name(&mut self) {
        self.given_up = self.queued;
        self.given_up_at = Some(Instant::now());
        self.may_be_listed = true;
    }

    /// Adds what is not asked for.
    fn add_to(&self, untold: &mut Untold) {
        if self.given_up > self.asked {
            untold.add(Told::Name);
        }
        let unsent = self.unsent().filter(|(number, _)| *number >= self.asked);
        unsent.for_each(|(_, told)| untold.add(told));
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
        if state.is_given_up {
            if message.tells_of() == Told::Name {
                state.queued += 1;
                state.give_up_name();
            }
            drop(state);
            return message
                .without_name()
                .is_none_or(|message| self.push(message, read));
        }
        if state.messages.len() + state.later.len() >= MESSAGES_MAX {
            return false;
        }
        state.messages.push_back((message, read));
        state.queued += 1;
        drop(state);
        lane.changed.notify_all();
        true
    }

    /// As [`push`](Self::push), to be sent when it is `due`; once, if it was among the last [`RECENT`].
    #[must_use]
    pub(super) fn push_later(&self, message: Message, due: Instant) -> bool {
        let lane = self.lane_of(&message);
        let mut state = lane.state.lock();
        let mut recent = state.later.iter().rev().take(RECENT);
        if state.is_given_up || recent.any(|later| later.message == message) {
            return true;
        }
        if state.messages.len() + state.later.len() >= MESSAGES_MAX {
            return false;
        }
        state.later.push_back(Later {
            due,
            attempts: RETRIES,
            number: UNNUMBERED,
            message,
        });
        let is_woken = state.waits_until.is_none_or(|until| due < until);
        if is_woken {
            state.waits_until = Some(due);
            drop(state);
            lane.changed.notify_all();
        }
        true
    }

    fn lane_of(&self, message: &Message) -> &Lane {
        let node = match message {
            Message::Node { node, .. } => return self.lane_of_node(*node),
            Message::Repair => return self.lane_of_node(NodeId::ROOT),
            Message::Listings { lane } => return &self.lanes[*lane],
            Message::Name { name, .. }
            | Message::Arriving { name, .. }
            | Message::SilenceUnknown(name) => name.0,
            Message::Silence(node) => *node,
            Message::SilenceElsewhere(_) => NodeId::ROOT,
        };
        &self.lanes[Lanes::of_names_in(node)]
    }

    /// Whether no message is on its way, or will be.
    pub(super) fn are_idle(&self) -> bool {
        self.lanes.iter().all(|lane| {
            let state = lane.state.lock();
            state.sending.is_none() && state.messages.is_empty() && state.later.is_empty()
        })
    }

    /// Whether no message about a name waits for its turn, or is on its way.
    pub(super) fn have_sent_names(&self) -> bool {
        self.lanes[NODE_LANES..].iter().all(|lane| {
            let state = lane.state.lock();
            state.sending.is_none() && state.messages.is_empty()
        })
    }

    /// How long the oldest message has been on its way, or waiting for its turn.
    pub(super) fn oldest(&self) -> Duration {
        let ages = self.lanes.iter().map(|lane| lane.state.lock().age());
        ages.max().unwrap_or_default()
    }

    /// Gives up the names of lanes whose message has been on its way for `age`: those that wait, and those that
    /// come until it has arrived. Returns what is to be sent by other lanes; `None` if there are no such lanes, but
    /// those that were given up before.
    pub(super) fn give_up(&self, age: Duration) -> Option<Vec<Message>> {
        let mut left = None;
        for lane in &self.lanes[NODE_LANES..] {
            let mut state = lane.state.lock();
            if state.sending.is_none() || state.age() < age || state.is_given_up {
                continue;
            }
            state.is_given_up = true;
            let waiting = mem::take(&mut state.messages).into_iter();
            let later = mem::take(&mut state.later).into_iter();
            let waiting = waiting.map(|(message, _)| message);
            let messages: Vec<_> = waiting.chain(later.map(|later| later.message)).collect();
            if messages.iter().any(|it| it.tells_of() == Told::Name) {
                state.give_up_name();
            }
            self.gave_up.store(true, Ordering::SeqCst);
            let others = messages.into_iter().filter_map(Message::without_name);
            left.get_or_insert_with(Vec::new).extend(others);
        }
        left
    }

    /// Whether a name was given up within this time.
    pub(super) fn gave_up_within(&self, time: Duration) -> bool {
        let mut lanes = self.lanes[NODE_LANES..].iter();
        self.gave_up.load(Ordering::SeqCst)
            && lanes.any(|lane| {
                let at = lane.state.lock().given_up_at;
                at.is_some_and(|at| at.elapsed() < time)
            })
    }

    pub(super) fn replace_all_by_repair(&self) {
        let first = self.lane_of(&Message::Repair);
        // Held until the others are cleared: nothing comes after the repair that would be dropped with them.
        let mut state = first.state.lock();
        for lane in self.lanes.iter().filter(|lane| !ptr::eq(*lane, first)) {
            lane.state.lock().clear();
            lane.changed.notify_all();
        }
        state.clear();
        state.messages.push_back((Message::Repair, Instant::now()));
        state.queued += 1;
        drop(state);
        first.changed.notify_all();
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

    /// Waits until the messages are sent that were queued so far about what a node has, or tried, if it is not known
    /// yet; or until `deadline`: false.
    pub(super) fn send_first(&self, node: NodeId, deadline: Instant) -> bool {
        self.lane_of_node(node).try_all(deadline)
    }

    /// The same of all messages, those too that these lead to, but waits for each lane until its oldest message is
    /// `late` at most. Returns what was not sent then, but for what the kernel has [asked](Self::asked) for.
    pub(super) fn untold(&self, late: Duration, deadline: Instant) -> Option<Untold> {
        let mut untold = None;
        // Names last: what a node lacks is told by its name.
        for (lane, number) in self.lanes.iter().zip(0..) {
            let Some(state) = lane.behind(late, deadline) else {
                continue;
            };
            let untold = untold.get_or_insert_with(Untold::default);
            untold.queued[number] = state.queued;
            state.add_to(untold);
        }
        untold
    }

    /// The kernel asks anew for what was not told; for names only with `names`.
    pub(super) fn asked(&self, untold: &Untold, names: bool) {
        let most = if names { LANES } else { NODE_LANES };
        for (lane, queued) in self.lanes.iter().zip(untold.queued).take(most) {
            let asked = &mut lane.state.lock().asked;
            *asked = queued.max(*asked);
        }
    }

    /// Whether a message is on its way about data of a node.
    pub(super) fn are_telling(&self, node: NodeId) -> bool {
        let state = self.lane_of_node(node).state.lock();
        let data = true;
        let mut unsent = state.unsent();
        unsent.any(|(_, told)| told == Told::Node { node, data } || told == Told::All)
    }

    /// The lanes of names.
    pub(super) fn of_names() -> Range<usize> {
        NODE_LANES..LANES
    }

    /// The lane of names in a directory.
    pub(super) fn of_names_in(directory: NodeId) -> usize {
        NODE_LANES + directory.0 as usize % NAME_LANES
    }

    fn lane_of_node(&self, node: NodeId) -> &Lane {
        &self.lanes[node.0 as usize % NODE_LANES]
    }

    /// What a lane does next. It ends with the connection.
    pub(super) fn next(&self, lane: usize) -> Next {
        self.lanes[lane].next()
    }

    /// A lane has done what was [next](Self::next), with this result.
    pub(super) fn done(&self, number_of_lane: usize, work: Next, sent: Result<bool>) {
        let lane = &self.lanes[number_of_lane];
        let mut state = lane.state.lock();
        let sending = state.sending.take();
        let number = sending.map_or(UNNUMBERED, |sending| sending.number);
        state.is_given_up = false;
        if mem::take(&mut state.may_be_listed) {
            let lane = number_of_lane;
            state
                .messages
                .push_back((Message::Listings { lane }, Instant::now()));
            state.queued += 1;
        }
        let (message, attempts) = match work {
            Next::Send(message, _) => (message, 0),
            Next::Retry(message, attempts) => (message, attempts),
            Next::End => return,
        };
        match sent {
            Ok(false) if attempts < RETRIES => {
                let due = Instant::now() + FIRST_RETRY * (1 << attempts);
                state.later.push_back(Later {
                    due,
                    attempts: attempts + 1,
                    number,
                    message,
                });
            }
            Ok(_) => {
                if matches!(message, Message::Listings { .. }) {
                    state.asked = state.asked.max(number.saturating_add(1));
                }
            }
            Err(Errno::ENOTCONN) => state.has_ended = true,
            Err(error) => tracing::debug!(?message, %error, "the kernel refused a notification"),
        }
        drop(state);
        lane.changed.notify_all();
    }
}

impl Lane {
    fn try_all(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        let target = state.queued;
        while !state.has_tried(target) && !state.has_ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// `None` once the messages that were queued so far are sent, or asked for. Otherwise the state, once the oldest is
    /// `late`.
    fn behind(&self, late: Duration, deadline: Instant) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        let target = state.queued;
        loop {
            if state.has_ended || state.asked >= target {
                return None;
            }
            if state.has_tried(target) {
                return (state.given_up > state.asked).then_some(state);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.min(late.saturating_sub(state.age()));
            if left.is_zero() {
                return Some(state);
            }
            self.changed.wait_for(&mut state, left);
        }
    }

    fn next(&self) -> Next {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return Next::End;
            }
            let now = Instant::now();
            if let Some(at) = state.later.iter().position(|later| later.due <= now) {
                let Some(later) = state.later.remove(at) else {
                    continue;
                };
                state.sending = Some(Sending {
                    number: later.number,
                    since: now,
                    of: later.message.tells_of(),
                });
                return Next::Retry(later.message, later.attempts);
            }
            if let Some((message, read)) = state.messages.pop_front() {
                state.sending = Some(Sending {
                    number: state.taken() - 1,
                    since: read,
                    of: message.tells_of(),
                });
                return Next::Send(message, read);
            }
            state.waits_until = state.later.iter().map(|later| later.due).min();
            match state.waits_until {
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
    fn names_behind_a_late_one_are_given_up_until_it_has_arrived() {
        let (lanes, now) = (Lanes::default(), Instant::now());
        let name = |name: &[u8]| (NodeId(1), Box::from(name));
        let named = |text: &[u8]| Message::Name {
            name: name(text),
            expire_only: false,
        };
        let lane = NODE_LANES + 1;
        assert!(lanes.are_idle() && lanes.oldest().is_zero());
        assert!(lanes.push(named(b"late"), now) && lanes.push(named(b"behind"), now));
        assert!(!lanes.are_idle() && !lanes.oldest().is_zero());
        let (message, next) = taken(&lanes, lane);
        assert_eq!(message, named(b"late"));
        assert_eq!(lanes.give_up(Duration::from_secs(60)), None);
        assert_eq!(lanes.give_up(Duration::ZERO), Some(vec![]));
        assert_eq!(lanes.give_up(Duration::ZERO), None, "again");
        assert!(lanes.gave_up_within(Duration::from_secs(60)));
        assert!(lanes.push(named(b"later"), now));
        let arriving = Message::Arriving {
            node: NodeId(7),
            data: false,
            name: name(b"arriving"),
        };
        assert!(lanes.push(arriving, now));
        lanes.done(lane, next, Ok(true));
        assert!(lanes.push(named(b"next"), now));
        let (message, next) = taken(&lanes, lane);
        assert_eq!(message, Message::Listings { lane });
        lanes.done(lane, next, Ok(true));
        assert_eq!(taken(&lanes, lane).0, named(b"next"));
        assert_eq!(taken(&lanes, 7 % NODE_LANES).0, about(7));
    }

    #[test]
    fn what_is_told_late_is_asked_for_once() {
        let (lanes, now) = (Lanes::default(), Instant::now());
        let named = |text: &[u8]| Message::Name {
            name: (NodeId(0), text.into()),
            expire_only: false,
        };
        let untold = || {
            let untold = lanes.untold(Duration::ZERO, Instant::now())?;
            lanes.asked(&untold, true);
            Some((untold.names, untold.all_nodes, untold.nodes))
        };
        assert_eq!(untold(), None);
        assert!(lanes.push(named(b"held"), now));
        let (_, held) = taken(&lanes, NODE_LANES);
        assert_eq!(untold(), Some((true, false, vec![])));
        assert_eq!(untold(), None, "nothing is new");
        assert!(lanes.push(Message::all_of(NodeId(4)), now) && lanes.push(about(6), now));
        assert!(
            lanes.are_telling(NodeId(4)) && !lanes.are_telling(NodeId(6)),
            "of data"
        );
        let (_, next) = taken(&lanes, 0);
        let (first, second) = (NodeId(4), NodeId(6));
        assert_eq!(untold(), Some((false, false, vec![first, second])));
        assert!(lanes.are_telling(first), "it has not arrived");
        lanes.done(0, next, Ok(true));
        assert_eq!(untold(), None);
        assert_eq!(lanes.give_up(Duration::ZERO), Some(vec![]));
        assert!(lanes.push(named(b"given up"), now));
        assert_eq!(untold(), Some((true, false, vec![])));
        assert_eq!(untold(), None);
        lanes.done(NODE_LANES, held, Ok(true));
        assert_eq!(untold(), Some((true, false, vec![])), "it may be listed");
        assert_eq!(untold(), None);
        lanes.replace_all_by_repair();
        assert_eq!(untold(), Some((true, true, vec![])));
        assert_eq!(untold(), None);
        assert!(lanes.are_telling(NodeId(7)) == lanes.are_telling(NodeId::ROOT));
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
