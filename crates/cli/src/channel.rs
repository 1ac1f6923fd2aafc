//! The messages between a process and one that it has started: packets on a socket, some with descriptors. Those
//! to the child are [orders](Order), those from it [notices](Notice): neither is taken for the other.
//!
//! The child finds its end as standard input, so that no descriptor number has to be agreed on. A closed
//! end means that the other process has ended.

use crate::config::{MountConfig, ShareConfig};
use crate::control::reload::Outcome;
use crate::foreign::Foreign;
use crate::task::start_thread;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use thrufs_sys::fd_passing::{self, Received};
use thrufs_virtio::CALLERS_MAX;

/// The longest configuration has a map of attributes as long as an argument may be (128 KiB). Below the usual
/// buffer of a socket.
const PACKET_BYTES_MAX: usize = 192 * 1024;

/// The text of [`Notice::Watching`].
const WATCHING: &[u8] = br#""Watching""#;

/// Sent beside the text of a message.
type Descriptors = Vec<OwnedFd>;

/// A message of one direction.
pub(crate) trait Message: Serialize + DeserializeOwned {
    /// Its descriptors.
    fn descriptors(&self) -> &[OwnedFd];

    /// Their place, and how many they may be.
    fn place(&mut self) -> Option<(&mut Descriptors, RangeInclusive<usize>)>;
}

