//! A vhost-user proxy that keeps a front end's connection while its workers die and are replaced.
//!
//! To a front end the end of the connection is the end of the device. So the process that starts workers owns
//! it, forwards messages to the current worker and replies to the front end, and records the messages that
//! are still in effect, with their descriptors ([`device_setup`]). After a worker's death the next one gets all of
//! these, and then the message that was not answered. The front end sees a pause.
//!
//! A message is recorded when its reply shows success, or when it was sent if it has no reply. A message
//! without its reply is sent again. Requests do not pass here: they go through the guest's memory.
//!
//! The back end's own requests to the front end pass by the proxy, too ([`mod@channel`]).
//!
//! The process may execute another program, in which another proxy goes on with all this ([`state`]).

mod channel;
mod commands;
mod device_setup;
mod kinds;
mod state;

pub use state::ProxyState;

use crate::journal::Journal;
use crate::mailbox::signal;
use crate::wire::{NEED_REPLY, Reader, VhostMessage};
use channel::BackendChannel;
use commands::{Command, Commander, Commands, commands, event};
use device_setup::{DeviceSetup, queue_of};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vhost::vhost_user::message::FrontendReq;

/// `VHOST_USER_PROTOCOL_F_REPLY_ACK`.
const REPLY_ACK: u64 = 1 << 3;

/// `VHOST_F_LOG_ALL`.
const LOG_ALL: u64 = 1 << 26;

/// For a worker to take a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module. When this is dropped, the front end is disconnected, and what it has sent is closed, which
/// may take as long as it likes.
#[derive(Debug)]
pub struct VhostProxy {
    front_end: UnixStream,
    commander: Commander,
    /// Signalled when a worker has received all that the front end has set.
    served: Arc<OwnedFd>,
    /// Until this is dropped.
    thread: Option<JoinHandle<()>>,
}

impl VhostProxy {
    /// Starts a thread that proxies the front end at the other end of `front_end`. Its workers use `journal`.
    ///
    /// # Errors
    ///
    /// Without descriptors or threads.
    pub fn start(front_end: UnixStream, journal: Journal) -> io::Result<VhostProxy> {
        let (commander, commands) = commands()?;
        let served = Arc::new(event()?);
        let proxy = ProxyThread {
            commands,
            served: Arc::clone(&served),
            front_end,
            from_front_end: Reader::default(),
            worker: None,
            from_worker: Reader::default(),
            setup: DeviceSetup::default(),
            pending: None,
            backend_channel: BackendChannel::default(),
            is_held: false,
            is_migrating: false,
            journal,
        };
        proxy.spawn(commander, served)
    }

    /// Goes on with what another proxy has had when it was [suspended](Self::suspend).
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); `InvalidData` for what no proxy has had.
    pub fn resume(state: ProxyState, journal: Journal) -> io::Result<VhostProxy> {
        let (commander, commands) = commands()?;
        let served = Arc::new(event()?);
        let proxy = ProxyThread::of_state(state, commands, Arc::clone(&served), journal)?;
        proxy.spawn(commander, served)
    }

    /// Connects another worker, at the other end of `stream`. The last one must have ended: its later
    /// actions would mix with those of the new one.
    pub fn attach(&self, stream: UnixStream) {
        // Once the thread has ended, this closes the worker's stream, so that it does not wait for ever.
        self.commander.send(Command::Attach(stream));
    }

    /// Readable from when a worker has received all that the front end has set, until
    /// [`take_served`](Self::take_served).
    pub fn served(&self) -> BorrowedFd<'_> {
        self.served.as_fd()
    }

    /// Whether a worker has, since the last call.
    pub fn take_served(&self) -> bool {
        rustix::io::read(&*self.served, &mut [0_u8; 8]).is_ok()
    }

    /// Leaves further messages of the front end in its socket, until [`release`](Self::release). Returns whether the
    /// guest is migrating: its state is being transferred, or the device has to log what it writes.
    ///
    /// # Errors
    ///
    /// `TimedOut` when the front end does not let the thread go on, `NotConnected` when it has disconnected.
    pub fn hold(&self, deadline: Instant) -> io::Result<bool> {
        self.commander.ask(deadline, Command::Hold)
    }

    /// Ends [`hold`](Self::hold).
    pub fn release(&self) {
        self.commander.send(Command::Release);
    }

    /// Ends the proxy, whose worker has ended, and returns what it has had. The front end stays connected.
    ///
    /// # Errors
    ///
    /// As [`hold`](Self::hold); then the proxy goes on.
    pub fn suspend(&self, deadline: Instant) -> io::Result<ProxyState> {
        self.commander.ask(deadline, Command::Suspend)
    }

    /// Whether the front end is connected.
    pub fn is_connected(&self) -> bool {
        let mut polled = [PollFd::new(&self.front_end, PollFlags::RDHUP)];
        let now = rustix::event::Timespec::default();
        let hung_up = poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0);
        let is_finished = |thread: &JoinHandle<()>| thread.is_finished();
        !hung_up && !self.thread.as_ref().is_none_or(is_finished)
    }
}

