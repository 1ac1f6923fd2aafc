//! Options of other FUSE servers: those that are accepted because they ask for the default, and those that
//! are refused with a remedy.

const ALWAYS: &str = "always so";
const OWN_NUMBERS: &str = "inode numbers are those of the source";

/// Name and remark.
type Foreign = (&'static str, &'static str);

/// From libfuse, bindfs and virtiofsd: accepted without effect, as they request the default.
pub(crate) const NEEDLESS: &[Foreign] = &[
    ("big_writes", ALWAYS),
    ("large_read", ALWAYS),
    ("async_read", ALWAYS),
    ("atomic_o_trunc", ALWAYS),
    ("clone_fd", ALWAYS),
    ("nonempty", ALWAYS),
    ("blkdev", "the source is a directory"),
    ("use_ino", OWN_NUMBERS),
    ("readdir_ino", OWN_NUMBERS),
    (
        "hard_remove",
        "files that are unlinked while open live on in the source",
    ),
    ("auto_cache", "this is cache=auto, the default"),
    ("splice_read", "chosen by measurement"),
    ("splice_write", "chosen by measurement"),
    ("splice_move", "chosen by measurement"),
    ("no_splice_read", "chosen by measurement"),
    ("no_splice_write", "chosen by measurement"),
    ("no_splice_move", "chosen by measurement"),
    ("max_read", "reads are as large as max_write allows"),
    ("io_uring", "this is transport=auto, the default"),
    ("max_idle_threads", "threads are as many as threads= says"),
    ("silent", "there is nothing to silence"),
    ("loud", "there is nothing more to log"),
];

/// Not supported: what to use instead.
pub(crate) const FOREIGN: &[Foreign] = &[
    (
        "allow_root",
        "use allow_other; with default_permissions it grants no more than modes do",
    ),
    ("kernel_cache", "use cache=always"),
    ("noauto_cache", "use cache=always"),
    ("direct_io", "use cache=never"),
    (
        "sync_read",
        "reads go to the source one by one with cache=never",
    ),
    (
        "dirsync",
        "FUSE does not support it; mount the file system of the source with dirsync",
    ),
    ("io_uring_q_depth", "use ring_depth="),
    ("debug", "use --log=debug"),
    ("umask", "modes are those of the source"),
    ("fmask", "modes are those of the source"),
    ("dmask", "modes are those of the source"),
    ("force-user", "use uid="),
    ("force-group", "use gid="),
    ("mirror", "use uid= with the user's own number"),
    (
        "map",
        "use uidmap=CLIENT:HOST:COUNT and gidmap=CLIENT:HOST:COUNT",
    ),
    ("posix_lock", "use locks=shared"),
    ("flock", "use locks=shared"),
    ("no_posix_lock", "use locks=local"),
    ("no_flock", "use locks=local"),
    (
        "remount",
        "unmount and mount again; only ro and rw can be changed, by `mount -i -o remount,ro MOUNTPOINT`",
    ),
    ("bind", "bind mounts need no server: use mount(8)"),
    ("rbind", "bind mounts need no server: use mount(8)"),
    ("mand", "Linux no longer has mandatory locks"),
];
