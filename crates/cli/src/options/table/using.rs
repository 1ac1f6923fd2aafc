//! What a mount is to its users: who may use it, what can be done on it, what is cached and served.

use super::{mount_row, row, switch};
use crate::options::{Conflict, Group, MountOption, OptionId, Use, Value};

pub(super) const ROWS: &[MountOption] = &[
    // Who may use it, and as whom.
    mount_row(
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
        ..mount_row(
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
        ..mount_row(
            OptionId::NoDefaultPermissions,
            "no_default_permissions",
            Value::None,
            Group::Sharing,
            "have nobody check permissions",
            "The server checks nothing of its own: who uses the mount acts as the user who serves it. Not \
             together with allow_other.",
        )
    },
    MountOption {
        conflicts: &[
            Conflict {
                with: "uidmap",
                fix: "squash all users to one with uid=, or map them with uidmap=, not both",
            },
            Conflict {
                with: "translate_uid",
                fix: "squash all users to one with uid=, or translate them, not both",
            },
        ],
        ..row(
            OptionId::Uid,
            "uid",
            Value::User,
            Group::Sharing,
            "show every file as owned by this user",
            "A number or a name. What is created belongs to the user who runs the server. Owners cannot be \
             changed, and set-user-id bits cannot be set. A file beneath that is not the caller's loses its \
             set-id bits and capabilities when it is opened for writing, or others are let write it.",
        )
    },
    MountOption {
        conflicts: &[
            Conflict {
                with: "gidmap",
                fix: "squash all groups to one with gid=, or map them with gidmap=, not both",
            },
            Conflict {
                with: "translate_gid",
                fix: "squash all groups to one with gid=, or translate them, not both",
            },
        ],
        ..row(
            OptionId::Gid,
            "gid",
            Value::Group,
            Group::Sharing,
            "show every file as belonging to this group",
            "A number or a name. What is created belongs to the group that runs the server. Groups cannot \
             be changed, and set-group-id bits cannot be set. Set-id bits fall as with uid=.",
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
             mount. May be given several times for several ranges. Files of ids \
             outside all of them show as 65534's and belong to nobody on the mount: not even its root can \
             write or change them. Where several ids show as one, set-id bits fall as with uid=.",
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
    MountOption {
        used: Use::Both,
        ..switch(OptionId::ReadOnly, "ro", "ro/rw", "refuse every change", "")
    },
    MountOption {
        default: "on",
        used: Use::Both,
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
            Value::Choice(&["never", "metadata", "auto", "always"]),
            Group::Caching,
            "how long the kernel may answer without asking",
            "never: nothing is kept, every change in the source is seen at once; slowest. metadata: names, \
             attributes and listings for a day, no data. auto: names and attributes for a second, data \
             as long as the file is unchanged, which is checked whenever it is opened. always: \
             everything for a day; for trees that nothing but the users of this server change.",
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
        conflicts: &[
            Conflict {
                with: "cache=never",
                fix: "written data cannot be kept where nothing may be; say cache=auto, or drop writeback",
            },
            Conflict {
                with: "cache=metadata",
                fix: "written data cannot be kept where no data may be; say cache=auto, or drop writeback",
            },
        ],
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
        ..mount_row(
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
        ..mount_row(
            OptionId::NoPassthrough,
            "nopassthrough",
            Value::None,
            Group::Caching,
            "read and write files in the server",
            "",
        )
    },
    // What is served.
    row(
        OptionId::Policy,
        "policy",
        Value::Path,
        Group::Content,
        "serve by the rules in this file",
        "What is hidden, denied, read-only, audited or redacted, and how the rest is read; see \
         thrufs-policy(1). Read again on SIGHUP.",
    ),
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
            "Permissions are checked by modes alone. A file that has an ACL is shown with a mode that lets \
             nobody do what the ACL refuses: the group may do what its entry, the mask and each user that is \
             named may; others may do what their entry, the mask and each user and group that is named may. \
             chmod changes the mask, or what others may, where it asks for something else than was shown.",
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
            "local: against the users of this mount or guest, without a round trip. shared: against everybody \
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
];
