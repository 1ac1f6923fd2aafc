//! What launcher, supervisor and worker say to each other: packets on a socket, some with
//! descriptors.
//!
//! The process that is started finds its end as standard input, which needs no agreement on numbers
//! and no unsafe code. That an end is closed is news too: its process is gone.

use crate::config::{MountConfig, ShareConfig};
use crate::options::{self, Setting};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use thrufs_sys::fd_passing;

/// Longest packet: two paths and a long list of options.
const PACKET_BYTES_MAX: usize = 128 * 1024;

/// One packet.
#[derive(Debug)]
pub(crate) enum Message {
    /// Serve this: the first packet to whoever is started.
    Serve(Box<MountConfig>, Vec<OwnedFd>),
    /// What listens at the control socket: a packet that comes before [`Serve`](Self::Serve), where there
    /// is a control socket.
    Control(OwnedFd),
    /// It is mounted. With it, where it can be had, the file that aborts the connection: for who sees the
    /// supervisor die.
    Mounted(Option<OwnedFd>),
    /// Where the worker of a mount asks about callers: a packet that comes before [`Serve`](Self::Serve).
    AboutCallers(OwnedFd),
    /// Serve this to who will be connected: the first packet to the worker of a share, with the
    /// source.
    Share(Box<ShareConfig>, OwnedFd),
    /// Threads of who will be connected: of each, its `stat` and its `schedstat`. A packet that comes
    /// before [`Connection`](Self::Connection), if at all.
    Callers(Vec<OwnedFd>),
    /// Who is connected, by way of the supervisor; and what outlives the worker: the journal, the ledger,
    /// the way to the strongbox. The worker ends with the connection.
    Connection([OwnedFd; 4]),
    /// Where the worker of a share is asked what it does: a packet that comes before
    /// [`Share`](Self::Share).
    Questions(OwnedFd),
    /// What such a worker has to say of itself at its end: a reply, as it would be asked for.
    Figures(String),
    /// The policy to serve by, opened, and who writes its audit log ([`audit_log`](crate::audit_log)): a
    /// packet that comes before [`Serve`](Self::Serve) and [`Share`](Self::Share), where there is a policy,
    /// and again when it was read again.
    Policy(OwnedFd, Option<OwnedFd>),
    /// The worker is in a user namespace and wants its ids mapped; the answer is [`Ready`](Self::Ready)
    /// or [`Failed`](Self::Failed).
    MapIds,
    /// The worker's thread that ends when the process does (see
    /// [`Process::watch`](crate::process::Process::watch)).
    Watching(OwnedFd),
    /// INIT is answered (from the worker); the mount stands (from the supervisor).
    Ready,
    /// It cannot be: why.
    Failed(String),
    /// This many of the worker's threads have requests that do not end. It ends now, if it can.
    Stuck(usize),
    /// The worker was sent this signal.
    Signalled(i32),
    /// End now.
    Stop,
    /// Log your figures.
    Statistics,
    /// The mount stands, leave the terminal.
    Background,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        match self {
            Message::Serve(config, _) => encode("serve", config.paths(), &config.settings),
            Message::Share(config, _) => encode("share", config.paths(), &config.settings),
            Message::Callers(_) => b"callers".to_vec(),
            Message::Connection(_) => b"connection".to_vec(),
            Message::Questions(_) => b"questions".to_vec(),
            Message::AboutCallers(_) => b"about callers".to_vec(),
            Message::Figures(text) => [b"figures\0", text.as_bytes()].concat(),
            Message::Policy(..) => b"policy".to_vec(),
            Message::MapIds => b"map ids".to_vec(),
            Message::Control(_) => b"control".to_vec(),
            Message::Mounted(_) => b"mounted".to_vec(),
            Message::Watching(_) => b"watching".to_vec(),
            Message::Ready => b"ready".to_vec(),
            Message::Failed(why) => [b"failed\0", why.as_bytes()].concat(),
            Message::Stuck(threads) => format!("stuck\0{threads}").into_bytes(),
            Message::Signalled(number) => format!("signal\0{number}").into_bytes(),
            Message::Stop => b"stop".to_vec(),
            Message::Statistics => b"statistics".to_vec(),
            Message::Background => b"background".to_vec(),
        }
    }

    fn decode(bytes: &[u8], mut descriptors: Vec<OwnedFd>) -> Option<Message> {
        let mut fields = bytes.split(|byte| *byte == 0);
        Some(match fields.next()? {
            b"serve" => {
                let (source, mountpoint, settings) = decode_parts(fields)?;
                let config = MountConfig::resolve(source, mountpoint, &settings).ok()?;
                Message::Serve(Box::new(config), descriptors)
            }
            b"share" => {
                let (source, socket, settings) = decode_parts(fields)?;
                let config = ShareConfig::resolve(source, socket, &settings).ok()?;
                Message::Share(Box::new(config), descriptors.pop()?)
            }
            b"callers" => Message::Callers(descriptors),
            b"questions" => Message::Questions(descriptors.pop()?),
            b"about callers" => Message::AboutCallers(descriptors.pop()?),
            b"figures" => {
                let text = String::from_utf8_lossy(bytes.get(8..)?);
                Message::Figures(text.into_owned())
            }
            b"connection" => Message::Connection(descriptors.try_into().ok()?),
            b"policy" => {
                let mut descriptors = descriptors.into_iter();
                Message::Policy(descriptors.next()?, descriptors.next())
            }
            b"control" => Message::Control(descriptors.pop()?),
            b"mounted" => Message::Mounted(descriptors.pop()),
            b"map ids" => Message::MapIds,
            b"watching" => Message::Watching(descriptors.pop()?),
            b"ready" => Message::Ready,
            b"failed" => {
                let text = String::from_utf8_lossy(bytes.get(7..)?);
                Message::Failed(text.into_owned())
            }
            b"stuck" => Message::Stuck(decode_number(fields.next()?)?),
            b"signal" => Message::Signalled(decode_number(fields.next()?)?),
            b"stop" => Message::Stop,
            b"statistics" => Message::Statistics,
            b"background" => Message::Background,
            _ => return None,
        })
    }
}

