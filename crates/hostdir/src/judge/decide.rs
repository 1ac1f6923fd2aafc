//! What the policy decides about an inode: by all of its names, for one caller.

use super::attribute_source::InodeSource;
use super::{ActivePolicy, Judge, PathDecision};
use crate::ledger::OpenerIds;
use crate::tree::Inode;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thrufs::{Context, Errno, Result};
use thrufs_abi::NodeId;
use thrufs_policy::{Access, Caller, Decision, FileType, RuleId, Subject, Visibility};

const DEPTH_MAX: usize = 4096;

/// Most bytes of paths that one decision joins and matches, because other changes of names wait for it: a
/// path of 2000 levels where rules hide, or a thousand names of four kilobytes.
const BYTES_MAX: usize = 4 << 20;

/// With fewer names, the decision is made on the thread of the queue.
const MANY_NAMES: usize = 8;

/// How often to look for all names of a file while others are renamed.
const NAMES_ATTEMPTS_MAX: u32 = 16;

/// The path by one name; empty for the root.
#[derive(Default)]
pub(super) struct NamePath {
    pub(super) path: Vec<u8>,
    /// The rule that hides it or the topmost hidden directory above it.
    pub(super) hidden: Option<RuleId>,
}

impl NamePath {
    pub(super) fn child(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() {
            name.to_vec()
        } else {
            [&self.path, name].join(&b'/')
        }
    }
}

/// Bytes of paths that this decision may still match.
struct PathBudget(usize);

impl PathBudget {
    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.0 = self.0.checked_sub(bytes).ok_or(Errno::ELOOP)?;
        Ok(())
    }
}

