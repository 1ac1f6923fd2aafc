//! A row of the table of options.

use super::value::Value;

/// The section of help and manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Device,
    Access,
    Sharing,
    Caching,
    Content,
    Speed,
    Confinement,
    Life,
    Mount,
}

impl Group {
    pub(crate) const ALL: [Group; 9] = [
        Group::Device,
        Group::Sharing,
        Group::Access,
        Group::Caching,
        Group::Content,
        Group::Speed,
        Group::Confinement,
        Group::Life,
        Group::Mount,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Group::Device => "The device",
            Group::Access => "Permitted operations",
            Group::Sharing => "Users and ids",
            Group::Caching => "Caching",
            Group::Content => "Served content",
            Group::Speed => "Speed and limits",
            Group::Confinement => "Confinement of the server",
            Group::Life => "The server",
            Group::Mount => "Accepted for mount(8) and fstab(5)",
        }
    }

    pub(super) const fn of<const N: usize>(self, mut rows: [MountOption; N]) -> [MountOption; N] {
        let mut at = 0;
        while at < N {
            rows[at].group = self;
            at += 1;
        }
        rows
    }

    /// The remedy for options of mounts that do not apply to a share.
    pub(super) const fn in_a_guest(self) -> &'static str {
        match self {
            Group::Access => "set it where the guest mounts it",
            Group::Sharing => {
                "in a guest, its kernel checks permissions, and all its users have access"
            }
            Group::Caching => "a guest reaches files of the host only through the server",
            Group::Speed => {
                "requests of a guest arrive on its queues, each with its own thread: use queues="
            }
            Group::Life => "a guest mounts it by its tag: use tag=",
            Group::Mount => "it is an option of mount(8)",
            Group::Device | Group::Content | Group::Confinement => "",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In a list after `-o`, and as a flag.
    Both,
    /// Only in a list after `-o`.
    List,
    /// Only as a flag.
    Flag,
}

/// A contradicting setting, by name or with its value, and the remedy.
pub(crate) type Conflict = (&'static str, &'static str);

#[derive(Clone, Debug)]
pub(crate) struct MountOption {
    /// As after `-o`; a trailing `*` matches any suffix.
    pub(crate) name: &'static str,
    /// Accepted, not shown in help.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) value: Value,
    /// The default; empty if there is none.
    pub(crate) default: &'static str,
    pub(crate) group: Group,
    pub(crate) form: Form,
    /// The remedy where it does not apply, unless it is the group's.
    pub(crate) instead: &'static str,
    /// Whether all occurrences count. Otherwise the last, also of opposites, as for mount(8).
    pub(crate) adds_up: bool,
    /// Implied options, unless a later one overrides them.
    pub(crate) implies: &'static [&'static str],
    pub(crate) conflicts: &'static [Conflict],
    /// One line without a full stop.
    pub(crate) help: &'static str,
    /// More sentences, for the manual.
    pub(crate) long: &'static str,
}

/// Methods that set the field of their name.
macro_rules! setters {
    ($($field:ident: $kind:ty,)*) => {
        impl MountOption {
            $(pub(super) const fn $field(self, $field: $kind) -> MountOption {
                MountOption { $field, ..self }
            })*
        }
    };
}

setters! {
    default: &'static str,
    help: &'static str,
    long: &'static str,
    aliases: &'static [&'static str],
    implies: &'static [&'static str],
    conflicts: &'static [Conflict],
    instead: &'static str,
}

impl MountOption {
    pub(crate) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// As in the manual: `cache=never|auto|always`.
    pub(crate) fn pattern(&self) -> String {
        match self.value.pattern() {
            value if value.is_empty() => self.name.to_owned(),
            value => format!("{}={value}", self.name),
        }
    }

    /// A value of its kind, for tests of the whole table; `None` if it takes none.
    #[cfg(test)]
    pub(crate) fn sample(&self) -> Option<String> {
        let value = match (self.name, &self.value) {
            ("xattrmap", _) => ":map::user.v.:",
            ("translate_uid" | "translate_gid", _) => "map:0:1:2",
            ("modcaps", _) => "-mknod",
            ("dax_window", _) => "2M",
            (_, value) if value.is_switch() => return None,
            (_, Value::Choice(words, _)) => words[0],
            (_, Value::Count(least, ..)) => &least.to_string(),
            (_, Value::Range(_)) => "0:1:2",
            (_, Value::Address(_)) => "127.0.0.1:9",
            (_, Value::Text(_) | Value::Rule(_) | Value::Path(_)) => "x",
            _ => "5",
        };
        Some(value.to_owned())
    }

    /// The name of what it sets: opposites have the same.
    pub(crate) fn key(&self) -> &'static str {
        match self.value {
            Value::Off(opposite) => opposite,
            Value::Atime(_) => "atime",
            _ => self.name,
        }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(stem) => {
                name.len() > stem.len() && name[..].to_ascii_lowercase().starts_with(stem)
            }
            None => self.name == name || self.aliases.contains(&name),
        }
    }

    pub(super) const fn adds_up(self) -> MountOption {
        MountOption {
            adds_up: true,
            ..self
        }
    }

    pub(super) const fn flag_alone(self) -> MountOption {
        MountOption {
            form: Form::Flag,
            ..self
        }
    }
}

pub(super) const fn row(name: &'static str, value: Value) -> MountOption {
    MountOption {
        name,
        aliases: &[],
        value,
        default: "",
        group: Group::Mount,
        form: Form::Both,
        instead: "",
        adds_up: false,
        implies: &[],
        conflicts: &[],
        help: "",
        long: "",
    }
}

/// A switch that is the default.
pub(super) const fn usual(name: &'static str, value: Value) -> MountOption {
    row(name, value).default("on")
}

/// Accepted for mount(8), without effect.
pub(super) const fn ignored(name: &'static str, value: Value) -> MountOption {
    MountOption {
        form: Form::List,
        ..row(name, value)
    }
}
