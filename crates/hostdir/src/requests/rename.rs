//! LINK, UNLINK, RMDIR and RENAME: changes of names. Each is decided by the policy and the owners before,
//! carried out beneath, and recorded in `tree::names` and the place of the inode.

use super::ownership::Checked;
use crate::host::Host;
use crate::identity::KnownName;
use crate::judge::AuditedNames;
use crate::tree::{End, Inode, NAMES_MAX, component};
use rustix::fs::{AtFlags, RenameFlags, Statx};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Context, Entry, Errno, Result};
use thrufs_abi::{Name, NodeId};
use thrufs_sys::proc_fd;

impl Host {
    pub(crate) fn link(
        &self,
        context: &Context<'_>,
        node: NodeId,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        self.config.writable()?;
        self.tree.freeing.settle();
        let name = component(name)?;
        let inode = self.tree.nodes.get(node)?;
        let parent = self.tree.nodes.get(parent)?;
        self.files.require_mapped(&inode)?;
        self.files.require_mapped(&parent)?;
        let parent_descriptor = self.tree.descriptor(&parent)?;
        let to = End::new(&parent, parent_descriptor.as_fd(), name);
        self.judge.defer_if_many_names(context, &inode)?;
        let _name_lock = self.judge.lock_names(context)?;
        let audited = self.judge.may_link(context, &inode, to)?;
        if self.judge.has_policy() && inode.names.count() >= NAMES_MAX {
            return Err(Errno::EMLINK);
        }
        let descriptor = self.tree.descriptor(&inode)?;
        self.still_permitted(context, &inode, descriptor.as_fd(), Checked::Both)?;
        let linked = match self.link_beneath(descriptor.as_fd(), to) {
            // Perhaps the descriptor is one of a worker that died, on its mounts.
            Err(Errno::EXDEV) => {
                inode.lower.drop_descriptor();
                let descriptor = self.tree.descriptor(&inode)?;
                match self.link_beneath(descriptor.as_fd(), to) {
                    // The kernel looks it up again.
                    Err(Errno::EXDEV) if !self.tree.is_on_its_mount(&descriptor, &inode) => {
                        Err(Errno::ESTALE)
                    }
                    linked => linked,
                }
            }
            linked => linked,
        };
        linked.map_err(|error| self.judge.taken(Some(context), to, error))?;
        let pending = self.follow.begin_lookup(context.uid(), &parent);
        let (linked, stat) = self.tree.lookup_at(&parent, to.fd, name)?;
        if let Err(error) = self.is_still_permitted(context, &linked, to) {
            let _ = rustix::fs::unlinkat(to.fd, name, AtFlags::empty());
            linked
                .names
                .removed(self.tree.noting(&linked), &to.known_name());
            self.tree.nodes.left(&linked, &to.place());
            self.tree.forget(linked.node(), 1);
            return Err(error);
        }
        if let Some(names) = audited {
            let recorded = self.judge.record_names(context, &names);
            recorded.inspect_err(|_| self.tree.forget(linked.node(), 1))?;
        }
        Ok(self.entry(&pending, &linked, &stat))
    }

    /// Whether the policy still permits a name that was just linked: meanwhile the file, or a directory
    /// above the name, may have been moved on the host.
    fn is_still_permitted(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        to: End<'_>,
    ) -> Result<()> {
        if !self.judge.rely_on_names() {
            return Ok(());
        }
        if !self.judge.is_where_it_was(to) {
            return Err(Errno::EXDEV);
        }
        self.judge.may_link(context, inode, to).map(drop)
    }

    fn link_beneath(&self, fd: BorrowedFd<'_>, to: End<'_>) -> Result<()> {
        match rustix::fs::linkat(fd, c"", to.fd, to.name, AtFlags::EMPTY_PATH) {
            // Without CAP_DAC_READ_SEARCH a descriptor can only be named by way of /proc.
            Err(rustix::io::Errno::NOENT) => Ok(proc_fd::link(fd, to.fd, to.name)?),
            linked => Ok(linked?),
        }
    }

