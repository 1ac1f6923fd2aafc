//! Options of shares: the device, the guest, and confinement.

use crate::options::row::{Conflict, Group, MountOption, row, usual};
use crate::options::syntax::{add_range, parse_capabilities, translate};
use crate::options::value::Setter::Share;
use crate::options::value::Value::{Bytes, Choice, Count, Off, On, Range, Rule, Text};
use crate::options::value::{count, named, set};
use std::num::NonZeroU16;
use thrufs_virtio::Tag;

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
    &Group::Device.of([
        row("tag", Rule(Share(|it, text| set(&mut it.tag, Tag::new(&text).map(|_| Some(text))))))
            .help("the tag by which the guest mounts it")
            .long(
                "From 1 to 36 bytes. QEMU and most others take it on their own command line; set it here \
                 for those that ask the server, as User-Mode Linux does.",
            ),
        row("queues", Count(1, 64, Share(|it, n| it.request_queues = positive(count(n)))))
            .help("most request queues that a guest may use")
            .long(
                "Each has its own thread. As many as the host has processors unless given; the virtual \
                 machine monitor decides how many are used.",
            ),
        row("queue_size", Count(16, 1024, Share(|it, n| it.queue_size_max = count(n))))
            .default("1024")
            .help("most requests that may wait in a queue, a power of two")
            .long("A queue of 128 limits single transfers to less than 512 KiB."),
        row("queue_threads", Count(1, 4, Share(|it, n| it.queue_helpers_max = Some(count(n - 1)))))
            .help("most threads that serve one queue while it has many requests at once")
            .long(
                "With 1, only the queue's own thread. Unless given, as many as half of the processors \
                 allow; the others are left to the machine.",
            ),
        row("dax_window", Bytes(1024, Share(|it, bytes| it.window_bytes = bytes)))
            .help("map files of the host into the machine's address space (DAX)")
            .conflicts(&[(
                "opens=local",
                "the server maps files that it knows to be open; drop one",
            )])
            .long(
                "The size of the window, a multiple of 2M, 512M at most unless dax_window_force is given. The \
                 guest reads and writes the mapped files in the host's page cache, without requests and \
                 without a copy of its own. The machine monitor must support it \
                 (VHOST_USER_PROTOCOL_F_SHMEM). A file that is truncated while it is mapped ends the machine \
                 monitor, if the guest touches it (SIGBUS). Under policy=, files are mapped that no rule may \
                 restrict. The machine does not migrate.",
            ),
        // check_window asks whether it is given.
        row("dax_window_force", On(Share(|_, _| ())))
            .help("allow a window of more than 512M, 64G at most")
            .long(
                "Not with QEMU: it ends itself when the guest's memory has 512 regions, and each mapping of \
                 2M is one.",
            ),
        row("dax", Text(Share(|it, names| it.serving.dax.push(names))))
            .help("the files that are mapped, by name: *.img")
            .adds_up()
            .long(
                "A pattern with *, ? and [...] for the last component of the path. May be given several \
                 times. Unless given, all files, where the machine monitor maps beyond the end of a file. One \
                 that does not (QEMU) maps only files of whole pages that are named here, and the guest cannot \
                 change their size.",
            ),
        row("dax_min_size", Bytes(1024, Share(|it, bytes| it.serving.dax_bytes_min = bytes)))
            .default("2M")
            .help("the least size of a file that is mapped")
            .long("Each mapping costs a request and a message to the machine monitor, for 2 MiB."),
        row("machines", Count(1, 1024, Share(|it, n| it.machines_max = count(n))))
            .default("8")
            .help("most virtual machines that are served at once")
            .long(
                "Each has its own process. Further connections wait at the socket until one disconnects.",
            ),
    ]),
    &Group::Sharing.of([
        row("translate_uid", Rule(Share(|it, rule| translate(&mut it.serving.uid_map, &rule))))
            .help("translate user ids, each direction separately")
            .adds_up()
            .conflicts(&[("uidmap", "translate users with one of them, not with both")])
            .long(
                "guest:GUEST:HOST:COUNT, host:HOST:GUEST:COUNT, map:GUEST:HOST:COUNT for both ways, \
                 squash-guest:GUEST:HOST:COUNT and squash-host:HOST:GUEST:COUNT for many to one, \
                 forbid-guest:GUEST:COUNT. Ids that no rule matches are unchanged. May be given several \
                 times.",
            ),
        row("translate_gid", Rule(Share(|it, rule| translate(&mut it.serving.gid_map, &rule))))
            .help("translate group ids, each direction separately")
            .adds_up()
            .conflicts(&[("gidmap", "translate groups with one of them, not with both")])
            .long("As translate_uid, for groups."),
    ]),
    &Group::Caching.of([
        row("allow_mmap", On(Share(|it, on| it.serving.allow_mmap = on)))
            .help(
                "allow shared mappings although no data are cached (cache=never, cache=metadata)",
            )
            .long("Mapped pages are cached all the same: changes on the host are not seen in them."),
        usual("no_allow_mmap", Off("allow_mmap"))
            .help("allow shared mappings only where data are cached"),
        row("allow_direct_io", On(Share(|it, on| it.serving.allow_direct_io = on)))
            .help("open files on the host with O_DIRECT when a guest does")
            .long(
                "Bypasses the host's cache; transfers must be aligned as the file system of the host \
                 requires. Without it, O_DIRECT bypasses only the guest's cache. Not with writeback.",
            ),
        usual("no_allow_direct_io", Off("allow_direct_io"))
            .help("read and write through the host's cache"),
        usual("readdirplus", On(Share(|it, on| it.serving.readdirplus = on)))
            .help("return attributes with directory entries (READDIRPLUS), where that is useful"),
        row("no_readdirplus", Off("readdirplus")).help("return directory entries without attributes"),
    ]),
    &Group::Content.of([
        usual("announce_submounts", On(Share(|it, on| it.serving.announce_submounts = on)))
            .help("show mounts beneath the directory as separate devices to the guest"),
        row("no_announce_submounts", Off("announce_submounts")).help("show one device for everything"),
        row(
            "xattrmap",
            Rule(Share(|it, rules| set(&mut it.serving.xattr_map, rules.parse().map(Some)))),
        )
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
        usual("killpriv_v2", On(Share(|it, on| it.serving.killpriv = on)))
            .help("clear set-id bits and capabilities of files that are written"),
        row("no_killpriv_v2", Off("killpriv_v2"))
            .help("leave that to the guest")
            .long("The guest then asks for the capabilities of a file before every write."),
        row("security_label", On(Share(|it, on| it.serving.security_label = on)))
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
        usual("no_security_label", Off("security_label")).help("create files without a label"),
    ]),
    &Group::Confinement.of([
        row("sandbox", Choice(
            &["namespace", "chroot", "none"],
            Share(|it, word| it.sandbox = named(word)),
        ))
            .help("how the server process is confined")
            .long(
                "namespace: a mount namespace whose root is the shared directory; for an ordinary user, \
                 within a user namespace in which the owners of other users' files are not mapped. \
                 chroot: the shared directory as root directory, in which the process can open device \
                 nodes. Unless given, the first that is available, and the log says so if it is none; a \
                 given one that is not available is an error.",
            ),
        row("namespace_uidmap", Range(Share(|it, range| add_range(&mut it.namespace_uids, range))))
            .help("user ids of the user namespace, for an ordinary user's server")
            .adds_up()
            .conflicts(NO_NAMESPACE)
            .long(
                "namespace_uidmap=0:100000:65536 maps the users from 0 of the guest to those from 100000 \
                 of the host. Unless it is the user's own id alone, the range must be in /etc/subuid for \
                 the user, and newuidmap(1) installed (package uidmap). Files that the guest creates \
                 then belong to its users. Both maps are required, and may be given several times.",
            ),
        row("namespace_gidmap", Range(Share(|it, range| add_range(&mut it.namespace_gids, range))))
            .help("group ids of the user namespace")
            .adds_up()
            .conflicts(NO_NAMESPACE)
            .long("As namespace_uidmap, for groups, with /etc/subgid."),
        row("seccomp", Choice(
            &["errno", "kill", "log", "trap", "none"],
            Share(|it, word| it.filter = named(word)),
        ))
            .default("errno")
            .help("action for system calls that serving does not need")
            .long(
                "errno: the call fails with EPERM. kill: the process is killed. log: the call is \
                 executed and logged. trap: the process gets SIGSYS. none: there is no filter.",
            ),
        row("modcaps", Rule(Share(|it, list| set(&mut it.capabilities, parse_capabilities(&list)))))
            .help("capabilities to keep in addition, or to drop")
            .long("As in +sys_admin:-mknod. With sys_admin, guests reach trusted.* attributes."),
    ]),
    &Group::Speed.of([
        row("rlimit_nofile", Count(0, 1_073_741_816, Share(|it, n| it.descriptor_limit = Some(n))))
            .help("limit on open files (ulimit -n)")
            .long(
                "The hard limit of the process that starts the server unless given; more requires root. 0 \
                 leaves it unchanged.",
            ),
    ]),
    &Group::Life.of([
        row("syslog", On(Share(|it, on| it.server.syslog = on)))
            .help("log to syslog(3) instead of standard error"),
        row("migration_mode", Choice(
            &["find-paths", "file-handles"],
            Share(|it, word| it.serving.migration.mode = named(word)),
        ))
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
        row("migration_on_error", Choice(
            &["abort", "guest-error"],
            Share(|it, word| it.serving.migration.on_error = named(word)),
        ))
            .default("abort")
            .help("what happens to an incoming guest when files of it are not found")
            .long(
                "abort: the migration fails. guest-error: it succeeds, and the guest gets errors for \
                 those files.",
            ),
        row("migration_verify_handles", On(Share(|it, on| it.serving.migration.verify_handles = on)))
            .help(
                "send file handles too, by which the destination verifies that it found the same files",
            )
            .long("Only for a destination that serves the same file system."),
        row("migration_confirm_paths", On(Share(|it, on| it.serving.migration.confirm_paths = on)))
            .help("check every path again before a guest migrates")
            .long("For trees in which other processes move files meanwhile."),
        row("migration_refuse_handles", On(Share(|it, on| it.serving.migration.accept_handles = !on)))
            .help("refuse an incoming guest whose files are sent as file handles")
            .long(
                "A handle opens any file of the file system, not only those of the directory: use this \
                 where the source of a migration must not reach more than its guests.",
            ),
    ]),
];

fn positive(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap_or(NonZeroU16::MIN)
}
