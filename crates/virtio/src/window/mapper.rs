//! Changes the window, for its thread: checks what a guest asks for, and asks the front end.

use super::channel::{Channel, ChannelError, Part, WaitLimit};
use super::probe::probe;
use super::state::{WindowState, file_id};
use super::table::{Invalid, Mapping, PAGE_BYTES};
use crate::carry_out::{Left, Sleeping};
use crate::journal::WindowRecord;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use thrufs::metrics::WindowEvent;
use thrufs::{Errno, FileSystem, NodeId, WindowChange};

/// How long a guest's request waits for the front end. A monitor may be stopped for a while (a debugger, a
/// snapshot), and the guest's virtual CPUs with it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for INIT, which holds up a queue.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// What the thread owns.
pub(super) struct Mapper {
    state: Arc<WindowState>,
    record: Option<WindowRecord>,
    channel: Option<Channel>,
}

impl Mapper {
    pub(super) fn new(state: Arc<WindowState>, record: Option<WindowRecord>) -> Mapper {
        Mapper {
            state,
            record,
            channel: None,
        }
    }

    /// Uses this channel to the front end.
    pub(super) fn connect(&mut self, stream: UnixStream) {
        self.channel = Some(Channel::new(stream));
    }

    pub(super) fn carry_out<F: FileSystem>(&mut self, mut sleeping: Sleeping<F>) {
        let Some(Left::Window(reply)) = sleeping.left.take() else {
            return;
        };
        let session = Arc::clone(&sleeping.session);
        let is_over = || session.is_over();
        let result = match reply.change() {
            _ if is_over() => Err(Errno::EIO),
            WindowChange::Map {
                node,
                file,
                args,
                at,
            } => {
                let wanted = Mapping {
                    node: node.0,
                    at: *at,
                    offset: args.offset,
                    length: args.length,
                    mapped: args.length,
                    writable: file.writable,
                    is_doubtful: true,
                    file: file_id(&file.file).unwrap_or_default(),
                };
                self.map(wanted, args.write, &file.file, &is_over)
            }
            WindowChange::Unmap(ranges) => self.unmap(ranges, &is_over),
        };
        drop(session);
        self.count_mappings();
        sleeping.finish_window(&reply, result);
    }

    fn map(
        &mut self,
        wanted: Mapping,
        will_write: bool,
        file: &OwnedFd,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        if !wanted.offset.is_multiple_of(PAGE_BYTES) {
            return Err(self.invalid(Invalid::Range));
        }
        let existing = self.state.table.lock().get(wanted.at, wanted.length);
        if let Some(existing) = existing {
            let is_same = (existing.node, existing.offset) == (wanted.node, wanted.offset);
            if !is_same && !existing.is_doubtful {
                return Err(self.invalid(Invalid::Overlap));
            }
            if !existing.is_doubtful {
                // The kernel asks again when it begins to write.
                return match will_write && !existing.writable {
                    true => Err(self.invalid(Invalid::ReadOnly)),
                    false => Ok(()),
                };
            }
            self.remove(&existing, is_over, ANSWER_TIMEOUT)?;
        }
        let free = self
            .state
            .table
            .lock()
            .require_free(wanted.at, wanted.length);
        free.map_err(|invalid| self.invalid(invalid))?;
        if will_write && !wanted.writable {
            return Err(self.invalid(Invalid::ReadOnly));
        }
        self.map_new(wanted, file, is_over)
    }

