//! Replaces the policy, and updates the names that the kernel has cached.
//!
//! A name that is dropped takes along whatever is mounted on it or below, in every mount namespace. So names
//! with an unchanged answer are left alone, and [`Notifier::increment_epoch`], which drops all, is a last
//! resort. The names that change are those of known nodes, which are decided anew, and those that were
//! answered with ENOENT because they were hidden, which are recorded.
//!
//! **Races.** A request takes the active policy once it has found a name, and holds it until it has
//! decided. So when no request holds the old policy any more, its decisions are in the tables. An answer
//! may still be on its way: then the kernel has the directory locked, and the notification waits for that;
//! or it revalidates a cached name, which the notification unhooks.

use super::attribute_source::InodeSource;
use super::hidden_names::{HIDDEN_NAMES_MAX, Noted};
use super::{ActivePolicy, Judge};
use crate::config::ConfigError;
use crate::identity::KnownName;
use crate::tree::Inode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::{Errno, Notifier, Result};
use thrufs_abi::NodeId;
use thrufs_policy::{Policy, Visibility};

/// How long to wait for requests under the old policy; a longer one sleeps in an open.
const OLD_PATIENCE: Duration = Duration::from_secs(1);
const OLD_INTERVAL: Duration = Duration::from_micros(200);

impl Judge {
    /// Replaces the active policy. On return, the kernel has dropped all names that are hidden now, and looks
    /// up those that were hidden. Fails when the directory is served without a policy.
    pub(crate) fn reload_rules(&self, policy: Arc<Policy>) -> std::result::Result<(), ConfigError> {
        let slot = self.active_policy.as_ref();
        let mut active = slot.ok_or(ConfigError::NoPolicyToReplace)?.write();
        let generation = active.generation + 1;
        let new = Arc::new(ActivePolicy { policy, generation });
        let old = std::mem::replace(&mut *active, Arc::clone(&new));
        drop(active);
        let Some(notifier) = self.tree.notifier.get() else {
            return Ok(());
        };
        if !(old.policy.uses().hide || new.policy.uses().hide) {
            return Ok(());
        }
        wait_for_others(&old);
        let sent = self
            .drop_hidden(notifier, &new)
            .and_then(|()| ask_for_uncovered(notifier, self.hidden.take()))
            .and_then(|()| notifier.flush());
        if let Err(error) = sent {
            tracing::warn!(
                "cannot invalidate cached names, which stay until their timeout: {error}"
            );
        }
        Ok(())
    }

    /// Makes the kernel drop the names of known nodes that are hidden now.
    fn drop_hidden(&self, notifier: &Notifier, rules: &ActivePolicy) -> Result<()> {
        if !rules.policy.uses().hide {
            return Ok(());
        }
        for (_, inode) in self.tree.nodes.iter() {
            for name in inode.names.all() {
                if self.name_is_hidden(rules, &inode, &name) {
                    drop_name(notifier, name.directory, &name.name)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a name of an inode is hidden. There is no lookup of a name in a directory that is no longer
    /// known.
    fn name_is_hidden(&self, rules: &ActivePolicy, inode: &Arc<Inode>, name: &KnownName) -> bool {
        let directory = match self.directory_path(Some(rules), name.directory) {
            Ok(directory) => directory,
            Err(error) => return error != Errno::ESTALE,
        };
        let source = InodeSource::new(&self.tree, inode);
        let path = directory.child(&name.name);
        directory.hidden.is_some()
            || rules.policy.visibility(&source.at(&path)) != Visibility::Visible
    }
}

fn wait_for_others(old: &Arc<ActivePolicy>) {
    let started = Instant::now();
    while Arc::strong_count(old) > 1 && started.elapsed() < OLD_PATIENCE {
        std::thread::sleep(OLD_INTERVAL);
    }
}

/// Makes the kernel drop the ENOENT answers that it has cached.
fn ask_for_uncovered(notifier: &Notifier, noted: Noted) -> Result<()> {
    if noted.is_full {
        tracing::warn!(
            "more than {HIDDEN_NAMES_MAX} hidden names were looked up: all names are invalidated, and \
             what is mounted on directories of the mount is detached"
        );
        return with_room(notifier, Notifier::increment_epoch);
    }
    let mut names = noted.names.iter();
    names.try_for_each(|(directory, name)| drop_name(notifier, *directory, name))
}

fn drop_name(notifier: &Notifier, directory: NodeId, name: &[u8]) -> Result<()> {
    with_room(notifier, |notifier| {
        notifier.inval_entry(directory, name, false)
    })
}

/// Repeats `notify` while the queue of notifications is full.
fn with_room(notifier: &Notifier, notify: impl Fn(&Notifier) -> Result<()>) -> Result<()> {
    match notify(notifier) {
        Err(Errno::EAGAIN) => {
            notifier.flush()?;
            notify(notifier)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::super::hidden_names::HiddenNames;
    use super::*;

    #[test]
    fn hidden_names_are_bounded() {
        let hidden = HiddenNames::default();
        for number in 0..HIDDEN_NAMES_MAX {
            hidden.note(NodeId(1), number.to_string().as_bytes());
        }
        hidden.note(NodeId(1), b"0");
        assert!(!hidden.is_full(), "each is written down once");
        hidden.note(NodeId(2), b"0");
        let notifier = Notifier::disconnected();
        let noted = hidden.take();
        assert_eq!((noted.names.len(), noted.is_full), (HIDDEN_NAMES_MAX, true));
        ask_for_uncovered(&notifier, noted).unwrap();
        assert_eq!(notifier.pending(), 1, "all at once");
        hidden.note(NodeId(2), b"0");
        ask_for_uncovered(&notifier, hidden.take()).unwrap();
        assert_eq!(notifier.pending(), 2, "one by one again");
    }
}
