//! Whether the policy permits what a request asks for.

use super::attribute_source::{InodeSource, NameSource, NewFile, OpenFileSource, is_same_inode};
use super::audit::AuditedNames;
use super::decide::NamePath;
use super::{ActivePolicy, Judge, PathDecision};
use crate::stat::stat_name;
use crate::tree::{End, Inode};
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use thrufs::{Context, Errno, Result};
use thrufs_policy::{Access, AttributeSource, FileType, RuleId, Subject, Visibility};

impl Judge {
    /// Refuses a change of an inode that the policy forbids.
    pub(crate) fn may_change(&self, inode: &Arc<Inode>, context: &Context<'_>) -> Result<()> {
        let Some(rules) = self.for_changes() else {
            return Ok(());
        };
        self.defer_if_many_names(context, inode)?;
        let decided = self.decide_inode(rules, inode, context)?;
        self.permit_change(context, &decided)
    }

    fn permit_change(&self, context: &Context<'_>, decided: &PathDecision) -> Result<()> {
        self.permit(context, decided, decided.decision.check(Access::Change))
    }

    /// As [`permit_change`](Self::permit_change), for a new name.
    fn permit_new(&self, context: &Context<'_>, decided: &PathDecision) -> Result<()> {
        self.permit(context, decided, decided.decision.check_new())
    }

    /// As [`refuse`](Self::refuse), by the rule that redacts a file.
    fn refuse_for_redaction(
        &self,
        context: &Context<'_>,
        decided: &PathDecision,
        errno: Errno,
    ) -> Errno {
        let rule = decided.decision.file.rule;
        self.refuse(context, &decided.rules, &decided.path, (errno, rule))
    }

    /// As [`refuse_for_redaction`](Self::refuse_for_redaction), for an open that failed with `error`, if
    /// that is not an error of the lower file system. The refusal of an audited open is recorded by
    /// [`record_open`](Self::record_open).
    pub(crate) fn refused_for_redaction(
        &self,
        context: &Context<'_>,
        decided: &PathDecision,
        (inode, flags): (&Arc<Inode>, i32),
        error: Errno,
    ) -> Errno {
        let decision = &decided.decision;
        let redaction = decision.file.redaction;
        if redaction.is_none_or(|redaction| redaction.errno != error)
            || !decided.rules.policy.uses().audit_refused
            || decision.audit.is_some()
        {
            return error;
        }
        let flags = flags & libc::O_ACCMODE | libc::O_NONBLOCK;
        match self.tree.open_inode(inode, flags) {
            Ok(_) => self.refuse_for_redaction(context, decided, error),
            Err(_) => error,
        }
    }

    /// Refuses to resize a redacted file, other than to 0: with bytes cut off or added, a parser can read
    /// the rest differently.
    pub(crate) fn may_resize(&self, inode: &Arc<Inode>, context: &Context<'_>) -> Result<()> {
        let Some(rules) = self.rules_if(|uses| uses.redact) else {
            return Ok(());
        };
        self.defer_if_many_names(context, inode)?;
        let decided = self.decide_inode(rules, inode, context)?;
        match decided.decision.file.redaction {
            Some(redaction) => Err(self.refuse_for_redaction(context, &decided, redaction.errno)),
            None => Ok(()),
        }
    }

