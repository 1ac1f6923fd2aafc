//! The thread of the worker that serves the control socket, or another with the same limits.
//!
//! It serves no FUSE requests. What a client can use is limited: memory for a line and a reply, one of a
//! few connections, and time.

use super::connection::{Answer, ClientConnection, Protocol, reply_to_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thrufs_sys::socket::peer_user;

/// Most clients at once. A further one replaces the one that has been idle longest.
pub(crate) const CONNECTIONS_MAX: usize = 8;

/// For sending a request, and for reading the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a failed accept(2): no descriptors, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct ControlServer<'a> {
    listener: OwnedFd,
    protocol: Protocol<'a>,
    connections: Vec<ClientConnection>,
    client_timeout: Duration,
}

impl<'a> ControlServer<'a> {
    /// For a non-blocking listener.
    fn new(listener: OwnedFd, protocol: Protocol<'a>) -> ControlServer<'a> {
        ControlServer {
            listener,
            protocol,
            connections: Vec::with_capacity(CONNECTIONS_MAX),
            client_timeout: CLIENT_TIMEOUT,
        }
    }

    fn serve(mut self) -> Errno {
        loop {
            match self.wait() {
                Ok((incoming, ready)) => self.handle_ready(incoming, &ready),
                Err(Errno::INTR) => {}
                Err(errno) => return errno,
            }
        }
    }

    /// Polls: whether a connection is incoming, and which clients are ready.
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
        let ready =
            ready.map(|(happened, connection)| *happened || connection.has_request(&self.protocol));
        Ok((happened[0], ready.collect()))
    }

    /// Until the first client times out; `None` without clients.
    fn time_left(&self) -> Option<Timespec> {
        let mut connections = self.connections.iter();
        if connections.any(|it| it.has_request(&self.protocol)) {
            return Some(Timespec::default());
        }
        let first = self.connections.iter().map(ClientConnection::since).min()?;
        let deadline = first + self.client_timeout;
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that poll(2) does not return too early repeatedly.
        Timespec::try_from(left + Duration::from_millis(1)).ok()
    }

    fn handle_ready(&mut self, incoming: bool, ready: &[bool]) {
        let mut ready = ready.iter();
        let (timeout, protocol) = (self.client_timeout, &mut self.protocol);
        self.connections.retain_mut(|connection| {
            let is_ready = ready.next() == Some(&true);
            let is_over = is_ready && connection.advance(protocol).is_break();
            !is_over && connection.since().elapsed() < timeout
        });
        if incoming {
            self.accept();
        }
    }

    /// Accepts one client; the next after those that are connected.
    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => {
                tracing::debug!("cannot accept a control connection: {errno}");
                return std::thread::sleep(ACCEPT_PAUSE);
            }
        };
        if !self.protocol.is_for_all && !may_ask(&socket) {
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            let silent = self.connections.iter().enumerate();
            if let Some((longest, _)) = silent.min_by_key(|(_, connection)| connection.since()) {
                self.connections.swap_remove(longest);
            }
        }
        self.connections.push(ClientConnection::new(socket));
    }
}

/// Serves the clients of a non-blocking listener, until that fails.
pub(crate) fn serve(listener: OwnedFd, protocol: Protocol<'_>) -> Errno {
    ControlServer::new(listener, protocol).serve()
}

/// Serves the clients of the control socket, for ever.
pub(crate) fn answer_all(listener: OwnedFd, answer: &mut Answer<'_>) {
    let mut reply = |line: Option<&[u8]>| reply_to_line(line, answer);
    let errno = serve(listener, Protocol::of_lines(&mut reply));
    tracing::warn!("the control socket failed and is no longer served: {errno}");
}

/// Serves one trusted client until it closes its end.
pub(crate) fn answer_one(socket: OwnedFd, answer: &mut Answer<'_>) {
    let mut connection = ClientConnection::new(socket);
    let mut reply = |line: Option<&[u8]>| reply_to_line(line, answer);
    let mut protocol = Protocol::of_lines(&mut reply);
    loop {
        let mut polled = [PollFd::new(&connection, connection.waits_for())];
        let waited = poll(&mut polled, None);
        let is_over = waited.is_err_and(|errno| errno != Errno::INTR);
        if is_over || connection.advance(&mut protocol).is_break() {
            return;
        }
    }
}

/// Whether the peer's user is the server's, or root. The mode of the socket may have been changed.
fn may_ask(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match peer_user(socket) {
        Ok(user) => user == own || user == 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
