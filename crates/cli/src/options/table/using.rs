//! Users and ids, permitted operations, caching and content.

use super::{row, usual, valued};
use crate::options::{Group, MountOption, OptionId as Id, Value};
use rustix::mount::MountAttrFlags;

const NOATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOATIME;
const STRICTATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_STRICTATIME;
/// Zero: the kernel's default.
const RELATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RELATIME;

const ROOT_ALONE: &str = "Only root may use it. Unlike for mount(8), defaults does not include it.";

pub(super) const SECTIONS: &[&[MountOption]] = &[
    &Group::Sharing.of_mounts([
        row(Id::AllowOther, "allow_other")
            .help("allow access by other users")
            .long(
                "Root counts as another user. Ordinary users may use it only where /etc/fuse.conf has a \
                 line user_allow_other.",
            ),
        usual(Id::DefaultPermissions(true), "default_permissions")
            .help("have the kernel check permissions by mode, owner and ACL"),
        row(Id::DefaultPermissions(false), "no_default_permissions")
            .help("disable permission checks")
            .long(
                "The server does not check permissions either: every user of the mount acts as the user \
                 who runs the server. Not together with allow_other.",
            ),
    ]),
    &Group::Sharing.of_both([
        valued(Id::Uid, "uid", Value::User)
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
        valued(Id::Gid, "gid", Value::Group)
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
        valued(Id::UidMap, "uidmap", Value::Range)
            .help("map a range of user ids between the mount and the source")
            .adds_up()
            .long(
                "With uidmap=0:100000:65536 a file of user 100007 in the source belongs to user 7 on the \
                 mount. May be given several times for several ranges. Ids outside all ranges show as \
                 65534, and no user of the mount owns such files: not even its root can write or change \
                 them. Where several ids show as one, set-id bits are cleared as with uid=.",
            ),
        valued(Id::GidMap, "gidmap", Value::Range)
            .help("map a range of group ids between the mount and the source")
            .adds_up()
            .long("As uidmap, for groups."),
    ]),
    &Group::Access.of_both([
        row(Id::ReadOnly(true), "ro").help("refuse every change"),
        usual(Id::ReadOnly(false), "rw").help("allow changes"),
    ]),
    &Group::Access.of_mounts([
        usual(Id::Suid(false), "nosuid")
            .help("ignore set-user-id and set-group-id bits and file capabilities when executing"),
        row(Id::Suid(true), "suid")
            .help("honour set-user-id and set-group-id bits and file capabilities")
            .long(ROOT_ALONE),
        usual(Id::Dev(false), "nodev").help("do not open device files"),
        row(Id::Dev(true), "dev")
            .help("open device files")
            .long(ROOT_ALONE),
        row(Id::Exec(false), "noexec").help("do not execute programs"),
        usual(Id::Exec(true), "exec").help("allow programs to be executed"),
        row(Id::SymFollow(false), "nosymfollow")
            .help("do not follow symbolic links")
            .long("They can still be created and read."),
        usual(Id::SymFollow(true), "symfollow").help("follow symbolic links"),
        row(Id::Atime(NOATIME), "noatime").help("do not update times of access"),
        usual(Id::Atime(RELATIME), "atime")
            .help("leave times of access to the source's own rules")
            .aliases(&["norelatime", "nostrictatime"])
            .long("The server reads the files, so what the source is mounted with decides."),
        row(Id::Atime(RELATIME), "relatime")
            .help("update a time of access when it is older than the last change"),
        row(Id::Atime(STRICTATIME), "strictatime").help("update times of access always"),
        row(Id::DirAtime(false), "nodiratime").help("do not update times of access of directories"),
        usual(Id::DirAtime(true), "diratime").help("update times of access of directories like those of \
                                                    files"),
        row(Id::Sync(true), "sync")
            .help("make every write synchronous")
            .long("The kernel sends an FSYNC after each write. Slow."),
        usual(Id::Sync(false), "async").help("leave writes to the caches"),
    ]),
    &Group::Caching.of_both([
        row(Id::Cache, "cache")
            .takes(Value::Choice(&["never", "metadata", "auto", "always"]))
            .default("auto")
            .help("what the kernel may cache, and for how long")
            .long(
                "never: nothing is cached, every change in the source is seen at once; slowest. \
                 metadata: names, attributes and listings for a day, no data. auto: names and attributes \
                 for a second, data as long as the file is unchanged, which is checked whenever it is \
                 opened. always: everything for a day; for trees that change only through this server.",
            ),
        valued(Id::EntryTimeout, "entry_timeout", Value::Seconds)
            .help("validity timeout of a name")
            .aliases(&["timeout"])
            .long("Follows from cache unless given."),
        valued(Id::AttrTimeout, "attr_timeout", Value::Seconds)
            .help("validity timeout of attributes")
            .long("Follows from cache unless given."),
        valued(Id::NegativeTimeout, "negative_timeout", Value::Seconds)
            .help("validity timeout of the absence of a name")
            .long("Follows from cache unless given."),
        row(Id::Writeback(true), "writeback")
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
        usual(Id::Writeback(false), "nowriteback")
            .help("write through to the source")
            .aliases(&["no_writeback"]),
    ]),
    &Group::Caching.of_mounts([
        usual(Id::Passthrough(true), "passthrough")
            .help("let the kernel read and write the source files directly")
            .conflicts(&[(
                "writeback",
                "the kernel has no passthrough with a writeback cache; drop one",
            )])
            .long(
                "Reads, writes and mappings of open files then run at the speed of the underlying file \
                 system. Requires CAP_SYS_ADMIN and Linux 6.9; where it is not available, the log gives \
                 the reason and files are cached.",
            ),
        row(Id::Passthrough(false), "nopassthrough").help("read and write files in the server"),
    ]),
    &Group::Content.of_both([
        valued(Id::Policy, "policy", Value::Path)
            .help("serve by the rules in this file")
            .long(
                "What is hidden, denied, read-only, audited or redacted, and how the rest is \
                 read; see thrufs-policy(1). Read again on SIGHUP.",
            ),
        usual(Id::Xattr(true), "xattr").help("serve extended attributes"),
        row(Id::Xattr(false), "noxattr")
            .help("serve no extended attributes")
            .aliases(&["no_xattr"])
            .long("Implies noacl."),
        usual(Id::Acl(true), "acl")
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
        row(Id::Acl(false), "noacl")
            .help("serve no POSIX ACLs")
            .aliases(&["no_posix_acl"])
            .long(
                "Permissions are checked by modes alone. A file that has an ACL is shown with a mode \
                 that grants no more than the ACL: the group may do what its entry, the mask and each \
                 user that is named may; others may do what their entry, the mask and each user and \
                 group that is named may. chmod changes the mask, or what others may, where it asks for \
                 something else than was shown.",
            ),
        valued(Id::Locks, "locks", Value::Choice(&["local", "shared"]))
            .default("local")
            .help("scope of file locks")
            .long(
                "local: among the users of this mount or guest, without a round trip. shared: also with \
                 all other processes that use the source; closing a file then costs another round trip.",
            ),
        row(Id::Export(true), "export")
            .help("keep file handles valid after the kernel has forgotten a file")
            .long(
                "For exporting the mount by NFS, and for programs that use name_to_handle_at(2).",
            ),
        usual(Id::Export(false), "noexport").help("do not support opening by file handle"),
    ]),
];