    pub(crate) fn unlink(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        directory: bool,
    ) -> Result<()> {
        self.config.writable()?;
        let name = component(name)?;
        let parent = self.tree.nodes.get(parent)?;
        let descriptor = self.tree.descriptor(&parent)?;
        let end = End::new(&parent, descriptor.as_fd(), name);
        let _name_lock = self.judge.lock_names(context)?;
        self.judge.may_change_name(context, end)?;
        let victim = self.tree.hold_without_handles(end);
        let known = self.tree.known(end);
        let held = known.as_ref().and_then(|known| self.hold_removed(known));
        let flags = if directory {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        if let Some(inode) = known.as_ref().or(victim.as_ref()) {
            self.tree.keep_if_last_name(inode, end);
        }
        let file = known.as_ref().filter(|_| !directory && held.is_none());
        let freed = file.and_then(|file| self.tree.reference_to_free(file, end));
        self.tree.name_changes.during(|| {
            self.as_owner_of_names(context, &[end], || {
                Ok(rustix::fs::unlinkat(descriptor.as_fd(), name, flags)?)
            })?;
            if let Some(inode) = known.as_ref().or(victim.as_ref()) {
                let noting = self.tree.noting(inode);
                inode.names.removed(noting, &end.known_name());
            }
            Ok(())
        })?;
        match victim {
            Some(victim) if self.is_perhaps_open(&victim) => {
                self.tree.forget_replaced(context.uid(), &victim, end);
            }
            Some(victim) => self.tree.forget_place(context.uid(), &victim, end),
            None => {}
        }
        match (held, &known) {
            (Some(held), _) => self.keep_removed(context.uid(), held),
            (None, Some(known)) => known.name_removed(),
            (None, None) => {}
        }
        if let Some(freed) = freed {
            self.tree.freeing.free(freed);
        }
        self.tree.settle_discards();
        Ok(())
    }

    /// Makes sure that a descriptor leads to an inode of which the last name is about to be removed, or was, if the
    /// kernel may have it open without a handle here.
    fn hold_removed<'a>(&self, inode: &'a Arc<Inode>) -> Option<&'a Arc<Inode>> {
        if !inode.mount().has_handles || !self.is_perhaps_open(inode) {
            return None;
        }
        let stat = self.tree.stat(inode).ok()?;
        (inode.is_directory() || stat.stx_nlink <= 1).then_some(inode)
    }

    /// Whether the kernel may have it open without a handle here.
    fn is_perhaps_open(&self, inode: &Inode) -> bool {
        let opens = match inode.is_directory() {
            true => &self.files.kernel_opens_directories,
            false => &self.files.kernel_opens_files,
        };
        opens.load(Ordering::Relaxed)
    }

    fn keep_removed(&self, uid: Option<u32>, inode: &Arc<Inode>) {
        inode.lower.set_only_held();
        self.tree.drop_if_over_quota(uid, inode);
    }

    pub(crate) fn rename(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: u32,
    ) -> Result<()> {
        self.config.writable()?;
        self.tree.freeing.settle();
        let flags = rename_flags(flags)?;
        let (name, new_name) = (component(name)?, component(new_name)?);
        let from = self.tree.nodes.get(parent)?;
        let to = self.tree.nodes.get(new_parent)?;
        let from_descriptor = self.tree.descriptor(&from)?;
        let to_descriptor = self.tree.descriptor(&to)?;
        let from = End::new(&from, from_descriptor.as_fd(), name);
        let to = End::new(&to, to_descriptor.as_fd(), new_name);
        if flags.contains(RenameFlags::WHITEOUT) {
            // The whiteout is created by the caller.
            self.create_as_caller(context, 0)?;
        }
        let rename = || {
            self.as_owner_of_names(context, &[from, to], || {
                let rename = || self.rename_beneath(context.uid(), from, to, flags);
                self.follow.during_change(rename)
            })
        };
        if !self.judge.has_policy() {
            return rename();
        }
        let _name_lock = self.judge.lock_names(context)?;
        let [(moved, audited), (exchanged, other_audited)] =
            self.may_rename(context, from, to, flags)?;
        let decided = [moved, exchanged];
        let (moved, other) = (self.tree.tracked(from), self.tree.tracked(to));
        let (exchanged, replaced) = match flags.contains(RenameFlags::EXCHANGE) {
            true => (other, None),
            false => (None, other),
        };
        let (old, new) = (from.known_name(), to.known_name());
        let exchanged = exchanged.iter().map(|inode| (inode, &new, &old));
        let moves: Vec<_> = exchanged
            .chain(moved.iter().map(|inode| (inode, &old, &new)))
            .collect();
        self.tree.name_changes.during(|| {
            for (inode, _, to) in &moves {
                inode
                    .names
                    .rename_begins(self.tree.noting(inode), KnownName::clone(to));
            }
            let renamed = self.rename_as_decided((from, to), flags, decided, rename);
            if let (Ok(()), Some(replaced)) = (&renamed, &replaced) {
                replaced.names.removed(self.tree.noting(replaced), &new);
            }
            for (inode, from, to) in &moves {
                let (names, noting) = (&inode.names, self.tree.noting(inode));
                match &renamed {
                    Ok(()) => names.renamed(noting, from, KnownName::clone(to)),
                    Err(_) => names.rename_failed(noting, to),
                }
            }
            renamed
        })?;
        let mut audited = audited.iter().chain(&other_audited);
        audited.try_for_each(|names| self.judge.record_names(context, names))
    }

    /// Renames what was found at both ends when the policy decided. If a change on the host made it another
    /// rename, it is undone; what it replaced stays lost. Fails with `EXDEV` then, and those of `rename`.
    fn rename_as_decided(
        &self,
        (from, to): (End<'_>, End<'_>),
        flags: RenameFlags,
        [moved, exchanged]: [Option<Statx>; 2],
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        rename()?;
        let ends = [(to, moved), (from, exchanged)];
        let is_as_decided = |(end, found): &(End<'_>, Option<Statx>)| {
            self.judge.is_where_it_was(*end)
                && found.is_none_or(|found| self.judge.is_still_there(*end, &found))
        };
        if !self.judge.rely_on_names() || ends.iter().all(is_as_decided) {
            return Ok(());
        }
        let back = match flags.contains(RenameFlags::EXCHANGE) {
            true => RenameFlags::EXCHANGE,
            false => RenameFlags::NOREPLACE,
        };
        match rustix::fs::renameat_with(to.fd, to.name, from.fd, from.name, back) {
            Ok(()) => Err(Errno::EXDEV),
            Err(error) => {
                tracing::error!(
                    "a rename raced with a change in the source and was not checked by the policy: \
                     undoing it failed: {error}"
                );
                Ok(())
            }
        }
    }

    fn rename_beneath(
        &self,
        uid: Option<u32>,
        from: End<'_>,
        to: End<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let mut held = None;
        if to.parent.mount().has_handles && flags.is_empty() {
            // A file that is replaced again and again has clients that looked up the previous one and are
            // about to open it. If that fails, the kernel looks up the name once more, but no third time.
            // So the replaced inode stays reachable.
            let moved = rustix::fs::renameat_with(
                from.fd,
                from.name,
                to.fd,
                to.name,
                RenameFlags::NOREPLACE,
            );
            match moved {
                // The name exists, or the lower file system does not know the flag.
                Err(rustix::io::Errno::EXIST | rustix::io::Errno::INVAL) => {
                    held = self.tree.hold(to);
                    if let Some(replaced) = &held {
                        self.tree.keep_if_last_name(replaced, to);
                    }
                }
                renamed => return Ok(renamed?),
            }
        }
        let ends = [from, to].map(|end| self.tree.hold_without_handles(end));
        let [moved, other] = match ends {
            // Of two names of one file, both stay.
            [Some(moved), Some(other)] if Arc::ptr_eq(&moved, &other) => [None, None],
            ends => ends,
        };
        let (exchanged, replaced) = match flags.contains(RenameFlags::EXCHANGE) {
            true => (other, None),
            false => (None, other),
        };
        if let Some(replaced) = &replaced {
            self.tree.keep_if_last_name(replaced, to);
        }
        let moves = [
            exchanged.as_ref().map(|exchanged| (exchanged, [to, from])),
            moved.as_ref().map(|moved| (moved, [from, to])),
        ];
        for (inode, ends) in moves.iter().flatten() {
            let [from, to] = ends.map(End::place);
            self.tree.nodes.record_move(inode, [&from, &to]);
        }
        let renamed = rustix::fs::renameat_with(from.fd, from.name, to.fd, to.name, flags);
        let held = held.as_ref().filter(|_| renamed.is_ok());
        if let Some(held) = held.and_then(|held| self.hold_removed(held)) {
            self.keep_removed(uid, held);
        }
        for (inode, ends) in moves.into_iter().flatten() {
            self.tree
                .nodes
                .moved(inode, ends.map(End::place), renamed.is_ok());
        }
        if let Some(replaced) = replaced.filter(|_| renamed.is_ok()) {
            self.tree.forget_replaced(uid, &replaced, to);
            self.tree.settle_discards();
        }
        Ok(renamed?)
    }

    /// Refuses a rename that the policy forbids. Returns what was found at `from`, and, for an exchange, at
    /// `to`, with what is to be recorded of it.
    fn may_rename(
        &self,
        context: &Context<'_>,
        from: End<'_>,
        to: End<'_>,
        flags: RenameFlags,
    ) -> Result<[(Option<Statx>, Option<AuditedNames>); 2]> {
        let moved = self.judge.may_move(context, from, to)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            Ok([moved, self.judge.may_move(context, to, from)?])
        } else {
            self.judge.may_replace(context, to)?;
            Ok([moved, (None, None)])
        }
    }
}

