//! Set-id bits are cleared when an unprivileged user changes a file, and stay when root does.

use rustix::fs::{FallocateFlags, mknodat};

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    write_drops_them,
    write_through_a_descriptor_of_root_drops_them,
    write_at_the_end_drops_them,
    truncate_by_descriptor_drops_them,
    open_with_truncation_drops_them,
    fallocate_drops_them,
    setgid_without_group_execution_stays,
    setuid_falls_where_setgid_stays,
    root_writes_and_keeps_them,
    root_truncates_and_keeps_them,
    chown_drops_them,
    chown_of_a_directory_keeps_them,
    chown_of_nothing_drops_them,
    chown_of_nothing_by_a_stranger_is_refused,
    chown_of_nothing_keeps_those_of_a_directory,
    setgid_without_group_execution_set_on_an_open_file_stays,
    reading_keeps_them,
};

/// A world-writable file with set-id bits.
fn privileged(env: &Env, mode: u32) -> std::path::PathBuf {
    let path = env.file("file", "0123456789");
    env.chmod("file", mode);
    assert_eq!(env.mode("file"), mode);
    path
}

fn write_drops_them(env: &Env) {
    let path = privileged(env, 0o6777);
    ALICE.run(|| {
        open(&path, OFlags::WRONLY)
            .unwrap()
            .write_all(b"x")
            .unwrap();
    });
    assert_eq!(env.mode("file"), 0o777);
    env.agree("file");
}

fn write_through_a_descriptor_of_root_drops_them(env: &Env) {
    let path = privileged(env, 0o6755);
    let mut file = open(&path, OFlags::RDWR).unwrap();
    // The writer's privilege counts, not that of the opener.
    ALICE.run(|| file.write_all(b"x").unwrap());
    assert_eq!(env.mode("file"), 0o755);
    env.agree("file");
}

fn write_at_the_end_drops_them(env: &Env) {
    let path = privileged(env, 0o4777);
    ALICE.run(|| {
        let mut file = open(&path, OFlags::WRONLY | OFlags::APPEND).unwrap();
        file.write_all(b"x").unwrap();
    });
    assert_eq!(env.mode("file"), 0o777);
    assert_eq!(env.read("file"), b"0123456789x");
    env.agree("file");
}

fn truncate_by_descriptor_drops_them(env: &Env) {
    let path = privileged(env, 0o6777);
    ALICE.run(|| open(&path, OFlags::WRONLY).unwrap().set_len(4).unwrap());
    assert_eq!(env.mode("file"), 0o777);
    env.agree("file");
}

fn open_with_truncation_drops_them(env: &Env) {
    let path = privileged(env, 0o6777);
    ALICE.run(|| drop(open(&path, OFlags::WRONLY | OFlags::TRUNC).unwrap()));
    assert_eq!(env.mode("file"), 0o777);
    assert_eq!(env.stat("file").st_size, 0);
    env.agree("file");
}

fn fallocate_drops_them(env: &Env) {
    let path = privileged(env, 0o6777);
    ALICE.run(|| {
        let file = open(&path, OFlags::WRONLY).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    });
    assert_eq!(env.mode("file"), 0o777);
    env.agree("file");
}

fn setgid_without_group_execution_stays(env: &Env) {
    // setgid without group execution is no privilege: formerly the mark of mandatory locking.
    let path = env.file("file", "0123456789");
    env.chown("file", MEMBER.uid, TEAM);
    env.chmod("file", 0o2666);
    MEMBER.run(|| {
        open(&path, OFlags::WRONLY)
            .unwrap()
            .write_all(b"x")
            .unwrap();
    });
    assert_eq!(env.mode("file"), 0o2666);
    env.agree("file");
}

fn setuid_falls_where_setgid_stays(env: &Env) {
    let path = env.file("file", "0123456789");
    env.chown("file", MEMBER.uid, TEAM);
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("write", |path| {
            let file = open(path, OFlags::WRONLY).unwrap();
            file.write_all_at(b"x", 0).unwrap();
        }),
        ("truncate", |path| {
            open(path, OFlags::WRONLY).unwrap().set_len(4).unwrap();
        }),
        ("open", |path| {
            drop(open(path, OFlags::WRONLY | OFlags::TRUNC).unwrap());
        }),
        ("fallocate", |path| {
            let file = open(path, OFlags::WRONLY).unwrap();
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
        }),
    ];
    for (name, change) in changes {
        env.chmod("file", 0o6666);
        MEMBER.run(|| change(&path));
        assert_eq!(env.mode("file"), 0o2666, "{name}");
        env.agree("file");
    }
}

