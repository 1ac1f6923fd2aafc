//! How a mount is run: speed, limits, the server's life, and what mount(8) says to it.

use super::{ignored, mount_row, row};
use crate::options::{Form, Group, MountOption, OptionId, Value};

pub(super) const ROWS: &[MountOption] = &[
    // Speed and limits.
    MountOption {
        default: "auto",
        ..mount_row(
            OptionId::Transport,
            "transport",
            Value::Choice(&["auto", "uring", "dev"]),
            Group::Speed,
            "how the kernel hands over requests",
            "uring is FUSE over io_uring: Linux 6.14 offers it when Y is written to \
             /sys/module/fuse/parameters/enable_uring. Where it is not to be had, dev, which is \
             /dev/fuse, takes its place, and the log says why. auto takes uring where it is to be \
             had and is of use. `thrufs doctor` tells which it would be.",
        )
    },
    mount_row(
        OptionId::QueuesPerThread,
        "queues_per_thread",
        Value::Count(1, 4096),
        Group::Speed,
        "queues that one thread serves (transport=uring)",
        "There is a queue for each possible processor. One unless given, more where there are very \
         many.",
    ),
    mount_row(
        OptionId::RingDepth,
        "ring_depth",
        Value::Count(1, 256),
        Group::Speed,
        "requests that a thread takes at once from a queue (transport=uring)",
        "8 where the source is in memory, and 1 elsewhere, unless given: a request that waits for a \
         disk keeps those waiting that were taken with it.",
    ),
    mount_row(
        OptionId::Threads,
        "threads",
        Value::Count(1, 1024),
        Group::Speed,
        "threads that read requests (transport=dev)",
        "One for each processor unless given.",
    ),
    MountOption {
        family: "pairing",
        default: "on",
        ..row(
            OptionId::Pairing,
            "pairing",
            Value::None,
            Group::Speed,
            "serve a lone caller from its own processor",
            "While a single program or virtual CPU asks much, one thread serves it, on the same processor: neither \
             has to wake an idle one. Only where a server may change how its threads are scheduled, \
             as root's may.",
        )
    },
    MountOption {
        family: "pairing",
        ..row(
            OptionId::NoPairing,
            "nopairing",
            Value::None,
            Group::Speed,
            "leave it to the scheduler where threads run",
            "",
        )
    },
    row(
        OptionId::MaxWrite,
        "max_write",
        Value::Bytes,
        Group::Speed,
        "most bytes in one read or write request",
        "1M unless given; from 4K to 16M. The kernel grants no more than fs.fuse.max_pages_limit \
         pages.",
    ),
    row(
        OptionId::MaxBackground,
        "max_background",
        Value::Count(1, 65_535),
        Group::Speed,
        "most requests in flight that nobody waits for",
        "Read-ahead, writing back, asynchronous I/O.",
    ),
    row(
        OptionId::MaxReadahead,
        "max_readahead",
        Value::Bytes,
        Group::Speed,
        "most bytes to read ahead",
        "128K unless given; more needs root. It makes reading from the front to the back faster, and \
         page faults in mapped files dearer.",
    ),
    row(
        OptionId::Descriptors,
        "descriptors",
        Value::Count(16, 16_777_216),
        Group::Speed,
        "most descriptors to keep for files that are not open",
        "Half of the limit on open files (ulimit -n) unless given. It limits no number of files: \
         what is beyond it is found again when it is needed.",
    ),
    row(
        OptionId::FileHandles,
        "inode_file_handles",
        Value::Choice(&["never", "prefer", "mandatory"]),
        Group::Confinement,
        "find files again by their file handles",
        "never, the default of a share: a descriptor is held for each file that the client knows, as long as \
         descriptors= allows, and beyond that files are found again by directory and name; one that somebody \
         else moves meanwhile then gives an error until the client looks it up again. prefer, the default of \
         a mount: by handle where the file system has them, and whoever serves may open them. A server of \
         root's keeps CAP_DAC_READ_SEARCH for it: who takes it over can then open every file of that file \
         system by guessing its handle, not only those of the directory. mandatory: by handle, or not at all.",
    ),
    // The server.
    MountOption {
        form: Form::Flag,
        ..row(
            OptionId::Foreground,
            "foreground",
            Value::None,
            Group::Life,
            "stay in the foreground and log to standard error",
            "A share always does.",
        )
    },
    MountOption {
        default: "10",
        ..row(
            OptionId::StopTimeout,
            "stop_timeout",
            Value::Seconds,
            Group::Life,
            "how long to wait for users of the mount, or for requests, when asked to end",
            "After that time SIGTERM takes the mount away from its users. A share answers within that \
             time the requests that are in progress.",
        )
    },
    MountOption {
        aliases: &["loglevel"],
        default: "info",
        ..row(
            OptionId::Log,
            "log",
            Value::Text,
            Group::Life,
            "what to log: error, warn, info, debug or trace",
            "Or directives such as thrufs=debug,info. THRUFS_LOG in the environment says the same.",
        )
    },
    row(
        OptionId::LogFile,
        "log_file",
        Value::Path,
        Group::Life,
        "append the log to this file",
        "In the background, nothing is logged after mounting unless this is given or standard error \
         is the journal's.",
    ),
    row(
        OptionId::Control,
        "control",
        Value::Path,
        Group::Life,
        "where the control socket is, or none",
        "By this socket, thrufs-explain(1) and thrufs-ctl(1) ask the server; only who mounted, and \
         root, may. /run/thrufs/MAJOR-MINOR.socket for root and \
         $XDG_RUNTIME_DIR/thrufs/MAJOR-MINOR.socket for others unless given, with the device number \
         of the mount; share-DEVICE-INODE.socket there for a share. With none, there is none.",
    ),
    MountOption {
        aliases: &["source"],
        ..mount_row(
            OptionId::FsName,
            "fsname",
            Value::Text,
            Group::Life,
            "what the mount shows as its source",
            "The path of the source unless given.",
        )
    },
    MountOption {
        default: "thrufs",
        ..mount_row(
            OptionId::Subtype,
            "subtype",
            Value::Text,
            Group::Life,
            "what the mount shows as its type, after \"fuse.\"",
            "",
        )
    },
    MountOption {
        instead: "nothing is mounted on the host",
        ..mount_row(
            OptionId::AutoUnmount,
            "auto_unmount",
            Value::None,
            Group::Life,
            "unmount also when the server is killed",
            "Without it, a mount whose server was killed stays and answers ENOTCONN until somebody unmounts \
             it (thrufs unmount), so that nobody takes the directory beneath for it. A server that is told \
             to end unmounts in any case.",
        )
    },
    // Taken for mount(8) and fstab(5).
    ignored("defaults", Value::None, "the defaults of this page"),
    ignored("auto", Value::None, "mounted by mount -a"),
    ignored("noauto", Value::None, "not mounted by mount -a"),
    ignored("nofail", Value::None, "booting goes on when it fails"),
    ignored("fail", Value::None, "booting stops when it fails"),
    ignored("_netdev", Value::None, "needs the network"),
    MountOption {
        id: OptionId::User,
        implies: &["noexec", "nosuid", "nodev"],
        ..ignored(
            "user",
            Value::Any,
            "users may mount it; implies noexec, nosuid and nodev",
        )
    },
    MountOption {
        id: OptionId::User,
        implies: &["noexec", "nosuid", "nodev"],
        ..ignored("users", Value::None, "as user; and any user may unmount it")
    },
    MountOption {
        id: OptionId::Owner,
        implies: &["nosuid", "nodev"],
        ..ignored(
            "owner",
            Value::None,
            "the owner of the source may mount it; implies nosuid and nodev",
        )
    },
    MountOption {
        id: OptionId::Owner,
        implies: &["nosuid", "nodev"],
        ..ignored(
            "group",
            Value::None,
            "the group of the source may mount it; implies nosuid and nodev",
        )
    },
    ignored("nouser", Value::None, "only root may mount it"),
    ignored("nousers", Value::None, "the opposite of users"),
    ignored("noowner", Value::None, "the opposite of owner"),
    ignored("nogroup", Value::None, "the opposite of group"),
    ignored("comment", Value::Any, "a remark"),
    ignored("x-*", Value::Any, "for programs that read fstab; X-* too"),
];