/// The flags of rename(2). The kernel above has checked them, but rules rely on it.
fn rename_flags(flags: u32) -> Result<RenameFlags> {
    let flags = RenameFlags::from_bits_retain(flags);
    let known = RenameFlags::NOREPLACE | RenameFlags::EXCHANGE | RenameFlags::WHITEOUT;
    let exchanges = flags.contains(RenameFlags::EXCHANGE);
    if !known.contains(flags) || exchanges && flags != RenameFlags::EXCHANGE {
        Err(Errno::EINVAL)
    } else {
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, HostDir, Resources};
    use rustix::fs::{CWD, StatxFlags, statx};
    use std::fs;
    use thrufs_policy::{Accounts, Policy};

    /// A change on the host between the decision and the rename.
    #[test]
    fn rename_overtaken_on_the_host_is_undone() {
        let rules = b"[[rule]]\npath = 'photos/**'\naction = 'redact'\nredact = 'gps'\n";
        let overtaken: [(&str, &str, bool); 4] = [
            // The file of the decision was replaced.
            ("photos/place", "free/file", true),
            // The directory of an end was moved.
            ("free", "photos/free", true),
            ("other", "photos/other", true),
            ("photos/place", "photos/new", false),
        ];
        for (moved, to_there, is_taken_back) in overtaken {
            let place = tempfile::tempdir().unwrap();
            let at = |path: &str| place.path().join(path);
            for directory in ["photos", "free", "other"] {
                fs::create_dir(at(directory)).unwrap();
            }
            fs::write(at("photos/place"), "place").unwrap();
            fs::write(at("free/file"), "free").unwrap();
            let policy = Policy::parse(rules, &Accounts::default()).unwrap();
            let resources = Resources {
                policy: Some(Arc::new(policy)),
                ..Resources::default()
            };
            let served = HostDir::open(place.path(), Config::default(), resources).unwrap();
            let host = &served.host;
            let [free, other] = [c"free", c"other"]
                .map(|name| host.tree.lookup_name(&host.tree.root, name).unwrap().0);
            let [free_fd, other_fd] = [&free, &other].map(|it| host.tree.descriptor(it).unwrap());
            let from = End::new(&free, free_fd.as_fd(), c"file");
            let to = End::new(&other, other_fd.as_fd(), c"new");
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let decided = statx(CWD, at("free/file"), flags, StatxFlags::BASIC_STATS).unwrap();
            let none = RenameFlags::empty();
            let renamed = host.rename_as_decided((from, to), none, [Some(decided), None], || {
                fs::rename(at(moved), at(to_there)).unwrap();
                host.rename_beneath(None, from, to, none)
            });
            let expected = if is_taken_back {
                Err(Errno::EXDEV)
            } else {
                Ok(())
            };
            assert_eq!(renamed, expected, "{moved}");
            assert_eq!(at("other/new").exists(), !is_taken_back, "{moved}");
        }
    }
}
