//! What the policy says of a node: by all of its names, and for one caller.

use super::{InForce, Judged, OfInode, Opener};
use crate::files::stat_open;
use crate::host::Host;
use crate::inode::Inode;
use crate::names::KnownName;
use crate::policy::{Caller, Decision, FileType, RuleId, Subject, Visibility};
use rustix::fs::Statx;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::Arc;
use thrufs::{Context, Errno, Result};
use thrufs_abi::NodeId;

/// Most directories above a file.
const DEPTH_MAX: usize = 4096;

/// How often to look for all names of a file while others are renamed.
const NAMES_ATTEMPTS_MAX: u32 = 16;

impl Host {
    /// Remembers the name under which an inode was found, if no name was changed `since`; tells
    /// whether it did.
    pub(crate) fn remember_name(
        &self,
        inode: &Inode,
        parent: NodeId,
        name: &[u8],
        stat: &Statx,
        since: Option<u64>,
    ) -> bool {
        let links = if inode.is_directory() {
            1
        } else {
            stat.stx_nlink
        };
        let holds = || since.is_some_and(|since| self.rules.names_are_since(since));
        let name = KnownName::new(parent, name);
        inode
            .names()
            .found_if(self.noting(inode), name, links, holds)
    }

    /// Remembers the name under which a file was made, or where one without a name was.
    pub(crate) fn name_made(&self, inode: &Inode, parent: NodeId, name: &[u8]) {
        if self.rules.are_there() {
            let name = KnownName::new(parent, name);
            inode.names().found_if(self.noting(inode), name, 1, || true);
        }
    }

    /// The paths of an inode by its names, the latest first; one empty path for the root.
    ///
    /// # Errors
    ///
    /// `ESTALE` when none is known: the kernel then looks the file up again, by its path.
    fn paths(&self, inode: &Inode) -> Result<Vec<(KnownName, Vec<u8>)>> {
        if inode.node() == NodeId::ROOT {
            return Ok(vec![(KnownName::new(NodeId::ROOT, b""), Vec::new())]);
        }
        let paths: Vec<_> = inode
            .names()
            .all()
            .into_iter()
            .filter_map(|name| {
                let path = self.path_of(name.clone()).ok()?;
                Some((name, path))
            })
            .collect();
        if paths.is_empty() {
            Err(Errno::ESTALE)
        } else {
            Ok(paths)
        }
    }

    pub(super) fn path_of(&self, name: KnownName) -> Result<Vec<u8>> {
        let mut components = vec![name.name];
        let mut directory = name.directory;
        while directory != NodeId::ROOT {
            if components.len() >= DEPTH_MAX {
                return Err(Errno::ELOOP);
            }
            let inode = self.nodes.get(directory)?;
            let name = inode.names().latest().ok_or(Errno::ESTALE)?;
            components.push(name.name);
            directory = name.directory;
        }
        components.reverse();
        Ok(components.join(&b'/'))
    }

    /// The path of a directory, ready for a name to be put behind it.
    pub(crate) fn directory_path(&self, directory: &Inode) -> Result<Vec<u8>> {
        if directory.node() == NodeId::ROOT {
            return Ok(Vec::new());
        }
        let name = directory.names().latest().ok_or(Errno::ESTALE)?;
        let mut path = self.path_of(name)?;
        path.push(b'/');
        Ok(path)
    }

    pub(super) fn child_path(&self, parent: &Inode, name: &CStr) -> Result<Vec<u8>> {
        let mut path = self.directory_path(parent)?;
        path.extend_from_slice(name.to_bytes());
        Ok(path)
    }

