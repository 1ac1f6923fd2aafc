//! Options of other FUSE servers: those that are accepted because they ask for the default, and those that
//! are refused with a remedy.

/// From libfuse, bindfs and virtiofsd: accepted without effect, as they request the default. Names, and why.
const NEEDLESS: &str = "\
big_writes large_read async_read atomic_o_trunc clone_fd nonempty: always so
blkdev: the source is a directory
use_ino readdir_ino: inode numbers are those of the source
hard_remove: files that are unlinked while open live on in the source
auto_cache: this is cache=auto, the default
splice_read splice_write splice_move: chosen by measurement
no_splice_read no_splice_write no_splice_move: chosen by measurement
max_read: reads are as large as max_write allows
io_uring: this is transport=auto, the default
max_idle_threads: threads are as many as threads= says
silent: there is nothing to silence
loud: there is nothing more to log";

/// Not supported. Names, and what to use instead.
const UNSUPPORTED: &str = "\
allow_root: use allow_other; with default_permissions it grants no more than modes do
kernel_cache noauto_cache: use cache=always
direct_io: use cache=never
sync_read: reads go to the source one by one with cache=never
dirsync: FUSE does not support it; mount the file system of the source with dirsync
io_uring_q_depth: use ring_depth=
debug: use --log=debug
umask fmask dmask: modes are those of the source
force-user: use uid=
force-group: use gid=
mirror: use uid= with the user's own number
map: use uidmap=CLIENT:HOST:COUNT and gidmap=CLIENT:HOST:COUNT
posix_lock flock: use locks=shared
no_posix_lock no_flock: use locks=local
remount: use `mount -o remount,ro MOUNTPOINT` for flags of the mount; for the rest, unmount and mount again
bind rbind: bind mounts need no server: use mount(8)
mand: Linux no longer has mandatory locks";

/// An option of another server, and the remark.
type Foreign = (&'static str, &'static str);

pub(crate) fn needless() -> impl Iterator<Item = Foreign> {
    each(NEEDLESS)
}

pub(crate) fn unsupported() -> impl Iterator<Item = Foreign> {
    each(UNSUPPORTED)
}

fn each(options: &'static str) -> impl Iterator<Item = Foreign> {
    options.lines().flat_map(|line| {
        let (names, note) = line
            .split_once(": ")
            .expect("each line has names and a remark");
        names.split(' ').map(move |name| (name, note))
    })
}
