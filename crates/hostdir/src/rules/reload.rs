//! Another policy: what the kernel has cached of names that are hidden, or are no more.
//!
//! A name that is dropped takes with it whatever somebody has mounted on it or below, in every mount
//! namespace. So names whose answer stays are left alone, and nothing is done that drops all
//! ([`Notifier::increment_epoch`]) as long as it can be said which have changed: those of known nodes,
//! which are judged anew, and those that were answered with "not there" because they were hidden, which
//! are written down.
//!
//! **Races.** A request asks the policy in force when it has found a name, and holds it while it judges.
//! So when nobody holds the old one any more, what it said is in the tables. Its answer may still be on
//! its way: the kernel then has the directory locked, which the notification waits for; or it asks again
//! for a name that it has cached, which the notification unhooks.

use super::{InForce, OfInode};
use crate::config::ConfigError;
use crate::host::Host;
use crate::inode::Inode;
use crate::names::KnownName;
use crate::policy::{Policy, Subject, Visibility};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::{Errno, Notifier, Result};
use thrufs_abi::NodeId;

/// Most hidden names that are written down between two reloads.
const HIDDEN_NAMES_MAX: usize = 1 << 16;

/// For how long requests under the old policy are waited for; those that take longer sleep in an open.
const OLD_PATIENCE: Duration = Duration::from_secs(1);
const OLD_INTERVAL: Duration = Duration::from_micros(200);

/// The names that clients were told are not there although they are.
#[derive(Debug, Default)]
pub(super) struct HiddenNames(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    names: HashSet<(NodeId, Box<[u8]>)>,
    /// There were more.
    is_full: bool,
}

impl HiddenNames {
    pub(super) fn note(&self, directory: NodeId, name: &[u8]) {
        let mut noted = self.0.lock();
        if noted.names.len() < HIDDEN_NAMES_MAX {
            noted.names.insert((directory, name.into()));
        } else if !noted.names.contains(&(directory, name.into())) {
            noted.is_full = true;
        }
    }

    fn take(&self) -> Noted {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Host {
    /// Puts another policy in the place of the one in force. When it returns, the kernel shows no name
    /// that is hidden now, and asks for those that were hidden.
    ///
    /// # Errors
    ///
    /// When the directory is served without a policy.
    pub(crate) fn reload_rules(&self, policy: Arc<Policy>) -> std::result::Result<(), ConfigError> {
        let old = self.rules.replace(policy)?;
        let (Some(notifier), Some(new)) = (self.rules.notifier(), self.rules.in_force()) else {
            return Ok(());
        };
        if !(old.policy.uses().hide || new.policy.uses().hide) {
            return Ok(());
        }
        wait_for_others(&old);
        let told = self
            .drop_hidden(notifier, &new)
            .and_then(|()| ask_for_uncovered(notifier, self.rules.hidden.take()))
            .and_then(|()| notifier.flush());
        if let Err(error) = told {
            tracing::warn!(
                "cannot invalidate cached names, which stay until their timeout: {error}"
            );
        }
        Ok(())
    }

    /// Has the kernel drop the names of known nodes that are hidden now.
    fn drop_hidden(&self, notifier: &Notifier, rules: &InForce) -> Result<()> {
        if !rules.policy.uses().hide {
            return Ok(());
        }
        for (_, inode) in self.nodes.iter() {
            for name in inode.names().all() {
                if self.name_is_hidden(rules, &inode, &name) {
                    drop_name(notifier, name.directory, &name.name)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a name of an inode is hidden. One whose directory is not known any more is not asked for
    /// in it either.
    fn name_is_hidden(&self, rules: &InForce, inode: &Arc<Inode>, name: &KnownName) -> bool {
        let directory = match self.see_directory(Some(rules), name.directory) {
            Ok(directory) => directory,
            Err(error) => return error != Errno::ESTALE,
        };
        let evidence = OfInode::new(self, inode);
        let subject = Subject {
            path: &directory.child(&name.name),
            file_type: inode.file_type(),
            evidence: &evidence,
        };
        directory.hidden.is_some()
            || matches!(rules.policy.visibility(&subject), Visibility::Hidden(_))
    }
}

fn wait_for_others(old: &Arc<InForce>) {
    let started = Instant::now();
    while Arc::strong_count(old) > 1 && started.elapsed() < OLD_PATIENCE {
        std::thread::sleep(OLD_INTERVAL);
    }
}

/// Has the kernel ask for the names that it was told are not there.
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

/// Tries again when the queue has become empty, if it was full.
fn with_room(notifier: &Notifier, tell: impl Fn(&Notifier) -> Result<()>) -> Result<()> {
    match tell(notifier) {
        Err(Errno::EAGAIN) => {
            notifier.flush()?;
            tell(notifier)
        }
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_down_up_to_a_number() {
        let hidden = HiddenNames::default();
        for number in 0..HIDDEN_NAMES_MAX {
            hidden.note(NodeId(1), number.to_string().as_bytes());
        }
        hidden.note(NodeId(1), b"0");
        assert!(!hidden.0.lock().is_full, "each is written down once");
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

    /// The kernel has to ask for them again: where it keeps that they are not there.
    #[test]
    fn what_is_hidden_and_kept_is_written_down() {
        use crate::policy::Accounts;
        use crate::{CacheMode, Config, HostDir};
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
                policy: Some(Arc::new(policy)),
                ..Config::default()
            };
            let served = HostDir::open(place.path(), config).unwrap();
            let (host, root) = (&served.host, &served.host.root);
            let (_, stat) = host.look_up(root, name).unwrap();
            assert_eq!(host.is_hidden_from_lookup(root, name, &stat), Ok(is_hidden));
            assert_eq!(host.rules.hidden.take().names.len(), noted, "{name:?}");
        }
    }
}
