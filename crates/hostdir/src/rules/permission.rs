//! Whether a client may do what it asks for.

use super::decide::NamePath;
use super::{
    ActivePolicy, InodeSource, NameSource, NewFile, PathDecision, StatSource, permitted,
    permitted_new, stat_name, stays_redacted,
};
use crate::host::Host;
use crate::inode::Inode;
use crate::policy::{Access, Decision, Evidence, FileType, Subject, Visibility};
use crate::rename::End;
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use thrufs::{Context, Errno, Result};

impl Host {
    /// Refuses a change of an inode that the policy does not allow.
    pub(crate) fn may_change(&self, inode: &Arc<Inode>, context: &Context<'_>) -> Result<()> {
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        self.defer_if_many_names(context, inode)?;
        let decided = self.decide_inode(rules, inode, context)?;
        permitted(&decided.decision, Access::Change)
    }

    /// Refuses to make another size of a file than none, where others see it redacted: what is cut off
    /// or added can have a parser see something else in the rest.
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

    /// Refuses to take a name away by which a file is redacted, where it has another by which it is not,
    /// or may have one that the server does not know.
    fn may_lose(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
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

    /// Refuses to remove or rename what lies under a name, where the policy does not allow it.
    pub(crate) fn may_change_name(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        self.may_lose(context, end)?;
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let stat = stat_name(end.fd, end.name)?;
        let decision = self.decide_found(&rules, context, end, &stat)?;
        permitted(&decision, Access::Change)
    }

    /// Refuses to move what lies under a name to another, where the policy does not allow it.
    ///
    /// # Errors
    ///
    /// `EXDEV` for a file that would come out from under a rule that redacts it, and for a directory
    /// in which there may be such files: programs then copy what they may read. Where rules redact
    /// or hide, also from and to a directory that was moved beneath and not looked up since.
    ///
    /// Otherwise what was found at `from`.
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
        rules.looks_into(file_type, context)?;
        let evidence = self.name_source(from, &stat);
        let old = self.decide(&rules, context, from, (file_type, &evidence))?;
        let new = self.decide(&rules, context, to, (file_type, &evidence))?;
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

    /// Whether the path by which a directory is judged leads to it.
    pub(crate) fn is_where_it_was(&self, end: End<'_>) -> bool {
        let seen = self.see_directory(None, end.parent.node());
        let leads = |seen: NamePath| {
            Ok(seen.path.is_empty() || self.path_leads_to(&seen.path, end.parent)?)
        };
        seen.and_then(leads).unwrap_or(false)
    }

    /// Whether what was `found` so lies under a name now.
    pub(crate) fn is_still_there(&self, end: End<'_>, found: &Statx) -> bool {
        let number = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let now = stat_name(end.fd, end.name);
        now.is_ok_and(|now| number(&now) == number(found))
    }

    /// Refuses to give an inode another name, where the policy does not allow it.
    ///
    /// # Errors
    ///
    /// As [`Self::may_move`].
    pub(crate) fn may_become(
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
        let evidence = InodeSource::new(self, inode);
        let new = self.decide(&rules, context, to, (inode.file_type(), &evidence))?;
        permitted(&old, Access::Change)?;
        permitted_new(&new)?;
        stays_redacted(&old, &new)
    }

    /// Refuses to put something in the place of what lies under a name, where the policy does not
    /// allow it. There may be nothing.
    pub(crate) fn may_replace(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        self.may_lose(context, end)?;
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let stat = match stat_name(end.fd, end.name) {
            Err(Errno::ENOENT) => return Ok(()),
            stat => stat?,
        };
        permitted_new(&self.decide_found(&rules, context, end, &stat)?)
    }

    /// Refuses to make something under a name, where the policy does not allow it. What would be
    /// hidden cannot be made: `EACCES`.
    pub(crate) fn may_make(
        &self,
        context: &Context<'_>,
        end: End<'_>,
        new: &NewFile,
    ) -> Result<()> {
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let decided = self.decide_new(rules, context, end, new)?;
        permitted_new(&decided.decision)
    }

    /// What the policy says of a file that is about to be made.
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

    /// The error for a name that is taken: by what is hidden, it is the one for a name that would be.
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

    /// What the policy says of what was found under a name.
    fn decide_found(
        &self,
        rules: &ActivePolicy,
        context: &Context<'_>,
        end: End<'_>,
        stat: &Statx,
    ) -> Result<Decision> {
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        rules.looks_into(file_type, context)?;
        let evidence = self.name_source(end, stat);
        self.decide(rules, context, end, (file_type, &evidence))
    }

    /// What the policy says of a file of this type if it has this name.
    ///
    /// # Errors
    ///
    /// `ENOENT` in a directory that is hidden.
    fn decide(
        &self,
        rules: &ActivePolicy,
        context: &Context<'_>,
        end: End<'_>,
        (file_type, evidence): (FileType, &dyn Evidence),
    ) -> Result<Decision> {
        let directory = self.see_directory(Some(rules), end.parent.node())?;
        if directory.hidden.is_some() {
            return Err(Errno::ENOENT);
        }
        self.require_case_sensitive(end.fd, end.name)?;
        let executable = || self.rules.executable(context.pid());
        let subject = Subject {
            path: &directory.child(end.name.to_bytes()),
            file_type,
            evidence,
        };
        let caller = self.caller(context, &executable);
        Ok(rules.policy.decide(&subject, &caller))
    }

    /// Refuses to tell of a node that has come to be hidden since the client got to know it. What is
    /// open was granted.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(crate) fn may_look(&self, inode: &Arc<Inode>) -> Result<()> {
        // Under the first policy no client gets to know what is hidden.
        let Some(rules) = self.rules.of_names().filter(|rules| rules.generation > 1) else {
            return Ok(());
        };
        if inode.uses().is_none() && self.is_hidden_by_every_name(&rules, inode)? {
            return Err(Errno::ENOENT);
        }
        Ok(())
    }

