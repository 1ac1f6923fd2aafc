//! The thread of the worker that answers by the control socket.
//!
//! It serves no requests of the mount, and those who do know nothing of it. Whatever a client does,
//! it takes a bounded part of it: a line and a reply of memory, a place among a few, a time.

use super::connection::{Answer, Connection, State};
use super::protocol::{Command, Reply};
use crate::task::start_thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thrufs_sys::socket::peer_user;

/// Most clients at once. One more takes the place of the one that has been silent longest.
pub(crate) const CONNECTIONS_MAX: usize = 8;

/// How long a client may take for a request, and for taking the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Most that may wait to be let in.
pub(crate) const BACKLOG: i32 = 16;

/// How long to leave alone a socket that cannot be accepted from: no descriptors, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Server {
    listener: OwnedFd,
    connections: Vec<Connection>,
    client_timeout: Duration,
}

impl Server {
    fn new(listener: OwnedFd) -> rustix::io::Result<Server> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        Ok(Server {
            listener,
            connections: Vec::with_capacity(CONNECTIONS_MAX),
            client_timeout: CLIENT_TIMEOUT,
        })
    }

    /// Begins to answer whoever connects to `listener`, by a thread of its own that is confined first.
    ///
    /// # Errors
    ///
    /// A descriptor that is no socket; no threads.
    pub(crate) fn start(
        listener: OwnedFd,
        confine: impl FnOnce() + Send + 'static,
        mut answer: impl FnMut(&Command) -> Reply + Send + 'static,
    ) -> io::Result<()> {
        let server = Server::new(listener)?;
        start_thread("thrufs-control", move || {
            confine();
            let errno = server.serve(&mut answer);
            tracing::warn!("the control socket failed and is no longer served: {errno}");
        })?;
        Ok(())
    }

    /// Answers until the process ends.
    fn serve(mut self, answer: &mut Answer<'_>) -> Errno {
        loop {
            match self.wait() {
                Ok((knocks, ready)) => self.turn(knocks, &ready, answer),
                Err(Errno::INTR) => {}
                Err(errno) => return errno,
            }
        }
    }

    /// Waits until something can be done: whether somebody wants to be let in, and which connections
    /// can go on.
    fn wait(&self) -> Result<(bool, Vec<bool>), Errno> {
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(
            self.connections
                .iter()
                .map(|connection| PollFd::new(connection, connection.waits_for())),
        );
        poll(&mut polled, self.time_left().as_ref())?;
        let happened: Vec<bool> = polled
            .iter()
            .map(|polled| !polled.revents().is_empty())
            .collect();
        let ready = happened[1..].iter().zip(&self.connections);
        let ready = ready.map(|(happened, connection)| *happened || connection.has_request());
        Ok((happened[0], ready.collect()))
    }

    /// Until the first client has to be given up; none without clients.
    fn time_left(&self) -> Option<Timespec> {
        if self.connections.iter().any(Connection::has_request) {
            return Some(Timespec::default());
        }
        let first = self.connections.iter().map(Connection::since).min()?;
        let deadline = first + self.client_timeout;
        let left = deadline.saturating_duration_since(Instant::now());
        // A bit later rather than a bit too early, over and over.
        let left = left + Duration::from_millis(1);
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }

    fn turn(&mut self, knocks: bool, ready: &[bool], answer: &mut Answer<'_>) {
        let mut ready = ready.iter();
        let timeout = self.client_timeout;
        self.connections.retain_mut(|connection| {
            let goes_on = match ready.next() {
                Some(true) => connection.advance(answer),
                _ => State::Open,
            };
            goes_on == State::Open && connection.since().elapsed() < timeout
        });
        if knocks {
            self.let_in();
        }
    }

    /// Lets one client in; the next has its turn after those that are here.
    fn let_in(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => {
                tracing::debug!("cannot accept a control connection: {errno}");
                return std::thread::sleep(ACCEPT_PAUSE);
            }
        };
        if !may_ask(&socket) {
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            let silent = self.connections.iter().enumerate();
            if let Some((longest, _)) = silent.min_by_key(|(_, connection)| connection.since()) {
                self.connections.swap_remove(longest);
            }
        }
        self.connections.push(Connection::new(socket));
    }
}

/// Answers one client, for as long as it keeps its end open: one that is known to be who it should.
pub(crate) fn answer_one(socket: OwnedFd, answer: &mut Answer<'_>) {
    let mut connection = Connection::new(socket);
    loop {
        let mut polled = [PollFd::new(&connection, connection.waits_for())];
        let waited = poll(&mut polled, None);
        if waited.is_err_and(|errno| errno != Errno::INTR)
            || connection.advance(answer) == State::Over
        {
            return;
        }
    }
}

/// Whether the peer is who runs this server, or root. The mode of the socket has kept others out
/// already, unless somebody has changed it.
fn may_ask(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match peer_user(socket) {
        Ok(user) => user == own || user == 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
