//! What one program of a supervisor hands over to the next: its state as text in a memory file, and descriptors.
//!
//! They are packets in a socket, of which the next program gets the other end: first the text, then the descriptors
//! in the order in which the text names them.

use crate::channel::packets;
use crate::config::{MountConfig, ShareConfig};
use crate::fd_store::Stored;
use crate::mount_table::FuseFileSystem;
use rustix::fs::MemfdFlags;
use rustix::net::RecvFlags;
use rustix::net::sockopt::set_socket_send_buffer_size;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use thrufs_sys::fd_passing;

/// Of the state, of the journals, and of the orders to a worker, which the old supervisor sends to one of the new program:
/// raised with every change that the program before cannot write, or this one cannot read. The ledger has a version of
/// its own.
const VERSION: u32 = 2;

/// As many as a message has: `SCM_MAX_FD` of `include/net/scm.h`.
const CHUNK: usize = 253;

/// For the packets, which nobody reads while they are sent.
const BUFFER_BYTES: usize = 1 << 20;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Slot {
    /// `/dev/fuse`
    Device,
    /// The file that aborts the connection.
    Abort,
    Source,
    /// The clone of the mounts of the source.
    SourceMounts,
    Journal,
    Ledger,
    /// The supervisor's end of the socket of the descriptor store, and the workers'.
    StoreEnd,
    StoreSocket,
    /// In the store, by its key.
    Stored(u64),
    Policy,
    AuditLog,
    /// The sockets of this process: for queries, for upgrades, for metrics, and their files.
    Queries,
    Upgrades,
    Metrics,
    SocketFile(u32),
    /// The connection of the command, which waits for a reply.
    Command,
    /// The socket of front ends, its file and its pid file.
    Listener,
    ListenerFile,
    PidFile,
    /// A front end that has sent no message yet.
    Incoming(u32),
    /// Of the state of a front end's proxy, in this order.
    Proxy(u32),
}

/// The state of the supervisor of a mount.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountState {
    pub(crate) config: MountConfig,
    pub(crate) mounted: Option<FuseFileSystem>,
    /// How long ago workers died, the oldest first.
    pub(crate) deaths: Vec<Duration>,
    /// Killed workers that had not ended.
    pub(crate) left: Vec<i32>,
}

