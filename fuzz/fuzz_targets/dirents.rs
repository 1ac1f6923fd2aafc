//! Directory listings as a client parses them: they end, and what a server writes is parsed back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thrufs_abi::layout::{AttrOut, EntryOut, InitOut};
use thrufs_abi::reply::{DirectoryEntries, Reply, encode_dirent, encode_direntplus};

fuzz_target!(|bytes: &[u8]| {
    if let Some(reply) = Reply::parse(bytes) {
        let _ = (reply.structure::<EntryOut>(), reply.structure::<AttrOut>());
        let _ = reply.structure::<InitOut>();
    }
    for plus in [false, true] {
        let least = if plus { 152 } else { 24 };
        let mut again = vec![0; bytes.len()];
        let mut used = 0;
        let entries: Vec<_> = DirectoryEntries::new(bytes, plus).collect();
        assert!(entries.len() <= bytes.len() / least);
        for entry in &entries {
            let free = &mut again[used..];
            let (ino, off, kind, name) = (entry.ino, entry.off, entry.kind, entry.name);
            let took = match entry.entry {
                Some(out) => encode_direntplus(free, &out, ino, off, kind, name),
                None => encode_dirent(free, ino, off, kind, name),
            };
            used += took.expect("what came out of so many bytes fits in as many");
        }
        let back: Vec<_> = DirectoryEntries::new(&again[..used], plus).collect();
        assert_eq!(back, entries);
    }
});
