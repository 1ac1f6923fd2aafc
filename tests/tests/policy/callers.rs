//! Rules on callers.

use crate::served::{errno, open, put, with_policy};
use thrufs_tests::prelude::*;

fn fill(source: &Path) {
    put(source, "file", b"content");
    fs::set_permissions(source.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::create_dir(source.join("everyones")).unwrap();
    fs::set_permissions(source.join("everyones"), fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn rules_distinguish_callers_by_id() {
    let policy = "[[rule]]\npath = '**'\ncaller-uid = 4001\naction = 'deny'\n\
                  [[rule]]\npath = '**'\ncaller-gid = 4002\naction = 'read-only'\n";
    with_policy("cache=always", policy, fill, |served| {
        let file = served.at("file");
        let new = served.at("everyones/new");
        for _ in 0..2 {
            assert_eq!(fs::read(&file).unwrap(), b"content");
            assert_eq!(ALICE.run(|| errno(File::open(&file))), libc::EACCES);
            assert_eq!(BOB.run(|| errno(File::open(&file))), 0);
            assert_eq!(BOB.run(|| errno(open(&file, libc::O_WRONLY))), libc::EROFS);
        }
        assert_eq!(ALICE.run(|| errno(fs::create_dir(&new))), libc::EACCES);
        assert_eq!(BOB.run(|| errno(fs::create_dir(&new))), libc::EROFS);
        fs::create_dir(&new).unwrap();
        // Also while another caller has it open.
        let _held = File::open(&file).unwrap();
        assert_eq!(ALICE.run(|| errno(File::open(&file))), libc::EACCES);
    });
}

#[test]
fn rules_distinguish_callers_by_program() {
    let cat = fs::canonicalize("/bin/cat").unwrap();
    let policy = format!(
        "[[rule]]\npath = 'file'\ncaller-exe = '!{}'\naction = 'deny'\n",
        cat.display()
    );
    with_policy("", &policy, fill, |served| {
        let file = served.at("file");
        assert_eq!(errno(File::open(&file)), libc::EACCES);
        let output = Command::new(&cat).arg(&file).output().unwrap();
        assert_eq!(output.stdout, b"content");
        let copied = Command::new("head").arg(&file).output().unwrap();
        assert!(copied.stdout.is_empty());
    });
}

/// With mapped ids, owners are those of the host.
#[test]
fn owners_are_those_of_the_host() {
    let policy = "[[rule]]\nowner = 104001\naction = 'deny'\n";
    let fill = |source: &Path| {
        put(source, "hers", b"");
        chown(source.join("hers"), Some(104_001), Some(104_001)).unwrap();
        put(source, "bystander", b"");
        chown(source.join("bystander"), Some(104_002), Some(104_002)).unwrap();
        chown(source, Some(100_000), Some(100_000)).unwrap();
        fs::set_permissions(source, fs::Permissions::from_mode(0o777)).unwrap();
    };
    let options = "uidmap=0:100000:65536,gidmap=0:100000:65536";
    with_policy(options, policy, fill, |served| {
        assert_eq!(errno(File::open(served.at("hers"))), libc::EACCES);
        assert_eq!(errno(File::open(served.at("bystander"))), 0);
        let (hers, his) = (served.at("new"), served.at("newer"));
        assert_eq!(ALICE.run(|| errno(File::create(&hers))), libc::EACCES);
        assert_eq!(BOB.run(|| errno(File::create(&his))), 0);
    });
}
