//! Owner and group of created files.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    file_belongs_to_its_creator,
    every_kind_belongs_to_its_creator,
    setgid_directory_decides_the_group,
    setgid_goes_down_to_directories_only,
    foreign_setgid_is_dropped_from_a_new_file,
    umask_is_that_of_the_caller,
    writing_does_not_change_the_owner,
    hard_link_keeps_the_owner,
};

#[track_caller]
fn belongs(env: &Env, name: &str, uid: u32, gid: u32) {
    let stat = env.stat(name);
    assert_eq!((stat.st_uid, stat.st_gid), (uid, gid), "{name}");
    env.agree(name);
}

fn file_belongs_to_its_creator(env: &Env) {
    let dir = env.shared_dir("dir");
    ALICE.run(|| fs::write(dir.join("alice"), "").unwrap());
    MEMBER.run(|| fs::write(dir.join("member"), "").unwrap());
    fs::write(dir.join("root"), "").unwrap();
    belongs(env, "dir/alice", ALICE.uid, ALICE.gid);
    belongs(env, "dir/member", MEMBER.uid, MEMBER.gid);
    belongs(env, "dir/root", 0, 0);
}

fn every_kind_belongs_to_its_creator(env: &Env) {
    let dir = env.shared_dir("dir");
    ALICE.run(|| {
        mkdir(&dir.join("dir"), 0o755).unwrap();
        rustix::fs::symlink("target", dir.join("link")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("fifo"), Mode::RWXU).unwrap();
        drop(std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap());
    });
    for name in ["dir/dir", "dir/link", "dir/fifo", "dir/socket"] {
        belongs(env, name, ALICE.uid, ALICE.gid);
    }
}

fn setgid_directory_decides_the_group(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o2777);
    ALICE.run(|| {
        fs::write(dir.join("file"), "").unwrap();
        rustix::fs::symlink("target", dir.join("link")).unwrap();
        rustix::fs::mkfifoat(CWD, dir.join("fifo"), Mode::RWXU).unwrap();
        mkdir(&dir.join("sub"), 0o755).unwrap();
    });
    for name in ["dir/file", "dir/link", "dir/fifo", "dir/sub"] {
        belongs(env, name, ALICE.uid, TEAM);
    }
}

fn setgid_goes_down_to_directories_only(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o2777);
    MEMBER.run(|| {
        mkdir(&dir.join("sub"), 0o755).unwrap();
        fs::write(dir.join("sub/file"), "").unwrap();
    });
    assert_eq!(env.mode("dir/sub"), 0o2755);
    assert_eq!(env.mode("dir/sub/file"), 0o644);
    belongs(env, "dir/sub/file", MEMBER.uid, TEAM);
}

fn foreign_setgid_is_dropped_from_a_new_file(env: &Env) {
    let dir = env.shared_dir("dir");
    env.chown("dir", 0, TEAM);
    env.chmod("dir", 0o2777);
    // A setgid executable of a group that its creator is not in.
    ALICE.run(|| drop(open_mode(&dir.join("alice"), OFlags::CREATE, 0o2775).unwrap()));
    assert_eq!(env.mode("dir/alice") & 0o2000, 0);
    MEMBER.run(|| drop(open_mode(&dir.join("member"), OFlags::CREATE, 0o2775).unwrap()));
    assert_eq!(env.mode("dir/member") & 0o2000, 0o2000);
    belongs(env, "dir/alice", ALICE.uid, TEAM);
    belongs(env, "dir/member", MEMBER.uid, TEAM);
}

fn umask_is_that_of_the_caller(env: &Env) {
    let dir = env.shared_dir("dir");
    for (mask, file, sub) in [
        (0o077, 0o600, 0o700),
        (0o000, 0o666, 0o777),
        (0o137, 0o640, 0o640),
    ] {
        rustix::process::umask(Mode::from_raw_mode(mask));
        let (file_name, dir_name) = (format!("file{mask:o}"), format!("dir{mask:o}"));
        drop(open_mode(&dir.join(&file_name), OFlags::CREATE, 0o666).unwrap());
        mkdir(&dir.join(&dir_name), 0o777).unwrap();
        assert_eq!(env.mode(format!("dir/{file_name}")), file);
        assert_eq!(env.mode(format!("dir/{dir_name}")), sub);
        env.agree(format!("dir/{file_name}"));
        env.agree(format!("dir/{dir_name}"));
    }
}

fn writing_does_not_change_the_owner(env: &Env) {
    let path = env.file("file", "by root");
    env.chown("file", ALICE.uid, ALICE.gid);
    env.chmod("file", 0o666);
    BOB.run(|| fs::write(&path, "by bob").unwrap());
    belongs(env, "file", ALICE.uid, ALICE.gid);
}

fn hard_link_keeps_the_owner(env: &Env) {
    let dir = env.shared_dir("dir");
    ALICE.run(|| fs::write(dir.join("file"), "").unwrap());
    rustix::fs::link(dir.join("file"), dir.join("link")).unwrap();
    belongs(env, "dir/link", ALICE.uid, ALICE.gid);
}
