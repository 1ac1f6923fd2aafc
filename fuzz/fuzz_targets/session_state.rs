//! A session state from another machine, read by a server of a small directory.
//!
//! The bytes are the header and the records of a state; its frame is added. Accepted or refused, the server has no more nodes
//! and files than the bytes can name, and releases them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use thrufs::{FileSystem, NodeId};
use thrufs_hostdir::{Config, HostDir, Locks, Migration, MigrationOnError, Resources};

/// The smallest record of a node or an open file.
const RECORD_BYTES_MIN: usize = 5;

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let name = format!("thrufs-fuzz-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(directory.join("a/b")).expect("a place for files");
        for name in ["file", "a/file", "a/b/file"] {
            std::fs::write(directory.join(name), "content").expect("room for a file");
        }
        directory
    })
}

fn state(inside: &[u8]) -> Vec<u8> {
    let mut state = Vec::new();
    let length = 9 + inside.len() as u32;
    state.extend(length.to_le_bytes());
    state.extend(b"THRUHOST\0");
    state.extend(inside);
    state.extend(0u32.to_le_bytes());
    state
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, inside)) = bytes.split_first() else {
        return;
    };
    let on_error = if choice & 1 == 0 {
        MigrationOnError::Abort
    } else {
        MigrationOnError::GuestError
    };
    let config = Config {
        locks: Locks::Shared,
        passthrough: false,
        migration: Migration {
            on_error,
            ..Migration::default()
        },
        ..Config::default()
    };
    let server =
        HostDir::open(directory(), config, Resources::default()).expect("it is a directory");
    let restored = server.restore(&mut &*state(inside));
    let there = server.statistics();
    let most = inside.len() / RECORD_BYTES_MIN + 1;
    assert!(there.inodes <= most + 1 && there.open_files <= most);
    if restored.is_ok() {
        server.forget(NodeId(2), u64::MAX);
        let mut again = Vec::new();
        server
            .save(&mut again)
            .expect("what was taken can be given");
    }
});