fn decode_number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Paths and settings, none of which can hold a NUL.
fn encode(word: &str, paths: [&Path; 2], settings: &[Setting]) -> Vec<u8> {
    let mut bytes = word.as_bytes().to_vec();
    let mut add = |field: &[u8]| {
        bytes.push(0);
        bytes.extend_from_slice(field);
    };
    for path in paths {
        add(path.as_os_str().as_bytes());
    }
    for setting in settings {
        add(setting.to_string().as_bytes());
    }
    bytes
}

fn decode_parts<'a>(
    mut fields: impl Iterator<Item = &'a [u8]>,
) -> Option<(PathBuf, PathBuf, Vec<Setting>)> {
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let source = path(fields.next()?);
    let other = path(fields.next()?);
    let settings: Option<Vec<Setting>> = fields
        .map(|field| {
            let text = std::str::from_utf8(field).ok()?;
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (text, None),
            };
            options::setting(options::find(name)?, value).ok()
        })
        .collect();
    Some((source, other, settings?))
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Two ends: ours, and one for the process to be started.
    pub(crate) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(ours), theirs))
    }

    /// The end that this process was started with; standard input is empty afterwards.
    pub(crate) fn of_this_process() -> io::Result<Channel> {
        let ours = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(null)?;
        Ok(Channel(ours))
    }

    /// The same end once more.
    ///
    /// # Errors
    ///
    /// No descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Channel> {
        self.0.try_clone().map(Channel)
    }

    /// Sends one packet.
    ///
    /// # Errors
    ///
    /// EPIPE when the other process is gone.
    pub(crate) fn send(&self, message: &Message) -> io::Result<()> {
        let bytes = message.encode();
        let borrowed: Vec<BorrowedFd<'_>> = match message {
            Message::Serve(_, descriptors) | Message::Callers(descriptors) => {
                descriptors.iter().map(AsFd::as_fd).collect()
            }
            Message::Watching(one)
            | Message::Share(_, one)
            | Message::Questions(one)
            | Message::Control(one)
            | Message::Mounted(Some(one))
            | Message::AboutCallers(one) => vec![one.as_fd()],
            Message::Connection(all) => all.iter().map(AsFd::as_fd).collect(),
            Message::Policy(text, audit) => {
                let audit = audit.as_ref().map(AsFd::as_fd);
                [text.as_fd()].into_iter().chain(audit).collect()
            }
            _ => Vec::new(),
        };
        fd_passing::send(self.0.as_fd(), &bytes, &borrowed)?;
        Ok(())
    }

    /// Waits for a packet; `None` when the other end is closed.
    ///
    /// # Errors
    ///
    /// `InvalidData` for what is no packet of ours.
    pub(crate) fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; PACKET_BYTES_MAX];
        let received = match fd_passing::receive(self.0.as_fd(), &mut bytes, RecvFlags::empty()) {
            Err(Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let message = Message::decode(&bytes[..received.bytes], received.descriptors);
        message
            .filter(|_| received.is_whole)
            .map(Some)
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "a packet that no thrufs sends")
            })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        (ours, Channel(theirs))
    }

    #[test]
    fn a_configuration_arrives_whole_with_its_descriptors() {
        let (ours, theirs) = pair();
        let settings = options::parse("ro,fsname=a\\,b=c,uidmap=0:1:2").unwrap();
        let source = PathBuf::from(OsString::from_vec(b"/not\xffutf8, really".to_vec()));
        let config = MountConfig::resolve(source, "/mnt".into(), &settings).unwrap();
        let shown = format!("{config:?}");
        let file = OwnedFd::from(std::fs::File::open("/").unwrap());
        ours.send(&Message::Serve(Box::new(config), vec![file]))
            .unwrap();
        let Some(Message::Serve(config, descriptors)) = theirs.receive().unwrap() else {
            panic!("something else arrived");
        };
        assert_eq!(format!("{config:?}"), shown);
        let stat = rustix::fs::fstat(&descriptors[0]).unwrap();
        assert_eq!(stat.st_ino, rustix::fs::stat("/").unwrap().st_ino);
        let flags = rustix::io::fcntl_getfd(&descriptors[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_share_arrives_whole_and_what_goes_with_it() {
        let (ours, theirs) = pair();
        let [source, text, audit] =
            ["/", "/dev", "/proc"].map(|path| std::fs::File::open(path).unwrap().into());
        let number = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_dev;
        let numbers = [number(&source), number(&text), number(&audit)];
        ours.send(&Message::Policy(text, Some(audit))).unwrap();
        let settings = options::parse("xattrmap=/map//user.v./,tag=a b,queues=2").unwrap();
        let config = ShareConfig::resolve("/src".into(), "/run/s".into(), &settings).unwrap();
        let shown = format!("{config:?}");
        ours.send(&Message::Share(Box::new(config), source))
            .unwrap();
        let Some(Message::Policy(text, Some(audit))) = theirs.receive().unwrap() else {
            panic!("something else arrived");
        };
        let Some(Message::Share(config, source)) = theirs.receive().unwrap() else {
            panic!("something else arrived");
        };
        assert_eq!(format!("{config:?}"), shown);
        assert_eq!([number(&source), number(&text), number(&audit)], numbers);
    }

    #[test]
    fn the_file_that_aborts_arrives_where_there_is_one() {
        let (ours, theirs) = pair();
        let file = std::fs::File::open("/dev").unwrap();
        ours.send(&Message::Mounted(Some(file.into()))).unwrap();
        let Some(Message::Mounted(Some(file))) = theirs.receive().unwrap() else {
            panic!("something else arrived");
        };
        let number = rustix::fs::fstat(&file).unwrap().st_dev;
        assert_eq!(number, rustix::fs::stat("/dev").unwrap().st_dev);
        ours.send(&Message::Mounted(None)).unwrap();
        let arrived = theirs.receive().unwrap();
        assert!(matches!(arrived, Some(Message::Mounted(None))));
    }

    #[test]
    fn words_arrive_and_the_end_is_noticed() {
        let (ours, theirs) = pair();
        ours.send(&Message::Failed("because\nof this".into()))
            .unwrap();
        ours.send(&Message::Signalled(15)).unwrap();
        ours.send(&Message::Stuck(3)).unwrap();
        ours.send(&Message::Ready).unwrap();
        let text = |message| format!("{message:?}");
        assert_eq!(
            text(theirs.receive().unwrap().unwrap()),
            "Failed(\"because\\nof this\")"
        );
        assert_eq!(text(theirs.receive().unwrap().unwrap()), "Signalled(15)");
        assert_eq!(text(theirs.receive().unwrap().unwrap()), "Stuck(3)");
        assert_eq!(text(theirs.receive().unwrap().unwrap()), "Ready");
        drop(ours);
        assert!(theirs.receive().unwrap().is_none());
        assert!(theirs.send(&Message::Stop).is_err());
    }

    #[test]
    fn garbage_is_refused() {
        let (ours, theirs) = pair();
        for garbage in [
            &b"nonsense"[..],
            b"serve",
            b"serve\0/a",
            b"serve\0/a\0/b\0nope",
            b"signal\0x",
            b"stuck",
            b"watching",
            b"control",
            b"about callers",
            b"share\0/a\0/b",
            b"connection",
            b"policy",
        ] {
            rustix::net::send(&ours, garbage, rustix::net::SendFlags::empty()).unwrap();
            assert!(theirs.receive().is_err(), "{garbage:?}");
        }
    }
}
