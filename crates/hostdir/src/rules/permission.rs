//! Whether the policy permits what a request asks for.

use super::decide::NamePath;
use super::{
    ActivePolicy, InodeSource, NameSource, NewFile, PathDecision, StatSource, permitted,
    permitted_new, stat_name, stays_redacted,
};
use crate::host::Host;
use crate::inode::Inode;
use crate::policy::{Access, AttributeSource, Decision, FileType, Subject, Visibility};
use crate::rename::End;
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use thrufs::{Context, Errno, Result};

impl Host {
    /// Refuses a change of an inode that the policy forbids.
    pub(crate) fn may_change(&self, inode: &Arc<Inode>, context: &Context<'_>) -> Result<()> {
        let Some(rules) = self.rules.for_changes() else {
            return Ok(());
        };
        self.defer_if_many_names(context, inode)?;
        let decided = self.decide_inode(rules, inode, context)?;
        permitted(&decided.decision, Access::Change)
    }

    /// Refuses to resize a redacted file, other than to 0: with bytes cut off or added, a parser can read
    /// the rest differently.
    pub(crate) fn may_resize(&self, inode: &Arc<Inode>, context: &Context<'_>) -> Result<()> {
        let Some(rules) = self.rules.that_redact() else {
            return Ok(());
        };
        self.defer_if_many_names(context, inode)?;
        match self
            .decide_inode(rules, inode, context)?
            .decision
            .file
            .redaction()
        {
            Some(redaction) => Err(redaction.errno),
            None => Ok(()),
        }
    }

    /// Refuses to remove a redacted name of a file that has, or may have, a name that is not redacted.
    fn may_remove_name(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        let Some(rules) = self.rules.that_redact() else {
            return Ok(());
        };
        let stat = match stat_name(end.fd, end.name) {
            Err(Errno::ENOENT) => return Ok(()),
            stat => stat?,
        };
        if FileType::from_raw_mode(u32::from(stat.stx_mode)) != FileType::RegularFile
            || stat.stx_nlink <= 1
        {
            return Ok(());
        }
        let decision = self.decide_found(&rules, context, end, &stat)?;
        let Some(redaction) = decision.file.redaction() else {
            return Ok(());
        };
        let inode = self.tracked(end).ok_or(redaction.errno)?;
        if self.is_redacted_by_every_name(&rules, &inode)? {
            Ok(())
        } else {
            Err(redaction.errno)
        }
    }

    /// Refuses to remove or rename a name that the policy protects.
    pub(crate) fn may_change_name(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        self.may_remove_name(context, end)?;
        let Some(rules) = self.rules.for_changes() else {
            return Ok(());
        };
        let stat = stat_name(end.fd, end.name)?;
        let decision = self.decide_found(&rules, context, end, &stat)?;
        permitted(&decision, Access::Change)
    }

    /// Refuses to rename `from` to `to` where the policy forbids it. Returns what was found at `from`. Fails
    /// with `EXDEV` for a file that would no longer be redacted, and for a directory that may hold such
    /// files: programs then copy what they may read. Where rules redact or hide, also from and to a directory
    /// that was moved on the host and not looked up since.
    pub(crate) fn may_move(
        &self,
        context: &Context<'_>,
        from: End<'_>,
        to: End<'_>,
    ) -> Result<Option<Statx>> {
        let Some(rules) = self.rules.active_policy() else {
            return Ok(None);
        };
        if self.rules.rely_on_names() && !(self.is_where_it_was(from) && self.is_where_it_was(to)) {
            return Err(Errno::EXDEV);
        }
        let stat = stat_name(from.fd, from.name)?;
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        rules.require_blocking_for_content(file_type, context)?;
        let source = self.name_source(from, &stat);
        let old = self.decide(&rules, context, from, (file_type, &source))?;
        let new = self.decide(&rules, context, to, (file_type, &source))?;
        permitted(&old, Access::Change)?;
        permitted_new(&new)?;
        stays_redacted(&old, &new)?;
        if file_type == FileType::Directory && rules.policy.uses().redact {
            let old = self.child_path(from.parent, from.name)?;
            let new = self.child_path(to.parent, to.name)?;
            if !rules.policy.redacts_alike_beneath(&old, &new) {
                return Err(Errno::EXDEV);
            }
        }
        Ok(Some(stat))
    }

