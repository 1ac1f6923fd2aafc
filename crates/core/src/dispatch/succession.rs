//! Resumes a session that another process began.
//!
//! The client's INIT is replayed, so that this process's file system negotiates as it would by itself. If
//! the result is not the one that the client was sent (another version, other options), the session
//! cannot be resumed: INIT is not repeated.
//!
//! What [`Dispatcher::save`] writes, in little-endian order:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `THRUSESS` |
//! | 4 | version of this table, 1 |
//! | 4 | length of the INIT request; 0 when there was none, and then nothing follows |
//! | … | the INIT request |
//! | 4, 8, 4, 4, 4 | what was agreed on: minor version, flags, most bytes in a WRITE, to read ahead, most requests in the background |
//! | … | [`FileSystem::save`] |

use super::Dispatcher;
use crate::backing::Services;
use crate::features::Features;
use crate::file_system::FileSystem;
use crate::reply::HEADER_BYTES;
use std::io::{self, Read, Write};
use thrufs_abi::layout::InitIn;
use thrufs_abi::{
    Dialect, Header, InitFlags, Opcode, Operation, Payload, Reply, Request, RequestBuilder,
};

const MAGIC: [u8; 8] = *b"THRUSESS";
const VERSION: u32 = 1;

/// Longer than an INIT request with all its fields.
const INIT_BYTES_MAX: usize = 4096;

/// Rebuilds the request from its parts.
pub(super) fn init_request(header: &Header, arg: &InitIn) -> Box<[u8]> {
    RequestBuilder::new(Opcode::Init, header.unique, header.nodeid)
        .ids(header.uid, header.gid, header.pid)
        .arg(arg)
        .finish()
        .into()
}

fn outcome(features: &Features) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    bytes.extend(features.minor.to_le_bytes());
    bytes.extend(features.flags.bits().to_le_bytes());
    bytes.extend(features.write_bytes_max.to_le_bytes());
    bytes.extend(features.readahead_bytes_max.to_le_bytes());
    bytes.extend(u32::from(features.background_requests_max).to_le_bytes());
    bytes
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn read_array<const N: usize>(source: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<F: FileSystem> Dispatcher<F> {
    /// The session's INIT request, as the client sent it; `None` before.
    pub fn init_request(&self) -> Option<Vec<u8>> {
        self.agreed.get().map(|agreed| agreed.request.to_vec())
    }

    /// Whether the kernel sends requests again that a process which died has read (Linux 6.9).
    pub(crate) fn has_resend(&self) -> bool {
        let request = self.agreed.get().map(|agreed| &agreed.request);
        request.is_some_and(|request| {
            let parsed = Request::parse(request, Dialect::INITIAL, Payload::Inline);
            parsed.is_ok_and(|it| match it.operation {
                Operation::Init { flags, .. } => flags.contains(InitFlags::HAS_RESEND),
                _ => false,
            })
        })
    }

    /// Writes the state from which [`restore`](Self::restore) in another process resumes this session. No
    /// request may be in progress. The session may also continue here.
    ///
    /// # Errors
    /// Those of [`FileSystem::save`] and of `sink`.
    pub fn save(&self, sink: &mut dyn Write) -> io::Result<()> {
        sink.write_all(&MAGIC)?;
        sink.write_all(&VERSION.to_le_bytes())?;
        let Some(agreed) = self.agreed.get() else {
            return sink.write_all(&0u32.to_le_bytes());
        };
        let length = agreed.request.len() as u32;
        sink.write_all(&length.to_le_bytes())?;
        sink.write_all(&agreed.request)?;
        sink.write_all(&outcome(&agreed.features))?;
        self.fs.save(sink)
    }

    /// Resumes the session that another process has [saved](Self::save): INIT, then [`FileSystem::started`]
    /// with [`services`](Self::services) (only virtio-fs moves sessions), then [`FileSystem::restore`]. The
    /// dispatcher must not have seen a request. A session that was saved before INIT waits for INIT here.
    ///
    /// # Errors
    /// `InvalidData` for what is no saved session, or when INIT has another result here; those of
    /// [`FileSystem::restore`]. The dispatcher cannot be used afterwards.
    pub fn restore(&self, source: &mut dyn Read) -> io::Result<()> {
        if read_array(source)? != MAGIC {
            return Err(invalid("this is no saved session"));
        }
        let version = u32::from_le_bytes(read_array(source)?);
        if version != VERSION {
            return Err(invalid(format!(
                "the session was saved in version {version} of the format; {VERSION} is known here"
            )));
        }
        let length = u32::from_le_bytes(read_array(source)?) as usize;
        if length == 0 {
            return Ok(());
        }
        if length > INIT_BYTES_MAX {
            return Err(invalid("the INIT request of the session is too long"));
        }
        let mut request = vec![0; length];
        source.read_exact(&mut request)?;
        let agreed = read_array::<24>(source)?;
        let features = self.play_init(&request)?;
        if outcome(features) != agreed {
            return Err(invalid(
                "INIT has another result here than the client was sent: the options or the versions \
                 differ",
            ));
        }
        self.fs.started(features, self.services());
        self.fs.restore(source)
    }

    /// Resumes the session of a process that died, which began with `init_request`: INIT, then
    /// [`FileSystem::started`] with `services`, then [`FileSystem::recover`].
    ///
    /// # Errors
    /// `InvalidData` when INIT does not succeed; those of [`FileSystem::recover`].
    pub fn resume(&self, init_request: &[u8], services: Services) -> io::Result<()> {
        let features = self.play_init(init_request)?;
        self.fs.started(features, services);
        self.fs.recover()
    }

    fn play_init(&self, request: &[u8]) -> io::Result<&Features> {
        let parsed = Request::parse(request, Dialect::INITIAL, Payload::Inline);
        let is_init = parsed.is_ok_and(|it| matches!(it.operation, Operation::Init { .. }));
        if !is_init || self.features().is_some() {
            return Err(invalid("the session does not begin with an INIT request"));
        }
        let mut buffer = [0; HEADER_BYTES + 256];
        let length = self.answer(request, &mut buffer);
        let refused = Reply::parse(&buffer[..length]).is_none_or(|reply| reply.error != 0);
        match self.features() {
            Some(features) if !refused => Ok(features),
            _ => Err(match self.init_failure() {
                Some(failure) => io::Error::new(io::ErrorKind::InvalidData, failure),
                None => invalid("the session's INIT request came to nothing"),
            }),
        }
    }
}