/// The state of the supervisor of a share.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShareState {
    pub(crate) config: ShareConfig,
    pub(crate) once: bool,
    /// The connected machines.
    pub(crate) machines: Vec<MachineState>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineState {
    pub(crate) deaths: Vec<Duration>,
    /// [`ProxyState::bytes`](thrufs_virtio::ProxyState); none while it is only checked.
    pub(crate) proxy: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum State {
    Mount(Box<MountState>),
    Share(Box<ShareState>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    version: u32,
    /// A [`State`], which only this version can read.
    state: Value,
    /// The descriptors: what each is, and of which machine.
    slots: Value,
}

/// A machine of a share, from 1; 0 is the supervisor.
type Owner = u32;

/// Descriptors that are handed over.
#[derive(Default)]
pub(crate) struct Outgoing<'a> {
    owner: Owner,
    slots: Vec<(Owner, Slot)>,
    files: Vec<BorrowedFd<'a>>,
}

impl<'a> Outgoing<'a> {
    /// Those that are added from now on are of the next machine.
    pub(crate) fn begin_machine(&mut self) {
        self.owner += 1;
    }

    pub(crate) fn add(&mut self, slot: Slot, file: &'a impl AsFd) {
        self.slots.push((self.owner, slot));
        self.files.push(file.as_fd());
    }

    pub(crate) fn add_if(&mut self, slot: Slot, file: Option<&'a impl AsFd>) {
        if let Some(file) = file {
            self.add(slot, file);
        }
    }
}

/// Descriptors that were handed over.
#[derive(Debug)]
pub(crate) struct Incoming {
    owner: Owner,
    files: HashMap<(Owner, Slot), OwnedFd>,
}

impl Incoming {
    /// What is of the next machine.
    pub(crate) fn next_machine(&mut self) -> Incoming {
        self.owner += 1;
        let owner = self.owner;
        let of_machine = self.files.extract_if(|(of, _), _| *of == owner);
        Incoming {
            owner: 0,
            files: of_machine.map(|((_, slot), it)| ((0, slot), it)).collect(),
        }
    }

    /// # Errors
    /// `InvalidData` if it was not handed over.
    pub(crate) fn take(&mut self, slot: Slot) -> io::Result<OwnedFd> {
        let missing = || invalid(format!("no descriptor for {slot:?}"));
        self.take_if_given(slot).ok_or_else(missing)
    }

    pub(crate) fn take_if_given(&mut self, slot: Slot) -> Option<OwnedFd> {
        self.files.remove(&(0, slot))
    }

    /// Those of which there are several, until one is not given.
    pub(crate) fn take_all(&mut self, slot: impl Fn(u32) -> Slot) -> Vec<OwnedFd> {
        let taken = (0..).map_while(|number| self.take_if_given(slot(number)));
        taken.collect()
    }

    pub(crate) fn take_stored(&mut self) -> Stored {
        let keys = self.files.keys().filter_map(|slot| match slot {
            (0, Slot::Stored(key)) => Some(*key),
            _ => None,
        });
        let keys: Vec<u64> = keys.collect();
        let taken = |key| Some((key, self.take_if_given(Slot::Stored(key))?));
        keys.into_iter().filter_map(taken).collect()
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn encode(state: &State, slots: &[(Owner, Slot)]) -> io::Result<Vec<u8>> {
    let written = Written {
        version: VERSION,
        state: serde_json::to_value(state)?,
        slots: serde_json::to_value(slots)?,
    };
    Ok(serde_json::to_vec(&written)?)
}

/// # Errors
/// `InvalidData`, with what a user can do with it.
fn decode(text: &[u8]) -> io::Result<(State, Vec<(Owner, Slot)>)> {
    let foreign = |error| {
        invalid(format!(
            "its state is of another version of thrufs: {error}"
        ))
    };
    // The version first: others have other fields.
    let written: Value = serde_json::from_slice(text).map_err(foreign)?;
    if let Some(version) = written.get("version").and_then(Value::as_u64)
        && version != u64::from(VERSION)
    {
        return Err(invalid(format!(
            "its state has version {version}, and the new program reads version {VERSION}"
        )));
    }
    let written: Written = serde_json::from_value(written).map_err(foreign)?;
    let state = serde_json::from_value(written.state).map_err(foreign)?;
    let slots = serde_json::from_value(written.slots).map_err(foreign)?;
    Ok((state, slots))
}

/// Puts everything into a socket; returns our end, and that from which it is [received](receive).
///
/// # Errors
/// EAGAIN if it does not fit, ETOOMANYREFS for more descriptors than RLIMIT_NOFILE permits.
pub(crate) fn put(state: &State, all: &Outgoing<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = packets()?;
    // As far as permitted.
    let _ = set_socket_send_buffer_size(&ours, BUFFER_BYTES);
    let text = rustix::fs::memfd_create(c"thrufs-state", MemfdFlags::CLOEXEC)?;
    let text = File::from(text);
    text.write_all_at(&encode(state, &all.slots)?, 0)?;
    let send = |files: &[BorrowedFd<'_>]| {
        let sent = fd_passing::send_now(ours.as_fd(), b"D", files);
        sent.map(drop)
    };
    send(&[text.as_fd()])?;
    all.files.chunks(CHUNK).try_for_each(send)?;
    rustix::net::shutdown(&ours, rustix::net::Shutdown::Write)?;
    Ok((ours, theirs))
}

/// What [`put`] has put there.
///
/// # Errors
/// `InvalidData` for what another version has.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<(State, Incoming)> {
    let mut files = Vec::new();
    loop {
        let mut byte = [0];
        let received = fd_passing::receive(socket.as_fd(), &mut byte, RecvFlags::empty())?;
        if received.bytes == 0 {
            break;
        }
        if !received.is_whole {
            return Err(invalid("a descriptor is lost"));
        }
        files.extend(received.descriptors);
    }
    let mut files = files.into_iter();
    let text = files
        .next()
        .ok_or_else(|| invalid("nothing is handed over"))?;
    let text = File::from(text);
    let length = usize::try_from(text.metadata()?.len()).map_err(invalid)?;
    let mut bytes = vec![0; length];
    text.read_exact_at(&mut bytes, 0)?;
    let (state, slots) = decode(&bytes)?;
    if slots.len() != files.len() {
        return Err(invalid("descriptors are lost"));
    }
    let files = slots.into_iter().zip(files).collect();
    Ok((state, Incoming { owner: 0, files }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;
    use std::os::unix::net::UnixStream;
    use thrufs_virtio::{Journal, ProxyState, VhostProxy};

    fn state() -> State {
        let settings = options::parse("resume=3,allow_other,fsname=a\\,b").unwrap();
        State::Mount(Box::new(MountState {
            config: options::resolve_mount(&settings).unwrap(),
            mounted: None,
            deaths: vec![Duration::from_millis(1500)],
            left: vec![7],
        }))
    }

    #[test]
    fn state_and_descriptors_arrive() {
        let root = File::open("/").unwrap();
        let proc = File::open("/proc").unwrap();
        let mut all = Outgoing::default();
        all.add(Slot::Device, &root);
        let most = 1000;
        (0..most).for_each(|key| all.add(Slot::Stored(key), &proc));
        all.add_if(Slot::Abort, None::<&File>);
        for _ in 0..2 {
            all.begin_machine();
            (0..3).for_each(|number| all.add(Slot::Proxy(number), &proc));
        }
        let (_ours, theirs) = put(&state(), &all).unwrap();
        let (received, mut files) = receive(&theirs).unwrap();
        assert_eq!(format!("{received:?}"), format!("{:?}", state()));
        let number = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_dev;
        let stored = files.take_stored();
        assert_eq!(stored.len(), most as usize);
        let device = files.take(Slot::Device).unwrap();
        assert_ne!(number(&device), number(&stored[&0]));
        assert!(files.take(Slot::Device).is_err() && files.take_if_given(Slot::Abort).is_none());
        for count in [3, 3, 0] {
            assert!(files.take_all(Slot::Proxy).is_empty(), "of no machine");
            let mut of_machine = files.next_machine();
            assert_eq!(of_machine.take_all(Slot::Proxy).len(), count);
        }
    }

    /// What servers of this version hand over. A program that no longer reads it has another [`VERSION`].
    #[test]
    fn recorded_state_is_read() {
        let (state, slots) = decode(include_bytes!("handover/mount-2.json")).unwrap();
        let State::Mount(state) = state else {
            panic!("{state:?}");
        };
        assert_eq!(state.config.server.deaths_max, 3);
        assert!(state.config.serving.allow_other);
        assert_eq!(state.deaths.len(), 1);
        assert_eq!(slots[0], (0, Slot::Device));
        assert!(slots.contains(&(0, Slot::Stored(2))) && slots.contains(&(0, Slot::SocketFile(1))));
        let (state, slots) = decode(include_bytes!("handover/share-2.json")).unwrap();
        let State::Share(state) = state else {
            panic!("{state:?}");
        };
        assert_eq!(state.config.server.deaths_max, 3);
        assert_eq!(state.machines.len(), 2);
        assert_eq!(state.machines[0].deaths.len(), 1);
        assert!(slots.contains(&(0, Slot::Listener)) && slots.contains(&(1, Slot::Stored(3))));
        // The front end's connection, memory and eventfds, of which the device reads more than their number.
        let (front_end, _other) = UnixStream::pair().unwrap();
        for (machine, owner) in state.machines.into_iter().zip(1..) {
            let is_proxy =
                |(of, slot): &&(Owner, Slot)| *of == owner && matches!(slot, Slot::Proxy(_));
            let files = slots.iter().filter(is_proxy);
            let files = files.map(|_| front_end.try_clone().unwrap().into());
            let state = ProxyState {
                bytes: machine.proxy,
                files: files.collect(),
            };
            VhostProxy::resume(state, Journal::new().unwrap()).unwrap();
        }
    }

    #[test]
    fn state_of_another_version_is_refused() {
        let text = String::from_utf8(encode(&state(), &[(0, Slot::Device)]).unwrap()).unwrap();
        let other = "{\"version\":1,\"mount\":{}}";
        let error = decode(other.as_bytes()).unwrap_err().to_string();
        assert!(
            error.contains("has version 1, and the new program reads version 2"),
            "{error}"
        );
        let later = text.replacen("\"deaths_max\"", "\"later\"", 1);
        let error = decode(later.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("unknown field `later`"), "{error}");
        let slot = text.replacen("\"Device\"", "\"Later\"", 1);
        assert!(decode(slot.as_bytes()).is_err());
    }
}