    /// Refuses to remove a redacted name of a file that has, or may have, a name that is not redacted.
    fn may_remove_name(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        let Some(rules) = self.rules_if(|uses| uses.redact) else {
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
        let decided = self.decide_found(&rules, context, end, &stat)?;
        let Some(redaction) = decided.decision.file.redaction else {
            return Ok(());
        };
        let inode = self.tree.tracked(end);
        let is_redacted = |inode| self.is_redacted_by_every_name(&rules, inode);
        if inode.as_ref().map(is_redacted).transpose()? == Some(true) {
            Ok(())
        } else {
            Err(self.refuse_for_redaction(context, &decided, redaction.errno))
        }
    }

    /// Refuses to remove or rename a name that the policy protects.
    pub(crate) fn may_change_name(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        self.may_remove_name(context, end)?;
        let Some(rules) = self.for_changes() else {
            return Ok(());
        };
        let stat = stat_name(end.fd, end.name)?;
        let decided = self.decide_found(&rules, context, end, &stat)?;
        self.permit_change(context, &decided)
    }

    /// Refuses to rename `from` to `to` where the policy forbids it. Returns what was found at `from`, and what is to
    /// be recorded of it. Fails with `EXDEV` for a file that would no longer be redacted, and for a directory in which
    /// a rule that protects files may cease to apply: programs then copy what they may read. Where rules redact or
    /// hide, also from and to a directory that was moved on the host and not looked up since.
    pub(crate) fn may_move(
        &self,
        context: &Context<'_>,
        from: End<'_>,
        to: End<'_>,
    ) -> Result<(Option<Statx>, Option<AuditedNames>)> {
        let Some(rules) = self.active_policy() else {
            return Ok((None, None));
        };
        if rules.policy.uses().audit {
            context.require_blocking()?;
        }
        if self.rely_on_names() && !(self.is_where_it_was(from) && self.is_where_it_was(to)) {
            return Err(Errno::EXDEV);
        }
        let stat = stat_name(from.fd, from.name)?;
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        rules.require_blocking_for_content(file_type, context)?;
        let source = NameSource {
            tree: &self.tree,
            end: from,
            stat: &stat,
        };
        let old = self.decide(&rules, context, from, (file_type, &source))?;
        let new = self.decide(&rules, context, to, (file_type, &source))?;
        self.may_become(context, &old, &new)?;
        if file_type == FileType::Directory
            && let Some(left) = rules.policy.left_beneath(&old.path, &new.path)
        {
            let refusal = (Errno::EXDEV, Some(left));
            return Err(self.refuse(context, &rules, &old.path, refusal));
        }
        Ok((Some(stat), AuditedNames::of(file_type, old, new)))
    }

    /// Refuses to give a file another path, by what is decided of both.
    fn may_become(
        &self,
        context: &Context<'_>,
        old: &PathDecision,
        new: &PathDecision,
    ) -> Result<()> {
        self.permit_change(context, old)?;
        self.permit_new(context, new)?;
        let is_redacted = |decided: &PathDecision| decided.decision.file.redaction.is_some();
        if is_redacted(old) && !is_redacted(new) {
            Err(self.refuse_for_redaction(context, old, Errno::EXDEV))
        } else {
            Ok(())
        }
    }

    /// Whether the path that the server knows for a directory leads to it.
    pub(crate) fn is_where_it_was(&self, end: End<'_>) -> bool {
        let seen = self.directory_path(None, end.parent.node());
        let leads = |seen: NamePath| {
            Ok(seen.path.is_empty() || self.tree.path_leads_to(&seen.path, end.parent)?)
        };
        seen.and_then(leads).unwrap_or(false)
    }

    /// Whether the name still stands for the `found` inode.
    pub(crate) fn is_still_there(&self, end: End<'_>, found: &Statx) -> bool {
        stat_name(end.fd, end.name).is_ok_and(|now| is_same_inode(&now, found))
    }

    /// Refuses to link an inode to `to` where the policy forbids it. Returns what is to be recorded. Errors: as
    /// [`Self::may_move`].
    pub(crate) fn may_link(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        to: End<'_>,
    ) -> Result<Option<AuditedNames>> {
        let Some(rules) = self.active_policy() else {
            return Ok(None);
        };
        if rules.policy.uses().audit {
            context.require_blocking()?;
        }
        let old = self.decide_inode(Arc::clone(&rules), inode, context)?;
        let source = InodeSource::new(&self.tree, inode);
        let new = self.decide(&rules, context, to, (inode.file_type(), &source))?;
        self.may_become(context, &old, &new)?;
        Ok(AuditedNames::of(inode.file_type(), old, new))
    }

    /// Refuses to replace what stands under a name, if anything, where the policy forbids it.
    pub(crate) fn may_replace(&self, context: &Context<'_>, end: End<'_>) -> Result<()> {
        self.may_remove_name(context, end)?;
        let Some(rules) = self.for_changes() else {
            return Ok(());
        };
        let stat = match stat_name(end.fd, end.name) {
            Err(Errno::ENOENT) => return Ok(()),
            stat => stat?,
        };
        self.permit_new(context, &self.decide_found(&rules, context, end, &stat)?)
    }

    /// Refuses to create a name where the policy forbids it: `EACCES` if it would be hidden.
    pub(crate) fn may_make(
        &self,
        context: &Context<'_>,
        end: End<'_>,
        new: &NewFile,
    ) -> Result<()> {
        let Some(rules) = self.for_changes() else {
            return Ok(());
        };
        self.permit_new(context, &self.decide_new(&rules, context, end, new)?)
    }

    pub(crate) fn decide_new(
        &self,
        rules: &Arc<ActivePolicy>,
        context: &Context<'_>,
        end: End<'_>,
        new: &NewFile,
    ) -> Result<PathDecision> {
        self.decide(rules, context, end, (new.file_type, new))
    }

    /// `EACCES` instead of `EEXIST` for a name that is taken by a hidden file, as for one that would be
    /// hidden. Without a context, the refusal is recorded elsewhere.
    pub(crate) fn taken(&self, context: Option<&Context<'_>>, end: End<'_>, error: Errno) -> Errno {
        if error != Errno::EEXIST {
            return error;
        }
        let hidden = stat_name(end.fd, end.name)
            .and_then(|stat| self.hidden_entry(end.parent, end.name, &stat));
        match (hidden, context) {
            (Ok(Some(hidden)), Some(context)) => self.refuse_entry(context, &hidden, Errno::EACCES),
            (Ok(Some(_)), None) => Errno::EACCES,
            _ => error,
        }
    }

    fn decide_found(
        &self,
        rules: &Arc<ActivePolicy>,
        context: &Context<'_>,
        end: End<'_>,
        stat: &Statx,
    ) -> Result<PathDecision> {
        let file_type = FileType::from_raw_mode(u32::from(stat.stx_mode));
        rules.require_blocking_for_content(file_type, context)?;
        let tree = &self.tree;
        let source = NameSource { tree, end, stat };
        self.decide(rules, context, end, (file_type, &source))
    }

    /// What the policy decides about a file of this type under this name. Fails with `ENOENT` in a hidden
    /// directory.
    fn decide(
        &self,
        rules: &Arc<ActivePolicy>,
        context: &Context<'_>,
        end: End<'_>,
        (file_type, source): (FileType, &dyn AttributeSource),
    ) -> Result<PathDecision> {
        let directory = self.directory_path(Some(rules), end.parent.node())?;
        let path = directory.child(end.name.to_bytes());
        if directory.hidden.is_some() {
            let refusal = (Errno::ENOENT, directory.hidden);
            return Err(self.refuse(context, rules, &path, refusal));
        }
        self.tree.require_case_sensitive(end.fd, end.name)?;
        let executable = || self.executable(context.pid());
        let subject = Subject {
            path: &path,
            file_type,
            source,
        };
        let caller = self.caller(context, &executable);
        Ok(PathDecision {
            rules: Arc::clone(rules),
            decision: rules.policy.decide(&subject, &caller),
            path,
        })
    }

    /// Refuses a node that became hidden after the client looked it up, unless it is open. Fails with
    /// `ENOENT`.
    pub(crate) fn may_reveal(&self, inode: &Arc<Inode>) -> Result<()> {
        // Under the first policy, no client has looked up what is hidden, unless in another process.
        let Some(rules) = self
            .rules_if(|uses| uses.hide)
            .filter(|rules| rules.generation > 1)
        else {
            return Ok(());
        };
        if inode.uses.lock().is_none() && self.is_hidden_by_every_name(&rules, inode)? {
            return Err(Errno::ENOENT);
        }
        Ok(())
    }

    /// The rules for the entries of a directory, to be asked once for many entries; `None` if no rule hides.
    /// Fails when the path of the directory is not known.
    pub(crate) fn rules_of_entries(&self, directory: &Inode) -> Result<Option<RulesOfEntries>> {
        let Some(rules) = self.rules_if(|uses| uses.hide) else {
            return Ok(None);
        };
        let directory = self.directory_path(Some(&rules), directory.node())?;
        Ok(Some(RulesOfEntries { rules, directory }))
    }

    /// Whether `name`, under which `stat` was found, is hidden, and by what. Fails when the path of the
    /// directory is not known.
    fn hidden_entry(
        &self,
        parent: &Inode,
        name: &CStr,
        stat: &Statx,
    ) -> Result<Option<HiddenEntry>> {
        let Some(entries) = self.rules_of_entries(parent)? else {
            return Ok(None);
        };
        let (path, rule) = entries.path_and_rule(name, stat);
        Ok(rule.map(|rule| HiddenEntry {
            rules: entries.rules,
            path,
            rule,
        }))
    }

    /// As [`hidden_entry`](Self::hidden_entry), for an answer that the kernel caches.
    pub(crate) fn hidden_from_lookup(
        &self,
        parent: &Inode,
        name: &CStr,
        stat: &Statx,
    ) -> Result<Option<HiddenEntry>> {
        let hidden = self.hidden_entry(parent, name, stat)?;
        if hidden.is_some() && self.caches_absent_names {
            // Under the policy held here: see [`reload`](super::reload).
            self.hidden.note(parent.node(), name.to_bytes());
        }
        Ok(hidden)
    }

    /// As [`refuse`](Self::refuse), by the rule that hides an entry.
    pub(crate) fn refuse_entry(
        &self,
        context: &Context<'_>,
        hidden: &HiddenEntry,
        errno: Errno,
    ) -> Errno {
        let refusal = (errno, Some(hidden.rule));
        self.refuse(context, &hidden.rules, &hidden.path, refusal)
    }
}

/// An entry of a directory that a rule hides.
pub(crate) struct HiddenEntry {
    rules: Arc<ActivePolicy>,
    path: Vec<u8>,
    rule: RuleId,
}

/// See [`Judge::rules_of_entries`].
pub(crate) struct RulesOfEntries {
    rules: Arc<ActivePolicy>,
    directory: NamePath,
}

impl RulesOfEntries {
    /// The path of an entry, and the rule that hides it.
    fn path_and_rule(&self, name: &CStr, stat: &Statx) -> (Vec<u8>, Option<RuleId>) {
        let path = self.directory.child(name.to_bytes());
        if self.directory.hidden.is_some() {
            return (path, self.directory.hidden);
        }
        let subject = Subject {
            path: &path,
            file_type: FileType::from_raw_mode(u32::from(stat.stx_mode)),
            source: &OpenFileSource { stat, file: None },
        };
        let rule = match self.rules.policy.visibility(&subject) {
            Visibility::Hidden(rule) => Some(rule),
            Visibility::Visible => None,
        };
        (path, rule)
    }

