//! What the kernel makes of each notification, on a real mount.

use crate::ground::{Mount, files_with, node_of, one_reader, plain, set};
use std::fs::File;
use std::os::unix::fs::FileExt;
use thrufs::{NodeId, Opcode};
use thrufs_testing::wait_until;

fn mount(content: &[u8]) -> Option<Mount> {
    Mount::new(&files_with(content), plain())
}

#[test]
fn inval_inode_drops_attributes_and_data() {
    let Some(mount) = mount(b"before") else {
        return;
    };
    let path = mount.path("plain");
    let file = File::open(&path).unwrap();
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // The read has touched the time of access, and stat asks for that.
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 6);
    set(&mount.files, "plain", b"after!, and longer");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 6, "cached");
    let notifier = mount.files.notifier();
    // Attributes alone: the data stay as they were.
    notifier.inval_inode(node_of("plain"), -1, 0).unwrap();
    notifier.flush().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 18);
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before");
    notifier.inval_inode(node_of("plain"), 0, 0).unwrap();
    notifier.flush().unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"after!");
    // A notification about a node that is not cached succeeds.
    notifier.inval_inode(NodeId(999), 0, 0).unwrap();
    notifier.flush().unwrap();
    let snapshot = mount.metrics();
    assert_eq!(
        (snapshot.notifications_sent, snapshot.notifications_failed),
        (3, 0)
    );
}

#[test]
fn inval_entry_and_epoch_cause_new_lookups() {
    let Some(mount) = mount(b"") else { return };
    let lookups = |name: &str| {
        let before = mount.files.count(Opcode::Lookup);
        std::fs::metadata(mount.path(name)).unwrap();
        mount.files.count(Opcode::Lookup) - before
    };
    assert_eq!((lookups("plain"), lookups("other")), (1, 1));
    assert_eq!((lookups("plain"), lookups("other")), (0, 0), "cached");
    let notifier = mount.files.notifier();
    for expire_only in [false, true] {
        notifier
            .inval_entry(NodeId::ROOT, b"plain", expire_only)
            .unwrap();
        notifier.flush().unwrap();
        assert_eq!(
            (lookups("plain"), lookups("other")),
            (1, 0),
            "{expire_only}"
        );
    }
    notifier.increment_epoch().unwrap();
    notifier.flush().unwrap();
    if mount.metrics().notifications_failed > 0 {
        return thrufs_test_report::skipped("the part on epochs: this kernel has none");
    }
    assert_eq!((lookups("plain"), lookups("other")), (1, 1));
    assert_eq!((lookups("plain"), lookups("other")), (0, 0));
}

#[test]
fn delete_removes_the_name() {
    let Some(mount) = mount(b"") else { return };
    let path = mount.path("plain");
    std::fs::metadata(&path).unwrap();
    mount.files.remove("plain");
    std::fs::metadata(&path).expect("cached");
    let notifier = mount.files.notifier();
    notifier
        .delete(NodeId::ROOT, node_of("plain"), b"plain")
        .unwrap();
    notifier.flush().unwrap();
    let error = std::fs::metadata(&path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn store_and_retrieve_reach_the_page_cache() {
    let Some(mount) = mount(b"from the server") else {
        return;
    };
    let file = File::open(mount.path("plain")).unwrap();
    let notifier = mount.files.notifier();
    notifier
        .store(node_of("plain"), 0, b"from the notice")
        .unwrap();
    notifier.flush().unwrap();
    let mut bytes = [0; 15];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"from the notice");
    assert_eq!(mount.files.count(Opcode::Read), 0, "the cache had it");
    let cookie = notifier.retrieve(node_of("plain"), 5, 10).unwrap();
    wait_until("the answer comes", || {
        !mount.files.retrieved.lock().unwrap().is_empty()
    });
    let retrieved = mount.files.retrieved.lock().unwrap();
    assert_eq!(retrieved[..], [(cookie, 5, b"the notice".to_vec())]);
    assert_ne!(notifier.retrieve(node_of("plain"), 5, 10).unwrap(), cookie);
}

#[test]
fn prune_forgets_unused_nodes() {
    let Some(mount) = mount(b"") else { return };
    std::fs::metadata(mount.path("plain")).unwrap();
    std::fs::metadata(mount.path("other")).unwrap();
    let open = File::open(mount.path("other")).unwrap();
    let nodes = [node_of("plain"), node_of("other")];
    let notifier = mount.files.notifier();
    notifier.prune(&nodes).unwrap();
    notifier.flush().unwrap();
    if mount.metrics().notifications_failed > 0 {
        return thrufs_test_report::skipped("this kernel has no prune");
    }
    let is_forgotten = |node| mount.files.forgotten.lock().unwrap().contains_key(&node);
    wait_until("forgotten", || is_forgotten(nodes[0]));
    assert!(!is_forgotten(nodes[1]), "it is open");
    drop(open);
}

#[test]
fn resend_repeats_unanswered_requests() {
    let files = files_with(b"content");
    let Some(mount) = Mount::new(&files, one_reader()) else {
        return;
    };
    std::thread::scope(|scope| {
        let held = scope.spawn(|| std::fs::read(mount.path("held")).unwrap());
        files.gate.wait_for(1);
        files.notifier().resend().unwrap();
        files.notifier().flush().unwrap();
        if mount.metrics().notifications_failed > 0 {
            files.gate.open();
            return thrufs_test_report::skipped("this kernel has no resend");
        }
        files.gate.wait_for(2);
        files.gate.open();
        assert_eq!(held.join().unwrap(), b"content");
        wait_until("one of two replies is refused", || {
            mount.metrics().replies_refused == 1
        });
    });
}
