//! Reading directories. Long ones are made beneath, at once.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::Dir;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    types_and_inodes,
    two_thousand_entries,
    seek_to_a_known_place,
    rewind_sees_new_names,
    removal_while_reading,
    creation_while_reading_loses_nothing,
    two_readers_do_not_disturb_each_other,
    of_a_removed_directory_is_empty,
};

fn entries(dir: &File) -> Vec<(Vec<u8>, FileType, u64, i64)> {
    let mut read = Dir::read_from(dir).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = read.read() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_bytes().to_vec();
        found.push((name, entry.file_type(), entry.ino(), entry.offset()));
    }
    found
}

fn open_dir(env: &Env, name: &str) -> File {
    env.open(name, OFlags::RDONLY | OFlags::DIRECTORY)
}

fn types_and_inodes(env: &Env) {
    env.dir("dir");
    env.file("dir/file", "");
    env.dir("dir/sub");
    rustix::fs::symlink("file", env.path("dir/link")).unwrap();
    rustix::fs::mkfifoat(CWD, env.path("dir/fifo"), Mode::RWXU).unwrap();
    let expected = BTreeMap::from([
        (".", FileType::Directory),
        ("..", FileType::Directory),
        ("file", FileType::RegularFile),
        ("sub", FileType::Directory),
        ("link", FileType::Symlink),
        ("fifo", FileType::Fifo),
    ]);
    let found = entries(&open_dir(env, "dir"));
    for (name, kind) in expected {
        let entry = found
            .iter()
            .find(|entry| entry.0 == name.as_bytes())
            .unwrap();
        assert_eq!(entry.1, kind, "{name}");
        assert_eq!(entry.2, env.stat(format!("dir/{name}")).st_ino, "{name}");
    }
    assert_eq!(found.len(), 6);
}

fn two_thousand_entries(env: &Env) {
    env.dir("dir");
    let names: BTreeSet<Vec<u8>> = (0..2000)
        .map(|number| format!("entry-{number:05}").into_bytes())
        .collect();
    for number in 0..2000 {
        fs::write(env.beneath(format!("dir/entry-{number:05}")), "").unwrap();
    }
    for _ in 0..2 {
        let found = entries(&open_dir(env, "dir"));
        assert_eq!(found.len(), 2002, "no name twice");
        let mut seen: BTreeSet<Vec<u8>> = found.into_iter().map(|entry| entry.0).collect();
        seen.remove(&b"."[..]);
        seen.remove(&b".."[..]);
        assert!(seen == names);
    }
}

fn seek_to_a_known_place(env: &Env) {
    env.dir("dir");
    for number in 0..300 {
        fs::write(env.beneath(format!("dir/{number}")), "").unwrap();
    }
    let mut dir = Dir::new(open_dir(env, "dir")).unwrap();
    let mut all = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(all.len(), 302);
    for at in [250, 3, 100, 299] {
        dir.seek(all[at].1).unwrap();
        let next = dir.read().unwrap().unwrap();
        assert_eq!(
            next.file_name(),
            all[at + 1].0.as_c_str(),
            "after entry {at}"
        );
    }
    dir.seek(all[301].1).unwrap();
    assert!(dir.read().is_none(), "nothing after the last");
}

fn rewind_sees_new_names(env: &Env) {
    env.dir("dir");
    env.file("dir/a", "");
    let mut dir = Dir::new(open_dir(env, "dir")).unwrap();
    let count = |dir: &mut Dir| {
        std::iter::from_fn(|| dir.read())
            .map(Result::unwrap)
            .count()
    };
    assert_eq!(count(&mut dir), 3);
    env.file("dir/b", "");
    dir.rewind();
    assert_eq!(count(&mut dir), 4);
    rustix::fs::unlink(env.path("dir/a")).unwrap();
    rustix::fs::unlink(env.path("dir/b")).unwrap();
    dir.rewind();
    assert_eq!(count(&mut dir), 2);
}

fn removal_while_reading(env: &Env) {
    // As rm -r does: every name read is removed before the next is read.
    env.dir("dir");
    for number in 0..1000 {
        fs::write(env.beneath(format!("dir/a-name-of-length-{number}")), "").unwrap();
    }
    let mut removed = 0;
    for entry in fs::read_dir(env.path("dir")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, 1000);
    assert!(env.names("dir").is_empty());
    assert_eq!(fs::read_dir(env.beneath("dir")).unwrap().count(), 0);
}

fn creation_while_reading_loses_nothing(env: &Env) {
    env.dir("dir");
    for number in 0..500 {
        fs::write(env.beneath(format!("dir/old-{number}")), "").unwrap();
    }
    let mut old = BTreeSet::new();
    for (at, entry) in fs::read_dir(env.path("dir")).unwrap().enumerate() {
        let name = entry.unwrap().file_name();
        if name.to_str().unwrap().starts_with("old-") {
            assert!(old.insert(name), "the same name twice");
            if at % 10 == 0 {
                env.file(format!("dir/new-{at}"), "");
            }
        }
    }
    assert_eq!(old.len(), 500);
}

fn two_readers_do_not_disturb_each_other(env: &Env) {
    env.dir("dir");
    for number in 0..500 {
        fs::write(env.beneath(format!("dir/{number}")), "").unwrap();
    }
    let mut first = fs::read_dir(env.path("dir")).unwrap();
    let mut seen = first
        .by_ref()
        .take(250)
        .map(Result::unwrap)
        .fold(0, |count, _| count + 1);
    assert_eq!(fs::read_dir(env.path("dir")).unwrap().count(), 500);
    seen += first.count();
    assert_eq!(seen, 500);
}

fn of_a_removed_directory_is_empty(env: &Env) {
    env.dir("dir");
    let dir = open_dir(env, "dir");
    rustix::fs::rmdir(env.path("dir")).unwrap();
    // Some file systems still show the dots, some answer ENOENT; no other name may come.
    if let Ok(mut read) = Dir::read_from(&dir) {
        while let Some(Ok(entry)) = read.read() {
            assert!(matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
    }
    assert_eq!(dir.metadata().unwrap().nlink(), 0);
}