    /// Whether an entry is hidden. Fails when its attributes cannot be read.
    pub(crate) fn hide_entry(&self, directory: BorrowedFd<'_>, name: &CStr) -> Result<bool> {
        if matches!(name.to_bytes(), b"." | b"..") {
            return Ok(false);
        }
        let (_, rule) = self.path_and_rule(name, &stat_name(directory, name)?);
        Ok(rule.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AuditLog, Judge};
    use crate::config::{CacheMode, Config};
    use crate::tree::Tree;
    use std::sync::Arc;
    use thrufs_policy::{Accounts, Policy};

    /// The kernel caches ENOENT for them, so that a reload must invalidate it.
    #[test]
    fn cached_hidden_names_are_recorded() {
        let place = tempfile::tempdir().unwrap();
        for name in ["seen", "hidden"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        for (cache, name, is_hidden, noted) in [
            (CacheMode::Auto, c"hidden", true, 1),
            (CacheMode::Auto, c"seen", false, 0),
            (CacheMode::Never, c"hidden", true, 0),
        ] {
            let rules = b"[[rule]]\npath = \"hidden\"\naction = \"hide\"\n";
            let policy = Policy::parse(rules, &Accounts::default()).unwrap();
            let config = Config {
                cache,
                ..Config::default()
            };
            let source = std::fs::File::open(place.path()).unwrap();
            let tree = Arc::new(Tree::new(source.into(), &config, None, None, true).unwrap());
            let policy = Some(Arc::new(policy));
            let judge = Judge::new(
                Arc::clone(&tree),
                &config,
                policy,
                AuditLog::default(),
                None,
            );
            let (_, stat) = tree.lookup_name(&tree.root, name).unwrap();
            let hidden = judge.hidden_from_lookup(&tree.root, name, &stat).unwrap();
            assert_eq!(hidden.is_some(), is_hidden);
            assert_eq!(judge.hidden.take().names.len(), noted, "{name:?}");
        }
    }
}
