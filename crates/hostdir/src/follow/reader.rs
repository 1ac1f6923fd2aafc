//! The reader: turns events into messages for the kernel above.

use super::changes::hash_of;
use super::lanes::{Message, Name};
use super::silent::Repeated;
use super::submounts::Submounts;
use super::watch::{Reading, Watch};
use crate::tree::{Followed, Inode};
use parking_lot::MutexGuard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thrufs::Notifier;
use thrufs_abi::NodeId;
use thrufs_sys::fanotify::{
    ATTRIBUTES, CREATE, DATA, Event, Group, MOVED, NAMES, ON_DIRECTORY, OVERFLOW,
};

/// A reader that sleeps costs each writer beneath a wake-up (some 5 µs). So events that follow others at once
/// are left to gather for this long.
const PAUSE: Duration = Duration::from_millis(1);

/// While messages are on their way, it is looked how old they are.
const LOOK: Duration = Duration::from_millis(50);

/// Starts the thread. It ends with what is returned, and a byte written to that wakes it.
pub(super) fn start(
    watch: &Arc<Watch>,
    submounts: Option<Submounts>,
    notifier: &Notifier,
) -> std::io::Result<OwnedFd> {
    let (wakeup, until) = pipe_with(PipeFlags::CLOEXEC)?;
    let (watch, notifier) = (Arc::clone(watch), notifier.clone());
    std::thread::Builder::new()
        .name("follow".into())
        .spawn(move || {
            read_all(&watch, &wakeup, submounts, &notifier);
            watch.lanes.end();
        })?;
    Ok(until)
}

fn read_all(
    watch: &Watch,
    wakeup: &OwnedFd,
    mut submounts: Option<Submounts>,
    notifier: &Notifier,
) {
    let (mut last_read, mut look_in) = (None, None);
    loop {
        let groups = watch.marks.groups();
        let woken = match wait(&groups, wakeup, submounts.as_ref(), look_in) {
            Ok(woken) => woken,
            Err(error) => {
                tracing::error!(%error, "changes beneath are followed no longer");
                watch.lose("no more events");
                // The lanes end. Nothing is kept from now on.
                let _ = watch.drop_all(notifier);
                return;
            }
        };
        if woken.has_ended {
            return;
        }
        if let Some(submounts) = &mut submounts {
            if woken.mounts_changed {
                submounts.changed();
            }
            if woken.is_asked || submounts.due_in() == Some(Duration::ZERO) {
                submounts.look(watch);
            }
        }
        let is_soon = last_read.is_some_and(|last: Instant| last.elapsed() < PAUSE);
        if is_soon && !woken.is_asked {
            std::thread::sleep(PAUSE);
        }
        watch.read_queued(None);
        look_in = watch.look_for_late(notifier).then_some(LOOK);
        watch.end_round();
        last_read = Some(Instant::now());
    }
}

/// Why the thread goes on.
struct Woken {
    /// Somebody waits until it has done its work, or there is a new group.
    is_asked: bool,
    has_ended: bool,
    mounts_changed: bool,
}

