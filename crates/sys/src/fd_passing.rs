//! Descriptors that are passed with bytes over a Unix socket, in one framing.

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most descriptors of one message: `SCM_MAX_FD` of `include/net/scm.h`.
const DESCRIPTORS_MAX: usize = 253;

/// The result of [`receive`].
#[derive(Debug)]
pub struct Received {
    /// The number of bytes; 0 at the end of the stream.
    pub bytes: usize,
    /// The descriptors, with `FD_CLOEXEC`.
    pub descriptors: Vec<OwnedFd>,
    /// Whether all bytes and descriptors of the message fitted.
    pub is_whole: bool,
}

/// Sends bytes and descriptors (`SCM_RIGHTS`, unix(7)), without SIGPIPE when the peer has closed. Returns
/// how many bytes were sent; on a stream, the descriptors go with the first.
///
/// # Errors
/// As sendmsg(2), but EINTR; `EINVAL` for more than 253 descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize> {
    send_with(socket, bytes, descriptors, SendFlags::empty())
}

/// As [`send`], without waiting for space in the socket's buffer.
///
/// # Errors
/// As [`send`]; EAGAIN when nothing fits.
pub fn send_now(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize> {
    send_with(socket, bytes, descriptors, SendFlags::DONTWAIT)
}

fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    loop {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(Errno::INVAL);
        }
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            flags | SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}

/// Receives bytes and the descriptors that come with them.
///
/// # Errors
/// As recvmsg(2), but EINTR.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: RecvFlags) -> Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let lost = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    };
    Ok(Received {
        bytes: received.bytes,
        descriptors: ancillary.drain().filter_map(rights).flatten().collect(),
        is_whole: !received.flags.intersects(lost),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn bytes_and_descriptors_arrive_as_they_were_sent() {
        let kind = SocketType::SEQPACKET;
        let (one, other) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let most = [null.as_fd(); DESCRIPTORS_MAX + 1];
        let mut bytes = [0; 4];
        for (sent, count, is_whole) in [(b"four".as_slice(), 253, true), (b"longer", 0, false)] {
            assert_eq!(send(one.as_fd(), sent, &most[..count]), Ok(sent.len()));
            let received = receive(other.as_fd(), &mut bytes, RecvFlags::empty()).unwrap();
            assert_eq!((received.bytes, received.is_whole), (4, is_whole));
            assert_eq!(
                (received.descriptors.len(), &bytes[..]),
                (count, &sent[..4])
            );
            let closes = rustix::io::FdFlags::CLOEXEC;
            let flags = received.descriptors.iter().map(rustix::io::fcntl_getfd);
            assert!(flags.into_iter().all(|flags| flags == Ok(closes)));
        }
        assert_eq!(send(one.as_fd(), b"many", &most), Err(Errno::INVAL));
        while send_now(one.as_fd(), b"more", &[]) == Ok(4) {}
        assert_eq!(send_now(one.as_fd(), b"more", &[]), Err(Errno::AGAIN));
        while receive(other.as_fd(), &mut bytes, RecvFlags::DONTWAIT).is_ok() {}
        let nothing = receive(other.as_fd(), &mut bytes, RecvFlags::DONTWAIT);
        assert_eq!(nothing.err(), Some(Errno::AGAIN));
        drop(one);
        let end = receive(other.as_fd(), &mut bytes, RecvFlags::empty()).unwrap();
        assert_eq!((end.bytes, end.descriptors.len()), (0, 0));
        assert_eq!(send(other.as_fd(), b"late", &[]), Err(Errno::PIPE));
    }

    /// Where the control data do not fit, or the process has no descriptors left.
    #[test]
    fn message_that_has_lost_descriptors_is_not_whole() {
        let kind = SocketType::SEQPACKET;
        let (one, other) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        // The sender's credentials take some of the space.
        rustix::net::sockopt::set_socket_passcred(&other, true).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for (count, is_whole) in [(1, true), (DESCRIPTORS_MAX, false)] {
            send(one.as_fd(), b"four", &vec![null.as_fd(); count]).unwrap();
            let received = receive(other.as_fd(), &mut [0; 4], RecvFlags::empty()).unwrap();
            assert_eq!((received.bytes, received.is_whole), (4, is_whole));
            assert_eq!(received.descriptors.len() == count, is_whole);
        }
    }
}
