//! The device state of a migration, as it is transferred.
//!
//! In little-endian order:
//!
//! | bytes | what |
//! |---|---|
//! | 16 | `thrufs virtio-fs` |
//! | 4 | version of this table, 1 |
//! | 4 | queues |
//! | 4, and 2 for each | for each queue: heads of requests that were taken and have to be replayed |
//! | 1 | whether there is a session |
//! | 4, and as many as it says | repeated: part of the session's state, until one is empty |
//!
//! Nothing may follow. The input is untrusted: lengths are bounded, and memory is allocated for bytes that
//! arrive, not for those announced.

use std::io::{self, BufReader, ErrorKind, Read, Write};

const MAGIC: [u8; 16] = *b"thrufs virtio-fs";
const VERSION: u32 = 1;

const QUEUES_MAX: usize = 65;

const REQUESTS_MAX: usize = 1024;

/// Most bytes written as one part.
const PART_BYTES: usize = 64 << 10;

/// Most bytes accepted as one part.
const PART_BYTES_MAX: u64 = 1 << 20;

/// Most bytes of a session's state: ten million nodes with names of 20 bytes, and half as many under a policy, which
/// has each name twice.
pub const SESSION_BYTES_MAX: u64 = 512 << 20;

/// For each queue, the heads of requests to be replayed.
pub type Again = Vec<Vec<u16>>;

/// Writes the state of a session.
pub type WriteSession<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// Writes the state of a device. `session` writes that of its session, if there is one.
///
/// # Errors
///
/// Those of `session` and of `sink`; a session that is too large.
pub fn write(
    sink: &mut dyn Write,
    again: &Again,
    session: Option<WriteSession<'_>>,
) -> io::Result<()> {
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((again.len() as u32).to_le_bytes());
    for heads in again {
        head.extend((heads.len() as u32).to_le_bytes());
        head.extend(heads.iter().flat_map(|head| head.to_le_bytes()));
    }
    head.push(session.is_some().into());
    sink.write_all(&head)?;
    let mut parts = Parts::new(sink);
    if let Some(session) = session {
        session(&mut parts)?;
    }
    parts.finish()
}

/// Reads the state of a device. `session` reads that of the session, if there is one.
///
/// # Errors
///
/// `InvalidData` for a malformed state, `UnexpectedEof` for a truncated one; those of `session` and `source`.
pub fn read<T>(
    source: &mut dyn Read,
    session: impl FnOnce(&mut dyn Read) -> io::Result<T>,
) -> io::Result<(Again, Option<T>)> {
    let source = &mut BufReader::new(source);
    if array(source)? != MAGIC {
        return Err(invalid(
            "this is no state of a Thrufs share (that of virtiofsd cannot be taken over)",
        ));
    }
    let version = u32::from_le_bytes(array(source)?);
    if version != VERSION {
        let what = format!("the state is in version {version} of its form; {VERSION} is known");
        return Err(invalid(&what));
    }
    let queues = u32::from_le_bytes(array(source)?) as usize;
    if queues > QUEUES_MAX {
        return Err(invalid("the state is of more queues than a device has"));
    }
    let mut again = Vec::with_capacity(queues);
    for _ in 0..queues {
        again.push(read_heads(source)?);
    }
    let [has_session] = array(source)?;
    let mut parts = PartsRead {
        source,
        left: 0,
        announced: 0,
        ended: false,
    };
    let session = match has_session {
        0 => None,
        1 => Some(session(&mut parts)?),
        _ => return Err(invalid("the state neither has a session nor has none")),
    };
    parts.finish()?;
    Ok((again, session))
}

fn read_heads(source: &mut dyn Read) -> io::Result<Vec<u16>> {
    let count = u32::from_le_bytes(array(source)?) as usize;
    if count > REQUESTS_MAX {
        return Err(invalid("the state has more requests than a queue"));
    }
    let mut bytes = vec![0; count * 2];
    source.read_exact(&mut bytes)?;
    let heads = bytes.as_chunks().0;
    Ok(heads.iter().map(|head| u16::from_le_bytes(*head)).collect())
}

fn array<const N: usize>(source: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Writes length-prefixed parts.
struct Parts<'a> {
    sink: &'a mut dyn Write,
    part: Vec<u8>,
    written: u64,
}

impl<'a> Parts<'a> {
    fn new(sink: &'a mut dyn Write) -> Parts<'a> {
        Parts {
            sink,
            part: Vec::with_capacity(PART_BYTES),
            written: 0,
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let length = self.part.len() as u32;
        self.sink.write_all(&length.to_le_bytes())?;
        self.sink.write_all(&self.part)?;
        self.part.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            self.send()?;
        }
        self.send()?;
        self.sink.flush()
    }
}

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.part.len());
        self.written += taken as u64;
        if self.written > SESSION_BYTES_MAX {
            return Err(io::Error::other("the session is too large to be moved"));
        }
        self.part.extend(&bytes[..taken]);
        if self.part.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads length-prefixed parts.
struct PartsRead<'a> {
    source: &'a mut dyn Read,
    /// Bytes left of this part.
    left: u64,
    /// Bytes of all parts so far.
    announced: u64,
    ended: bool,
}

impl PartsRead<'_> {
    fn next_part(&mut self) -> io::Result<()> {
        self.left = u32::from_le_bytes(array(self.source)?).into();
        self.announced += self.left;
        if self.left > PART_BYTES_MAX || self.announced > SESSION_BYTES_MAX {
            return Err(invalid("the state of the session is too large"));
        }
        self.ended = self.left == 0;
        Ok(())
    }

    /// Fails unless the session was read to its end and nothing follows.
    fn finish(mut self) -> io::Result<()> {
        if self.left == 0 && !self.ended {
            self.next_part()?;
        }
        if !self.ended || self.source.read(&mut [0])? > 0 {
            return Err(invalid("the state goes on where it should end"));
        }
        Ok(())
    }
}

impl Read for PartsRead<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        if self.left == 0 && !self.ended {
            self.next_part()?;
        }
        let bytes = self.source.take(self.left).read(target)?;
        if bytes == 0 && !self.ended {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= bytes as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
