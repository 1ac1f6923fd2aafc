//! Many open directories, listed bit by bit.

use super::{config, connect, is_root};
use std::collections::HashSet;
use thrufs_tests::prelude::*;

const DIRECTORIES: usize = 100;
const NAMES: usize = 400;

/// This process's descriptors of directories in `place`, opened for listing.
fn descriptors_in(place: &Path) -> usize {
    let numbers = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_listed = |number: &fs::DirEntry| {
        let is_there = fs::read_link(number.path()).is_ok_and(|path| path.starts_with(place));
        let info = Path::new("/proc/self/fdinfo").join(number.file_name());
        let flags = fs::read_to_string(info).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
        is_there && flags.is_some_and(|flags| flags & libc::O_PATH == 0)
    };
    numbers.filter(is_listed).count()
}

#[test]
fn many_open_directories_cost_few_descriptors_and_are_listed_whole() {
    skip_if!(!is_root());
    let lowers = [
        (Lower::Ext4, true),
        (Lower::Tmpfs, false),
        (Lower::Xfs, true),
        (Lower::Btrfs, true),
    ];
    let tried = if is_full() { 4 } else { 2 };
    for (lower, keeps_few) in lowers.into_iter().take(tried) {
        let ground = Ground::prepare(lower).unwrap();
        let source = ground.source();
        for number in 0..DIRECTORIES {
            fs::create_dir(source.join(format!("dir-{number}"))).unwrap();
        }
        for name in 0..NAMES {
            fs::write(source.join(format!("dir-0/name-{name}")), "").unwrap();
        }
        let config = config(|it| it.descriptor_budget = Some(16));
        let client = connect(source, config);
        let root = client.root();
        let listed = root.walk("dir-0").unwrap();
        let gone = root.walk("dir-1").unwrap();
        let gone_handle = root.opendir(gone).unwrap().fh;
        // All at once, of one directory and of others.
        let mut listings: Vec<_> = (0..DIRECTORIES / 2)
            .map(|_| (root.opendir(listed).unwrap().fh, 0, HashSet::new()))
            .collect();
        for number in 2..DIRECTORIES {
            let node = root.walk(&format!("dir-{number}")).unwrap();
            root.opendir(node).unwrap();
        }
        let held = || descriptors_in(source);
        assert_eq!(held() <= 20, keeps_few, "{lower:?}: {}", held());
        let mut rest = listings.len();
        while rest > 0 {
            rest = 0;
            for (handle, offset, names) in &mut listings {
                let entries = root.readdir(listed, *handle, *offset, 4096, false).unwrap();
                for entry in &entries {
                    assert!(names.insert(entry.name.clone()), "twice");
                    *offset = entry.offset;
                }
                rest += usize::from(!entries.is_empty());
            }
            assert_eq!(held() <= 20, keeps_few, "{lower:?}: {}", held());
        }
        for (handle, _, names) in listings {
            assert_eq!(names.len(), NAMES + 2, "{lower:?}");
            root.fsyncdir(listed, handle).unwrap();
        }
        fs::remove_dir(source.join("dir-1")).unwrap();
        let of_gone = root.readdir(gone, gone_handle, 0, 4096, false).map(drop);
        assert_eq!(of_gone, Err(Errno::ENOENT));
    }
}
