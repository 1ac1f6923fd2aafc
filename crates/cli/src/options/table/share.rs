//! What shares have and mounts have not: the device, the guest, and what the server gives up.

use super::share_row;
use crate::options::{Conflict, Group, MountOption, OptionId, Value};

const NO_NAMESPACE: &[Conflict] = &[
    Conflict {
        with: "sandbox=chroot",
        fix: "there is no user namespace then; drop one of them",
    },
    Conflict {
        with: "sandbox=none",
        fix: "there is no user namespace then; drop one of them",
    },
];

pub(super) const ROWS: &[MountOption] = &[
    // The device.
    share_row(
        OptionId::Tag,
        "tag",
        Value::Text,
        Group::Device,
        "what the guest mounts it by",
        "From 1 to 36 bytes. QEMU and most others have it on their own command line; say it here for \
         those that ask the server, as User-Mode Linux does.",
    ),
    share_row(
        OptionId::Queues,
        "queues",
        Value::Count(1, 64),
        Group::Device,
        "most request queues that a guest may use",
        "Each has a thread of its own. As many as the host has processors unless given; the virtual \
         machine says how many there are.",
    ),
    MountOption {
        default: "1024",
        ..share_row(
            OptionId::QueueSize,
            "queue_size",
            Value::Count(16, 1024),
            Group::Device,
            "most requests that may wait in a queue, a power of two",
            "A queue of 128 limits single transfers to less than 512 KiB.",
        )
    },
    share_row(
        OptionId::QueueThreads,
        "queue_threads",
        Value::Count(1, 4),
        Group::Device,
        "most threads that serve one queue while it has many requests at once",
        "With 1, the queue's own thread alone. Unless given, as many as there are processors for, half \
         of which are left to the machine; none where there are two.",
    ),
    MountOption {
        default: "8",
        ..share_row(
            OptionId::Machines,
            "machines",
            Value::Count(1, 1024),
            Group::Device,
            "most virtual machines that are served at once",
            "Each has a process of its own. One more waits at the socket until another has \
             disconnected.",
        )
    },
    MountOption {
        default: "10",
        ..share_row(
            OptionId::Resume,
            "resume",
            Value::Count(0, 1_000_000),
            Group::Device,
            "how often a minute to go on with a machine whose server has died",
            "When the process that serves a machine dies (killed, out of memory, a fault), another \
             takes its place, and the machine notices a pause. With 0, or after so many deaths within a \
             minute, which one of its requests may be the cause of, it is disconnected.",
        )
    },
    // Who uses it, and as whom.
    MountOption {
        family: "",
        conflicts: &[Conflict {
            with: "uidmap",
            fix: "translate users with one of them, not with both",
        }],
        ..share_row(
            OptionId::TranslateUid,
            "translate_uid",
            Value::Text,
            Group::Sharing,
            "translate user ids, each way by itself",
            "guest:GUEST:HOST:COUNT, host:HOST:GUEST:COUNT, map:GUEST:HOST:COUNT for both ways, \
             squash-guest:GUEST:HOST:COUNT and squash-host:HOST:GUEST:COUNT for many to one, \
             forbid-guest:GUEST:COUNT. What no rule holds stays as it is. May be given several times.",
        )
    },
    MountOption {
        family: "",
        conflicts: &[Conflict {
            with: "gidmap",
            fix: "translate groups with one of them, not with both",
        }],
        ..share_row(
            OptionId::TranslateGid,
            "translate_gid",
            Value::Text,
            Group::Sharing,
            "translate group ids, each way by itself",
            "As translate_uid, for groups.",
        )
    },
    // Caching.
    MountOption {
        family: "allow_mmap",
        ..share_row(
            OptionId::AllowMmap,
            "allow_mmap",
            Value::None,
            Group::Caching,
            "let files be mapped shared although no data are kept (cache=never, cache=metadata)",
            "What is mapped is kept all the same: changes on the host are not seen there.",
        )
    },
    MountOption {
        family: "allow_mmap",
        default: "on",
        ..share_row(
            OptionId::NoAllowMmap,
            "no_allow_mmap",
            Value::None,
            Group::Caching,
            "let files be mapped shared only where data are kept",
            "",
        )
    },
    MountOption {
        family: "allow_direct_io",
        ..share_row(
            OptionId::AllowDirectIo,
            "allow_direct_io",
            Value::None,
            Group::Caching,
            "open files on the host with O_DIRECT when a guest does",
            "Past the host's cache; transfers must be aligned as the file system of the host wants them. \
             Without it, O_DIRECT is past the guest's cache alone. Not with writeback.",
        )
    },
    MountOption {
        family: "allow_direct_io",
        default: "on",
        ..share_row(
            OptionId::NoAllowDirectIo,
            "no_allow_direct_io",
            Value::None,
            Group::Caching,
            "read and write through the host's cache",
            "",
        )
    },
    MountOption {
        family: "readdirplus",
        default: "on",
        ..share_row(
            OptionId::Readdirplus,
            "readdirplus",
            Value::None,
            Group::Caching,
            "give attributes along with the names of a directory, where that is of use",
            "",
        )
    },
    MountOption {
        family: "readdirplus",
        ..share_row(
            OptionId::NoReaddirplus,
            "no_readdirplus",
            Value::None,
            Group::Caching,
            "give names of a directory alone",
            "",
        )
    },
    // What is served.
    MountOption {
        family: "announce_submounts",
        default: "on",
        ..share_row(
            OptionId::Submounts,
            "announce_submounts",
            Value::None,
            Group::Content,
            "let the guest see what is mounted on directories as devices of their own",
            "",
        )
    },
    MountOption {
        family: "announce_submounts",
        ..share_row(
            OptionId::NoSubmounts,
            "no_announce_submounts",
            Value::None,
            Group::Content,
            "show one device for everything",
            "",
        )
    },
    MountOption {
        conflicts: &[Conflict {
            with: "noxattr",
            fix: "there are no names to map then; drop one of them",
        }],
        ..share_row(
            OptionId::XattrMap,
            "xattrmap",
            Value::Text,
            Group::Content,
            "which names extended attributes have on the host",
            "A list of rules :TYPE:SCOPE:KEY:PREPEND: with prefix, ok, bad or unsupported for TYPE and \
             client, server or all for SCOPE; or :map:KEY:PREPEND:, as in :map::user.virtiofs.: for \
             all. The first rule that matches counts, and what none matches is no name. Instead of the \
             colon, any character may begin a rule and then stand between its fields.",
        )
    },
    MountOption {
        family: "killpriv_v2",
        default: "on",
        ..share_row(
            OptionId::Killpriv,
            "killpriv_v2",
            Value::None,
            Group::Content,
            "take set-id bits and capabilities away from files that are written to",
            "",
        )
    },
    MountOption {
        family: "killpriv_v2",
        ..share_row(
            OptionId::NoKillpriv,
            "no_killpriv_v2",
            Value::None,
            Group::Content,
            "leave that to the guest",
            "Which then asks for the capabilities of a file before every write.",
        )
    },
    MountOption {
        family: "security_label",
        conflicts: &[Conflict {
            with: "noxattr",
            fix: "labels are extended attributes; drop noxattr, or say no_security_label",
        }],
        ..share_row(
            OptionId::SecurityLabel,
            "security_label",
            Value::None,
            Group::Content,
            "give files the security label that the guest says when it makes them",
            "For a guest with SELinux. Where the host has it too, map the attribute to another name: \
             xattrmap=:map:security.selinux:trusted.guest.: with modcaps=+sys_admin.",
        )
    },
    MountOption {
        family: "security_label",
        default: "on",
        ..share_row(
            OptionId::NoSecurityLabel,
            "no_security_label",
            Value::None,
            Group::Content,
            "make files without a label",
            "",
        )
    },
    // What the server gives up.
    share_row(
        OptionId::Sandbox,
        "sandbox",
        Value::Choice(&["namespace", "chroot", "none"]),
        Group::Confinement,
        "where the process that serves is shut in",
        "namespace: in a mount namespace of its own whose root is the shared directory; for an ordinary \
         user, in a user namespace besides, in which the owners of others' files are not known. chroot: \
         its root directory is the shared one, and it can open device nodes there. Unless given, the first of them that can be had, and the \
         log says so if it is none; what is asked for and cannot be had is an error.",
    ),
    MountOption {
        family: "",
        conflicts: NO_NAMESPACE,
        ..share_row(
            OptionId::NamespaceUids,
            "namespace_uidmap",
            Value::Range,
            Group::Confinement,
            "user ids of the user namespace, for a server that is not root's",
            "In namespace_uidmap=0:100000:65536, the users from 0 of the guest are those from 100000 of \
             the host. They must be the user's own, in /etc/subuid, and newuidmap(1) must be there \
             (package uidmap), but for a single one that is the user. What the guest creates then belongs \
             to its users. Both maps are needed, and may be given several times.",
        )
    },
    MountOption {
        family: "",
        conflicts: NO_NAMESPACE,
        ..share_row(
            OptionId::NamespaceGids,
            "namespace_gidmap",
            Value::Range,
            Group::Confinement,
            "group ids of the user namespace",
            "As namespace_uidmap, for groups, with /etc/subgid.",
        )
    },
    MountOption {
        default: "errno",
        ..share_row(
            OptionId::Seccomp,
            "seccomp",
            Value::Choice(&["errno", "kill", "log", "trap", "none"]),
            Group::Confinement,
            "what a system call meets with that serving does not need",
            "errno: it fails with EPERM. kill: the process is killed. log: it is made and logged. trap: \
             the process gets SIGSYS. none: there is no filter.",
        )
    },
    share_row(
        OptionId::Capabilities,
        "modcaps",
        Value::Text,
        Group::Confinement,
        "capabilities to keep besides, or to drop",
        "As in +sys_admin:-mknod. With sys_admin, guests reach trusted.* attributes.",
    ),
    share_row(
        OptionId::Syslog,
        "syslog",
        Value::None,
        Group::Life,
        "log to the system's log (syslog(3)) instead of standard error",
        "",
    ),
    share_row(
        OptionId::DescriptorLimit,
        "rlimit_nofile",
        Value::Count(0, 1_073_741_816),
        Group::Speed,
        "limit on open files (ulimit -n)",
        "The hard limit of whoever starts the server unless given; more needs root. 0 leaves it as it \
         is.",
    ),
    // Moving to another machine.
    MountOption {
        default: "find-paths",
        ..share_row(
            OptionId::MigrationMode,
            "migration_mode",
            Value::Choice(&["find-paths", "file-handles"]),
            Group::Life,
            "how to tell another server, to which a running guest moves, which files the guest has",
            "find-paths: by their paths. The other serves the same tree, or a copy, and what has no name \
             any more is not found. file-handles: by their file handles. The other serves the same file \
             system, and finds what was removed while it was open as well; it needs \
             inode_file_handles=prefer, on both sides, and means that here.",
        )
    },
    MountOption {
        default: "abort",
        ..share_row(
            OptionId::MigrationOnError,
            "migration_on_error",
            Value::Choice(&["abort", "guest-error"]),
            Group::Life,
            "what becomes of a guest that moves here when files of it are not found",
            "abort: it does not move. guest-error: it moves, and gets errors for those files.",
        )
    },
    MountOption {
        family: "",
        ..share_row(
            OptionId::MigrationVerifyHandles,
            "migration_verify_handles",
            Value::None,
            Group::Life,
            "send file handles along, by which the other makes sure that it found the same files",
            "Only for another that serves the same file system.",
        )
    },
    MountOption {
        family: "",
        ..share_row(
            OptionId::MigrationConfirmPaths,
            "migration_confirm_paths",
            Value::None,
            Group::Life,
            "look at every path once more before a guest moves",
            "In case somebody else moves files meanwhile.",
        )
    },
    MountOption {
        family: "",
        ..share_row(
            OptionId::MigrationRefuseHandles,
            "migration_refuse_handles",
            Value::None,
            Group::Life,
            "take no guest over whose files are named by file handles",
            "A handle leads to any file of the file system, not only to those of the directory: say this \
             where those who bring guests are not to reach more than the guests do.",
        )
    },
];