    /// What rules say of the entries of a directory; nothing where none is hidden. To be asked once for
    /// many entries.
    ///
    /// # Errors
    ///
    /// When that cannot be found out.
    pub(crate) fn rules_of_entries(&self, directory: &Inode) -> Result<Option<RulesOfEntries>> {
        let Some(rules) = self.rules.of_names() else {
            return Ok(None);
        };
        let directory = self.see_directory(Some(&rules), directory.node())?;
        Ok(Some(RulesOfEntries { rules, directory }))
    }

    /// Whether a name is hidden under which this was found.
    ///
    /// # Errors
    ///
    /// When that cannot be found out.
    pub(crate) fn is_hidden(&self, parent: &Inode, name: &CStr, stat: &Statx) -> Result<bool> {
        let rules = self.rules_of_entries(parent)?;
        Ok(rules.is_some_and(|rules| rules.hide(name, stat)))
    }

    /// As [`is_hidden`](Self::is_hidden), for an answer that the kernel keeps.
    pub(crate) fn is_hidden_from_lookup(
        &self,
        parent: &Inode,
        name: &CStr,
        stat: &Statx,
    ) -> Result<bool> {
        let rules = self.rules_of_entries(parent)?;
        let hidden = rules.as_ref().is_some_and(|rules| rules.hide(name, stat));
        if hidden && !self.config.negative_timeout().is_zero() {
            // As long as these rules are held: see there.
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
            evidence: &StatSource(stat),
        };
        matches!(
            self.rules.policy.visibility(&subject),
            Visibility::Hidden(_)
        )
    }

    /// Whether an entry is hidden.
    ///
    /// # Errors
    ///
    /// When that cannot be found out.
    pub(crate) fn hide_entry(&self, directory: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(false);
        }
        Ok(self.hide(name, &stat_name(directory, name)?))
    }
}