impl Drop for VhostProxy {
    fn drop(&mut self) {
        // The thread of one that is suspended has ended, and left it connected.
        if self.commander.send(Command::End) {
            let _ = self.front_end.shutdown(Shutdown::Both);
        }
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct ProxyThread {
    commands: Commands,
    served: Arc<OwnedFd>,
    front_end: UnixStream,
    from_front_end: Reader,
    worker: Option<UnixStream>,
    from_worker: Reader,
    setup: DeviceSetup,
    /// The message that has no reply yet, or waits for a worker.
    pending: Option<VhostMessage>,
    backend_channel: BackendChannel,
    /// No further message is read.
    is_held: bool,
    /// Its state was or is being transferred, and no queue has started since.
    is_migrating: bool,
    journal: Journal,
}

/// The front end has disconnected or broken the protocol, or the proxy was dropped: the thread ends.
struct Ended;

impl ProxyThread {
    fn spawn(self, commander: Commander, served: Arc<OwnedFd>) -> io::Result<VhostProxy> {
        let front_end = self.front_end.try_clone()?;
        let thread = std::thread::Builder::new()
            .name("thrufs-vhost".to_owned())
            .spawn(move || self.run())?;
        Ok(VhostProxy {
            front_end,
            commander,
            served,
            thread: Some(thread),
        })
    }

    fn run(mut self) {
        while self.turn().is_ok() {
            while let Some(command) = self.commands.take() {
                match command {
                    Command::Attach(worker) => self.attach_worker(worker),
                    Command::Hold(question) => {
                        self.is_held = true;
                        let is_migrating = self.migrates();
                        question.answer(|| is_migrating);
                    }
                    Command::Release => self.is_held = false,
                    Command::Suspend(question) => {
                        // What it has sent is closed here.
                        self.lose_worker();
                        match question.begin() {
                            Some(answer) => return answer.give(self.into_state()),
                            None => continue,
                        }
                    }
                    Command::End => return self.disconnect(),
                }
            }
        }
        self.disconnect();
    }

    fn into_state(self) -> ProxyState {
        let mut state = ProxyState {
            bytes: Vec::new(),
            files: Vec::new(),
        };
        let (body, files) = self.from_front_end.into_parts();
        let connection = OwnedFd::from(self.front_end);
        let files = [connection].into_iter().chain(files).collect();
        let mut front_end = state::record(0, body, files);
        front_end.flags = if self.is_migrating {
            state::MIGRATING
        } else {
            0
        };
        state.add(state::FRONT_END, front_end);
        for message in self.setup.into_messages() {
            state.add(state::SETUP, message);
        }
        if let Some(message) = self.pending {
            state.add(state::PENDING, message);
        }
        let (channel, request) = self.backend_channel.into_records();
        if let Some(channel) = channel {
            state.add(state::CHANNEL, channel);
        }
        if let Some(request) = request {
            state.add(state::REQUEST, request);
        }
        state
    }

    fn of_state(
        state: ProxyState,
        commands: Commands,
        served: Arc<OwnedFd>,
        journal: Journal,
    ) -> io::Result<ProxyThread> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (mut front_end, mut is_migrating, mut pending) = (None, false, None);
        let (mut channel, mut request) = (None, None);
        let mut setup = DeviceSetup::default();
        for (kind, message) in state.into_records().ok_or_else(invalid)? {
            match kind {
                state::SETUP => setup.keep(message),
                state::PENDING => pending = Some(message),
                state::FRONT_END => {
                    is_migrating = message.flags & state::MIGRATING != 0;
                    front_end = state::split(message);
                }
                state::CHANNEL => channel = state::split(message),
                state::REQUEST => request = Some(message),
                _ => return Err(invalid()),
            }
        }
        let (front_end, from_front_end) = front_end.ok_or_else(invalid)?;
        Ok(ProxyThread {
            commands,
            served,
            front_end: front_end.into(),
            from_front_end,
            worker: None,
            from_worker: Reader::default(),
            setup,
            pending,
            backend_channel: BackendChannel::of_records(channel, request),
            is_held: false,
            is_migrating,
            journal,
        })
    }

    fn disconnect(&self) {
        let _ = self.front_end.shutdown(Shutdown::Both);
    }

    fn migrates(&self) -> bool {
        let pending = self.pending.as_ref().and_then(VhostMessage::request);
        self.is_migrating
            || pending == Some(FrontendReq::SET_DEVICE_STATE_FD)
            || self.setup.features() & LOG_ALL != 0
    }

    /// Waits for an event and handles it.
    fn turn(&mut self) -> Result<(), Ended> {
        // Messages stay in the socket while they cannot be forwarded.
        let listens = self.pending.is_none() && self.worker.is_some() && !self.is_held;
        let in_or_gone = if listens {
            PollFlags::IN | PollFlags::RDHUP
        } else {
            PollFlags::RDHUP
        };
        let mut polled = vec![
            PollFd::new(&self.commands, PollFlags::IN),
            PollFd::new(&self.front_end, in_or_gone),
        ];
        let worker = self.worker.as_ref();
        polled.extend(worker.map(|worker| PollFd::new(worker, PollFlags::IN)));
        // Not looked at: all that can be relayed is relayed in each turn.
        polled.extend(self.backend_channel.polled());
        if poll(&mut polled, None).is_err() {
            return Ok(());
        }
        let ready = |at: usize| polled.get(at).map_or(PollFlags::empty(), PollFd::revents);
        let [is_signalled, front_end] = [0, 1].map(ready);
        let worker = worker.map_or(PollFlags::empty(), |_| ready(2));
        self.backend_channel.relay();
        // Commands are next.
        if !is_signalled.is_empty() {
            self.commands.receive();
        } else if !worker.is_empty() {
            self.read_worker()?;
        } else if front_end.contains(PollFlags::IN) {
            self.read_front_end()?;
        } else if front_end.intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
            return Err(Ended);
        }
        Ok(())
    }

