//! chmod, chown and statx.

use rustix::fs::StatxFlags;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    chmod_sets_every_bit:
        "file file; chmod file 5252; is {file,^file} mode 5252; chmod file 2525;
         is {file,^file} mode 2525; chmod file 7777; is {file,^file} mode 7777; chmod file 0;
         is {file,^file} mode 0; ENOENT chmod missing 600",
    chmod_by_descriptor: "file file; open @f file r; chmod @f 4705; is @f mode 4705",
    chmod_of_a_directory: "dir dir; chmod dir 3751; is dir mode 3751 type dir",
    chmod_drops_a_foreign_setgid:
        "file {file,team}; chown file alice bob; alice: chmod file 2755; is file mode 755;
         chown team member team; member: chmod team 2755; is team mode 2755",
    chown_by_root:
        "file file; dir dir; chown {file,dir} 1234 70000; is {file,dir} owner 1234 70000",
    chown_one_id_at_a_time:
        "file file; chown file 10 -; is file owner 10 0; chown file - 20; is file owner 10 20;
         chown file - -; is file owner 10 20",
    chown_of_a_symbolic_link:
        "file file; symlink file link; chown link 31 32; is link owner 31 32; is file owner 0 0;
         open @f link r; chown @f 41 42; is link owner 31 32; is file owner 41 42",
    statx_agrees_with_stat,
    birth_time_stays,
    block_count_counts_data [WriteThrough]:
        "open @f file rw,creat,excl; truncate @f 1048576; is @f blocks-below 1;
         fill @f 0 65536 1; fsync @f; is @f room 65536; note ^file; same @f blocks",
};

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
