//! Options of shares: the device, the guest, and confinement.

use super::{row, usual, valued};
use crate::options::{Conflict, Group, MountOption, OptionId as Id, Value};

const NO_NAMESPACE: &[Conflict] = &[
    (
        "sandbox=chroot",
        "no user namespace is used then; drop one of them",
    ),
    (
        "sandbox=none",
        "no user namespace is used then; drop one of them",
    ),
];

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Device.of_shares([
        valued(Id::Tag, "tag", Value::Text)
            .help("the tag by which the guest mounts it")
            .long(
                "From 1 to 36 bytes. QEMU and most others take it on their own command line; set it here \
                 for those that ask the server, as User-Mode Linux does.",
            ),
        valued(Id::Queues, "queues", Value::Count(1, 64))
            .help("most request queues that a guest may use")
            .long(
                "Each has its own thread. As many as the host has processors unless given; the virtual \
                 machine monitor decides how many are used.",
            ),
        valued(Id::QueueSize, "queue_size", Value::Count(16, 1024))
            .default("1024")
            .help("most requests that may wait in a queue, a power of two")
            .long("A queue of 128 limits single transfers to less than 512 KiB."),
        valued(Id::QueueThreads, "queue_threads", Value::Count(1, 4))
            .help("most threads that serve one queue while it has many requests at once")
            .long(
                "With 1, only the queue's own thread. Unless given, as many as half of the processors \
                 allow; the others are left to the machine.",
            ),
        valued(Id::Machines, "machines", Value::Count(1, 1024))
            .default("8")
            .help("most virtual machines that are served at once")
            .long(
                "Each has its own process. Further connections wait at the socket until one disconnects.",
            ),
        valued(Id::Resume, "resume", Value::Count(0, 1_000_000))
            .default("10")
            .help("how often a minute to resume a machine whose server process died")
            .long(
                "When the process that serves a machine dies (killed, out of memory, a fault), another \
                 resumes its session, and the machine sees a pause. With 0, or after so many deaths \
                 within a minute, which one of its requests may cause, it is disconnected.",
            ),
    ]),
    &Group::Sharing.of_shares([
        valued(Id::TranslateUid, "translate_uid", Value::Text)
            .help("translate user ids, each direction separately")
            .adds_up()
            .conflicts(&[("uidmap", "translate users with one of them, not with both")])
            .long(
                "guest:GUEST:HOST:COUNT, host:HOST:GUEST:COUNT, map:GUEST:HOST:COUNT for both ways, \
                 squash-guest:GUEST:HOST:COUNT and squash-host:HOST:GUEST:COUNT for many to one, \
                 forbid-guest:GUEST:COUNT. Ids that no rule matches are unchanged. May be given several \
                 times.",
            ),
        valued(Id::TranslateGid, "translate_gid", Value::Text)
            .help("translate group ids, each direction separately")
            .adds_up()
            .conflicts(&[("gidmap", "translate groups with one of them, not with both")])
            .long("As translate_uid, for groups."),
    ]),
    &Group::Caching.of_shares([
        row(Id::AllowMmap(true), "allow_mmap")
            .help(
                "allow shared mappings although no data are cached (cache=never, cache=metadata)",
            )
            .long("Mapped pages are cached all the same: changes on the host are not seen in them."),
        usual(Id::AllowMmap(false), "no_allow_mmap")
            .help("allow shared mappings only where data are cached"),
        row(Id::AllowDirectIo(true), "allow_direct_io")
            .help("open files on the host with O_DIRECT when a guest does")
            .long(
                "Bypasses the host's cache; transfers must be aligned as the file system of the host \
                 requires. Without it, O_DIRECT bypasses only the guest's cache. Not with writeback.",
            ),
        usual(Id::AllowDirectIo(false), "no_allow_direct_io")
            .help("read and write through the host's cache"),
        usual(Id::Readdirplus(true), "readdirplus")
            .help("return attributes with directory entries (READDIRPLUS), where that is useful"),
        row(Id::Readdirplus(false), "no_readdirplus").help("return directory entries without attributes"),
    ]),
    &Group::Content.of_shares([
        usual(Id::Submounts(true), "announce_submounts")
            .help("show mounts beneath the directory as separate devices to the guest"),
        row(Id::Submounts(false), "no_announce_submounts").help("show one device for everything"),
        valued(Id::XattrMap, "xattrmap", Value::Text)
            .help("map the names of extended attributes on the host")
            .conflicts(&[(
                "noxattr",
                "without extended attributes there are no names to map; drop one of them",
            )])
            .long(
                "A list of rules :TYPE:SCOPE:KEY:PREPEND: with prefix, ok, bad or unsupported for TYPE \
                 and client, server or all for SCOPE; or :map:KEY:PREPEND:, as in :map::user.virtiofs.: \
                 for all. The first rule that matches counts, and a name that no rule matches does not \
                 exist. Instead of the colon, any character may begin a rule and then stand between its \
                 fields.",
            ),
        usual(Id::Killpriv(true), "killpriv_v2")
            .help("clear set-id bits and capabilities of files that are written"),
        row(Id::Killpriv(false), "no_killpriv_v2")
            .help("leave that to the guest")
            .long("The guest then asks for the capabilities of a file before every write."),
        row(Id::SecurityLabel(true), "security_label")
            .help("set the security label that the guest sends when it creates a file")
            .conflicts(&[(
                "noxattr",
                "labels are extended attributes; drop noxattr, or use no_security_label",
            )])
            .long(
                "For a guest with SELinux. Where the host has it too, map the attribute to \
                 another name: xattrmap=:map:security.selinux:trusted.guest.: with \
                 modcaps=+sys_admin.",
            ),
        usual(Id::SecurityLabel(false), "no_security_label").help("create files without a label"),
    ]),
    &Group::Confinement.of_shares([
        row(Id::Sandbox, "sandbox")
            .takes(Value::Choice(&["namespace", "chroot", "none"]))
            .help("how the server process is confined")
            .long(
                "namespace: a mount namespace whose root is the shared directory; for an ordinary user, \
                 within a user namespace in which the owners of other users' files are not mapped. \
                 chroot: the shared directory as root directory, in which the process can open device \
                 nodes. Unless given, the first that is available, and the log says so if it is none; a \
                 given one that is not available is an error.",
            ),
        valued(Id::NamespaceUids, "namespace_uidmap", Value::Range)
            .help("user ids of the user namespace, for an ordinary user's server")
            .adds_up()
            .conflicts(NO_NAMESPACE)
            .long(
                "namespace_uidmap=0:100000:65536 maps the users from 0 of the guest to those from 100000 \
                 of the host. Unless it is the user's own id alone, the range must be in /etc/subuid for \
                 the user, and newuidmap(1) installed (package uidmap). Files that the guest creates \
                 then belong to its users. Both maps are required, and may be given several times.",
            ),
        valued(Id::NamespaceGids, "namespace_gidmap", Value::Range)
            .help("group ids of the user namespace")
            .adds_up()
            .conflicts(NO_NAMESPACE)
            .long("As namespace_uidmap, for groups, with /etc/subgid."),
        row(Id::Seccomp, "seccomp")
            .takes(Value::Choice(&["errno", "kill", "log", "trap", "none"]))
            .default("errno")
            .help("action for system calls that serving does not need")
            .long(
                "errno: the call fails with EPERM. kill: the process is killed. log: the call is \
                 executed and logged. trap: the process gets SIGSYS. none: there is no filter.",
            ),
        valued(Id::Capabilities, "modcaps", Value::Text)
            .help("capabilities to keep in addition, or to drop")
            .long("As in +sys_admin:-mknod. With sys_admin, guests reach trusted.* attributes."),
    ]),
    &Group::Life.of_shares([row(Id::Syslog, "syslog")
        .help("log to syslog(3) instead of standard error")]),
    &Group::Speed.of_shares([row(Id::DescriptorLimit, "rlimit_nofile")
        .takes(Value::Count(0, 1_073_741_816))
        .help("limit on open files (ulimit -n)")
        .long(
            "The hard limit of the process that starts the server unless given; more requires root. 0 \
             leaves it unchanged.",
        )]),
    &Group::Life.of_shares([
        row(Id::MigrationMode, "migration_mode")
            .takes(Value::Choice(&["find-paths", "file-handles"]))
            .default("find-paths")
            .help(
                "how the files of a running guest are sent to the destination of its migration",
            )
            .long(
                "find-paths: as paths. The destination serves the same tree, or a copy, and unlinked \
                 files are not found. file-handles: as file handles. The destination serves the same \
                 file system, and finds files that were unlinked while open too; this requires \
                 inode_file_handles=prefer on both sides, and implies it here.",
            ),
        row(Id::MigrationOnError, "migration_on_error")
            .takes(Value::Choice(&["abort", "guest-error"]))
            .default("abort")
            .help("what happens to an incoming guest when files of it are not found")
            .long(
                "abort: the migration fails. guest-error: it succeeds, and the guest gets errors for \
                 those files.",
            ),
        row(Id::MigrationVerifyHandles, "migration_verify_handles")
            .help(
                "send file handles too, by which the destination verifies that it found the same files",
            )
            .long("Only for a destination that serves the same file system."),
        row(Id::MigrationConfirmPaths, "migration_confirm_paths")
            .help("check every path again before a guest migrates")
            .long("For trees in which other processes move files meanwhile."),
        row(Id::MigrationRefuseHandles, "migration_refuse_handles")
            .help("refuse an incoming guest whose files are sent as file handles")
            .long(
                "A handle opens any file of the file system, not only those of the directory: use this \
                 where the source of a migration must not reach more than its guests.",
            ),
    ]),
];