    /// Whether the path that the server knows for a directory leads to it.
    pub(crate) fn is_where_it_was(&self, end: End<'_>) -> bool {
        let seen = self.directory_path(None, end.parent.node());
        let leads = |seen: NamePath| {
            Ok(seen.path.is_empty() || self.path_leads_to(&seen.path, end.parent)?)
        };
        seen.and_then(leads).unwrap_or(false)
    }

    /// Whether the name still stands for the `found` inode.
    pub(crate) fn is_still_there(&self, end: End<'_>, found: &Statx) -> bool {
        let number = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let now = stat_name(end.fd, end.name);
        now.is_ok_and(|now| number(&now) == number(found))
    }

    /// Refuses to link an inode to `to` where the policy forbids it. Errors: as [`Self::may_move`].
    pub(crate) fn may_link(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        to: End<'_>,
    ) -> Result<()> {
        let Some(rules) = self.rules.active_policy() else {
            return Ok(());
        };
        let old = self
            .decide_inode(Arc::clone(&rules), inode, context)?
            .decision;
        let source = InodeSource::new(self, inode);
        let new = self.decide(&rules, context, to, (inode.file_type(), &source))?;
        permitted(&old, Access::Change)?;
        permitted_new(&new)?;
        stays_redacted(&old, &new)
    }

    /// Refuses to replace what stands under a name, if anything, where the policy forbids it.
    pub(crate) fn may_replace(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        self.may_remove_name(context, end)?;
        let Some(rules) = self.rules.for_changes() else {
            return Ok(());
        };
        let stat = match stat_name(end.fd, end.name) {
            Err(Errno::ENOENT) => return Ok(()),
            stat => stat?,
        };
        permitted_new(&self.decide_found(&rules, context, end, &stat)?)
    }

    /// Refuses to create a name where the policy forbids it: `EACCES` if it would be hidden.
    pub(crate) fn may_make(
        &self,
        context: &Context<'_>,
        end: End<'_>,
        new: &NewFile,
    ) -> Result<()> {
        let Some(rules) = self.rules.for_changes() else {
            return Ok(());
        };
        let decided = self.decide_new(rules, context, end, new)?;
        permitted_new(&decided.decision)
    }

    pub(crate) fn decide_new(
        &self,
        rules: Arc<ActivePolicy>,
        context: &Context<'_>,
        end: End<'_>,
        new: &NewFile,
    ) -> Result<PathDecision> {
        let decision = self.decide(&rules, context, end, (new.file_type, new))?;
        Ok(PathDecision {
            rules,
            decision,
            path: self.child_path(end.parent, end.name)?,
        })
    }

    /// `EACCES` instead of `EEXIST` for a name that is taken by a hidden file, as for one that would be
    /// hidden.
    pub(crate) fn taken(&self, end: End<'_>, error: Errno) -> Errno {
        let is_hidden = || {
            let stat = stat_name(end.fd, end.name)?;
            self.is_hidden(end.parent, end.name, &stat)
        };
        if error == Errno::EEXIST && matches!(is_hidden(), Ok(true)) {
            Errno::EACCES
        } else {
            error
        }
    }

