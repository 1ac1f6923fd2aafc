//! The thread that stores descriptors of open files, and discards those of closed ones ([`open_store`](super::open_store)).

use super::Tree;
use super::inode::Inode;
use super::open_store::OpenStore;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Most files are closed within this time.
const PAUSE: Duration = Duration::from_millis(2);

/// Starts the thread, which ends with the session, or once `tree` is gone.
pub(crate) fn start(tree: &Arc<Tree>) {
    if tree.fd_store.is_none() {
        return;
    }
    let store = Arc::clone(&tree.open_store);
    let tree = Arc::downgrade(tree);
    let started = std::thread::Builder::new()
        .name("thrufs-store".into())
        .spawn(move || run(&tree, &store));
    if let Err(error) = started {
        tracing::warn!("open files that others move or remove are not resumed: {error}");
    }
}

fn run(tree: &Weak<Tree>, store: &OpenStore) {
    let mut taken: Vec<Weak<Inode>> = Vec::new();
    while store.wait() {
        std::thread::sleep(PAUSE);
        let are_too_many = store.take(&mut taken);
        let Some(tree) = tree.upgrade() else { return };
        if let Err(error) = tree.credentials.as_server() {
            tracing::warn!(%error, "descriptors of open files cannot be stored");
        }
        for inode in taken.drain(..).filter_map(|inode| inode.upgrade()) {
            tree.store_if_open(&inode);
        }
        if are_too_many {
            tree.nodes
                .iter()
                .for_each(|(_, inode)| tree.store_if_open(&inode));
        }
    }
}