    fn map_new(
        &mut self,
        mut wanted: Mapping,
        file: &OwnedFd,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        let can = self.state.abilities().ok_or(Errno::EIO)?;
        if !can.map_beyond_end {
            let size = rustix::fs::fstat(file)?.st_size.cast_unsigned();
            let there = size.saturating_sub(wanted.offset) / PAGE_BYTES * PAGE_BYTES;
            wanted.mapped = wanted.length.min(there);
        }
        // First the record: whoever comes after a death in between unmaps what may be there.
        let put = self.state.table.lock().put(wanted);
        put.map_err(|invalid| self.invalid(invalid))?;
        let mapped = if wanted.mapped == 0 {
            Ok(())
        } else {
            self.ask(is_over, ANSWER_TIMEOUT, |channel, limit| {
                channel.map(part(&wanted), file.as_fd(), wanted.writable, limit)?;
                // It answers before the mapping is in force, and announces it after. An announcement does not say of which
                // mapping it is: that of another may have waited for this worker.
                match can.announces {
                    true => channel.wait_for_front_end(limit),
                    false => Ok(()),
                }
            })
        };
        match mapped {
            Ok(()) => {
                let certain = Mapping {
                    is_doubtful: false,
                    ..wanted
                };
                // It has its place already.
                let _ = self.state.table.lock().put(certain);
                self.count(WindowEvent::Mapped);
                Ok(())
            }
            Err(error) => {
                if error == ChannelError::Refused {
                    self.forget(wanted.at);
                }
                Err(self.failed(error))
            }
        }
    }

    /// Succeeds where nothing is mapped: the request is carried out again after a worker's death or a stop of its queue.
    fn unmap(&mut self, ranges: &[(u64, u64)], is_over: &dyn Fn() -> bool) -> Result<(), Errno> {
        for &(at, length) in ranges {
            let within = self.state.table.lock().within(at, length);
            let mappings = within.map_err(|invalid| self.invalid(invalid))?;
            for mapping in mappings {
                self.remove(&mapping, is_over, ANSWER_TIMEOUT)?;
                self.count(WindowEvent::Unmapped);
            }
        }
        Ok(())
    }

    /// Unmaps all of a file.
    pub(super) fn withdraw(&mut self, node: NodeId) {
        let mappings = self.state.table.lock().of_node(node.0);
        // What the front end does not unmap now it does at the latest when the place is used again.
        let _ = mappings
            .iter()
            .try_for_each(|mapping| self.remove(mapping, &|| false, ANSWER_TIMEOUT));
        self.count_mappings();
    }

