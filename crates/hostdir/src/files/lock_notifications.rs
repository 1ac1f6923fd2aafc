//! Notifications about files that the [mount](super::mount_lock) locks: the kernel above writes back and drops
//! their pages.
//!
//! They wait for pages, which other requests hold, so threads of their own send them. A user can hold up the
//! writing back of a file that it may write. So each user has [`USER_MAX`] threads, and there is one notification
//! about a file at a time.

use crate::quota::{QuotaCharge, UserQuotas};
use crate::tree::Tree;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;
use thrufs::{Errno, Notifier, Result};
use thrufs_abi::NodeId;

/// How long the kernel above may take to drop pages, and another request to change what the mount holds.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Most threads at a time for one user, for all but root, and for root and the server's user each.
const USER_MAX: usize = 4;
const USERS_MAX: usize = 32;
const ROOT_MAX: usize = 16;

/// For a request whose user has no id here.
const NOBODY: u32 = 65_534;

struct Job {
    node: NodeId,
    uid: u32,
    then: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// The nodes of those that wait or are carried out.
    nodes: HashSet<NodeId>,
}

pub(super) struct LockNotifications {
    tree: Arc<Tree>,
    jobs: Mutex<Jobs>,
    threads: Arc<UserQuotas>,
}

impl LockNotifications {
    pub(super) fn new(tree: Arc<Tree>) -> Arc<LockNotifications> {
        let server = tree.credentials.server_uid;
        let threads = UserQuotas::with_root_quota(USER_MAX, USERS_MAX, ROOT_MAX, server);
        let jobs = Mutex::default();
        Arc::new(LockNotifications {
            tree,
            jobs,
            threads,
        })
    }

    pub(super) fn notifier(&self) -> Option<&Notifier> {
        self.tree.connected_notifier()
    }

    /// Waits until the kernel above has dropped the pages of a file, for [`PATIENCE`] at most: `EAGAIN`.
    pub(super) fn drop_pages(self: &Arc<Self>, node: NodeId, uid: Option<u32>) -> Result<()> {
        if self.notifier().is_none() {
            return Ok(());
        }
        if self.jobs.lock().nodes.contains(&node) {
            // An earlier request has given up waiting for it.
            return Err(Errno::EAGAIN);
        }
        let (done, dropped) = sync_channel(1);
        let then = move || {
            let _ = done.send(());
        };
        self.after_drop(node, uid, then);
        dropped.recv_timeout(PATIENCE).map_err(|_| Errno::EAGAIN)
    }

    /// Carries out `then` on another thread, once the kernel above has dropped the pages of a file.
    pub(super) fn after_drop(
        self: &Arc<Self>,
        node: NodeId,
        uid: Option<u32>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let mut jobs = self.jobs.lock();
        jobs.nodes.insert(node);
        jobs.waiting.push_back(Job {
            node,
            uid: uid.unwrap_or(NOBODY),
            then: Box::new(then),
        });
        drop(jobs);
        let notifications = Arc::clone(self);
        let thread = thread::Builder::new().name("mount-locks".to_owned());
        if let Err(error) = thread.spawn(move || notifications.work()) {
            // The next one sees to it.
            tracing::warn!(%error, "cannot start a thread for notifications");
        }
    }

    /// The first job whose user has a thread left.
    fn next(&self) -> Option<(Job, Option<QuotaCharge>)> {
        let mut jobs = self.jobs.lock();
        let (at, charge) = jobs.waiting.iter().enumerate().find_map(|(at, job)| {
            let charge = self.threads.charge(Some(job.uid)).ok()?;
            Some((at, charge))
        })?;
        jobs.waiting.remove(at).map(|job| (job, charge))
    }

    fn work(&self) {
        while let Some((job, _charge)) = self.next() {
            self.send(job.node);
            self.jobs.lock().nodes.remove(&job.node);
            (job.then)();
        }
    }

    fn send(&self, node: NodeId) {
        let sent = self
            .notifier()
            .map(|notifier| notifier.inval_inode_now(node, 0, 0));
        if let Some(Err(error)) = sent
            && !matches!(error, Errno::ENOENT | Errno::ENOTCONN)
        {
            tracing::warn!(?node, %error, "the kernel refused to drop pages");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, HostDir, Resources};
    use std::sync::mpsc::channel;

    #[test]
    fn a_user_who_holds_up_notifications_delays_its_own() {
        let place = tempfile::tempdir().unwrap();
        let served = HostDir::open(place.path(), Config::default(), Resources::default()).unwrap();
        let notifications = LockNotifications::new(Arc::clone(&served.host.tree));
        let (began, begun) = channel();
        let start = |node, uid| {
            let (hold, held) = channel::<()>();
            let began = began.clone();
            notifications.after_drop(NodeId(node), Some(uid), move || {
                began.send(node).unwrap();
                let _ = held.recv();
            });
            hold
        };
        let held: Vec<_> = (0..5).map(|node| start(node, 4000)).collect();
        let mut first: Vec<u64> = begun.iter().take(USER_MAX).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3]);
        drop(start(5, 4001));
        assert_eq!(begun.recv(), Ok(5));
        assert!(begun.recv_timeout(Duration::from_millis(50)).is_err());
        drop(held);
        assert_eq!(begun.recv(), Ok(4));
    }
}
