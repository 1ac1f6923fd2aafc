//! The back-end channel: the socket by which the back end sends requests to the front end, SHMEM_MAP and
//! SHMEM_UNMAP, and gets replies.
//!
//! A reply does not say to which request it belongs. If the channel was a worker's, the next worker would
//! take the reply to a request of the dead one for its own. So it is the proxy's, which pairs replies, and
//! each worker has a channel to the proxy.
//!
//! | owned by the proxy | until |
//! |---|---|
//! | the descriptor of the front end's SET_BACKEND_REQ_FD; no worker gets it | the next such message; the front end closes the channel or breaks its protocol; the end of the connection |
//! | one end of a socket pair, whose other end the worker gets | the worker's end; a message of the worker that is refused; the end of the channel |
//! | the outstanding request, one at most | its reply, or the end of the channel: it stays when its worker dies |
//!
//! A message is forwarded once it is whole. While a reply is awaited, further requests, also those of the
//! next worker, wait in the worker's socket. A worker may be under a guest's control, so its requests are
//! checked. What they name (offsets, lengths, the file) is checked by the front end.
//!
//! All is done by the proxy's thread, in its poll loop, and nothing blocks: neither a front end nor a worker
//! that does not read its channel delays the front end's messages.

use super::state::record;
use crate::wire::{NEED_REPLY, Outgoing, Reader, VERSION, VhostMessage};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use vhost::vhost_user::message::{BackendReq, VhostUserMMap};

const REQUEST_BYTES: usize = size_of::<VhostUserMMap>();

/// The shared memory region that is the DAX window: `VIRTIO_FS_SHMCAP_ID_CACHE` of `linux/virtio_fs.h`.
const DAX_WINDOW: u8 = 0;

/// See the module. Without a front end's descriptor it is closed, as at first.
#[derive(Debug, Default)]
pub(super) struct BackendChannel {
    front_end: Option<OwnedFd>,
    from_front_end: Reader,
    /// `None` without a front end.
    worker: Option<UnixStream>,
    from_worker: Reader,
    outstanding: Option<Outstanding>,
}

/// A request without its reply.
#[derive(Debug)]
struct Outstanding {
    code: u32,
    request: Outgoing,
    /// Whether the worker that sent it is still attached.
    is_awaited: bool,
}

impl BackendChannel {
    /// Replaces the channel by the one of SET_BACKEND_REQ_FD. Closes it when `files` is not one Unix stream
    /// socket: the worker then gets the message without a descriptor, and refuses it.
    pub(super) fn open(&mut self, files: Vec<OwnedFd>) {
        let file = <[OwnedFd; 1]>::try_from(files).ok();
        let front_end = file.map(|[file]| file).filter(is_unix_stream);
        *self = BackendChannel {
            front_end,
            ..BackendChannel::default()
        };
    }

    /// The channel and the outstanding request, for another program ([`state`](super::state)), once the worker is
    /// [detached](Self::detach).
    pub(super) fn into_records(self) -> (Option<VhostMessage>, Option<VhostMessage>) {
        let Some(front_end) = self.front_end else {
            return (None, None);
        };
        let (body, files) = self.from_front_end.into_parts();
        let files = [front_end].into_iter().chain(files).collect();
        let request = self.outstanding.map(|outstanding| {
            let (unsent, files) = outstanding.request.into_parts();
            record(outstanding.code, unsent, files)
        });
        (Some(record(0, body, files)), request)
    }

    /// As they were; the reply to the request is of no worker.
    pub(super) fn of_records(
        channel: Option<(OwnedFd, Reader)>,
        request: Option<VhostMessage>,
    ) -> BackendChannel {
        let (front_end, from_front_end) = channel.unzip();
        BackendChannel {
            front_end,
            from_front_end: from_front_end.unwrap_or_default(),
            outstanding: request.map(|request| Outstanding {
                code: request.code,
                request: Outgoing::of_parts(request.body, request.files),
                is_awaited: false,
            }),
            ..BackendChannel::default()
        }
    }

    /// Makes a channel for a worker, instead of that of the last one, and returns the worker's end. `None`
    /// when the channel is closed, or without descriptors.
    pub(super) fn attach(&mut self) -> Option<OwnedFd> {
        self.detach();
        self.front_end.as_ref()?;
        let (ours, theirs) = UnixStream::pair()
            .inspect_err(|error| tracing::warn!(%error, "the worker has no back-end channel"))
            .ok()?;
        self.worker = Some(ours);
        Some(theirs.into())
    }

