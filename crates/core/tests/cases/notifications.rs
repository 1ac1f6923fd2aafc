//! What the kernel makes of each notification, on a real mount.

use crate::ground::{Mount, Stage, eventually, node_of, one_reader, plain};
use rustix::fs::inotify;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use thrufs::{Errno, NodeId};

fn mount(content: &[u8]) -> Option<Mount> {
    Mount::new(&Stage::with(content), plain())
}

fn set(mount: &Mount, content: &[u8]) {
    *mount.stage.content.lock().unwrap() = content.to_vec();
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
    set(&mount, b"after!, and longer");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 6, "cached");
    let notifier = mount.stage.notifier();
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
        let before = mount.stage.count("lookup");
        std::fs::metadata(mount.path(name)).unwrap();
        mount.stage.count("lookup") - before
    };
    assert_eq!((lookups("plain"), lookups("other")), (1, 1));
    assert_eq!((lookups("plain"), lookups("other")), (0, 0), "cached");
    let notifier = mount.stage.notifier();
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
    mount.stage.gone.lock().unwrap().push("plain".into());
    std::fs::metadata(&path).expect("cached");
    let notifier = mount.stage.notifier();
    notifier
        .delete(NodeId::ROOT, node_of("plain"), b"plain")
        .unwrap();
    notifier.flush().unwrap();
    let error = std::fs::metadata(&path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

/// The events of an inotify(7) watch since the last call, without names.
fn events(watch: &OwnedFd) -> inotify::ReadFlags {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut all = inotify::ReadFlags::empty();
    while let Ok(event) = reader.next() {
        all |= event.events();
    }
    all
}

fn watch(path: &Path) -> OwnedFd {
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, path, inotify::WatchFlags::ALL_EVENTS).unwrap();
    watch
}

#[test]
fn delete_reaches_watches_of_the_file_only() {
    let Some(mount) = mount(b"") else { return };
    let path = mount.path("plain");
    let (above, file) = (watch(path.parent().unwrap()), watch(&path));
    mount.stage.gone.lock().unwrap().push("plain".into());
    let notifier = mount.stage.notifier();
    notifier
        .delete(NodeId::ROOT, node_of("plain"), b"plain")
        .unwrap();
    notifier.flush().unwrap();
    assert!(events(&file).contains(inotify::ReadFlags::DELETE_SELF));
    assert_eq!(events(&above), inotify::ReadFlags::empty());
}

#[test]
fn store_and_retrieve_reach_the_page_cache() {
    let Some(mount) = mount(b"from the server") else {
        return;
    };
    let file = File::open(mount.path("plain")).unwrap();
    let notifier = mount.stage.notifier();
    notifier
        .store(node_of("plain"), 0, b"from the notice")
        .unwrap();
    notifier.flush().unwrap();
    let mut bytes = [0; 15];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"from the notice");
    assert_eq!(mount.stage.count("read"), 0, "the cache had it");
    let cookie = notifier.retrieve(node_of("plain"), 5, 10).unwrap();
    eventually("the answer comes", || {
        !mount.stage.retrieved.lock().unwrap().is_empty()
    });
    let retrieved = mount.stage.retrieved.lock().unwrap();
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
    let notifier = mount.stage.notifier();
    notifier.prune(&nodes).unwrap();
    notifier.flush().unwrap();
    if mount.metrics().notifications_failed > 0 {
        return thrufs_test_report::skipped("this kernel has no prune");
    }
    eventually("forgotten", || {
        mount.stage.forgotten.lock().unwrap().contains(&nodes[0])
    });
    assert!(
        !mount.stage.forgotten.lock().unwrap().contains(&nodes[1]),
        "it is open"
    );
    drop(open);
}

#[test]
fn resend_repeats_unanswered_requests() {
    let stage = Stage::with(b"content");
    let Some(mount) = Mount::new(&stage, one_reader()) else {
        return;
    };
    std::thread::scope(|scope| {
        let held = scope.spawn(|| std::fs::read(mount.path("held")).unwrap());
        stage.gate.wait_for(1);
        stage.notifier().resend().unwrap();
        stage.notifier().flush().unwrap();
        if mount.metrics().notifications_failed > 0 {
            stage.gate.open();
            return thrufs_test_report::skipped("this kernel has no resend");
        }
        stage.gate.wait_for(2);
        stage.gate.open();
        assert_eq!(held.join().unwrap(), b"content");
        eventually("one of two replies is refused", || {
            mount.metrics().replies_refused == 1
        });
    });
}

#[test]
fn a_serving_thread_may_not_wait_for_notifications() {
    let Some(mount) = mount(b"") else { return };
    // This thread does not serve; unit tests have one that does.
    assert_eq!(mount.stage.notifier().flush(), Ok(()));
    let too_long = [b'x'; 5000];
    let refused = mount
        .stage
        .notifier()
        .inval_entry(NodeId::ROOT, &too_long, false);
    assert_eq!(refused, Err(Errno::ENAMETOOLONG));
}
