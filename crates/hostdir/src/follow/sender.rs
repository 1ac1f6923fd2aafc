//! The threads that send: each takes the messages of one lane to the kernel above.

use super::lanes::{GIVEN_UP, LANES, Lanes, Message, Name, Next};
use super::watch::Watch;
use crate::identity::Identity;
use crate::tree::Inode;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thrufs::{Errno, Notifier, Result};
use thrufs_abi::NodeId;
use thrufs_sys::handle::open_by_handle_parts;

/// How long the first answer about the root is on its way at most.
const FIRST_ANSWER: Duration = Duration::from_millis(20);

/// When a message is late.
const LATE: Duration = Duration::from_millis(100);

/// Told of it, the kernel takes the lock of a directory.
const NO_NAME: &[u8] = b"\x01";

/// When answers have arrived that were on their way.
const ANSWERS: Duration = Duration::from_secs(1);

/// Starts the threads, which end with the lanes or with the connection.
pub(super) fn start(watch: &Arc<Watch>, notifier: &Notifier) -> std::io::Result<()> {
    for lane in 0..LANES {
        let (watch, notifier) = (Arc::clone(watch), notifier.clone());
        std::thread::Builder::new()
            .name(format!("follow-{lane}"))
            .spawn(move || run(lane, &watch, &notifier))?;
    }
    Ok(())
}

fn run(lane: usize, watch: &Watch, notifier: &Notifier) {
    loop {
        let next = watch.lanes.next(lane);
        let sent = match &next {
            Next::Send(message, read) => {
                let sent = watch.send(message, notifier);
                watch.figures.told(read.elapsed());
                sent
            }
            Next::Retry(message, _) => watch.send(message, notifier),
            Next::End => return,
        };
        watch.lanes.done(lane, next, sent);
    }
}

/// Whether the kernel knew what it was told of.
fn is_known(sent: Result<()>) -> Result<bool> {
    match sent {
        Err(Errno::ENOENT) => Ok(false),
        sent => sent.map(|()| true),
    }
}

impl Watch {
    /// Sees to messages that are late: answers are valid for a second until they have arrived. If that takes
    /// long, the kernel looks all names up again, for which no message has to arrive. Returns whether it is to be
    /// called again soon.
    pub(super) fn look_for_late(&self, notifier: &Notifier) -> bool {
        let age = self.lanes.oldest();
        if self.losses.set_late(age >= LATE) {
            self.figures.late.fetch_add(1, Ordering::Relaxed);
            tracing::debug!("notifications are late: answers are valid for a second");
        }
        if age >= GIVEN_UP
            && let Some(left) = self.lanes.give_up(GIVEN_UP)
        {
            left.into_iter().for_each(|message| self.push(message));
            if let Err(error) = notifier.increment_epoch_now() {
                tracing::debug!(%error, "cannot invalidate cached names");
            }
        }
        age >= LATE || !self.lanes.are_idle()
    }

    /// Sends a message. False if the kernel does not know its node yet, though it is about to.
    pub(super) fn send(&self, message: &Message, notifier: &Notifier) -> Result<bool> {
        match message {
            Message::Name { name, expire_only } => {
                if is_known(notifier.inval_entry_now(name.0, &name.1, *expire_only))? {
                    self.names_changed.lock().told = Some(Instant::now());
                }
                Ok(true)
            }
            Message::Node { node, data, name } => {
                if *node == NodeId::ROOT && !self.root_is_loaded() {
                    // Or there is nothing to drop.
                    return Ok(self.tree.root.reported.owner().is_none());
                }
                if self.drop_node(*node, *data, notifier)? {
                    return Ok(true);
                }
                if self.is_forgotten(*node) {
                    return Ok(true);
                }
                let Some(name) = name.clone() else {
                    return Ok(false);
                };
                let (node, data) = (*node, *data);
                self.push(Message::Arriving { node, data, name });
                Ok(true)
            }
            Message::Arriving {
                node,
                data,
                name: (directory, name),
            } => {
                is_known(notifier.inval_entry_now(*directory, name, false))?;
                Ok(self.drop_node(*node, *data, notifier)? || self.is_forgotten(*node))
            }
            Message::Silence(node) => {
                self.silence(*node);
                self.send(&Message::all_of(*node), notifier)
            }
            // Events come before the session of a process that died is in the tables.
            Message::SilenceUnknown(_) | Message::SilenceElsewhere(_) if !self.may_look_up() => {
                Ok(true)
            }
            Message::SilenceUnknown(name) => self.silence_found(self.look_up(name), notifier),
            Message::SilenceElsewhere(identity) => {
                self.silence_found(self.open_elsewhere(identity), notifier)
            }
            Message::Repair => self.repair(notifier).map(|()| true),
            Message::Listings { lane } => self.after_listings(*lane, notifier).map(|()| true),
        }
    }

    /// The kernel drops the attributes of a node, and its data. False if it does not know it.
    fn drop_node(&self, node: NodeId, data: bool, notifier: &Notifier) -> Result<bool> {
        let inode = self.tree.nodes.get(node).ok();
        // A listing that is under way does not come from the kernel's copy. A copy that is finished before it is dropped
        // is not used either, because the time of the directory has changed, unless within a tick of the clock.
        let data = data
            && inode
                .as_ref()
                .is_none_or(|inode| inode.followed.may_drop_listing());
        let offset = if data { 0 } else { -1 };
        let sent = notifier.inval_inode_now(node, offset, 0);
        if let Some(inode) = inode {
            inode.reported.expire();
        }
        is_known(sent)
    }