    fn name_source<'a>(&'a self, end: End<'a>, stat: &'a Statx) -> NameSource<'a> {
        NameSource {
            host: self,
            parent: end.fd,
            name: end.name,
            stat,
        }
    }

    fn decide_found(
        &self,
        rules: &ActivePolicy,
        context: &Context<'_>,
        end: End<'_>,
        stat: &Statx,
    ) -> Result<Decision> {
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        rules.require_blocking_for_content(file_type, context)?;
        let source = self.name_source(end, stat);
        self.decide(rules, context, end, (file_type, &source))
    }

    /// What the policy decides about a file of this type under this name. Fails with `ENOENT` in a hidden
    /// directory.
    fn decide(
        &self,
        rules: &ActivePolicy,
        context: &Context<'_>,
        end: End<'_>,
        (file_type, source): (FileType, &dyn AttributeSource),
    ) -> Result<Decision> {
        let directory = self.directory_path(Some(rules), end.parent.node())?;
        if directory.hidden.is_some() {
            return Err(Errno::ENOENT);
        }
        self.require_case_sensitive(end.fd, end.name)?;
        let executable = || self.rules.executable(context.pid());
        let subject = Subject {
            path: &directory.child(end.name.to_bytes()),
            file_type,
            source,
        };
        let caller = self.caller(context, &executable);
        Ok(rules.policy.decide(&subject, &caller))
    }

    /// Refuses a node that became hidden after the client looked it up, unless it is open. Fails with
    /// `ENOENT`.
    pub(crate) fn may_reveal(&self, inode: &Arc<Inode>) -> Result<()> {
        // Under the first policy, no client has looked up what is hidden.
        let Some(rules) = self.rules.that_hide().filter(|rules| rules.generation > 1) else {
            return Ok(());
        };
        if inode.uses().is_none() && self.is_hidden_by_every_name(&rules, inode)? {
            return Err(Errno::ENOENT);
        }
        Ok(())
    }

    /// The rules for the entries of a directory, to be asked once for many entries; `None` if no rule hides.
    /// Fails when the path of the directory is not known.
    pub(crate) fn rules_of_entries(&self, directory: &Inode) -> Result<Option<RulesOfEntries>> {
        let Some(rules) = self.rules.that_hide() else {
            return Ok(None);
        };
        let directory = self.directory_path(Some(&rules), directory.node())?;
        Ok(Some(RulesOfEntries { rules, directory }))
    }

    /// Whether `name`, under which `stat` was found, is hidden. Fails when the path of the directory is not
    /// known.
    pub(crate) fn is_hidden(&self, parent: &Inode, name: &CStr, stat: &Statx) -> Result<bool> {
        let rules = self.rules_of_entries(parent)?;
        Ok(rules.is_some_and(|rules| rules.hide(name, stat)))
    }

    /// As [`is_hidden`](Self::is_hidden), for an answer that the kernel caches.
    pub(crate) fn is_hidden_from_lookup(
        &self,
        parent: &Inode,
        name: &CStr,
        stat: &Statx,
    ) -> Result<bool> {
        let rules = self.rules_of_entries(parent)?;
        let hidden = rules.as_ref().is_some_and(|rules| rules.hide(name, stat));
        if hidden && !self.config.negative_timeout().is_zero() {
            // Under the policy held here: see [`reload`](super::reload).
            self.rules.hidden.note(parent.node(), name.to_bytes());
        }
        drop(rules);
        Ok(hidden)
    }
}

/// See [`Host::rules_of_entries`].
pub(crate) struct RulesOfEntries {
    rules: Arc<ActivePolicy>,
    directory: NamePath,
}

impl RulesOfEntries {
    fn hide(&self, name: &CStr, stat: &Statx) -> bool {
        if self.directory.hidden.is_some() {
            return true;
        }
        let subject = Subject {
            path: &self.directory.child(name.to_bytes()),
            file_type: FileType::from_raw_mode(u32::from(stat.stx_mode)),
            source: &StatSource(stat),
        };
        matches!(
            self.rules.policy.visibility(&subject),
            Visibility::Hidden(_)
        )
    }

    /// Whether an entry is hidden. Fails when its attributes cannot be read.
    pub(crate) fn hide_entry(&self, directory: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(false);
        }
        Ok(self.hide(name, &stat_name(directory, name)?))
    }
}
