//! Options of other FUSE servers, and what to say instead.

use super::Foreign;

const fn needless(name: &'static str, note: &'static str) -> Foreign {
    Foreign {
        name,
        accepted: true,
        note,
    }
}

const fn instead(name: &'static str, note: &'static str) -> Foreign {
    Foreign {
        name,
        accepted: false,
        note,
    }
}

const ALWAYS: &str = "always so";
const OWN_NUMBERS: &str = "inode numbers are those of the source";

/// What people know from libfuse, bindfs and virtiofsd.
pub(crate) const FOREIGN: &[Foreign] = &[
    needless("big_writes", ALWAYS),
    needless("large_read", ALWAYS),
    needless("async_read", ALWAYS),
    needless("atomic_o_trunc", ALWAYS),
    needless("clone_fd", ALWAYS),
    needless("nonempty", ALWAYS),
    needless("blkdev", "the source is a directory"),
    needless("use_ino", OWN_NUMBERS),
    needless("readdir_ino", OWN_NUMBERS),
    needless(
        "hard_remove",
        "files that are unlinked while open live on in the source",
    ),
    needless("auto_cache", "this is cache=auto, the default"),
    needless("splice_read", "chosen by measurement"),
    needless("splice_write", "chosen by measurement"),
    needless("splice_move", "chosen by measurement"),
    needless("no_splice_read", "chosen by measurement"),
    needless("no_splice_write", "chosen by measurement"),
    needless("no_splice_move", "chosen by measurement"),
    needless("max_read", "reads are as large as max_write allows"),
    needless("io_uring", "this is transport=auto, the default"),
    needless("max_idle_threads", "threads are as many as threads= says"),
    needless("silent", "nothing to be silent about"),
    needless("loud", "nothing to be loud about"),
    instead(
        "allow_root",
        "say allow_other; with default_permissions it gives nobody more than modes do",
    ),
    instead("kernel_cache", "say cache=always"),
    instead("noauto_cache", "say cache=always"),
    instead("direct_io", "say cache=never"),
    instead(
        "sync_read",
        "reads go to the source one by one with cache=never",
    ),
    instead(
        "dirsync",
        "FUSE has no such thing; mount the file system of the source with dirsync",
    ),
    instead("io_uring_q_depth", "say ring_depth="),
    instead("debug", "say --log=debug"),
    instead("umask", "modes are those of the source"),
    instead("fmask", "modes are those of the source"),
    instead("dmask", "modes are those of the source"),
    instead("force-user", "say uid="),
    instead("force-group", "say gid="),
    instead("mirror", "say uid= with the user's own number"),
    instead(
        "map",
        "say uidmap=CLIENT:HOST:COUNT and gidmap=CLIENT:HOST:COUNT",
    ),
    instead("posix_lock", "say locks=shared"),
    instead("flock", "say locks=shared"),
    instead("no_posix_lock", "say locks=local"),
    instead("no_flock", "say locks=local"),
    instead(
        "remount",
        "unmount it and mount it anew; only ro and rw can be changed, by `mount -i -o remount,ro MOUNTPOINT`",
    ),
    instead("bind", "that is mount(8)'s own; it needs no server"),
    instead("rbind", "that is mount(8)'s own; it needs no server"),
    instead("mand", "mandatory locks are gone from Linux"),
];