fn root_writes_and_keeps_them(env: &Env) {
    let path = privileged(env, 0o6755);
    let mut file = open(&path, OFlags::WRONLY).unwrap();
    file.write_all(b"x").unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    drop(file);
    assert_eq!(env.mode("file"), 0o6755);
    env.agree("file");
}

fn root_truncates_and_keeps_them(env: &Env) {
    let path = privileged(env, 0o6755);
    open(&path, OFlags::WRONLY).unwrap().set_len(3).unwrap();
    drop(open(&path, OFlags::WRONLY | OFlags::TRUNC).unwrap());
    assert_eq!(env.mode("file"), 0o6755);
    env.agree("file");
}

fn chown_drops_them(env: &Env) {
    let path = privileged(env, 0o6755);
    // Even root: the bits were given for another owner.
    env.chown("file", MEMBER.uid, MEMBER.gid);
    assert_eq!(env.mode("file"), 0o755);
    env.chmod("file", 0o6755);
    MEMBER.run(|| chown(&path, None, Some(TEAM)).unwrap());
    assert_eq!(env.mode("file"), 0o755);
    env.agree("file");
}

fn chown_of_a_directory_keeps_them(env: &Env) {
    env.dir("dir");
    env.chmod("dir", 0o6755);
    env.chown("dir", ALICE.uid, ALICE.gid);
    assert_eq!(env.mode("dir"), 0o6755);
    env.agree("dir");
}

fn chown_of_nothing_drops_them(env: &Env) {
    let path = privileged(env, 0o6755);
    env.chown("file", MEMBER.uid, MEMBER.gid);
    env.chmod("file", 0o6755);
    MEMBER.run(|| chown(&path, None, None).unwrap());
    assert_eq!(env.mode("file"), 0o755);
    env.chmod("file", 0o6755);
    chown(&path, None, None).unwrap();
    assert_eq!(env.mode("file"), 0o755);
    env.agree("file");
}

fn chown_of_nothing_by_a_stranger_is_refused(env: &Env) {
    let path = env.path("file");
    // Never opened for writing: execve(2) would fail with ETXTBSY until the server gets RELEASE.
    mknodat(CWD, &path, FileType::RegularFile, Mode::RUSR, 0).unwrap();
    env.chmod("file", 0o6755);
    fails(ALICE.run(|| chown(&path, None, None)), Errno::PERM);
    assert_eq!(env.mode("file"), 0o6755);
    env.agree("file");
    // There is nothing to refuse then.
    env.chmod("file", 0o755);
    ALICE.run(|| chown(&path, None, None).unwrap());
    env.agree("file");
}

fn chown_of_nothing_keeps_those_of_a_directory(env: &Env) {
    let path = env.dir("dir");
    env.chmod("dir", 0o6755);
    chown(&path, None, None).unwrap();
    ALICE.run(|| chown(&path, None, None).unwrap());
    assert_eq!(env.mode("dir"), 0o6755);
    env.agree("dir");
}

fn setgid_without_group_execution_set_on_an_open_file_stays(env: &Env) {
    let path = env.file("file", "0123456789");
    env.chown("file", MEMBER.uid, TEAM);
    let file = MEMBER.run(|| open(&path, OFlags::WRONLY).unwrap());
    env.chmod("file", 0o6666);
    MEMBER.run(|| file.write_all_at(b"x", 0).unwrap());
    assert_eq!(env.mode("file"), 0o2666);
    MEMBER.run(|| file.set_len(5).unwrap());
    assert_eq!(env.mode("file"), 0o2666);
    env.agree("file");
}

fn reading_keeps_them(env: &Env) {
    let path = privileged(env, 0o6777);
    ALICE.run(|| assert_eq!(fs::read(&path).unwrap(), b"0123456789"));
    ALICE.run(|| drop(open(&path, OFlags::RDWR).unwrap()));
    assert_eq!(env.mode("file"), 0o6777);
    env.agree("file");
}
