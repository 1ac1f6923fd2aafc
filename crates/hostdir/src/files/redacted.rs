//! Opening, reading and changing files that are redacted.

use super::Files;
use super::open_file::OpenFile;
use crate::filter::{Filter, NotYet, View};
use crate::tree::{Inode, Use};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use thrufs::{Context, LowerFile, ReadAnswer, ReadArgs, ReadReply, Result};
use thrufs_abi::FileHandle;

impl Files {
    /// Changes attributes of a file that may have a writer.
    pub(crate) fn change_attributes<T>(
        &self,
        inode: &Arc<Inode>,
        file: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(filter) = inode.uses.filter() else {
            return change();
        };
        self.is_being_written(inode, &filter)?;
        filter.change_attributes(file, change)
    }

    fn is_writer(&self, file: &OpenFile, filter: &Filter) -> bool {
        let writer = filter.writer().and_then(|handle| self.files.get(handle.0));
        writer.is_some_and(|writer| std::ptr::eq(&*writer, file))
    }

    /// Whether the lower file of an open file may be opened for writing. Fails with the rule's error, for an
    /// open file without the right to write.
    pub(crate) fn may_write(&self, file: &OpenFile) -> Result<()> {
        match file.guard().filter() {
            Some(filter) if !self.is_writer(file, filter) => Err(filter.redaction.errno),
            _ => Ok(()),
        }
    }

    /// Changes the content of a file through an open file that has the right to write. Errors: see
    /// [`Filter::write`]; `DEFER`, before anything was done.
    pub(crate) fn change_file<T>(
        &self,
        context: &Context<'_>,
        (handle, file): (FileHandle, &OpenFile),
        lower: &LowerFile,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(filter) = file.guard().filter() else {
            return change();
        };
        // Opens on the host wait for the lease, and this may wait for them.
        context.require_blocking()?;
        let close = || self.close_lower_files(file.inode(), handle);
        let waiting = (&self.waiting, context.uid());
        let changed = filter.write(waiting, handle, lower, close, change);
        if changed.is_err() {
            self.is_being_written(file.inode(), filter)?;
        }
        changed
    }

    /// Closes the lower files that this server has open of a redacted file, except the writer's. They are
    /// opened again on demand.
    pub(crate) fn close_lower_files(&self, inode: &Inode, writer: FileHandle) {
        // The scan of all open files is only needed with several opens.
        if !inode.uses.is_some_and(Use::is_shared) {
            return;
        }
        for (handle, file) in self.files.iter() {
            if handle != writer.0 && file.node() == inode.node() {
                self.close_lower(&file);
            }
        }
    }

    /// Whether the writer of a redacted file has it open. If another writer has changed the file, the right
    /// to write ends.
    fn is_being_written(&self, inode: &Arc<Inode>, filter: &Filter) -> Result<bool> {
        let Some(file) = filter.writer().and_then(|handle| self.files.get(handle.0)) else {
            return Ok(false);
        };
        let stat = self.tree.stat(inode)?;
        if let Some(ended) = filter.end_writing(&stat) {
            self.note_writing(ended, filter.redaction, false);
            self.close_lower(&file);
        }
        Ok(file.has_lower())
    }

    /// Makes sure that no writer has a file open that is about to be opened for reading. Fails with `EBUSY`
    /// when one has it open for too long.
    pub(crate) fn require_no_writer(
        &self,
        uid: Option<u32>,
        inode: &Arc<Inode>,
        filter: &Filter,
    ) -> Result<()> {
        self.waiting.until(uid, || {
            Ok(match self.is_being_written(inode, filter)? {
                true => Err(NotYet::Written),
                false => Ok(()),
            })
        })
    }

    /// Makes sure that a reader can be shown the file at all. Fails with the rule's error for files that are
    /// not understood, `EBUSY` when it keeps changing.
    pub(crate) fn check_filtered(
        &self,
        uid: Option<u32>,
        file: &LowerFile,
        filter: &Filter,
    ) -> Result<()> {
        self.waiting.until(uid, || {
            filter.look_as_reader(file, |view| match view {
                View::Withheld(errno) => Err(*errno),
                View::Whole | View::Redacted(_) => Ok(()),
            })
        })
    }

    /// Reads with redaction. Fails with the rule's error for files that are not understood, `EBUSY` when the
    /// file keeps changing.
    pub(crate) fn read_filtered(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        filter: &Filter,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        // The scan takes long on any file system.
        context.require_blocking()?;
        reply.fill(|buffer| {
            let read = self.waiting.until(context.uid(), || {
                let is_writer = self.is_writer(file, filter);
                if !is_writer && self.is_being_written(file.inode(), filter)? {
                    return Ok(Err(NotYet::Written));
                }
                let lower = self.lower(file, false)?;
                let read = |view: &View| view.read(&lower, buffer, args.offset);
                if is_writer {
                    let seen = filter.look_as_writer(&lower, read)?;
                    if seen == Err(NotYet::Written) {
                        self.close_lower_files(file.inode(), args.handle);
                    }
                    Ok(seen)
                } else {
                    filter.look_as_reader(&lower, read)
                }
            });
            if read.is_err() {
                // Bytes of a version that is not shown.
                buffer.fill(0);
            }
            read
        })
    }
}
