//! Users and ids, permitted operations, caching and content.

use crate::options::row::{Group, MountOption, row, usual};
use crate::options::syntax::add_range;
use crate::options::value::Setter::{Mount, Server, Serving};
use crate::options::value::Value::{self, Atime, Choice, Count, Off, On, Path, Range, Seconds};
use crate::options::value::named;
use rustix::mount::MountAttrFlags;
use thrufs_hostdir::IdMap;

const NOSUID: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID;
const NODEV: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODEV;
const NOEXEC: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOEXEC;
const NOSYMFOLLOW: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW;
const NODIRATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODIRATIME;
const NOATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOATIME;
const STRICTATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_STRICTATIME;
/// Zero: the kernel's default.
const RELATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RELATIME;

const ROOT_ALONE: &str = "Only root may use it. Unlike for mount(8), defaults does not include it. mount(8) does \
    not pass it on: write allow_suid or allow_dev after its -o, and in fstab.";

const IN_THE_SOURCE: &str = "For what is read through the mount; not for what is mounted in the source later. Only \
    root's server can do it: it reads by a copy of the source's mounts, which has this flag.";

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Sharing.of([
        row("allow_other", On(Mount(|it, on| it.serving.allow_other = on)))
            .help("allow access by other users")
            .conflicts(&[(
                "no_default_permissions",
                "allow_other without default_permissions disables all permission checks: every user of \
                 the mount acts as the user who runs the server; drop one of them",
            )])
            .long(
                "Root counts as another user. Ordinary users may use it only where /etc/fuse.conf has a \
                 line user_allow_other.",
            ),
        usual("default_permissions", On(Mount(|it, on| it.serving.default_permissions = on)))
            .help("have the kernel check permissions by mode, owner and ACL"),
        row("no_default_permissions", Off("default_permissions"))
            .help("disable permission checks")
            .long(
                "The server does not check permissions either: every user of the mount acts as the user \
                 who runs the server. Not together with allow_other.",
            ),
        row("uid", Value::User(Serving(|it, id| it.uid_map = IdMap::Squash(id))))
            .help("show every file as owned by this user")
            .conflicts(&[
                (
                    "uidmap",
                    "squash all users to one with uid=, or map them with uidmap=, not both",
                ),
                (
                    "translate_uid",
                    "squash all users to one with uid=, or translate them, not both",
                ),
            ])
            .long(
                "A number or a name. What is created belongs to the user who runs the server. Owners \
                 cannot be changed, and set-user-id bits cannot be set. A file that the caller does not \
                 own in the source loses its set-id bits and capabilities when it is opened for writing, \
                 or made writable by others.",
            ),
        row("gid", Value::Group(Serving(|it, id| it.gid_map = IdMap::Squash(id))))
            .help("show every file as belonging to this group")
            .conflicts(&[
                (
                    "gidmap",
                    "squash all groups to one with gid=, or map them with gidmap=, not both",
                ),
                (
                    "translate_gid",
                    "squash all groups to one with gid=, or translate them, not both",
                ),
            ])
            .long(
                "A number or a name. What is created belongs to the group that runs the server. Groups \
                 cannot be changed, and set-group-id bits cannot be set. Set-id bits are cleared as with \
                 uid=.",
            ),
        row("uidmap", Range(Serving(|it, range| add_range(&mut it.uid_map, range))))
            .help("map a range of user ids between the mount and the source")
            .adds_up()
            .long(
                "With uidmap=0:100000:65536 a file of user 100007 in the source belongs to user 7 on the \
                 mount. May be given several times for several ranges. Ids outside all ranges show as \
                 65534, and no user of the mount owns such files: not even its root can write or change \
                 them. Where several ids show as one, set-id bits are cleared as with uid=.",
            ),
        row("gidmap", Range(Serving(|it, range| add_range(&mut it.gid_map, range))))
            .help("map a range of group ids between the mount and the source")
            .adds_up()
            .long("As uidmap, for groups."),
    ]),
    &Group::Access.of([
        row("ro", On(Serving(|it, on| it.read_only = on))).help("refuse every change"),
        usual("rw", Off("ro")).help("allow changes"),
        usual("nosuid", On(Mount(|it, on| it.attributes.set(NOSUID, on))))
            .help("ignore set-user-id and set-group-id bits and file capabilities when executing"),
        row("suid", Off("nosuid"))
            .aliases(&["allow_suid"])
            .help("honour set-user-id and set-group-id bits and file capabilities")
            .long(ROOT_ALONE),
        usual("nodev", On(Mount(|it, on| it.attributes.set(NODEV, on))))
            .help("do not open device files"),
        row("dev", Off("nodev"))
            .aliases(&["allow_dev"])
            .help("open device files")
            .long(ROOT_ALONE),
        row("noexec", On(Mount(|it, on| it.attributes.set(NOEXEC, on))))
            .help("do not execute programs"),
        usual("exec", Off("noexec")).help("allow programs to be executed"),
        row("nosymfollow", On(Mount(|it, on| it.attributes.set(NOSYMFOLLOW, on))))
            .help("do not follow symbolic links")
            .long("They can still be created and read."),
        usual("symfollow", Off("nosymfollow")).help("follow symbolic links"),
        row("noatime", Atime(Some(NOATIME)))
            .help("do not update times of access")
            .long(IN_THE_SOURCE),
        usual("atime", Atime(None))
            .help("leave times of access to the source's own rules")
            .aliases(&["norelatime", "nostrictatime"]),
        row("relatime", Atime(Some(RELATIME)))
            .help("update a time of access when it is a day old, or older than the last change")
            .long(IN_THE_SOURCE),
        row("strictatime", Atime(Some(STRICTATIME)))
            .help("update times of access always")
            .long(IN_THE_SOURCE),
        row("nodiratime", On(Mount(|it, on| it.attributes.set(NODIRATIME, on))))
            .help("do not update times of access of directories")
            .long(IN_THE_SOURCE),
        usual("diratime", Off("nodiratime"))
            .help("update times of access of directories like those of files"),
        row("sync", On(Mount(|it, on| it.synchronous = on)))
            .help("make every write synchronous")
            .long("The kernel sends an FSYNC after each write. Slow."),
        usual("async", Off("sync")).help("leave writes to the caches"),
    ]),
    &Group::Caching.of([
        row("cache", Choice(
            &["never", "metadata", "auto", "always"],
            Serving(|it, word| it.cache = named(word)),
        ))
            .default("auto")
            .help("what the kernel may cache, and for how long")
            .long(
                "never: nothing is cached, every change in the source is seen at once; slowest. \
                 metadata: names, attributes and listings for a day, no data. auto: names, attributes \
                 and listings until they change in the source, where that can be followed, and else for a \
                 second; data as long as the file is unchanged, which is checked whenever it is opened. \
                 always: everything for a day; for trees that change only through this server.",
            ),
        row("follow", Choice(
            &["auto", "directories", "filesystem", "no"],
            Mount(|it, word| it.serving.follow = named(word)),
        ))
            .default("auto")
            .help("keep names and attributes until they change in the source")
            .long(
                "With cache=auto alone. The server watches what is in use (fanotify(7)) and tells the kernel \
                 what changes. What cannot be watched, as in network file systems, is asked for again after \
                 a second. filesystem: root's server watches the whole file system of the source, where \
                 that is possible; everybody who writes on that file system pays for it. directories: each \
                 directory in use, at most follow_marks; changes by file handles (another mount, an NFS \
                 server) may not be seen. auto: filesystem, but directories with inode_file_handles=never.",
            ),
        row("follow_timeout", Seconds(Mount(|it, time| it.serving.follow_timeout = time)))
            .default("3600")
            .help("validity timeout of names and attributes that are followed"),
        row("follow_marks", Count(1, 1 << 32, Mount(|it, marks| it.serving.follow_marks = marks as usize)))
            .default("200000")
            .help("follow at most this many directories")
            .long("Each takes 1.2 KB of the kernel's memory. Others are asked for again after a second."),
        row("entry_timeout", Seconds(Serving(|it, time| it.entry_timeout = Some(time))))
            .help("validity timeout of a name")
            .aliases(&["timeout"])
            .long("Follows from cache unless given."),
        row("attr_timeout", Seconds(Serving(|it, time| it.attr_timeout = Some(time))))
            .help("validity timeout of attributes")
            .long("Follows from cache unless given."),
        row("negative_timeout", Seconds(Serving(|it, time| it.negative_timeout = Some(time))))
            .help("validity timeout of the absence of a name")
            .long("Follows from cache unless given."),
        row("writeback", On(Serving(|it, on| it.writeback = on)))
            .help("cache written data in the kernel and write it later")
            .aliases(&["writeback_cache"])
            .conflicts(&[
                (
                    "cache=never",
                    "written data cannot be cached where nothing is; use cache=auto, or drop writeback",
                ),
                (
                    "cache=metadata",
                    "written data cannot be cached where no data are; use cache=auto, or drop writeback",
                ),
            ])
            .long(
                "Faster for many small writes. Concurrent writes by other processes to files that are \
                 open here can be lost.",
            ),
        usual("nowriteback", Off("writeback"))
            .help("write through to the source")
            .aliases(&["no_writeback"]),
        usual("passthrough", On(Mount(|it, on| it.serving.passthrough = on)))
            .help("let the kernel read and write the source files directly")
            .conflicts(&[
                (
                    "writeback",
                    "the kernel has no passthrough with a writeback cache; drop one",
                ),
                (
                    "opens=local",
                    "the kernel uses source files that the server has opened for it; drop one",
                ),
            ])
            .long(
                "Reads, writes and mappings of open files then run at the speed of the underlying file \
                 system. Requires CAP_SYS_ADMIN and Linux 6.9; where it is not available, the log gives \
                 the reason and files are cached.",
            ),
        row("nopassthrough", Off("passthrough")).help("read and write files in the server"),
        row("opens", Choice(&["auto", "local", "server"], Serving(|it, word| it.opens = named(word))))
            .default("auto")
            .help("who opens files")
            .long(
                "local: the kernel, by what it has of names, attributes and data: opening, reading and closing a \
                 file again sends no request. What changes in the source shows when the kernel is told, not at the \
                 next open. Requires cache=always, or cache=auto on a mount that is followed; to write, a mount \
                 of root's. It implies nopassthrough and, unless locks is given, locks=local. Not with a policy, \
                 writeback or dax_window. server: the server, which looks at the file each time. auto: local with \
                 ro, if locks are local (as they are with ro,cache=always) and passthrough is not available.",
            ),
    ]),
    &Group::Content.of([
        row("policy", Path(Server(|it, path| it.policy = Some(path))))
            .help("serve by the rules in this file")
            .long(
                "What is hidden, denied, read-only, audited or redacted, and how the rest is \
                 read; see thrufs-policy(1). Read again on SIGHUP.",
            ),
        usual("xattr", On(Serving(|it, on| it.xattr = on))).help("serve extended attributes"),
        row("noxattr", Off("xattr"))
            .help("serve no extended attributes")
            .aliases(&["no_xattr"])
            .long("Implies noacl."),
        usual("acl", On(Serving(|it, on| it.acl = on)))
            .help("serve POSIX ACLs, and have the kernel honour them")
            .aliases(&["posix_acl"])
            .conflicts(&[
                (
                    "noxattr",
                    "ACLs are extended attributes; drop noxattr, or use noacl",
                ),
                (
                    "no_default_permissions",
                    "ACLs are checked by the kernel; drop no_default_permissions, or use noacl",
                ),
            ]),
        row("noacl", Off("acl"))
            .help("serve no POSIX ACLs")
            .aliases(&["no_posix_acl"])
            .long(
                "Permissions are checked by modes alone. A file that has an ACL is shown with a mode \
                 that grants no more than the ACL: the group may do what its entry, the mask and each \
                 user that is named may; others may do what their entry, the mask and each user and \
                 group that is named may. chmod changes the mask, or what others may, where it asks for \
                 something else than was shown.",
            ),
        row("locks", Choice(&["local", "shared"], Serving(|it, word| it.locks = named(word))))
            .help("scope of file locks")
            .long(
                "shared, the default of a mount unless the kernel opens files (opens=local) or nothing changes \
                 (ro,cache=always): with all other processes that use the source. A lock costs a \
                 round trip, and so does closing a file that is open for writing. local, the default of a \
                 share: among the users of this mount or guest, without a round trip.",
            ),
        row("export", On(Serving(|it, on| it.export = on)))
            .help("keep file handles valid after the kernel has forgotten a file")
            .long(
                "For exporting the mount by NFS, and for programs that use name_to_handle_at(2).",
            ),
        usual("noexport", Off("export")).help("do not support opening by file handle"),
    ]),
];
