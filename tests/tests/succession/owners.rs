//! Changes that the kernel above has checked by attributes from the server before.

use crate::ground::{Server, Way, config_for, mounted};
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::SetattrIn;
use thrufs_tests::prelude::*;

fn make(source: &Path, name: &str, owner: u32) {
    fs::write(source.join(name), "content").unwrap();
    fs::set_permissions(source.join(name), PermissionsExt::from_mode(0o666)).unwrap();
    chown(source.join(name), Some(owner), Some(owner)).unwrap();
}

#[test]
fn a_former_owner_changes_nothing_after_a_death() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    make(source, "lost", ALICE.uid);
    make(source, "own", ALICE.uid);
    let server = Server::new(source, config_for(Way::Death));
    let client = mounted(&server);
    let [lost, own] = ["lost", "own"].map(|name| client.root().walk(name).unwrap());
    server.died_while(|| {
        chown(source.join("lost"), Some(BOB.uid), None).unwrap();
    });
    let alice = client.user(ALICE.uid, ALICE.gid);
    let set = |node: NodeId, valid: SetattrValid| {
        let set = SetattrIn {
            valid: valid.bits(),
            mode: 0o4755,
            ..SetattrIn::default()
        };
        alice.setattr(node, &set).map(drop)
    };
    let to_now = SetattrValid::MTIME | SetattrValid::MTIME_NOW;
    let linked = |node, name: &[u8]| alice.link(node, NodeId::ROOT, name).map(drop);
    for valid in [SetattrValid::MODE, SetattrValid::MTIME] {
        assert_eq!(set(lost, valid), Err(Errno::EPERM));
    }
    assert_eq!(set(lost, to_now), Err(Errno::ESTALE));
    assert_eq!(linked(lost, b"link"), Err(Errno::ESTALE));
    // Once the kernel above has asked, it checks these by the new owner.
    alice.getattr(lost).unwrap();
    assert_eq!(set(lost, to_now), Ok(()));
    assert_eq!(linked(lost, b"link"), Ok(()));
    // The owner keeps its rights, and root is not held back.
    assert_eq!(set(own, to_now), Ok(()));
    assert_eq!(linked(own, b"own-link"), Ok(()));
    for valid in [SetattrValid::MTIME, SetattrValid::MODE] {
        assert_eq!(set(own, valid), Ok(()));
    }
}
