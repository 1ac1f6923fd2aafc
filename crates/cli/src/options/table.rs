//! The table itself.

use super::{Conflict, Foreign, Form, Group, MountOption, OptionId, Value};

/// What most rows have in common.
const ROW: MountOption = MountOption {
    id: OptionId::Ignored,
    name: "",
    aliases: &[],
    value: Value::None,
    default: "",
    group: Group::Mount,
    form: Form::Both,
    family: "",
    implies: &[],
    conflicts: &[],
    help: "",
    long: "",
};

/// A switch of mount(8): the last of its family counts.
const fn switch(
    id: OptionId,
    name: &'static str,
    family: &'static str,
    help: &'static str,
    long: &'static str,
) -> MountOption {
    MountOption {
        id,
        name,
        family,
        help,
        long,
        group: Group::Access,
        ..ROW
    }
}

/// Something with a value or an opposite, in a group.
const fn row(
    id: OptionId,
    name: &'static str,
    value: Value,
    group: Group,
    help: &'static str,
    long: &'static str,
) -> MountOption {
    MountOption {
        id,
        name,
        value,
        group,
        help,
        long,
        family: name,
        ..ROW
    }
}

/// Taken because mount(8) and its friends say it, and without effect here.
const fn ignored(name: &'static str, value: Value, help: &'static str) -> MountOption {
    MountOption {
        name,
        value,
        help,
        form: Form::List,
        ..ROW
    }
}