    /// Unmaps, whether the front end has it or not.
    fn remove(
        &mut self,
        mapping: &Mapping,
        is_over: &dyn Fn() -> bool,
        timeout: Duration,
    ) -> Result<(), Errno> {
        if mapping.mapped > 0 {
            let doubtful = Mapping {
                is_doubtful: true,
                ..*mapping
            };
            let _ = self.state.table.lock().put(doubtful);
            let unmapped = self.ask(is_over, timeout, |channel, limit| {
                channel.unmap(part(mapping), limit)
            });
            match unmapped {
                // Refused: it has not mapped this, or has dropped it at a reset.
                Ok(()) | Err(ChannelError::Refused) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.forget(mapping.at);
        Ok(())
    }

    fn forget(&self, at: u64) {
        self.state.table.lock().remove(at);
    }

    /// Unmaps what is left of the last session. False when the front end does not take part.
    pub(super) fn end_session(&mut self) -> bool {
        let all = self.state.table.lock().all();
        let removed = all
            .iter()
            .all(|mapping| self.remove(mapping, &|| false, SESSION_TIMEOUT).is_ok());
        self.count_mappings();
        removed
    }

    /// Empties the window and, the first time, finds out what the front end can do.
    pub(super) fn begin_session(&mut self) -> bool {
        if !self.end_session() {
            tracing::warn!(
                "no DAX window in this session: the front end does not unmap the last one's files"
            );
            return false;
        }
        let Some(channel) = &mut self.channel else {
            tracing::info!("no DAX window: the front end has no back-end channel");
            return false;
        };
        if self.state.abilities().is_some() {
            return true;
        }
        let can = match probe(&self.state, channel, SESSION_TIMEOUT) {
            Ok(can) => can,
            Err(error) => {
                tracing::warn!(%error, "no DAX window in this session: the front end maps no file");
                return false;
            }
        };
        tracing::info!(
            map_beyond_end = can.map_beyond_end,
            map_read_only = can.map_read_only,
            announces = can.announces,
            "the front end maps files into the DAX window"
        );
        if let Some(record) = &self.record {
            record.set_abilities(can.encode());
        }
        let _ = self.state.abilities.set(can);
        true
    }

    fn ask(
        &mut self,
        is_over: &dyn Fn() -> bool,
        timeout: Duration,
        ask: impl FnOnce(&mut Channel, &WaitLimit<'_>) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        let channel = self.channel.as_mut().ok_or(ChannelError::Closed)?;
        let limit = self.state.wait_limit(timeout, is_over);
        let asked = ask(channel, &limit);
        if asked == Err(ChannelError::Closed) {
            self.channel = None;
        }
        asked
    }

    fn invalid(&self, invalid: Invalid) -> Errno {
        tracing::debug!(%invalid, "a guest's request for the DAX window is refused");
        let (event, errno) = match invalid {
            Invalid::Range => (WindowEvent::BadRange, Errno::EINVAL),
            Invalid::Overlap => (WindowEvent::Overlap, Errno::EINVAL),
            Invalid::TooMany => (WindowEvent::Full, Errno::EINVAL),
            Invalid::Cut => (WindowEvent::Cut, Errno::EINVAL),
            Invalid::ReadOnly => (WindowEvent::ReadOnly, Errno::EACCES),
        };
        self.count(event);
        errno
    }

    fn failed(&self, error: ChannelError) -> Errno {
        tracing::debug!(%error, "a change of the DAX window failed");
        self.count(match error {
            ChannelError::Refused => WindowEvent::MonitorRefused,
            ChannelError::Unanswered | ChannelError::Closed => WindowEvent::MonitorSilent,
        });
        Errno::EIO
    }

    fn count_mappings(&self) {
        let mappings = self.state.table.lock().len();
        self.count(WindowEvent::Mappings(mappings as u64));
    }

    fn count(&self, event: WindowEvent) {
        self.state.metrics.count_window(event);
    }
}

fn part(mapping: &Mapping) -> Part {
    Part {
        at: mapping.at,
        offset: mapping.offset,
        length: mapping.mapped,
    }
}

#[cfg(test)]
mod tests {
    use super::super::abilities::Abilities;
    use super::*;
    use crate::journal::Journal;
    use std::io::{Read, Write};
    use thrufs::Metrics;

    const MAP: u8 = 9;
    const UNMAP: u8 = 10;

    /// Answers all that it is asked, and returns what the record of the first mapping had at each question.
    fn front_end(mut stream: UnixStream, record: &WindowRecord) -> Vec<(u8, Option<Mapping>)> {
        let (mut seen, mut message) = (Vec::new(), [0; 52]);
        while stream.read_exact(&mut message).is_ok() {
            seen.push((message[0], record.load(0).map(Mapping::from)));
            let header = [u32::from(message[0]), 1 | 4, 8].map(u32::to_ne_bytes);
            stream.write_all(&header.concat()).unwrap();
            stream.write_all(&0_u64.to_ne_bytes()).unwrap();
        }
        seen
    }

    /// If this process dies while the front end carries it out, the next one does not know whether it has.
    #[test]
    fn record_is_doubtful_while_the_front_end_is_asked() {
        let record = Journal::new().unwrap().window();
        let state = WindowState::new(4 << 20, Some(&record), &Arc::new(Metrics::default()));
        let mut mapper = Mapper::new(Arc::new(state.unwrap()), Some(record.clone()));
        let can = Abilities {
            map_beyond_end: true,
            map_read_only: true,
            announces: false,
        };
        assert!(mapper.state.abilities.set(can).is_ok());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let wanted = Mapping {
            node: 5,
            at: 0,
            offset: 0,
            length: 2 << 20,
            mapped: 2 << 20,
            writable: true,
            is_doubtful: true,
            file: file_id(&file).unwrap(),
        };
        let certain = Mapping {
            is_doubtful: false,
            ..wanted
        };
        let seen = std::thread::scope(|scope| {
            let seen = scope.spawn(|| front_end(theirs, &record));
            mapper.connect(ours);
            mapper.map(wanted, true, &file, &|| false).unwrap();
            assert_eq!(record.load(0).map(Mapping::from), Some(certain));
            mapper.unmap(&[(0, 2 << 20)], &|| false).unwrap();
            assert!(record.load(0).is_none());
            mapper.channel = None;
            seen.join().unwrap()
        });
        assert_eq!(seen, [(MAP, Some(wanted)), (UNMAP, Some(wanted))]);
    }
}
