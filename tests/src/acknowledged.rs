//! Blocks that are synced before they count as written, to see later that none of them is lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 16_384;

/// Writes numbered blocks to a new file until an error, which it returns. Calls `acknowledge` with their
/// count after each sync.
pub fn write_and_sync(path: &Path, mut acknowledge: impl FnMut(u64)) -> io::Error {
    let mut write = || -> io::Result<()> {
        let file = File::create(path)?;
        for at in 0.. {
            file.write_all_at(&block(at), at * BLOCK)?;
            file.sync_all()?;
            acknowledge(at + 1);
        }
        Ok(())
    };
    write().expect_err("it goes on until an error")
}

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat((BLOCK / 8) as usize)
}

/// Asserts that the first `count` blocks are as they were written.
#[track_caller]
pub fn check_blocks(path: &Path, count: u64) {
    let file = File::open(path).unwrap();
    let mut found = vec![0; BLOCK as usize];
    for number in 0..count {
        file.read_exact_at(&mut found, number * BLOCK).unwrap();
        assert!(
            found == block(number),
            "acknowledged block {number} of {count} is damaged"
        );
    }
}
