//! Forged states and ledgers.

use crate::ground::{Server, config, mounted};
use thrufs_hostdir::{Migration, MigrationMode, MigrationOnError};
use thrufs_tests::prelude::*;

fn session(ground: &Ground, mode: MigrationMode) -> Server {
    let source = ground.source();
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "content").unwrap();
    let server = Server::new(source, config(mode));
    let client = mounted(&server);
    let root = client.root();
    let file = root.walk("dir/file").unwrap();
    root.open(file, libc::O_RDWR).unwrap();
    root.opendir(root.walk("dir").unwrap()).unwrap();
    server
}

fn tolerant() -> Migration {
    Migration {
        on_error: MigrationOnError::GuestError,
        ..Migration::default()
    }
}

#[test]
fn any_byte_of_a_state_may_be_another() {
    for mode in [MigrationMode::FindPaths, MigrationMode::FileHandles] {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let server = session(&ground, mode);
        let state = server.saved().unwrap();
        for length in 0..state.len() {
            let restored = server.restored(tolerant(), &state[..length]);
            assert!(restored.is_err(), "{length} of {} bytes", state.len());
        }
        for at in 0..state.len() {
            let mut bent = state.clone();
            bent[at] ^= if at % 2 == 0 { 0x01 } else { 0xff };
            // Refused or not: no panic, and the server answers.
            if server.restored(tolerant(), &bent).is_ok() {
                assert!(server.statistics().inodes <= 3);
            }
        }
    }
}

#[test]
fn a_server_without_handles_ignores_those_in_a_state() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let server = session(&ground, MigrationMode::FileHandles);
    let state = server.saved().unwrap();
    let cautious = Migration {
        accept_handles: false,
        ..Migration::default()
    };
    assert!(server.restored(cautious, &state).is_err());
    let open = Migration::default();
    server.restored(open, &state).unwrap();
}

#[test]
fn paths_do_not_lead_out_of_the_tree() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    fs::create_dir(ground.outside().join("dir")).unwrap();
    fs::write(ground.outside().join("dir/file"), "secret").unwrap();
    let server = session(&ground, MigrationMode::FindPaths);
    let state = server.saved().unwrap();
    let at = state.windows(3).position(|it| it == b"dir").unwrap();
    for name in [b"../", b"./.", b"a//", b"\0\0\0"] {
        let mut bent = state.clone();
        bent[at..at + 3].copy_from_slice(name);
        let refused = server.restored(Migration::default(), &bent);
        let kind = refused.unwrap_err().kind();
        assert!(kind == io::ErrorKind::Other || kind == io::ErrorKind::InvalidData);
    }
    // A symbolic link in place of a directory.
    fs::rename(ground.source().join("dir"), ground.source().join("gone")).unwrap();
    symlink(ground.outside().join("dir"), ground.source().join("dir")).unwrap();
    assert!(server.restored(Migration::default(), &state).is_err());
}

#[test]
fn a_corrupt_ledger_does_not_crash_the_server() {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let server = session(&ground, MigrationMode::FindPaths);
    let ledger = server.ledger();
    let used = |at: u64| {
        let mut byte = [0];
        rustix::io::pread(ledger.as_fd(), &mut byte, at).unwrap();
        byte[0]
    };
    // The header, and the first records of each table.
    let size = rustix::fs::fstat(ledger.as_fd()).unwrap().st_size as u64;
    let mut places = Vec::new();
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(ledger.as_fd(), rustix::fs::SeekFrom::Data(at)) {
        places.extend((data..data + 1024).step_by(11));
        at = (data | 0xfff) + 1;
        if at >= size {
            break;
        }
    }
    assert!(places.len() > 300);
    for at in places {
        let before = used(at);
        for byte in [before ^ 1, 0xff] {
            rustix::io::pwrite(ledger.as_fd(), &[byte], at).unwrap();
            let _ = server.could_go_on();
        }
        rustix::io::pwrite(ledger.as_fd(), &[before], at).unwrap();
    }
}