fn wait(
    groups: &[Arc<Group>],
    wakeup: &OwnedFd,
    submounts: Option<&Submounts>,
    look_in: Option<Duration>,
) -> rustix::io::Result<Woken> {
    let (table, of_table) = match submounts {
        Some(submounts) => (submounts.as_fd(), PollFlags::PRI),
        None => (wakeup.as_fd(), PollFlags::empty()),
    };
    // The table after the wake-up: mounts that are older than this are seen.
    let mut fds = vec![
        PollFd::new(wakeup, PollFlags::IN),
        PollFd::from_borrowed_fd(table, of_table),
    ];
    let of_groups = groups
        .iter()
        .map(|group| PollFd::new(&**group, PollFlags::IN));
    fds.extend(of_groups);
    let due = submounts.and_then(Submounts::due_in);
    let due = due.into_iter().chain(look_in).min();
    let due = due.and_then(|due| Timespec::try_from(due).ok());
    match poll(&mut fds, due.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    let is_asked = fds[0].revents().contains(PollFlags::IN);
    if is_asked {
        let _ = rustix::io::read(wakeup, &mut [0; 64]);
    }
    Ok(Woken {
        is_asked,
        has_ended: !is_asked && fds[0].revents().contains(PollFlags::HUP),
        mounts_changed: fds[1].revents().contains(PollFlags::PRI),
    })
}

impl Watch {
    /// Reads what is queued; false if there is more at `deadline`. Other threads read in turn.
    pub(super) fn read_queued(&self, deadline: Option<Instant>) -> bool {
        let read = |group: &Arc<Group>| loop {
            let reading = match deadline {
                Some(deadline) => self.reading.try_lock_until(deadline),
                None => Some(self.reading.lock()),
            };
            let Some(mut reading) = reading else {
                return false;
            };
            let are_all = self.read_some(group, &mut reading);
            MutexGuard::unlock_fair(reading);
            if are_all || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return are_all;
            }
        };
        self.marks.groups().iter().all(read)
    }

    /// Reads events. Returns whether those are all that were queued.
    fn read_some(&self, group: &Group, reading: &mut Reading) -> bool {
        let Ok(events) = group.read(&mut reading.buffer) else {
            return true;
        };
        let (read, are_all) = (Instant::now(), events.are_all());
        let mut batch = Batch::default();
        let mut count = 0;
        for event in events {
            let is_own = event.pid == reading.own;
            if is_own && !self.marks.has_aliases() {
                continue;
            }
            count += 1;
            self.take(&event, is_own, &mut batch);
        }
        self.figures.events.fetch_add(count, Ordering::Relaxed);
        if batch.has_losses {
            self.lose("events were lost");
        } else if !batch
            .messages(&mut reading.repeated)
            .all(|message| self.lanes.push(message, read))
        {
            self.lose("too many notifications");
        }
        are_all
    }

    /// What this process did itself, the kernel above knows, but only of the mount by which it was done.
    fn take(&self, event: &Event<'_>, is_own: bool, batch: &mut Batch) {
        if event.mask & OVERFLOW != 0 {
            batch.has_losses = true;
            return;
        }
        for handle in [event.directory, event.target].into_iter().flatten() {
            self.changes.happened(handle.bytes);
        }
        let known = |handle| self.marks.known(&self.tree, handle);
        let directories = event.directory.map(known).unwrap_or_default();
        let targets = event.target.map(known).unwrap_or_default();
        if is_own && directories.len() < 2 && targets.len() < 2 {
            return;
        }
        let has_name = !event.name.is_empty() && event.name != c".";
        let name_in = |directory: &Arc<Inode>| (directory.node(), event.name.to_bytes().into());
        let name = directories.first().filter(|_| has_name).map(name_in);
        if self.hides.load(Ordering::SeqCst) {
            let names = directories.iter().filter(|_| has_name).map(name_in);
            let others = targets.iter().flat_map(|target| target.names.all());
            let others = others.map(|it| (it.directory, it.name));
            names.chain(others).for_each(|name| batch.name(name, false));
        }
        if event.mask & NAMES != 0 {
            // The kernel above may have looked it up before this event was read, and have a mount on it. There
            // was nothing before it, unlike where something was moved.
            let is_new = event.mask & NAMES == CREATE;
            if has_name && !is_new && !directories.is_empty() {
                self.names_changed.lock().read = Some(Instant::now());
            }
            let expire_only = event.mask & ON_DIRECTORY != 0 && is_new;
            for directory in directories.iter().filter(|_| has_name) {
                batch.name(name_in(directory), expire_only);
                batch.node(directory, true, None);
            }
            for target in &targets {
                target.followed.clear(Followed::BY_ITS_NAME);
                batch.node(target, false, name.clone());
            }
        }
        let happened_to = if targets.is_empty() && !has_name {
            &directories
        } else {
            &targets
        };
        for inode in happened_to {
            let has_data = event.mask & DATA != 0 && !self.is_own_write(inode);
            if has_data || event.mask & (ATTRIBUTES | MOVED) != 0 {
                batch.node(inode, has_data, name.clone());
            }
            if has_data {
                let node = inode.node();
                batch.written.insert(node.0, Message::Silence(node));
            }
        }
        if let (true, Some(target)) = (targets.is_empty(), event.target)
            && event.mask & DATA != 0
        {
            let elsewhere = || self.marks.identity_of(target).map(Box::new);
            let message = match name {
                Some(name) => Some(Message::SilenceUnknown(name)),
                None => elsewhere().map(Message::SilenceElsewhere),
            };
            let file = hash_of(target.bytes);
            batch.written.extend(message.map(|message| (file, message)));
        }
    }

    /// Whether it may be the kernel above that wrote a file. Where writes by the mount are not ignored (btrfs
    /// subvolumes), its events have the process ids of its callers.
    fn is_own_write(&self, inode: &Inode) -> bool {
        inode.uses.are_surely_written_by_kernel() && !self.marks.ignores_own_writes(inode.mount())
    }
}

/// The messages of some events, each once. Names first: with a name its inode may go.
#[derive(Default)]
struct Batch {
    names: HashMap<Name, bool>,
    nodes: HashMap<NodeId, (bool, Option<Name>)>,
    /// What is to be done with files whose data have changed, if they do again and again. By their nodes, or the
    /// hashes of their handles.
    written: HashMap<u64, Message>,
    has_losses: bool,
}

impl Batch {
    fn name(&mut self, name: Name, expire_only: bool) {
        *self.names.entry(name).or_insert(true) &= expire_only;
    }

    fn node(&mut self, inode: &Inode, data: bool, name: Option<Name>) {
        match self.nodes.entry(inode.node()) {
            Entry::Vacant(entry) => drop(entry.insert((data, name))),
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                known.0 |= data;
                known.1 = name.or_else(|| known.1.take());
            }
        }
    }

    fn messages(self, repeated: &mut Repeated) -> impl Iterator<Item = Message> {
        let names = self.names.into_iter();
        let names = names.map(|(name, expire_only)| Message::Name { name, expire_only });
        let nodes = self.nodes.into_iter();
        let nodes = nodes.map(|(node, (data, name))| Message::Node { node, data, name });
        let written = self.written.into_iter();
        let often = written.filter(|(file, _)| repeated.again(*file));
        names.chain(nodes).chain(often.map(|(_, message)| message))
    }
}
