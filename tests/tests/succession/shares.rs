//! A user's share counts in the next server too.

use crate::ground::{Server, Way, config_for, mounted};
use thrufs_abi::layout::{FileLock, LkIn};
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

#[test]
fn a_user_s_share_counts_after_a_death() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    fs::write(source.join("file"), "content").unwrap();
    let config = Config {
        user_descriptors_max: Some(5),
        ..config_for(Way::Death)
    };
    let server = Server::new(source, config);
    let client = mounted(&server);
    let node = client.root().walk("file").unwrap();
    let alice = client.user(4001, 4001);
    let open = || alice.open(node, libc::O_RDWR).map(|opened| opened.fh);
    let lock = |fh, owner: u64| {
        let lk = FileLock {
            // Such that the mount takes no lock of its own.
            start: (1 << 30) + owner,
            end: (1 << 30) + owner,
            kind: libc::F_WRLCK as u32,
            pid: 1,
        };
        let arg = LkIn {
            fh,
            owner,
            lk,
            ..LkIn::default()
        };
        alice.setlk(node, &arg, false)
    };
    let files = [open().unwrap(), open().unwrap()];
    let directory = alice.opendir(NodeId::ROOT).unwrap().fh;
    assert_eq!((lock(files[0], 1), lock(files[1], 2)), (Ok(()), Ok(())));
    for refusals in [1, 1] {
        assert_eq!(lock(files[0], 3), Err(Errno::ENOLCK));
        assert_eq!(open(), Err(Errno::ENFILE));
        assert_eq!(server.statistics().refused_to_users, 2 * refusals);
        assert!(client.root().open(node, libc::O_RDWR).is_ok());
        server.died();
    }
    alice.releasedir(NodeId::ROOT, directory).unwrap();
    alice.release(node, files[0]).unwrap();
    let more = [open(), open()].map(Result::unwrap);
    assert_eq!(lock(files[1], 4), Ok(()));
    assert_eq!(open(), Err(Errno::ENFILE));
    assert_eq!(lock(files[1], 5), Err(Errno::ENOLCK));
    alice.release(node, more[0]).unwrap();
    assert_eq!(lock(files[1], 5), Ok(()));
}
