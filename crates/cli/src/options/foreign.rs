//! Options of other FUSE servers, and what to say instead.

const ALWAYS: &str = "always so";
const OWN_NUMBERS: &str = "inode numbers are those of the source";

/// An option, and what is to be said of it.
type Foreign = (&'static str, &'static str);

/// What people know from libfuse, bindfs and virtiofsd: taken without effect, because what it asks for is so
/// anyway.
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
    ("silent", "nothing to be silent about"),
    ("loud", "nothing to be loud about"),
];

/// What people know from there and means nothing here: what to say instead.
pub(crate) const FOREIGN: &[Foreign] = &[
    (
        "allow_root",
        "say allow_other; with default_permissions it gives nobody more than modes do",
    ),
    ("kernel_cache", "say cache=always"),
    ("noauto_cache", "say cache=always"),
    ("direct_io", "say cache=never"),
    (
        "sync_read",
        "reads go to the source one by one with cache=never",
    ),
    (
        "dirsync",
        "FUSE has no such thing; mount the file system of the source with dirsync",
    ),
    ("io_uring_q_depth", "say ring_depth="),
    ("debug", "say --log=debug"),
    ("umask", "modes are those of the source"),
    ("fmask", "modes are those of the source"),
    ("dmask", "modes are those of the source"),
    ("force-user", "say uid="),
    ("force-group", "say gid="),
    ("mirror", "say uid= with the user's own number"),
    (
        "map",
        "say uidmap=CLIENT:HOST:COUNT and gidmap=CLIENT:HOST:COUNT",
    ),
    ("posix_lock", "say locks=shared"),
    ("flock", "say locks=shared"),
    ("no_posix_lock", "say locks=local"),
    ("no_flock", "say locks=local"),
    (
        "remount",
        "unmount it and mount it anew; only ro and rw can be changed, by `mount -i -o remount,ro MOUNTPOINT`",
    ),
    ("bind", "that is mount(8)'s own; it needs no server"),
    ("rbind", "that is mount(8)'s own; it needs no server"),
    ("mand", "mandatory locks are gone from Linux"),
];
