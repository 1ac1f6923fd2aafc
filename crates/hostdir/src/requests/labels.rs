//! Security labels that clients send for new files.
//!
//! The label is an attribute that is set after the file was created; a file that cannot be labelled is
//! removed again. On the host it is visible for a moment without its label.

use crate::host::Host;
use std::ffi::CStr;
use std::os::fd::AsFd;
use thrufs::{Context, Entry, Opened, Result};
use thrufs_abi::{Name, NodeId};
use thrufs_sys::xattr;

impl Host {
    pub(crate) fn labelled(
        &self,
        context: &Context<'_>,
        place: (NodeId, Name<'_>),
        made: Entry,
        is_directory: bool,
    ) -> Result<Entry> {
        self.label(context, made.node)
            .inspect_err(|_| self.take_back(context, place, made.node, is_directory))?;
        Ok(made)
    }

    /// As [`labelled`](Self::labelled), for a file that was opened as well; with `O_TMPFILE` it has no
    /// name.
    pub(crate) fn opened_labelled(
        &self,
        context: &Context<'_>,
        place: Option<(NodeId, Name<'_>)>,
        (made, opened): (Entry, Opened),
    ) -> Result<(Entry, Opened)> {
        self.label(context, made.node).inspect_err(|_| {
            self.files.undo_open(opened.handle);
            match place {
                Some(place) => self.take_back(context, place, made.node, false),
                None => self.tree.forget(made.node, 1),
            }
        })?;
        Ok((made, opened))
    }

    fn label(&self, context: &Context<'_>, node: NodeId) -> Result<()> {
        let label = context.security_context();
        let is_wanted = |name: &CStr| !name.is_empty() && self.config.security_label;
        let Some((name, value)) = label.filter(|(name, _)| is_wanted(name)) else {
            return Ok(());
        };
        let name = self.on_host(name)?;
        let inode = self.tree.nodes.get(node)?;
        let descriptor = self.tree.descriptor(&inode)?;
        Ok(xattr::set(descriptor.as_fd(), &name, value, 0)?)
    }

    /// Removes a new file, if it still has its name.
    fn take_back(
        &self,
        context: &Context<'_>,
        (parent, name): (NodeId, Name<'_>),
        node: NodeId,
        is_directory: bool,
    ) {
        let found = self.lookup(context, parent, name).map(|entry| entry.node);
        if let Ok(found) = found
            && found != NodeId(0)
        {
            if found == node
                && let Err(error) = self.unlink(context, parent, name, is_directory)
            {
                tracing::warn!("cannot remove a file whose label was not set: {error}");
            }
            self.tree.forget(found, 1);
        }
        self.tree.forget(node, 1);
    }
}