    pub(super) fn caller<'a>(
        &self,
        context: &Context<'_>,
        executable: &'a dyn Fn() -> Option<Vec<u8>>,
    ) -> Caller<'a> {
        Caller {
            uid: context.uid().unwrap_or(self.credentials.server_uid()),
            gid: context.gid().unwrap_or(self.credentials.server_gid()),
            executable,
        }
    }

    /// Who opens something.
    pub(crate) fn opener(&self, context: &Context<'_>) -> Opener {
        let caller = self.caller(context, &|| None);
        Opener {
            uid: caller.uid,
            gid: caller.gid,
        }
    }

    /// What the policy says of an inode that a client wants to open or change.
    ///
    /// # Errors
    ///
    /// `ESTALE` when no name of it is known.
    pub(crate) fn judge(
        &self,
        rules: Arc<InForce>,
        inode: &Arc<Inode>,
        context: &Context<'_>,
    ) -> Result<Judged> {
        rules.looks_into(inode.file_type(), context)?;
        let executable = || self.rules.executable(context.pid());
        let caller = self.caller(context, &executable);
        self.judge_for(rules, inode, &caller)
    }

    /// As [`judge`](Self::judge), of what was open in another process. May sleep.
    ///
    /// # Errors
    ///
    /// As [`judge`](Self::judge).
    pub(crate) fn judge_again(
        &self,
        rules: Arc<InForce>,
        inode: &Arc<Inode>,
        opener: Opener,
    ) -> Result<Judged> {
        let caller = Caller {
            uid: opener.uid,
            gid: opener.gid,
            executable: &|| None,
        };
        self.judge_for(rules, inode, &caller)
    }

    fn judge_for(
        &self,
        rules: Arc<InForce>,
        inode: &Arc<Inode>,
        caller: &Caller<'_>,
    ) -> Result<Judged> {
        let uses = rules.policy.uses();
        let paths = self.paths(inode)?;
        let evidence = OfInode::new(self, inode);
        let mut decision: Option<Decision> = None;
        for (name, path) in &paths {
            let subject = Subject {
                path,
                file_type: inode.file_type(),
                evidence: &evidence,
            };
            let mut of_this_name = rules.policy.decide(&subject, caller);
            if uses.hide && of_this_name.hidden.is_none() {
                of_this_name.hidden = self.hidden_from(&rules, name.directory)?;
            }
            decision = Some(match decision {
                Some(others) => others.stricter(of_this_name),
                None => of_this_name,
            });
        }
        let mut decision = decision.ok_or(Errno::ESTALE)?;
        if uses.redact
            && inode.is_regular()
            && decision.file.redaction().is_none()
            && !self.are_all_names(inode, &paths)
            && let Some(redacted) = rules.policy.strictest_redaction()
        {
            decision.file = redacted;
        }
        let (_, path) = paths.into_iter().next().ok_or(Errno::ESTALE)?;
        Ok(Judged {
            rules,
            decision,
            path,
        })
    }

    /// Whether these are all names that a file has, and lead to it. What happens to be renamed meanwhile
    /// counts as not known; so does a path that is too long to be followed (4096 bytes).
    fn are_all_names(&self, inode: &Arc<Inode>, names: &[(KnownName, Vec<u8>)]) -> bool {
        for _ in 0..NAMES_ATTEMPTS_MAX {
            let Ok(stat) = self.descriptor(inode).and_then(stat_open) else {
                return false;
            };
            if stat.stx_nlink == 0 {
                return true;
            }
            let leads_to = |path: &[u8]| self.path_leads_to(path, inode).unwrap_or(false);
            // Whatever is renamed meanwhile, it has no other.
            if stat.stx_nlink == 1 && names.iter().any(|(_, path)| leads_to(path)) {
                return true;
            }
            let Some(since) = self.rules.state_of_names() else {
                std::thread::yield_now();
                continue;
            };
            // Names in a directory that was moved and in what has taken its place have one path.
            let paths: BTreeSet<&[u8]> = names.iter().map(|(_, path)| &path[..]).collect();
            let found = paths.into_iter().filter(|path| leads_to(path)).count();
            if self.rules.names_are_since(since) {
                return found >= stat.stx_nlink as usize;
            }
        }
        false
    }

    /// Whether nothing leads to an inode but names that are hidden.
    pub(super) fn is_hidden_by_every_name(
        &self,
        rules: &InForce,
        inode: &Arc<Inode>,
    ) -> Result<bool> {
        // Without a name, as clients of `export` come, there is nothing to go by.
        let Ok(paths) = self.paths(inode) else {
            return Ok(false);
        };
        let evidence = OfInode::new(self, inode);
        for (name, path) in &paths {
            let subject = Subject {
                path,
                file_type: inode.file_type(),
                evidence: &evidence,
            };
            if rules.policy.visibility(&subject) == Visibility::Visible
                && self.hidden_from(rules, name.directory)?.is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a file is redacted by each name that it has, all of which are known.
    pub(super) fn is_redacted_by_every_name(
        &self,
        rules: &InForce,
        inode: &Arc<Inode>,
    ) -> Result<bool> {
        let paths = self.paths(inode)?;
        let is_redacted =
            |(_, path): &(KnownName, Vec<u8>)| self.is_redacted_as(rules, inode, path);
        Ok(paths.iter().all(is_redacted) && self.are_all_names(inode, &paths))
    }

    /// Whether a file is redacted for those who open it.
    pub(crate) fn is_redacted(&self, inode: &Arc<Inode>) -> Result<bool> {
        let Some(rules) = self.rules.that_redact().filter(|_| inode.is_regular()) else {
            return Ok(false);
        };
        let paths = self.paths(inode)?;
        let is_redacted =
            |(_, path): &(KnownName, Vec<u8>)| self.is_redacted_as(&rules, inode, path);
        Ok(paths.iter().any(is_redacted) || !self.are_all_names(inode, &paths))
    }

    fn is_redacted_as(&self, rules: &InForce, inode: &Arc<Inode>, path: &[u8]) -> bool {
        let subject = Subject {
            path,
            file_type: inode.file_type(),
            evidence: &OfInode::new(self, inode),
        };
        rules.policy.file_path(&subject).redaction().is_some()
    }

    /// Whether a directory is hidden, or one above it: the topmost that is.
    pub(super) fn hidden_from(&self, rules: &InForce, directory: NodeId) -> Result<Option<RuleId>> {
        let mut above = Vec::new();
        let mut directory = directory;
        while directory != NodeId::ROOT {
            if above.len() >= DEPTH_MAX {
                return Err(Errno::ELOOP);
            }
            let inode = self.nodes.get(directory)?;
            let name = inode.names().latest().ok_or(Errno::ESTALE)?;
            directory = name.directory;
            above.push((inode, name.name));
        }
        let mut path = Vec::new();
        for (inode, name) in above.iter().rev() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let subject = Subject {
                path: &path,
                file_type: FileType::Directory,
                evidence: &OfInode::new(self, inode),
            };
            if let Visibility::Hidden(rule) = rules.policy.visibility(&subject) {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }
}
