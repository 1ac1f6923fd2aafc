//! Whether a client may do what it asks for.

use super::{
    InForce, Judged, NewFile, OfInode, OfStat, permitted, permitted_new, stat_name, stays_redacted,
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
        let judged = self.judge(rules, inode, context)?;
        permitted(&judged.decision, Access::Change)
    }

    /// Refuses to list or search what the policy denies.
    pub(crate) fn may_read(&self, inode: &Arc<Inode>, context: &Context<'_>) -> Result<()> {
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let judged = self.judge(rules, inode, context)?;
        permitted(&judged.decision, Access::Read)
    }

    /// Refuses to remove or rename what lies under a name, where the policy does not allow it.
    pub(crate) fn may_change_name(
        &self,
        parent: &Inode,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
        context: &Context<'_>,
    ) -> Result<()> {
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let stat = stat_name(parent_fd, name)?;
        let path = self.child_path(parent, name)?;
        let evidence = OfStat(&stat);
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        let decision = self.decide(&rules, &path, file_type, &evidence, context);
        permitted(&decision, Access::Change)
    }

    /// Refuses to move what lies under a name to another, where the policy does not allow it.
    ///
    /// # Errors
    ///
    /// `EXDEV` for a file that would come out from under a rule that redacts it: programs then copy
    /// what they may read.
    pub(crate) fn may_move(&self, context: &Context<'_>, from: End<'_>, to: End<'_>) -> Result<()> {
        let Some(rules) = self.rules.in_force() else {
            return Ok(());
        };
        let stat = stat_name(from.fd, from.name)?;
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        let evidence = OfStat(&stat);
        let decide = |end: End<'_>| {
            let path = self.child_path(end.parent, end.name)?;
            Ok::<_, Errno>(self.decide(&rules, &path, file_type, &evidence, context))
        };
        let (old, new) = (decide(from)?, decide(to)?);
        permitted(&old, Access::Change)?;
        permitted_new(&new)?;
        stays_redacted(&old, &new)
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
        parent: &Arc<Inode>,
        name: &CStr,
    ) -> Result<()> {
        let Some(rules) = self.rules.in_force() else {
            return Ok(());
        };
        let path = self.child_path(parent, name)?;
        let evidence = OfInode::new(self, inode);
        let new = self.decide(&rules, &path, inode.file_type(), &evidence, context);
        let old = self.judge(rules, inode, context)?.decision;
        permitted(&old, Access::Change)?;
        permitted_new(&new)?;
        stays_redacted(&old, &new)
    }

    /// Refuses to put something in the place of what lies under a name, where the policy does not
    /// allow it. There may be nothing.
    pub(crate) fn may_replace(
        &self,
        parent: &Inode,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
        context: &Context<'_>,
    ) -> Result<()> {
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let stat = match stat_name(parent_fd, name) {
            Err(Errno::ENOENT) => return Ok(()),
            stat => stat?,
        };
        let path = self.child_path(parent, name)?;
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        let decision = self.decide(&rules, &path, file_type, &OfStat(&stat), context);
        permitted_new(&decision)
    }

    /// Refuses to make or put something under a name, where the policy does not allow it. What would
    /// be hidden cannot be made: `EACCES`.
    pub(crate) fn may_make(
        &self,
        parent: &Inode,
        name: &CStr,
        new: &NewFile,
        context: &Context<'_>,
    ) -> Result<()> {
        let Some(rules) = self.rules.of_changes() else {
            return Ok(());
        };
        let judged = self.judge_new(rules, parent, name, new, context)?;
        permitted_new(&judged.decision)
    }

    /// What the policy says of a file that is about to be made.
    pub(crate) fn judge_new(
        &self,
        rules: Arc<InForce>,
        parent: &Inode,
        name: &CStr,
        new: &NewFile,
        context: &Context<'_>,
    ) -> Result<Judged> {
        let path = self.child_path(parent, name)?;
        let decision = self.decide(&rules, &path, new.file_type, new, context);
        Ok(Judged {
            rules,
            decision,
            path,
        })
    }

    fn decide(
        &self,
        rules: &InForce,
        path: &[u8],
        file_type: FileType,
        evidence: &dyn Evidence,
        context: &Context<'_>,
    ) -> Decision {
        let executable = || self.rules.executable(context.pid());
        let subject = Subject {
            path,
            file_type,
            evidence,
        };
        rules
            .policy
            .decide(&subject, &self.caller(context, &executable))
    }

    /// Whether an entry of a listing is hidden.
    ///
    /// # Errors
    ///
    /// When that cannot be found out.
    pub(crate) fn entry_is_hidden(
        &self,
        parent: &Inode,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<bool> {
        if self.rules.of_names().is_none() || matches!(name.to_bytes(), b"." | b"..") {
            return Ok(false);
        }
        let stat = stat_name(parent_fd, name)?;
        self.is_hidden(parent, name, &stat)
    }

    /// Whether a name is hidden under which this was found.
    ///
    /// # Errors
    ///
    /// When that cannot be found out.
    pub(crate) fn is_hidden(&self, parent: &Inode, name: &CStr, stat: &Statx) -> Result<bool> {
        let Some(rules) = self.rules.of_names() else {
            return Ok(false);
        };
        let path = self.child_path(parent, name)?;
        let subject = Subject {
            path: &path,
            file_type: FileType::from_raw_mode(u32::from(stat.stx_mode)),
            evidence: &OfStat(stat),
        };
        let hidden = matches!(rules.policy.visibility(&subject), Visibility::Hidden(_));
        Ok(hidden || self.hidden_from(&rules, parent.node())?.is_some())
    }
}
