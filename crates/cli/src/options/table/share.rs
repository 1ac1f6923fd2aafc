//! What shares have and mounts have not: the device, the guest, and what the server gives up.

use super::{row, usual, valued};
use crate::options::{Conflict, Group, MountOption, OptionId as Id, Value};

const NO_NAMESPACE: &[Conflict] = &[
    (
        "sandbox=chroot",
        "there is no user namespace then; drop one of them",
    ),
    (
        "sandbox=none",
        "there is no user namespace then; drop one of them",
    ),
];

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Device.of_shares([
        valued(Id::Tag, "tag", Value::Text)
            .help("what the guest mounts it by")
            .long(
                "From 1 to 36 bytes. QEMU and most others have it on their own command line; say \
                 it here for those that ask the server, as User-Mode Linux does.",
            ),
        valued(Id::Queues, "queues", Value::Count(1, 64))
            .help("most request queues that a guest may use")
            .long(
                "Each has a thread of its own. As many as the host has processors unless given; \
                 the virtual machine says how many there are.",
            ),
        valued(Id::QueueSize, "queue_size", Value::Count(16, 1024))
            .default("1024")
            .help("most requests that may wait in a queue, a power of two")
            .long("A queue of 128 limits single transfers to less than 512 KiB."),
        valued(Id::QueueThreads, "queue_threads", Value::Count(1, 4))
            .help("most threads that serve one queue while it has many requests at once")
            .long(
                "With 1, the queue's own thread alone. Unless given, as many as there are \
                 processors for, half of which are left to the machine; none where there are two.",
            ),
        valued(Id::Machines, "machines", Value::Count(1, 1024))
            .default("8")
            .help("most virtual machines that are served at once")
            .long(
                "Each has a process of its own. One more waits at the socket until another has \
                 disconnected.",
            ),
        valued(Id::Resume, "resume", Value::Count(0, 1_000_000))
            .default("10")
            .help("how often a minute to go on with a machine whose server has died")
            .long(
                "When the process that serves a machine dies (killed, out of memory, a fault), \
                 another takes its place, and the machine notices a pause. With 0, or after so \
                 many deaths within a minute, which one of its requests may be the cause of, it \
                 is disconnected.",
            ),
    ]),
    &Group::Sharing.of_shares([
        valued(Id::TranslateUid, "translate_uid", Value::Text)
            .help("translate user ids, each way by itself")
            .adds_up()
            .conflicts(&[("uidmap", "translate users with one of them, not with both")])
            .long(
                "guest:GUEST:HOST:COUNT, host:HOST:GUEST:COUNT, map:GUEST:HOST:COUNT for both \
                 ways, squash-guest:GUEST:HOST:COUNT and squash-host:HOST:GUEST:COUNT for many \
                 to one, forbid-guest:GUEST:COUNT. What no rule holds stays as it is. May be \
                 given several times.",
            ),
        valued(Id::TranslateGid, "translate_gid", Value::Text)
            .help("translate group ids, each way by itself")
            .adds_up()
            .conflicts(&[("gidmap", "translate groups with one of them, not with both")])
            .long("As translate_uid, for groups."),
    ]),
    &Group::Caching.of_shares([
        row(Id::AllowMmap(true), "allow_mmap")
            .help(
                "let files be mapped shared although no data are kept (cache=never, \
                 cache=metadata)",
            )
            .long("What is mapped is kept all the same: changes on the host are not seen there."),
        usual(Id::AllowMmap(false), "no_allow_mmap")
            .help("let files be mapped shared only where data are kept"),
        row(Id::AllowDirectIo(true), "allow_direct_io")
            .help("open files on the host with O_DIRECT when a guest does")
            .long(
                "Past the host's cache; transfers must be aligned as the file system of the host \
                 wants them. Without it, O_DIRECT is past the guest's cache alone. Not with \
                 writeback.",
            ),
        usual(Id::AllowDirectIo(false), "no_allow_direct_io")
            .help("read and write through the host's cache"),
        usual(Id::Readdirplus(true), "readdirplus")
            .help("give attributes along with the names of a directory, where that is of use"),
        row(Id::Readdirplus(false), "no_readdirplus").help("give names of a directory alone"),
    ]),
    &Group::Content.of_shares([
        usual(Id::Submounts(true), "announce_submounts")
            .help("let the guest see what is mounted on directories as devices of their own"),
        row(Id::Submounts(false), "no_announce_submounts").help("show one device for everything"),
        valued(Id::XattrMap, "xattrmap", Value::Text)
            .help("which names extended attributes have on the host")
            .conflicts(&[(
                "noxattr",
                "there are no names to map then; drop one of them",
            )])
            .long(
                "A list of rules :TYPE:SCOPE:KEY:PREPEND: with prefix, ok, bad or unsupported \
                 for TYPE and client, server or all for SCOPE; or :map:KEY:PREPEND:, as in \
                 :map::user.virtiofs.: for all. The first rule that matches counts, and what \
                 none matches is no name. Instead of the colon, any character may begin a rule \
                 and then stand between its fields.",
            ),
        usual(Id::Killpriv(true), "killpriv_v2")
            .help("take set-id bits and capabilities away from files that are written to"),
        row(Id::Killpriv(false), "no_killpriv_v2")
            .help("leave that to the guest")
            .long("Which then asks for the capabilities of a file before every write."),
        row(Id::SecurityLabel(true), "security_label")
            .help("give files the security label that the guest says when it makes them")
            .conflicts(&[(
                "noxattr",
                "labels are extended attributes; drop noxattr, or say no_security_label",
            )])
            .long(
                "For a guest with SELinux. Where the host has it too, map the attribute to \
                 another name: xattrmap=:map:security.selinux:trusted.guest.: with \
                 modcaps=+sys_admin.",
            ),
        usual(Id::SecurityLabel(false), "no_security_label").help("make files without a label"),
    ]),
    &Group::Confinement.of_shares([
        row(Id::Sandbox, "sandbox")
            .takes(Value::Choice(&["namespace", "chroot", "none"]))
            .help("where the process that serves is shut in")
            .long(
                "namespace: in a mount namespace of its own whose root is the shared directory; \
                 for an ordinary user, in a user namespace besides, in which the owners of \
                 others' files are not known. chroot: its root directory is the shared one, and \
                 it can open device nodes there. Unless given, the first of them that can be \
                 had, and the log says so if it is none; what is asked for and cannot be had is \
                 an error.",
            ),
        valued(Id::NamespaceUids, "namespace_uidmap", Value::Range)
            .help("user ids of the user namespace, for a server that is not root's")
            .adds_up()
            .conflicts(NO_NAMESPACE)
            .long(
                "In namespace_uidmap=0:100000:65536, the users from 0 of the guest are those \
                 from 100000 of the host. They must be the user's own, in /etc/subuid, and \
                 newuidmap(1) must be there (package uidmap), but for a single one that is the \
                 user. What the guest creates then belongs to its users. Both maps are needed, \
                 and may be given several times.",
            ),
        valued(Id::NamespaceGids, "namespace_gidmap", Value::Range)
            .help("group ids of the user namespace")
            .adds_up()
            .conflicts(NO_NAMESPACE)
            .long("As namespace_uidmap, for groups, with /etc/subgid."),
        row(Id::Seccomp, "seccomp")
            .takes(Value::Choice(&["errno", "kill", "log", "trap", "none"]))
            .default("errno")
            .help("what a system call meets with that serving does not need")
            .long(
                "errno: it fails with EPERM. kill: the process is killed. log: it is made and \
                 logged. trap: the process gets SIGSYS. none: there is no filter.",
            ),
        valued(Id::Capabilities, "modcaps", Value::Text)
            .help("capabilities to keep besides, or to drop")
            .long("As in +sys_admin:-mknod. With sys_admin, guests reach trusted.* attributes."),
    ]),
    &Group::Life.of_shares([row(Id::Syslog, "syslog")
        .help("log to the system's log (syslog(3)) instead of standard error")]),
    &Group::Speed.of_shares([row(Id::DescriptorLimit, "rlimit_nofile")
        .takes(Value::Count(0, 1_073_741_816))
        .help("limit on open files (ulimit -n)")
        .long(
            "The hard limit of whoever starts the server unless given; more needs root. 0 \
             leaves it as it is.",
        )]),
    &Group::Life.of_shares([
        row(Id::MigrationMode, "migration_mode")
            .takes(Value::Choice(&["find-paths", "file-handles"]))
            .default("find-paths")
            .help(
                "how to tell another server, to which a running guest moves, which files the \
                 guest has",
            )
            .long(
                "find-paths: by their paths. The other serves the same tree, or a copy, and what \
                 has no name any more is not found. file-handles: by their file handles. The \
                 other serves the same file system, and finds what was removed while it was open \
                 as well; it needs inode_file_handles=prefer, on both sides, and means that here.",
            ),
        row(Id::MigrationOnError, "migration_on_error")
            .takes(Value::Choice(&["abort", "guest-error"]))
            .default("abort")
            .help("what becomes of a guest that moves here when files of it are not found")
            .long(
                "abort: it does not move. guest-error: it moves, and gets errors for those files.",
            ),
        row(Id::MigrationVerifyHandles, "migration_verify_handles")
            .help(
                "send file handles along, by which the other makes sure that it found the same \
                 files",
            )
            .long("Only for another that serves the same file system."),
        row(Id::MigrationConfirmPaths, "migration_confirm_paths")
            .help("look at every path once more before a guest moves")
            .long("In case somebody else moves files meanwhile."),
        row(Id::MigrationRefuseHandles, "migration_refuse_handles")
            .help("take no guest over whose files are named by file handles")
            .long(
                "A handle leads to any file of the file system, not only to those of the \
                 directory: say this where those who bring guests are not to reach more than the \
                 guests do.",
            ),
    ]),
];