/// To a process that was started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// What to serve: the first packet to the supervisor (with the mount point and the source), to the worker of
    /// a mount (`/dev/fuse`, source), to the process that builds a sandbox (source; a draft's directory and lock), or
    /// to auto_unmount.
    Serve(Box<MountConfig>, #[serde(skip)] Descriptors),
    /// What to share: the first packet to the worker of a share, with the source.
    Share(Box<ShareConfig>, #[serde(skip)] Descriptors),
    /// Where the worker is queried. Before [`Serve`](Self::Serve): the listening control socket, if any.
    /// Before [`Share`](Self::Share): a socket connected to the supervisor.
    Control(#[serde(skip)] Descriptors),
    /// Where the worker of a mount serves metrics; before [`Serve`](Self::Serve).
    Metrics(#[serde(skip)] Descriptors),
    /// The socket for [`callers`](crate::callers) queries; before [`Serve`](Self::Serve).
    CallerQueries(#[serde(skip)] Descriptors),
    /// What outlives the worker of a mount: the journal, the ledger, the socket of the fd store; before
    /// [`Serve`](Self::Serve).
    Record(#[serde(skip)] Descriptors),
    /// The policy, and the socket of its audit log ([`audit_log`](crate::audit_log)), if it has one: before
    /// [`Serve`](Self::Serve) and [`Share`](Self::Share), and after each reload.
    Policy(#[serde(skip)] Descriptors),
    /// The reply to [`MapIds`](Notice::MapIds).
    IdsMapped(Result<(), String>),
    /// The mount exists. With the file that aborts the connection, if available, for use when the
    /// supervisor dies.
    Mounted(#[serde(skip)] Descriptors),
    /// The front end's connection through the supervisor, and what outlives the worker: the journal, the
    /// ledger, the socket of the fd store; then `stat` and `schedstat` of threads of the front end. The worker
    /// ends with the connection.
    Connection(#[serde(skip)] Descriptors),
    Statistics,
    /// Open the log file again.
    ReopenLog,
    /// The outcome of a [`Reload`](Notice::Reload). A new policy was sent before.
    Reloaded(Outcome),
    /// Detach from the terminal.
    Background,
    /// The plan of a sandbox: for the process that builds it, and for its process 1.
    Sandbox(Value),
    /// The tree of a sandbox is served.
    Served,
    Stop,
}

/// From such a process, which a peer may control.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Notice {
    /// A pidfd of the worker's thread that ends when the process does.
    Watching(#[serde(skip)] Descriptors),
    /// The worker is in a user namespace whose ids have to be mapped.
    MapIds,
    /// From the worker: INIT is answered. From the supervisor: the mount is ready.
    Ready,
    Failed(String),
    /// This many threads have requests that do not end. The worker is about to exit, if it can.
    Stuck(usize),
    Signalled(i32),
    /// A client of the control socket asks for it.
    Reload,
    /// The final statistics of a share's worker, in the form of a control reply.
    Figures(String),
    /// `/dev/fuse`, opened in the user namespace of the sandbox.
    Device(#[serde(skip)] Descriptors),
    /// A pidfd of the command in the sandbox.
    Started(#[serde(skip)] Descriptors),
    /// The command was stopped by a signal.
    Stopped,
    /// The command has ended: its exit status, or the negative number of a signal.
    Ended(i32),
    /// The command was not executed: the exit status, and why.
    NotExecuted(i32, String),
}

impl Message for Order {
    fn descriptors(&self) -> &[OwnedFd] {
        match self {
            Order::Serve(_, all)
            | Order::Share(_, all)
            | Order::Control(all)
            | Order::Metrics(all)
            | Order::CallerQueries(all)
            | Order::Policy(all)
            | Order::Record(all)
            | Order::Mounted(all)
            | Order::Connection(all) => all,
            _ => &[],
        }
    }

    fn place(&mut self) -> Option<(&mut Descriptors, RangeInclusive<usize>)> {
        Some(match self {
            Order::Serve(_, all) => (all, 0..=3),
            Order::Connection(all) => (all, 4..=4 + 2 * CALLERS_MAX),
            Order::Record(all) => (all, 3..=3),
            Order::Policy(files) => (files, 1..=2),
            Order::Mounted(file) => (file, 0..=1),
            Order::Share(_, one)
            | Order::Control(one)
            | Order::Metrics(one)
            | Order::CallerQueries(one) => (one, 1..=1),
            _ => return None,
        })
    }
}

impl Message for Notice {
    fn descriptors(&self) -> &[OwnedFd] {
        match self {
            Notice::Watching(one) | Notice::Device(one) | Notice::Started(one) => one,
            _ => &[],
        }
    }

    fn place(&mut self) -> Option<(&mut Descriptors, RangeInclusive<usize>)> {
        match self {
            Notice::Watching(one) | Notice::Device(one) | Notice::Started(one) => {
                Some((one, 1..=1))
            }
            _ => None,
        }
    }
}

fn decode<M: Message>(bytes: &[u8], descriptors: Descriptors) -> io::Result<M> {
    let mut message: M = serde_json::from_slice(bytes).map_err(|error| {
        let what = "the message is of another version of thrufs";
        io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {error}"))
    })?;
    match message.place() {
        Some((place, count)) if count.contains(&descriptors.len()) => *place = descriptors,
        None if descriptors.is_empty() => {}
        _ => return Err(malformed()),
    }
    Ok(message)
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a packet that no thrufs sends")
}

pub(crate) fn packets() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Starts a thread with one end of a packet socket, and returns the other.
pub(crate) fn packets_to_thread(
    name: &str,
    serve: impl FnOnce(OwnedFd) + Send + 'static,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = packets()?;
    SERVING.fetch_add(1, Ordering::SeqCst);
    let started = start_thread(name, move || {
        serve(ours);
        SERVING.fetch_sub(1, Ordering::SeqCst);
    });
    if let Err(error) = started {
        SERVING.fetch_sub(1, Ordering::SeqCst);
        return Err(error);
    }
    Ok(theirs)
}

/// Threads with one end of a packet socket.
static SERVING: AtomicUsize = AtomicUsize::new(0);

/// Waits until such threads have ended, because the other ends are closed; not longer than this time.
pub(crate) fn wait_for_threads(time: Duration) {
    let deadline = Instant::now() + time;
    while SERVING.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An end, at which one of the two is sent and the other received.
#[derive(Debug)]
pub(crate) struct Channel<Sent, Received>(OwnedFd, PhantomData<fn(Sent) -> Received>);

/// Of a process that has started the other.
pub(crate) type ToChild = Channel<Order, Notice>;

/// Of a process that was started.
pub(crate) type ToParent = Channel<Notice, Order>;

impl ToChild {
    /// Our end, and the child's.
    pub(crate) fn pair() -> io::Result<(ToChild, OwnedFd)> {
        let (ours, theirs) = packets()?;
        Ok((Channel(ours, PhantomData), theirs))
    }

    /// Sends to a child that was just started. A dead one is no error here: its exit is handled next.
    pub(crate) fn send_setup(&self, message: &Order) -> io::Result<()> {
        self.send(message).or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
            _ => Err(error),
        })
    }

    /// As [`receive`](Self::receive), of a process that a peer may control: with descriptors, a packet is
    /// malformed, but for the first [`Watching`](Notice::Watching).
    pub(crate) fn receive_from_peer(&self, is_watched: bool) -> io::Result<Option<Notice>> {
        let Some((bytes, received)) = self.receive_packet()? else {
            return Ok(None);
        };
        let descriptors = received.descriptors;
        let is_expected = match descriptors.len() {
            0 => true,
            1 => !is_watched && bytes == WATCHING,
            _ => false,
        };
        if is_expected && received.is_whole {
            return decode(&bytes, descriptors).map(Some);
        }
        drop(Foreign::new(descriptors));
        Err(malformed())
    }
}

impl ToParent {
    /// The end that was passed as standard input, which is then replaced by /dev/null.
    pub(crate) fn of_this_process() -> io::Result<ToParent> {
        let ours = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(null)?;
        Ok(Channel(ours, PhantomData))
    }

    /// The end with this number, which the process was started with.
    pub(crate) fn inherited(number: RawFd) -> io::Result<ToParent> {
        Ok(Channel(thrufs_sys::inherited::take(number)?, PhantomData))
    }
}

impl<S: Message, R: Message> Channel<S, R> {
    /// Sends without waiting.
    ///
    /// # Errors
    ///
    /// EPIPE when the other process is gone, EAGAIN when it reads none of hundreds of messages.
    pub(crate) fn send(&self, message: &S) -> io::Result<()> {
        let bytes = serde_json::to_vec(message).expect("a message has texts as keys");
        let descriptors: Vec<_> = message.descriptors().iter().map(AsFd::as_fd).collect();
        fd_passing::send_now(self.0.as_fd(), &bytes, &descriptors)?;
        Ok(())
    }

    /// Blocks until a packet arrives; `None` when the other end is closed.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a malformed packet.
    pub(crate) fn receive(&self) -> io::Result<Option<R>> {
        let Some((bytes, received)) = self.receive_packet()? else {
            return Ok(None);
        };
        match received.is_whole {
            true => decode(&bytes, received.descriptors).map(Some),
            false => Err(malformed()),
        }
    }

    fn receive_packet(&self) -> io::Result<Option<(Vec<u8>, Received)>> {
        let mut bytes = vec![0; PACKET_BYTES_MAX];
        let received = match fd_passing::receive(self.0.as_fd(), &mut bytes, RecvFlags::empty()) {
            Err(Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        bytes.truncate(received.bytes);
        Ok((received.bytes > 0).then_some((bytes, received)))
    }
}

impl<S, R> AsFd for Channel<S, R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    fn pair() -> (ToChild, ToParent) {
        let (ours, theirs) = ToChild::pair().unwrap();
        (ours, Channel(theirs, PhantomData))
    }

    #[test]
    fn configuration_arrives_with_its_descriptors() {
        let (ours, theirs) = pair();
        let settings = options::parse("ro,fsname=a\\,b=c,uidmap=0:1:2,transport=dev").unwrap();
        let source = PathBuf::from(OsStr::from_bytes(b"/not\xffutf8, really"));
        let mut config = options::resolve_mount(&settings).unwrap();
        config.server.log_file = Some(source.clone());
        let config = MountConfig { source, ..config };
        let shown = format!("{config:?}");
        let file = OwnedFd::from(std::fs::File::open("/").unwrap());
        ours.send(&Order::Serve(Box::new(config), vec![file]))
            .unwrap();
        let Some(Order::Serve(config, descriptors)) = theirs.receive().unwrap() else {
            panic!("something else arrived");
        };
        assert_eq!(format!("{config:?}"), shown);
        let stat = rustix::fs::fstat(&descriptors[0]).unwrap();
        assert_eq!(stat.st_ino, rustix::fs::stat("/").unwrap().st_ino);
        let flags = rustix::io::fcntl_getfd(&descriptors[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn descriptors_of_a_peer_are_refused_and_sends_do_not_wait() {
        let (ours, theirs) = pair();
        let file = OwnedFd::from(std::fs::File::open("/").unwrap());
        let watching = Notice::Watching(vec![file.try_clone().unwrap()]);
        let device = Notice::Device(vec![file]);
        for (message, is_watched, is_taken) in [
            (&watching, false, true),
            (&watching, true, false),
            (&device, false, false),
            (&Notice::Ready, true, true),
        ] {
            theirs.send(message).unwrap();
            let received = ours.receive_from_peer(is_watched);
            assert_eq!(received.is_ok(), is_taken, "{message:?}");
        }
        // Nobody reads.
        while ours.send(&Order::Statistics).is_ok() {}
        drop(theirs);
        let end = ours.receive_from_peer(true);
        assert!(end.is_ok_and(|it| it.is_none()));
    }

    #[test]
    fn sending_to_a_dead_child_is_no_error() {
        for unread in [0, 1] {
            let (ours, theirs) = pair();
            for _ in 0..unread {
                ours.send_setup(&Order::Stop).unwrap();
            }
            drop(theirs);
            ours.send_setup(&Order::Stop).unwrap();
            ours.send_setup(&Order::Stop).unwrap();
        }
    }

    #[test]
    fn longest_map_of_attributes_arrives() {
        let (ours, theirs) = pair();
        let rule = format!(":prefix:all:{}:user.v.:", "k".repeat(500));
        let list = format!("xattrmap={}", rule.repeat(128 * 1024 / rule.len()));
        let config = options::resolve_share(&options::parse(&list).unwrap()).unwrap();
        let map = config.serving.xattr_map.clone();
        let source = std::fs::File::open("/").unwrap().into();
        ours.send(&Order::Share(Box::new(config), vec![source]))
            .unwrap();
        let Some(Order::Share(config, _)) = theirs.receive().unwrap() else {
            panic!("something else arrived");
        };
        assert!(map.is_some() && config.serving.xattr_map == map);
    }

    /// A field that the sender does not know has its default, one that the receiver does not know is refused.
    #[test]
    fn configuration_of_another_version_is_read_or_refused() {
        let (ours, theirs) = pair();
        let send = |text: &str| {
            rustix::net::send(&ours, text.as_bytes(), rustix::net::SendFlags::empty()).unwrap();
            theirs.receive()
        };
        let Ok(Some(Order::Serve(config, _))) = send(r#"{"Serve":[{"serving":{"xattr":false}}]}"#)
        else {
            panic!("something else arrived");
        };
        assert!(!config.serving.xattr && config.serving.default_permissions);
        let error = send(r#"{"Serve":[{"serving":{"later":1}}]}"#)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("another version of thrufs: unknown field `later`"),
            "{error}"
        );
    }

    #[test]
    fn malformed_packets_are_refused() {
        let (ours, theirs) = pair();
        let garbage = "nonsense|serve|serve\0/a|serve\0{\"source\":3}|signal\0x|stuck|watching|control|\
                       caller queries|share\0{}|connection|policy";
        for garbage in garbage.split('|').map(str::as_bytes) {
            rustix::net::send(&ours, garbage, rustix::net::SendFlags::empty()).unwrap();
            assert!(theirs.receive().is_err(), "{garbage:?}");
        }
    }
}