    fn read_front_end(&mut self) -> Result<(), Ended> {
        let read = self.from_front_end.read(&self.front_end);
        self.pending = read.map_err(|error| {
            tracing::debug!(%error, "the front end failed");
            Ended
        })?;
        if let Some(what) = self.pending.as_ref().and_then(kinds::unknown) {
            // It is closed last.
            tracing::warn!(
                "disconnecting the front end: it sent a descriptor of an unknown kind ({})",
                what.escape_debug()
            );
            return Err(Ended);
        }
        if let Some(message) = &mut self.pending
            && message.request() == Some(FrontendReq::SET_BACKEND_REQ_FD)
        {
            self.backend_channel
                .open(std::mem::take(&mut message.files));
        }
        self.forward();
        Ok(())
    }

    fn forward(&mut self) {
        let (Some(message), Some(worker)) = (&self.pending, &self.worker) else {
            return;
        };
        let mut channel = None;
        match message.request() {
            Some(FrontendReq::SET_VRING_BASE) => self.journal.note_base(queue_of(message) as usize),
            Some(FrontendReq::SET_BACKEND_REQ_FD) => channel = self.backend_channel.attach(),
            Some(FrontendReq::SET_DEVICE_STATE_FD) => self.is_migrating = true,
            Some(
                FrontendReq::SET_VRING_KICK | FrontendReq::RESET_DEVICE | FrontendReq::RESET_OWNER,
            ) => self.is_migrating = false,
            _ => {}
        }
        let channel = channel.as_ref().map(AsFd::as_fd);
        if message.send_with(worker, message.flags, channel).is_err() {
            // The message waits for the next worker.
            self.lose_worker();
            return;
        }
        if !self.brings_reply(message)
            && let Some(message) = self.pending.take()
        {
            self.setup.keep(message);
        }
    }

