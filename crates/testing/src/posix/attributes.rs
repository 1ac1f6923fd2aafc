//! chmod, chown and statx.

use rustix::fs::StatxFlags;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    chmod_sets_every_bit,
    chmod_by_descriptor,
    chmod_of_a_directory,
    chmod_needs_the_owner,
    chmod_drops_a_foreign_setgid,
    chown_by_root,
    chown_one_id_at_a_time,
    chown_of_a_symbolic_link,
    chown_by_an_ordinary_user,
    statx_agrees_with_stat,
    birth_time_stays,
    block_count_counts_data [WriteThrough],
};

fn chmod_sets_every_bit(env: &Env) {
    let path = env.file("file", "");
    for mode in (0..12).map(|bit| 1 << bit).chain([0, 0o777, 0o7777]) {
        chmod(&path, mode).unwrap();
        assert_eq!(env.mode("file"), mode);
        assert_eq!(
            fs::symlink_metadata(env.beneath("file")).unwrap().mode() & 0o7777,
            mode
        );
    }
    fails(chmod(&env.path("missing"), 0o600), Errno::NOENT);
}

fn chmod_by_descriptor(env: &Env) {
    // The right to change the mode comes from the owner, not from how the file is open.
    env.file("file", "");
    let file = env.open("file", OFlags::RDONLY);
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o4705)).unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o4705);
    env.agree("file");
}

fn chmod_of_a_directory(env: &Env) {
    env.dir("dir");
    env.chmod("dir", 0o3751);
    assert_eq!(env.mode("dir"), 0o3751);
    assert!(FileType::from_raw_mode(env.stat("dir").st_mode).is_dir());
    env.agree("dir");
}

fn chmod_needs_the_owner(env: &Env) {
    let path = env.file("file", "");
    env.chmod("file", 0o666);
    ALICE.run(|| fails(chmod(&path, 0o600), Errno::PERM));
    assert_eq!(env.mode("file"), 0o666);
    env.chown("file", ALICE.uid, ALICE.gid);
    ALICE.run(|| chmod(&path, 0o600).unwrap());
    BOB.run(|| fails(chmod(&path, 0o666), Errno::PERM));
    assert_eq!(env.mode("file"), 0o600);
    env.agree("file");
}

fn chmod_drops_a_foreign_setgid(env: &Env) {
    let path = env.file("file", "");
    env.chown("file", ALICE.uid, BOB.gid);
    // ALICE owns it, but is not in its group: the bit is dropped without an error.
    ALICE.run(|| chmod(&path, 0o2755).unwrap());
    assert_eq!(env.mode("file"), 0o755);
    env.agree("file");
    let path = env.file("team", "");
    env.chown("team", MEMBER.uid, TEAM);
    MEMBER.run(|| chmod(&path, 0o2755).unwrap());
    assert_eq!(env.mode("team"), 0o2755, "a supplementary group counts");
    env.agree("team");
}

fn chown_by_root(env: &Env) {
    env.file("file", "");
    env.dir("dir");
    for name in ["file", "dir"] {
        env.chown(name, 1234, 70_000);
        let stat = env.stat(name);
        assert_eq!((stat.st_uid, stat.st_gid), (1234, 70_000));
        env.agree(name);
    }
}

fn chown_one_id_at_a_time(env: &Env) {
    let path = env.file("file", "");
    chown(&path, Some(10), None).unwrap();
    assert_eq!((env.stat("file").st_uid, env.stat("file").st_gid), (10, 0));
    chown(&path, None, Some(20)).unwrap();
    assert_eq!((env.stat("file").st_uid, env.stat("file").st_gid), (10, 20));
    chown(&path, None, None).unwrap();
    assert_eq!((env.stat("file").st_uid, env.stat("file").st_gid), (10, 20));
    env.agree("file");
}

fn chown_of_a_symbolic_link(env: &Env) {
    env.file("file", "");
    rustix::fs::symlink("file", env.path("link")).unwrap();
    env.chown("link", 31, 32);
    assert_eq!((env.stat("link").st_uid, env.stat("link").st_gid), (31, 32));
    assert_eq!((env.stat("file").st_uid, env.stat("file").st_gid), (0, 0));
    std::os::unix::fs::chown(env.path("link"), Some(41), Some(42)).unwrap();
    assert_eq!((env.stat("link").st_uid, env.stat("link").st_gid), (31, 32));
    assert_eq!((env.stat("file").st_uid, env.stat("file").st_gid), (41, 42));
    env.agree("file");
    env.agree("link");
}

fn chown_by_an_ordinary_user(env: &Env) {
    let path = env.file("file", "");
    env.chown("file", MEMBER.uid, MEMBER.gid);
    MEMBER.run(|| {
        fails(chown(&path, Some(BOB.uid), None), Errno::PERM);
        fails(chown(&path, None, Some(BOB.gid)), Errno::PERM);
        // The owner may change to a group of its own.
        chown(&path, Some(MEMBER.uid), Some(TEAM)).unwrap();
    });
    BOB.run(|| fails(chown(&path, None, Some(BOB.gid)), Errno::PERM));
    assert_eq!(
        (env.stat("file").st_uid, env.stat("file").st_gid),
        (MEMBER.uid, TEAM)
    );
    env.agree("file");
}

fn statx_agrees_with_stat(env: &Env) {
    let path = env.file("file", "0123456789");
    env.chown("file", 5, 6);
    env.chmod("file", 0o4640);
    let stat = env.stat("file");
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let statx = rustix::fs::statx(CWD, &path, flags, StatxFlags::BASIC_STATS).unwrap();
    assert!(statx.stx_mask & StatxFlags::BASIC_STATS.bits() == StatxFlags::BASIC_STATS.bits());
    assert_eq!(u32::from(statx.stx_mode), stat.st_mode);
    assert_eq!((statx.stx_uid, statx.stx_gid), (5, 6));
    assert_eq!(statx.stx_ino, stat.st_ino);
    assert_eq!((statx.stx_size, statx.stx_nlink), (10, 1));
    assert_eq!(
        (statx.stx_mtime.tv_sec, u64::from(statx.stx_mtime.tv_nsec)),
        (stat.st_mtime, stat.st_mtime_nsec)
    );
    let none = rustix::fs::statx(CWD, env.path("missing"), flags, StatxFlags::BASIC_STATS);
    fails(none, Errno::NOENT);
}

fn birth(path: &Path) -> Option<(i64, u32)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let statx = rustix::fs::statx(CWD, path, flags, StatxFlags::BTIME).unwrap();
    (statx.stx_mask & StatxFlags::BTIME.bits() != 0)
        .then_some((statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec))
}

fn birth_time_stays(env: &Env) {
    let path = env.file("file", "old");
    let born = birth(&path);
    assert_eq!(born, birth(&env.beneath("file")));
    assert!(born.is_some(), "tmpfs and ext4 both have it");
    tick();
    env.file("file", "new");
    env.chmod("file", 0o600);
    assert_eq!(birth(&path), born);
}

fn block_count_counts_data(env: &Env) {
    let file = env.create("file");
    file.set_len(1 << 20).unwrap();
    assert_eq!(env.stat("file").st_blocks, 0);
    file.write_all_at(&[1; 65_536], 0).unwrap();
    file.sync_all().unwrap();
    assert!(env.stat("file").st_blocks >= 128);
    let below = fs::symlink_metadata(env.beneath("file")).unwrap();
    assert_eq!(env.stat("file").st_blocks as u64, below.blocks());
}
