//! Permissions by the mode bits.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    owner_bits_decide_for_the_owner,
    group_bits_decide_for_the_group,
    supplementary_groups_count,
    other_bits_decide_for_the_rest,
    directory_needs_search,
    listing_needs_read_only,
    creation_needs_write_on_the_directory,
    removal_does_not_need_the_file,
    root_reads_and_writes_everything,
    change_of_mode_counts_at_once,
    search_is_checked_on_every_component,
    sticky_directory_protects_names,
};

fn owner_bits_decide_for_the_owner(env: &Env) {
    let path = env.file("file", "x");
    env.chown("file", ALICE.uid, ALICE.gid);
    // The owner's bits apply to the owner, even if others have more.
    env.chmod("file", 0o077);
    ALICE.run(|| {
        fails(open(&path, OFlags::RDONLY), Errno::ACCESS);
        fails(open(&path, OFlags::WRONLY), Errno::ACCESS);
    });
    env.chmod("file", 0o400);
    ALICE.run(|| {
        drop(open(&path, OFlags::RDONLY).unwrap());
        fails(open(&path, OFlags::RDWR), Errno::ACCESS);
    });
    env.chmod("file", 0o200);
    ALICE.run(|| {
        drop(open(&path, OFlags::WRONLY).unwrap());
        fails(open(&path, OFlags::RDWR), Errno::ACCESS);
    });
}

fn group_bits_decide_for_the_group(env: &Env) {
    let path = env.file("file", "x");
    env.chown("file", 0, ALICE.gid);
    env.chmod("file", 0o707);
    ALICE.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
    env.chmod("file", 0o060);
    ALICE.run(|| drop(open(&path, OFlags::RDWR).unwrap()));
    BOB.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
}

fn supplementary_groups_count(env: &Env) {
    let path = env.file("file", "team");
    env.chown("file", 0, TEAM);
    env.chmod("file", 0o660);
    let dir = env.dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o770);
    MEMBER.run(|| {
        assert_eq!(fs::read(&path).unwrap(), b"team");
        fs::write(dir.join("new"), "").unwrap();
    });
    ALICE.run(|| {
        fails(open(&path, OFlags::RDONLY), Errno::ACCESS);
        fails(fs::write(dir.join("other"), ""), Errno::ACCESS);
    });
    env.agree("dir/new");
    assert_eq!(env.names("dir"), ["new"]);
}

fn other_bits_decide_for_the_rest(env: &Env) {
    let path = env.file("file", "x");
    env.chmod("file", 0o604);
    ALICE.run(|| {
        drop(open(&path, OFlags::RDONLY).unwrap());
        fails(open(&path, OFlags::WRONLY), Errno::ACCESS);
        fails(open(&path, OFlags::RDONLY | OFlags::TRUNC), Errno::ACCESS);
    });
    assert_eq!(env.read("file"), b"x");
}

fn directory_needs_search(env: &Env) {
    let dir = env.dir("dir");
    env.file("dir/file", "x");
    env.chmod("dir", 0o744);
    ALICE.run(|| {
        fails(open(&dir.join("file"), OFlags::RDONLY), Errno::ACCESS);
        fails(rustix::fs::lstat(dir.join("file")), Errno::ACCESS);
        fails(rustix::fs::lstat(dir.join("missing")), Errno::ACCESS);
        // Names can be read without search permission.
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    });
}

fn listing_needs_read_only(env: &Env) {
    let dir = env.dir("dir");
    env.file("dir/file", "x");
    env.chmod("dir", 0o711);
    ALICE.run(|| {
        fails(fs::read_dir(&dir), Errno::ACCESS);
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"x");
    });
}

fn creation_needs_write_on_the_directory(env: &Env) {
    let dir = env.dir("dir");
    env.file("dir/kept", "x");
    ALICE.run(|| {
        fails(fs::write(dir.join("new"), ""), Errno::ACCESS);
        fails(mkdir(&dir.join("new"), 0o755), Errno::ACCESS);
        fails(rustix::fs::symlink("x", dir.join("new")), Errno::ACCESS);
        fails(
            rustix::fs::mkfifoat(CWD, dir.join("new"), Mode::RWXU),
            Errno::ACCESS,
        );
        fails(rustix::fs::unlink(dir.join("kept")), Errno::ACCESS);
    });
    assert_eq!(env.names("dir"), ["kept"]);
}

fn removal_does_not_need_the_file(env: &Env) {
    let dir = env.shared_dir("dir");
    env.file("dir/file", "of root");
    env.chmod("dir/file", 0o600);
    ALICE.run(|| rustix::fs::unlink(dir.join("file")).unwrap());
    env.absent("dir/file");
}

fn root_reads_and_writes_everything(env: &Env) {
    env.dir("dir");
    let path = env.file("dir/file", "x");
    env.chown("dir/file", ALICE.uid, ALICE.gid);
    env.chmod("dir/file", 0);
    env.chmod("dir", 0);
    fs::write(&path, "by root").unwrap();
    assert_eq!(env.read("dir/file"), b"by root");
    assert_eq!(env.names("dir"), ["file"]);
    env.agree("dir/file");
}

fn change_of_mode_counts_at_once(env: &Env) {
    let dir = env.dir("dir");
    let path = env.file("dir/file", "x");
    for round in 0..20 {
        let open_up = round % 2 == 0;
        env.chmod("dir", if open_up { 0o755 } else { 0o700 });
        ALICE.run(|| {
            let result = open(&path, OFlags::RDONLY);
            assert_eq!(result.is_ok(), open_up, "round {round}: {result:?}");
        });
    }
    assert!(dir.is_dir());
}

fn search_is_checked_on_every_component(env: &Env) {
    env.dir("a");
    env.dir("a/b");
    env.dir("a/b/c");
    let path = env.file("a/b/c/file", "deep");
    ALICE.run(|| assert_eq!(fs::read(&path).unwrap(), b"deep"));
    for dir in ["a", "a/b", "a/b/c"] {
        env.chmod(dir, 0o700);
        ALICE.run(|| fails(open(&path, OFlags::RDONLY), Errno::ACCESS));
        env.chmod(dir, 0o755);
    }
    ALICE.run(|| assert_eq!(fs::read(&path).unwrap(), b"deep"));
}

fn sticky_directory_protects_names(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chmod("dir", 0o1777);
    ALICE.run(|| fs::write(dir.join("file"), "hers").unwrap());
    BOB.run(|| fails(rustix::fs::unlink(dir.join("file")), Errno::PERM));
    assert_eq!(env.read("dir/file"), b"hers");
    ALICE.run(|| rustix::fs::unlink(dir.join("file")).unwrap());
    env.absent("dir/file");
}