    fn brings_reply(&self, message: &VhostMessage) -> bool {
        let kept = self.setup.protocol_features();
        let agreed = match message.request() {
            Some(
                FrontendReq::GET_FEATURES
                | FrontendReq::GET_VRING_BASE
                | FrontendReq::GET_PROTOCOL_FEATURES
                | FrontendReq::GET_QUEUE_NUM
                | FrontendReq::GET_CONFIG
                | FrontendReq::GET_INFLIGHT_FD
                | FrontendReq::GET_MAX_MEM_SLOTS
                | FrontendReq::GET_STATUS
                | FrontendReq::SET_LOG_BASE
                | FrontendReq::GET_SHARED_OBJECT
                | FrontendReq::SET_DEVICE_STATE_FD
                | FrontendReq::CHECK_DEVICE_STATE
                | FrontendReq::GET_SHMEM_CONFIG,
            ) => return true,
            // REPLY_ACK is negotiated by this message itself.
            Some(FrontendReq::SET_PROTOCOL_FEATURES) => message.u64_at(0).unwrap_or(0),
            _ => kept,
        };
        message.flags & NEED_REPLY != 0 && agreed & REPLY_ACK != 0
    }

    fn read_worker(&mut self) -> Result<(), Ended> {
        let Some(worker) = &self.worker else {
            return Ok(());
        };
        match self.from_worker.read(worker) {
            Ok(Some(reply)) => return self.answer(&reply),
            Ok(None) => {}
            Err(_) => self.lose_worker(),
        }
        Ok(())
    }

    fn lose_worker(&mut self) {
        self.worker = None;
        self.backend_channel.detach();
    }

    fn answer(&mut self, reply: &VhostMessage) -> Result<(), Ended> {
        if let Some(asked) = self.pending.take() {
            let done = reply.u64_at(0) == Some(0);
            match asked.request() {
                Some(FrontendReq::GET_VRING_BASE) => {
                    if let (Some(queue), Some(base)) = (reply.u32_at(0), reply.u32_at(4)) {
                        self.setup.stopped(queue, base);
                    }
                }
                Some(FrontendReq::SET_LOG_BASE) => self.setup.keep(asked),
                _ if done => self.setup.keep(asked),
                _ => {}
            }
        }
        reply.send(&self.front_end, reply.flags).map_err(|_| Ended)
    }

    fn attach_worker(&mut self, worker: UnixStream) {
        // One that does not read for so long is lost.
        let _ = worker.set_write_timeout(Some(SEND_TIMEOUT));
        self.from_worker = Reader::default();
        let mut reader = Reader::default();
        let commands = &mut self.commands;
        let end = self.backend_channel.attach();
        let backend_channel = &mut self.backend_channel;
        let mut has_reply = |expected: FrontendReq| loop {
            match reader.read(&worker)? {
                Some(reply) if reply.request() == Some(expected) => return Ok(()),
                Some(_) => {}
                None => wait_for(&worker, commands, backend_channel)?,
            }
        };
        let channel = end.as_ref().map(AsFd::as_fd);
        match self.setup.replay(worker.as_fd(), channel, &mut has_reply) {
            Ok(()) => {
                self.worker = Some(worker);
                signal(self.served.as_fd());
                self.forward();
            }
            // The next worker, or the end of the connection, follows.
            Err(error) => {
                tracing::debug!(%error, "the worker ended at once");
                self.lose_worker();
            }
        }
    }
}

/// Waits for a message of the worker, and relays its requests meanwhile; an error when another worker or the
/// end came first.
fn wait_for(
    worker: &UnixStream,
    commands: &mut Commands,
    backend_channel: &mut BackendChannel,
) -> io::Result<()> {
    let interrupted = || Err(io::ErrorKind::Interrupted.into());
    if commands.are_urgent() {
        return interrupted();
    }
    let mut polled = vec![
        PollFd::new(worker, PollFlags::IN),
        PollFd::new(&*commands, PollFlags::IN),
    ];
    polled.extend(backend_channel.polled());
    poll(&mut polled, None)?;
    let [has_reply, is_signalled] = [0, 1].map(|at| !polled[at].revents().is_empty());
    backend_channel.relay();
    if is_signalled && !has_reply {
        commands.receive();
        if commands.are_urgent() {
            return interrupted();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