/// Every option, in the order of the manual within its group.
pub(crate) const OPTIONS: &[MountOption] = &[
    // Who may use it, and as whom.
    row(
        OptionId::AllowOther,
        "allow_other",
        Value::None,
        Group::Sharing,
        "let other users than the one who mounts use the mount",
        "Root is another user too. Ordinary users may say this only where /etc/fuse.conf has a line \
         user_allow_other.",
    ),
    MountOption {
        family: "permissions",
        default: "on",
        ..row(
            OptionId::DefaultPermissions,
            "default_permissions",
            Value::None,
            Group::Sharing,
            "have the kernel check permissions by mode, owner and ACL",
            "",
        )
    },
    MountOption {
        family: "permissions",
        ..row(
            OptionId::NoDefaultPermissions,
            "no_default_permissions",
            Value::None,
            Group::Sharing,
            "leave permissions to the server alone",
            "Together with allow_other this needs timeouts of 0 (cache=never): what is cached would be \
             handed to callers who may not search the directory it is in.",
        )
    },
    MountOption {
        conflicts: &[Conflict {
            with: "uidmap",
            fix: "squash all users to one with uid=, or map them with uidmap=, not both",
        }],
        ..row(
            OptionId::Uid,
            "uid",
            Value::User,
            Group::Sharing,
            "show every file as owned by this user",
            "A number or a name. What is created belongs to the user who runs the server, and owners \
             cannot be changed.",
        )
    },
    MountOption {
        conflicts: &[Conflict {
            with: "gidmap",
            fix: "squash all groups to one with gid=, or map them with gidmap=, not both",
        }],
        ..row(
            OptionId::Gid,
            "gid",
            Value::Group,
            Group::Sharing,
            "show every file as belonging to this group",
            "A number or a name. What is created belongs to the group that runs the server, and \
             groups cannot be changed.",
        )
    },
    MountOption {
        family: "",
        ..row(
            OptionId::UidMap,
            "uidmap",
            Value::Range,
            Group::Sharing,
            "map a range of user ids between the mount and the source",
            "With uidmap=0:100000:65536 a file of user 100007 in the source belongs to user 7 on the \
             mount. May be given several times for several ranges. Ids outside all of them show as \
             65534 and cannot be given to a file.",
        )
    },
    MountOption {
        family: "",
        ..row(
            OptionId::GidMap,
            "gidmap",
            Value::Range,
            Group::Sharing,
            "map a range of group ids between the mount and the source",
            "As uidmap, for groups.",
        )
    },
    // What can be done on the mount.
    switch(OptionId::ReadOnly, "ro", "ro/rw", "refuse every change", ""),
    MountOption {
        default: "on",
        ..switch(OptionId::ReadWrite, "rw", "ro/rw", "allow changes", "")
    },
    MountOption {
        default: "on",
        ..switch(
            OptionId::NoSuid,
            "nosuid",
            "suid",
            "ignore set-user-id and set-group-id bits and file capabilities when executing",
            "",
        )
    },
    switch(
        OptionId::Suid,
        "suid",
        "suid",
        "honour set-user-id and set-group-id bits and file capabilities",
        "For root alone. The option defaults does not include it, other than with mount(8).",
    ),
    MountOption {
        default: "on",
        ..switch(
            OptionId::NoDev,
            "nodev",
            "dev",
            "do not open device files",
            "",
        )
    },
    switch(
        OptionId::Dev,
        "dev",
        "dev",
        "open device files",
        "For root alone. The option defaults does not include it, other than with mount(8).",
    ),
    switch(
        OptionId::NoExec,
        "noexec",
        "exec",
        "do not execute programs",
        "",
    ),
    MountOption {
        default: "on",
        ..switch(
            OptionId::Exec,
            "exec",
            "exec",
            "allow programs to be executed",
            "",
        )
    },
    switch(
        OptionId::NoSymFollow,
        "nosymfollow",
        "symfollow",
        "do not follow symbolic links",
        "They can still be created and read.",
    ),
    MountOption {
        default: "on",
        ..switch(
            OptionId::SymFollow,
            "symfollow",
            "symfollow",
            "follow symbolic links",
            "",
        )
    },
    switch(
        OptionId::NoAtime,
        "noatime",
        "atime",
        "do not update times of access",
        "",
    ),
    MountOption {
        aliases: &["norelatime", "nostrictatime"],
        default: "on",
        ..switch(
            OptionId::Atime,
            "atime",
            "atime",
            "leave times of access to the source's own rules",
            "The server reads the files, so what the source is mounted with decides.",
        )
    },
    switch(
        OptionId::RelAtime,
        "relatime",
        "atime",
        "update a time of access when it is older than the last change",
        "",
    ),
    switch(
        OptionId::StrictAtime,
        "strictatime",
        "atime",
        "update times of access always",
        "",
    ),
    switch(
        OptionId::NoDirAtime,
        "nodiratime",
        "diratime",
        "do not update times of access of directories",
        "",
    ),
    MountOption {
        default: "on",
        ..switch(
            OptionId::DirAtime,
            "diratime",
            "diratime",
            "treat directories like files in this",
            "",
        )
    },
    switch(
        OptionId::Sync,
        "sync",
        "sync",
        "make every write synchronous",
        "The kernel sends an FSYNC after each write. Slow.",
    ),
    MountOption {
        default: "on",
        ..switch(
            OptionId::Async,
            "async",
            "sync",
            "leave writes to the caches",
            "",
        )
    },
    // Caching.
    MountOption {
        default: "auto",
        ..row(
            OptionId::Cache,
            "cache",
            Value::Choice(&["never", "auto", "always"]),
            Group::Caching,
            "how long the kernel may answer without asking",
            "never: nothing is kept, every change in the source is seen at once; slowest. auto: names \
             and attributes for a second, data as long as the file is unchanged, which is checked \
             whenever it is opened. always: everything for a day; for trees that nothing but this \
             mount changes.",
        )
    },
    MountOption {
        aliases: &["timeout"],
        ..row(
            OptionId::EntryTimeout,
            "entry_timeout",
            Value::Seconds,
            Group::Caching,
            "how long a name is believed",
            "Follows from cache unless given.",
        )
    },
    row(
        OptionId::AttrTimeout,
        "attr_timeout",
        Value::Seconds,
        Group::Caching,
        "how long attributes are believed",
        "Follows from cache unless given.",
    ),
    row(
        OptionId::NegativeTimeout,
        "negative_timeout",
        Value::Seconds,
        Group::Caching,
        "how long the absence of a name is believed",
        "Follows from cache unless given.",
    ),
    MountOption {
        aliases: &["writeback_cache"],
        family: "writeback",
        conflicts: &[Conflict {
            with: "cache=never",
            fix: "written data cannot be kept where nothing may be; say cache=auto, or drop writeback",
        }],
        ..row(
            OptionId::Writeback,
            "writeback",
            Value::None,
            Group::Caching,
            "keep written data in the kernel and write it later",
            "Faster for many small writes. What others write meanwhile to files that are open here \
             can be lost.",
        )
    },
    MountOption {
        aliases: &["no_writeback"],
        family: "writeback",
        default: "on",
        ..row(
            OptionId::NoWriteback,
            "nowriteback",
            Value::None,
            Group::Caching,
            "write through to the source",
            "",
        )
    },
    MountOption {
        family: "passthrough",
        default: "on",
        conflicts: &[Conflict {
            with: "writeback",
            fix: "the kernel either uses files itself or keeps what is written to them; drop one",
        }],
        ..row(
            OptionId::Passthrough,
            "passthrough",
            Value::None,
            Group::Caching,
            "let the kernel use files beneath by itself",
            "Reads, writes and maps of open files then run at the speed of the file system beneath. \
             Needs CAP_SYS_ADMIN and Linux 6.9; where it cannot be had, the log says why and files \
             go by the cache.",
        )
    },
    MountOption {
        family: "passthrough",
        ..row(
            OptionId::NoPassthrough,
            "nopassthrough",
            Value::None,
            Group::Caching,
            "read and write files in the server",
            "",
        )
    },
    // What is served.
    MountOption {
        family: "xattr",
        default: "on",
        ..row(
            OptionId::Xattr,
            "xattr",
            Value::None,
            Group::Content,
            "serve extended attributes",
            "",
        )
    },
    MountOption {
        aliases: &["no_xattr"],
        family: "xattr",
        ..row(
            OptionId::NoXattr,
            "noxattr",
            Value::None,
            Group::Content,
            "serve no extended attributes",
            "Implies noacl.",
        )
    },
    MountOption {
        aliases: &["posix_acl"],
        family: "acl",
        default: "on",
        conflicts: &[
            Conflict {
                with: "noxattr",
                fix: "ACLs are extended attributes; drop noxattr, or say noacl",
            },
            Conflict {
                with: "no_default_permissions",
                fix: "ACLs are checked by the kernel; drop no_default_permissions, or say noacl",
            },
        ],
        ..row(
            OptionId::Acl,
            "acl",
            Value::None,
            Group::Content,
            "serve POSIX ACLs, and have the kernel honour them",
            "",
        )
    },
    MountOption {
        aliases: &["no_posix_acl"],
        family: "acl",
        ..row(
            OptionId::NoAcl,
            "noacl",
            Value::None,
            Group::Content,
            "serve no POSIX ACLs",
            "",
        )
    },
    MountOption {
        default: "local",
        ..row(
            OptionId::Locks,
            "locks",
            Value::Choice(&["local", "shared"]),
            Group::Content,
            "against whom file locks are held",
            "local: against the users of this mount, without a round trip. shared: against everybody \
             who uses the files of the source; closing a file then costs a round trip more.",
        )
    },
    MountOption {
        family: "export",
        ..row(
            OptionId::Export,
            "export",
            Value::None,
            Group::Content,
            "let file handles outlive the kernel's memory of a file",
            "For exporting the mount by NFS, and for programs that use name_to_handle_at(2).",
        )
    },
    MountOption {
        family: "export",
        default: "on",
        ..row(
            OptionId::NoExport,
            "noexport",
            Value::None,
            Group::Content,
            "give out no file handles that can be opened",
            "",
        )
    },
    // Speed and limits.
    MountOption {
        default: "auto",
        ..row(
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
    row(
        OptionId::QueuesPerThread,
        "queues_per_thread",
        Value::Count(1, 4096),
        Group::Speed,
        "queues that one thread serves (transport=uring)",
        "There is a queue for each possible processor. One unless given, more where there are very \
         many.",
    ),
    row(
        OptionId::RingDepth,
        "ring_depth",
        Value::Count(1, 256),
        Group::Speed,
        "requests that a thread takes at once from a queue (transport=uring)",
        "8 where the source is in memory, and 1 elsewhere, unless given: a request that waits for a \
         disk keeps those waiting that were taken with it.",
    ),
    MountOption {
        default: "0",
        ..row(
            OptionId::RingSpin,
            "ring_spin",
            Value::Count(0, 1000),
            Group::Speed,
            "microseconds to look out for the next request before sleeping (transport=uring)",
            "Only while requests come faster than that, and while nobody else wants the processor.",
        )
    },
    row(
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
            "While a single program asks much, one thread serves it, on the same processor: neither \
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
    // The server.
    MountOption {
        form: Form::Flag,
        ..row(
            OptionId::Foreground,
            "foreground",
            Value::None,
            Group::Life,
            "stay in the foreground and log to standard error",
            "",
        )
    },
    MountOption {
        default: "10",
        ..row(
            OptionId::StopTimeout,
            "stop_timeout",
            Value::Seconds,
            Group::Life,
            "how long to wait for users of the mount when asked to end",
            "After that time SIGTERM takes the mount away from them.",
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
    MountOption {
        aliases: &["source"],
        ..row(
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
        ..row(
            OptionId::Subtype,
            "subtype",
            Value::Text,
            Group::Life,
            "what the mount shows as its type, after \"fuse.\"",
            "",
        )
    },
    MountOption {
        default: "on",
        ..row(
            OptionId::AutoUnmount,
            "auto_unmount",
            Value::None,
            Group::Life,
            "unmount when the server ends, however it ends",
            "Always so; taken for the sake of those who say it.",
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
