//! The floor over `/dev/fuse`: read a request, write its answer.

use super::answers::{Answer, DIALECT, WANTED, answer};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use thrufs::layout::OutHeader;
use thrufs_abi::{InitFlags, Payload, Request};
use zerocopy::{FromZeros, IntoBytes};

/// Headers and 1 MiB of data, rounded up.
const BUFFER_BYTES: usize = (1 << 20) + (64 << 10);

/// Waits for INIT and answers it, asking for `wanted`.
pub(super) fn answer_init(device: &OwnedFd, wanted: InitFlags) -> io::Result<()> {
    let mut request = vec![0; BUFFER_BYTES];
    let mut reply = vec![0; BUFFER_BYTES];
    let length = loop {
        match rustix::io::read(device, &mut request) {
            Ok(length) => break length,
            // Not mounted yet, on older kernels.
            Err(Errno::PERM | Errno::INTR) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
    };
    let length = reply_to(&request[..length], wanted, &mut reply)?;
    rustix::io::write(device, &reply[..length])?;
    Ok(())
}

/// Answers until it is unmounted.
pub(super) fn answer_all(device: &OwnedFd) -> io::Result<()> {
    let mut request = vec![0; BUFFER_BYTES];
    let mut reply = vec![0; BUFFER_BYTES];
    answer_init(device, WANTED)?;
    loop {
        let length = match rustix::io::read(device, &mut request) {
            Ok(length) => length,
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(()),
            // Interrupted, or the requester has gone.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(error) => return Err(error.into()),
        };
        let length = reply_to(&request[..length], WANTED, &mut reply)?;
        if length == 0 {
            continue;
        }
        match rustix::io::write(device, &reply[..length]) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes the whole reply and gives its length; none for what wants no reply.
fn reply_to(request: &[u8], wanted: InitFlags, reply: &mut [u8]) -> io::Result<usize> {
    let request = Request::parse(request, DIALECT, Payload::Inline)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let (head, body) = reply.split_at_mut(size_of::<OutHeader>());
    let mut header = OutHeader::new_zeroed();
    header.unique = request.header.unique.0;
    let bytes = match answer(&request, wanted, body) {
        Answer::Body(bytes) => bytes,
        Answer::Failed(errno) => {
            header.error = -errno.raw_os_error();
            0
        }
        Answer::Nothing => return Ok(0),
    };
    let length = head.len() + bytes;
    header.len = length as u32;
    head.copy_from_slice(header.as_bytes());
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::reply_to;
    use thrufs::layout::{ForgetIn, ReadIn};
    use thrufs_abi::{NodeId, Opcode, Reply, RequestBuilder, Unique};

    fn reply(request: RequestBuilder) -> Vec<u8> {
        let mut reply = vec![0; 8192];
        let length = reply_to(&request.finish(), super::WANTED, &mut reply).unwrap();
        reply.truncate(length);
        reply
    }

    #[test]
    fn a_reply_has_the_number_of_its_request_and_its_own_length() {
        let read = ReadIn {
            size: 4096,
            ..ReadIn::default()
        };
        let request = RequestBuilder::new(Opcode::Read, Unique(6), NodeId(2)).arg(&read);
        let bytes = reply(request);
        let parsed = Reply::parse(&bytes).unwrap();
        assert_eq!((parsed.unique, parsed.error), (Unique(6), 0));
        assert_eq!(parsed.body.len(), 4096);
    }

    #[test]
    fn an_error_is_negative_and_alone() {
        let bytes = reply(RequestBuilder::new(Opcode::Readlink, Unique(8), NodeId(2)));
        let parsed = Reply::parse(&bytes).unwrap();
        assert!(parsed.error < 0 && parsed.body.is_empty());
    }

    #[test]
    fn a_forget_is_not_replied_to() {
        let forget = ForgetIn { nlookup: 1 };
        let request = RequestBuilder::new(Opcode::Forget, Unique(4), NodeId(2)).arg(&forget);
        assert!(reply(request).is_empty());
    }
}
