//! The housekeeping thread: releases idle submounts, and gives memory back.
//!
//! A descriptor of ours on a submount keeps it from being unmounted on the tree. So once the last file or
//! directory that clients have open on it is released, all cached descriptors of that mount are closed, at
//! once, but not on a thread that answers requests. A submount on which only names and attributes are
//! looked up is released after some time without use.
//!
//! When the kernel has forgotten most of many inodes, as after a backup, their memory goes back to the
//! system.
//!
//! **Access.** Requests mark a mount as used, or its last file as closed, and notify the
//! [`Wakeup`]; only this thread releases. A request keeps what it holds at that moment, and marks the mount
//! again with whatever it caches later.

use super::Tree;
use super::wakeup::Wakeup;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often to look while descriptors of a submount are cached.
const WATCHFUL_INTERVAL: Duration = Duration::from_millis(250);

/// How often to see whether the tree still exists.
const RESTING_INTERVAL: Duration = Duration::from_secs(2);

/// How long a submount without open files is kept without use.
const IDLE_MS: u64 = 500;

/// After a release the thread rests this long, and at least `WORK_SHARE` times as long as the release took,
/// so that a client that opens one file after another does not keep it busy, nor loses its cache each time.
const REST_MIN: Duration = Duration::from_millis(1);
const WORK_SHARE: u32 = 10;

/// Starts the thread, which ends once `tree` is gone.
pub(crate) fn start(tree: &Arc<Tree>) {
    let wakeup = Arc::clone(&tree.mounts.wakeup);
    let tree = Arc::downgrade(tree);
    let started = std::thread::Builder::new()
        .name("housekeeper".into())
        .spawn(move || run(&tree, &wakeup));
    if let Err(error) = started {
        tracing::warn!("no housekeeping thread: submounts stay busy until unmount: {error}");
    }
}

fn run(tree: &Weak<Tree>, wakeup: &Wakeup) {
    let mut interval = RESTING_INTERVAL;
    loop {
        wakeup.wait(interval);
        let Some(tree) = tree.upgrade() else { return };
        let started = Instant::now();
        let swept = tree.mounts.sweep(IDLE_MS);
        for mount in &swept.released {
            tree.descriptors.release_mount(*mount);
            tree.retries.release_mount(*mount);
        }
        let was_much_forgotten = tree.nodes.shrink();
        if was_much_forgotten {
            tree.nodes.give_records_back();
        }
        drop(tree);
        if was_much_forgotten {
            thrufs_sys::heap::give_back();
        }
        interval = if swept.keeps_something {
            WATCHFUL_INTERVAL
        } else {
            RESTING_INTERVAL
        };
        if !swept.released.is_empty() {
            std::thread::sleep(REST_MIN.max(started.elapsed() * WORK_SHARE));
        }
    }
}