    /// Closes the worker's channel.
    pub(super) fn detach(&mut self) {
        self.worker = None;
        self.from_worker = Reader::default();
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.is_awaited = false;
        }
    }

    /// What to wait for before the next [`relay`](Self::relay).
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let outstanding = self.outstanding.as_ref();
        let is_sent = outstanding.is_none_or(|outstanding| outstanding.request.is_sent());
        let events = match is_sent {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let front_end = self.front_end.as_ref();
        // Left out while it is not read: poll(2) reports its end whatever it is asked for.
        let worker = self.worker.as_ref().filter(|_| outstanding.is_none());
        let front_end = front_end.map(|front_end| PollFd::new(front_end, events));
        front_end
            .into_iter()
            .chain(worker.map(|worker| PollFd::new(worker, PollFlags::IN)))
    }

    /// Forwards what can be forwarded now. The front end's end of the channel closes it.
    pub(super) fn relay(&mut self) {
        let relayed = self
            .read_front_end()
            .and_then(|()| self.read_worker())
            .and_then(|()| self.send_request());
        let Err(error) = relayed else {
            return;
        };
        if error.kind() == io::ErrorKind::InvalidData {
            tracing::warn!("the back-end channel is closed: the front end sent no valid reply");
        } else {
            tracing::debug!(%error, "the back-end channel is closed");
        }
        *self = BackendChannel::default();
    }

    fn read_front_end(&mut self) -> io::Result<()> {
        let Some(front_end) = &self.front_end else {
            return Ok(());
        };
        let Some(reply) = self.from_front_end.read(front_end)? else {
            return Ok(());
        };
        let is_for = |request: &mut Outstanding| {
            request.request.is_sent() && reply.is_reply_to(request.code)
        };
        let Some(request) = self.outstanding.take_if(is_for) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if request.is_awaited {
            self.forward_reply(reply);
        }
        Ok(())
    }

    fn forward_reply(&mut self, reply: VhostMessage) {
        let Some(worker) = &self.worker else {
            return;
        };
        let mut reply = Outgoing::new(reply);
        // It fits, unless the worker has left many replies unread.
        if reply.send(worker).is_err() || !reply.is_sent() {
            tracing::debug!("a worker does not read its back-end channel");
            self.detach();
        }
    }

    fn read_worker(&mut self) -> io::Result<()> {
        let (Some(worker), None) = (&self.worker, &self.outstanding) else {
            return Ok(());
        };
        match self.from_worker.read(worker) {
            Ok(None) => return Ok(()),
            Ok(Some(request)) if is_allowed(&request) => {
                self.outstanding = Some(Outstanding {
                    code: request.code,
                    request: Outgoing::new(request),
                    is_awaited: true,
                });
                return Ok(());
            }
            Ok(Some(VhostMessage { code, .. })) => {
                tracing::warn!(code, "the worker's back-end channel is closed: not allowed");
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!("the worker's back-end channel is closed: a malformed message");
            }
            Err(error) => tracing::debug!(%error, "the worker's back-end channel has ended"),
        }
        self.detach();
        Ok(())
    }

    fn send_request(&mut self) -> io::Result<()> {
        match (&self.front_end, &mut self.outstanding) {
            (Some(front_end), Some(outstanding)) => outstanding.request.send(front_end),
            _ => Ok(()),
        }
    }
}

fn is_unix_stream(file: &OwnedFd) -> bool {
    socket_domain(file) == Ok(AddressFamily::UNIX) && socket_type(file) == Ok(SocketType::STREAM)
}

/// Whether a worker may send this to the front end.
fn is_allowed(request: &VhostMessage) -> bool {
    let files = match BackendReq::try_from(request.code) {
        Ok(BackendReq::SHMEM_MAP) => 1,
        Ok(BackendReq::SHMEM_UNMAP) => 0,
        _ => return false,
    };
    request.flags == VERSION | NEED_REPLY
        && request.files.len() == files
        && request.body.len() == REQUEST_BYTES
        && request.body.first() == Some(&DAX_WINDOW)
}