    /// Whether nodes may be recorded that no client has asked for.
    fn may_look_up(&self) -> bool {
        self.tree
            .tables
            .as_ref()
            .is_none_or(|tables| tables.is_ready())
    }

    /// A file that the kernel did not know becomes silent. It may know it meanwhile.
    fn silence_found(&self, found: Result<Arc<Inode>>, notifier: &Notifier) -> Result<bool> {
        let Ok(inode) = found else { return Ok(true) };
        // Without its handle, it could not be found again to be reported.
        if inode.identity().handle().is_some() {
            self.silence(inode.node());
        }
        self.tree.forget(inode.node(), 1);
        self.send(&Message::all_of(inode.node()), notifier)
    }

    fn look_up(&self, (directory, name): &Name) -> Result<Arc<Inode>> {
        let directory = self.tree.nodes.get(*directory)?;
        let name = CString::new(&name[..]).map_err(|_| Errno::EINVAL)?;
        Ok(self.tree.lookup_name(&directory, &name)?.0)
    }

    fn open_elsewhere(&self, identity: &Identity) -> Result<Arc<Inode>> {
        let mount = self
            .tree
            .mounts
            .get(identity.mount())
            .ok_or(Errno::ESTALE)?;
        let (kind, handle) = identity.handle().ok_or(Errno::ESTALE)?;
        self.tree.credentials.as_server()?;
        let anchor = self.tree.anchor_of(&mount)?;
        let file = open_by_handle_parts(anchor.as_fd(), kind, handle, libc::O_PATH)?;
        Ok(self.tree.lookup_opened_on(&mount, None, file)?.0)
    }

    /// To be followed by a notification about the node: what the kernel above has asked for before, it may get
    /// and keep. It installs some answers (SETATTR, CREATE, LINK) after a notification that overtook them, so
    /// that there is another when those have arrived.
    fn silence(&self, node: NodeId) {
        let Ok(inode) = self.tree.nodes.get(node) else {
            return;
        };
        // A rule on what the file contains may hide its name.
        if self.hides.load(Ordering::SeqCst) || !self.silent.begin(&self.marks, &self.tree, &inode)
        {
            return;
        }
        self.figures.silenced.fetch_add(1, Ordering::Relaxed);
        self.drop_later(node, ANSWERS);
        for other in self.marks.everywhere(&self.tree, &inode) {
            if other.node() != node {
                self.drop_all_of(other.node());
                self.drop_later(other.node(), ANSWERS);
            }
        }
    }

    /// Whether the kernel has had the attributes of the root for a while. Before their first answer is
    /// installed, the root permits nothing, and a notification would make the kernel ignore that answer.
    fn root_is_loaded(&self) -> bool {
        self.tree.root.reported.owner().is_some()
            && self.root_reported.get_or_init(Instant::now).elapsed() >= FIRST_ANSWER
    }

    fn is_forgotten(&self, node: NodeId) -> bool {
        let inode = self.tree.nodes.get(node);
        inode.map_or(true, |inode| inode.lookups() == 0)
    }

    /// Waits for listings that are under way of the directories of a lane, then the kernel looks all names up.
    fn after_listings(&self, lane: usize, notifier: &Notifier) -> Result<()> {
        for (id, inode) in self.tree.nodes.iter() {
            let node = NodeId(id);
            let is_known = node == NodeId::ROOT || inode.lookups() > 0;
            if is_known
                && inode.is_directory()
                && !inode.mount().is_remote
                && Lanes::of_names_in(node) == lane
                && let Err(Errno::ENOTCONN) = notifier.inval_entry_now(node, NO_NAME, true)
            {
                return Err(Errno::ENOTCONN);
            }
        }
        notifier.increment_epoch_now()
    }

    /// Makes the kernel drop all that it has.
    fn repair(&self, notifier: &Notifier) -> Result<()> {
        let losses = self.losses.count();
        self.drop_all(notifier)?;
        Lanes::of_names().for_each(|lane| self.push(Message::Listings { lane }));
        self.losses.repaired(losses);
        Ok(())
    }

    pub(super) fn drop_all(&self, notifier: &Notifier) -> Result<()> {
        // Names and listings, and answers on their way, but for those of listings: each has the number from before its
        // request.
        match notifier.increment_epoch_now() {
            Err(Errno::ENOTCONN) => return Err(Errno::ENOTCONN),
            Err(error) => tracing::warn!("cannot invalidate cached names: {error}"),
            Ok(()) => {}
        }
        for (id, inode) in self.tree.nodes.iter() {
            let node = NodeId(id);
            let is_loaded = node != NodeId::ROOT || self.root_is_loaded();
            // What others serve is not followed, and a read(2) of it may never end.
            if is_loaded
                && !inode.mount().is_remote
                && inode.lookups() > 0
                && let Err(Errno::ENOTCONN) = self.drop_node(node, true, notifier)
            {
                return Err(Errno::ENOTCONN);
            }
        }
        Ok(())
    }
}