/// `None` if no name is known (`ESTALE`). Errors: others than `ESTALE`.
fn known<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ESTALE) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Judge {
    /// The paths of an inode, the latest name first; the root has one empty path. With `hiding`, each path
    /// says whether a directory above is hidden. Fails with `ESTALE` when no name is known: the kernel then
    /// looks the file up again by its path. `ELOOP` when the paths are too long together.
    fn paths(&self, hiding: Option<&ActivePolicy>, inode: &Inode) -> Result<Vec<NamePath>> {
        if inode.node() == NodeId::ROOT {
            return Ok(vec![NamePath::default()]);
        }
        let (mut directories, mut budget) = (BTreeMap::new(), PathBudget(BYTES_MAX));
        let mut paths = Vec::new();
        for name in inode.names.all() {
            let directory = match directories.entry(name.directory) {
                Entry::Occupied(seen) => seen.into_mut(),
                Entry::Vacant(new) => {
                    let seen = self.directory_path_within(hiding, name.directory, &mut budget);
                    new.insert(known(seen)?)
                }
            };
            let Some(directory) = directory else { continue };
            let path = directory.child(&name.name);
            budget.spend(path.len())?;
            paths.push(NamePath {
                path,
                hidden: directory.hidden,
            });
        }
        if paths.is_empty() {
            Err(Errno::ESTALE)
        } else {
            Ok(paths)
        }
    }

    /// The path of a directory, by the latest names. Fails with `ESTALE` when a name is not known, `ELOOP`
    /// when it lies too deep.
    fn directory_path_within(
        &self,
        hiding: Option<&ActivePolicy>,
        directory: NodeId,
        budget: &mut PathBudget,
    ) -> Result<NamePath> {
        let mut above = Vec::new();
        let mut directory = directory;
        while directory != NodeId::ROOT {
            if above.len() >= DEPTH_MAX {
                return Err(Errno::ELOOP);
            }
            let inode = self.tree.nodes.get(directory)?;
            let name = inode.names.latest().ok_or(Errno::ESTALE)?;
            directory = name.directory;
            above.push((inode, name.name));
        }
        let mut seen = NamePath::default();
        for (inode, name) in above.iter().rev() {
            if !seen.path.is_empty() {
                seen.path.push(b'/');
            }
            seen.path.extend_from_slice(name);
            let Some(rules) = hiding.filter(|_| seen.hidden.is_none()) else {
                continue;
            };
            budget.spend(seen.path.len())?;
            let subject = Subject {
                path: &seen.path,
                file_type: FileType::Directory,
                source: &InodeSource::new(&self.tree, inode),
            };
            if let Visibility::Hidden(rule) = rules.policy.visibility(&subject) {
                seen.hidden = Some(rule);
            }
        }
        Ok(seen)
    }

    /// As [`directory_path_within`](Self::directory_path_within), for a single directory. With rules that
    /// hide, the path says whether it or a directory above is hidden.
    pub(super) fn directory_path(
        &self,
        rules: Option<&ActivePolicy>,
        directory: NodeId,
    ) -> Result<NamePath> {
        let hiding = rules.filter(|rules| rules.policy.uses().hide);
        self.directory_path_within(hiding, directory, &mut PathBudget(BYTES_MAX))
    }

    pub(super) fn caller<'a>(
        &self,
        context: &Context<'_>,
        executable: &'a dyn Fn() -> Option<Vec<u8>>,
    ) -> Caller<'a> {
        Caller {
            uid: context.uid().unwrap_or(self.tree.credentials.server_uid),
            gid: context.gid().unwrap_or(self.tree.credentials.server_gid),
            executable,
        }
    }

    pub(crate) fn opener(&self, context: &Context<'_>) -> OpenerIds {
        let caller = self.caller(context, &|| None);
        OpenerIds {
            uid: caller.uid,
            gid: caller.gid,
        }
    }

    /// Requires a thread that may block for a file with many names. To be called before anything is changed.
    /// Fails with `DEFER`.
    pub(crate) fn defer_if_many_names(&self, context: &Context<'_>, inode: &Inode) -> Result<()> {
        if inode.names.count() < MANY_NAMES {
            return Ok(());
        }
        context.require_blocking()
    }

    /// What the policy decides about an inode that a client wants to open or change. Fails with `ESTALE` when
    /// no name of it is known.
    pub(crate) fn decide_inode(
        &self,
        rules: Arc<ActivePolicy>,
        inode: &Arc<Inode>,
        context: &Context<'_>,
    ) -> Result<PathDecision> {
        rules.require_blocking_for_content(inode.file_type(), context)?;
        let executable = || self.executable(context.pid());
        let caller = self.caller(context, &executable);
        self.decide_for(rules, inode, &caller)
    }

    /// As [`decide_inode`](Self::decide_inode), for a file that was open in another process. May sleep.
    /// Errors: as [`decide_inode`](Self::decide_inode).
    pub(crate) fn decide_again(
        &self,
        rules: Arc<ActivePolicy>,
        inode: &Arc<Inode>,
        opener: OpenerIds,
    ) -> Result<PathDecision> {
        let caller = Caller {
            uid: opener.uid,
            gid: opener.gid,
            executable: &|| None,
        };
        self.decide_for(rules, inode, &caller)
    }

    fn decide_for(
        &self,
        rules: Arc<ActivePolicy>,
        inode: &Arc<Inode>,
        caller: &Caller<'_>,
    ) -> Result<PathDecision> {
        let uses = rules.policy.uses();
        let paths = self.paths(uses.hide.then_some(&rules), inode)?;
        let source = InodeSource::new(&self.tree, inode);
        let mut decision: Option<Decision> = None;
        for name in &paths {
            let mut of_this_name = rules.policy.decide(&source.at(&name.path), caller);
            of_this_name.hidden = of_this_name.hidden.or(name.hidden);
            decision = Some(match decision {
                Some(others) => others.stricter(of_this_name),
                None => of_this_name,
            });
        }
        let mut decision = decision.ok_or(Errno::ESTALE)?;
        if uses.redact
            && inode.is_regular()
            && decision.file.redaction.is_none()
            && !self.are_all_names(inode, &paths)
            && let Some(redacted) = rules.policy.strictest_redaction()
        {
            decision.file = redacted;
        }
        let latest = paths.into_iter().next().ok_or(Errno::ESTALE)?;
        Ok(PathDecision {
            rules,
            decision,
            path: latest.path,
        })
    }

    /// Whether `names` are all names of a file, and lead to it. A concurrent rename counts as an unknown
    /// name, and so does a path longer than 4096 bytes.
    fn are_all_names(&self, inode: &Arc<Inode>, names: &[NamePath]) -> bool {
        for _ in 0..NAMES_ATTEMPTS_MAX {
            let Ok(stat) = self.tree.stat(inode) else {
                return false;
            };
            if stat.stx_nlink == 0 {
                return true;
            }
            let leads_to = |path: &[u8]| self.tree.path_leads_to(path, inode).unwrap_or(false);
            // A file with one link has no other name, whatever is renamed meanwhile.
            if stat.stx_nlink == 1 && names.iter().any(|name| leads_to(&name.path)) {
                return true;
            }
            let Some(since) = self.tree.name_changes.state() else {
                std::thread::yield_now();
                continue;
            };
            // A directory that was moved and the one that took its place give names the same path.
            let paths: BTreeSet<&[u8]> = names.iter().map(|name| &name.path[..]).collect();
            let found = paths.into_iter().filter(|path| leads_to(path)).count();
            if self.tree.name_changes.unchanged_since(since) {
                return found >= stat.stx_nlink as usize;
            }
        }
        false
    }

    /// What all rules permit every caller for as long as a file has its names; `None` where they may restrict it.
    pub(crate) fn lasting_access(&self, inode: &Arc<Inode>) -> Option<Access> {
        let Some(rules) = self.active_policy() else {
            return Some(Access::Change);
        };
        let uses = rules.policy.uses();
        let names = self.paths(uses.hide.then_some(&rules), inode).ok()?;
        let mut all = Access::Change;
        for name in &names {
            let access = rules.policy.lasting_access(&name.path, inode.file_type());
            match access.filter(|_| name.hidden.is_none())? {
                Access::Read => all = Access::Read,
                Access::Change => {}
            }
        }
        (!uses.redact || self.are_all_names(inode, &names)).then_some(all)
    }

    /// Whether every name of an inode is hidden.
    pub(super) fn is_hidden_by_every_name(
        &self,
        rules: &ActivePolicy,
        inode: &Arc<Inode>,
    ) -> Result<bool> {
        // Clients of `export` come without a name: no rule can match.
        let Some(paths) = known(self.paths(Some(rules), inode))? else {
            return Ok(false);
        };
        let source = InodeSource::new(&self.tree, inode);
        let is_visible = |name: &NamePath| {
            let visibility = || rules.policy.visibility(&source.at(&name.path));
            name.hidden.is_none() && visibility() == Visibility::Visible
        };
        Ok(!paths.iter().any(is_visible))
    }

    /// Whether a file is redacted by each of its names, all of which are known.
    pub(super) fn is_redacted_by_every_name(
        &self,
        rules: &ActivePolicy,
        inode: &Arc<Inode>,
    ) -> Result<bool> {
        let paths = self.paths(None, inode)?;
        let is_redacted = |name: &NamePath| self.is_redacted_as(rules, inode, &name.path);
        Ok(paths.iter().all(is_redacted) && self.are_all_names(inode, &paths))
    }

    /// Whether a file is redacted for those that open it.
    pub(crate) fn is_redacted(&self, inode: &Arc<Inode>) -> Result<bool> {
        let Some(rules) = self
            .rules_if(|uses| uses.redact)
            .filter(|_| inode.is_regular())
        else {
            return Ok(false);
        };
        let paths = self.paths(None, inode)?;
        let is_redacted = |name: &NamePath| self.is_redacted_as(&rules, inode, &name.path);
        Ok(paths.iter().any(is_redacted) || !self.are_all_names(inode, &paths))
    }

    fn is_redacted_as(&self, rules: &ActivePolicy, inode: &Arc<Inode>, path: &[u8]) -> bool {
        let source = InodeSource::new(&self.tree, inode);
        let file = rules.policy.file_path(&source.at(path));
        file.redaction.is_some()
    }
}
