//! The options of mounts and shares: one table for the parser of `-o`, the long flags, the help, the
//! manual pages and the completions.
//!
//! A row has all of an option: its name, its value, what it sets in the configuration, and its texts.
//!
//! | module | content |
//! |---|---|
//! | `table` | the rows |
//! | `value` | the kinds of values, and what they set |
//! | `syntax` | the parsers of lists and values |
//! | `resolve` | from settings to a configuration |
//! | `foreign`, `nearest` | options of other FUSE servers; suggestions |

mod foreign;
mod nearest;
mod resolve;
mod syntax;
mod table;
mod value;

pub(crate) use foreign::{FOREIGN, NEEDLESS};
pub(crate) use nearest::nearest;
pub(crate) use resolve::{resolve_mount, resolve_share};
pub(crate) use syntax::{parse_group, parse_user};
pub(crate) use table::OPTIONS;
pub(crate) use value::{Setter, Value};

use std::fmt;
use syntax::split_list;
use value::Target;

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

    /// Its options for this use, in the order of the manual.
    pub(crate) fn options(self, used: Use) -> impl Iterator<Item = &'static MountOption> {
        let is_one =
            move |option: &&MountOption| option.group == self && option.used().includes(used);
        OPTIONS.iter().filter(is_one)
    }

    pub(crate) fn title(self) -> &'static str {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Mount,
    Share,
    Both,
}

impl Use {
    pub(crate) fn includes(self, other: Use) -> bool {
        self == other || self == Use::Both
    }
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
            (_, value) if value.is_switch() => return None,
            (_, Value::Choice(words, _)) => words[0],
            (_, Value::Count(least, ..)) => &least.to_string(),
            (_, Value::Range(_)) => "0:1:2",
            (_, Value::Text(_) | Value::Rule(_) | Value::Path(_)) => "x",
            _ => "5",
        };
        Some(value.to_owned())
    }

    pub(crate) fn used(&self) -> Use {
        self.value.used()
    }

    /// The name of what it sets: opposites have the same.
    pub(crate) fn key(&self) -> &'static str {
        match self.value {
            Value::Off(opposite) => opposite,
            Value::Atime(_) => "atime",
            _ => self.name,
        }
    }

    fn is_called(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(stem) => {
                name.len() > stem.len() && name[..].to_ascii_lowercase().starts_with(stem)
            }
            None => self.name == name || self.aliases.contains(&name),
        }
    }
}

/// A given option.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) option: &'static MountOption,
    pub(crate) value: Option<String>,
}

impl PartialEq for Setting {
    fn eq(&self, other: &Setting) -> bool {
        self.option.name == other.option.name && self.value == other.value
    }
}

impl Setting {
    fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// Sets its value.
    fn apply(&self, target: &mut Target<'_>) -> Result<(), OptionError> {
        let applied = self.option.value.apply(self.text(), target);
        applied.map_err(|problem| self.bad(problem))
    }

    fn bad(&self, problem: String) -> OptionError {
        OptionError::BadValue {
            name: self.option.name,
            value: self.value.clone().unwrap_or_default(),
            problem,
        }
    }

    fn not_for(&self, what: &'static str) -> OptionError {
        let instead = match self.option {
            option if option.used() == Use::Share => "",
            option if option.instead.is_empty() => option.group.in_a_guest(),
            option => option.instead,
        };
        OptionError::NotFor {
            name: self.option.name,
            what,
            instead,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.option.name),
            None => f.write_str(self.option.name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("unknown option `{name}`{}", suggestion(nearest))]
    Unknown {
        name: String,
        nearest: Option<&'static str>,
    },
    #[error("thrufs does not support option `{name}`: {note}")]
    Foreign { name: String, note: &'static str },
    #[error("option `{name}` does not apply to a {what}{}", after_colon(instead))]
    NotFor {
        name: &'static str,
        what: &'static str,
        instead: &'static str,
    },
    #[error("option `{name}` can only be given as a flag: --{name}")]
    FlagOnly { name: &'static str },
    #[error("option `{name}` needs a value: {name}={pattern}")]
    MissingValue { name: &'static str, pattern: String },
    #[error("option `{name}` takes no value (`{value}` was given): use `{name}` alone")]
    UnwantedValue { name: &'static str, value: String },
    #[error("bad value `{value}` for option `{name}`: {problem}")]
    BadValue {
        name: &'static str,
        value: String,
        problem: String,
    },
    #[error("`{first}` contradicts `{second}`: {fix}")]
    Contradiction {
        first: String,
        second: String,
        fix: String,
    },
    #[error("option list {0:?} has a quote that is not closed")]
    OpenQuote(String),
    #[error("option {0:?} is not UTF-8 text")]
    NotText(std::ffi::OsString),
}

fn after_colon(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean `{name}`?"),
        None => ": see `thrufs mount --help` and `thrufs share --help`".to_owned(),
    }
}

pub(crate) fn find(name: &str) -> Option<&'static MountOption> {
    OPTIONS.iter().find(|option| option.is_called(name))
}

/// Parses a list after `-o`. Options of other FUSE servers that request the default are dropped.
pub(crate) fn parse(list: &str) -> Result<Vec<Setting>, OptionError> {
    let items = split_list(list)?;
    let settings = items.iter().filter_map(|item| parse_one(item).transpose());
    settings.collect()
}

/// As [`parse`], without the unknown options, which are returned too: `mount -s`.
pub(crate) fn parse_sloppily(list: &str) -> Result<(Vec<Setting>, Vec<String>), OptionError> {
    let mut settings = Vec::new();
    let mut left_out = Vec::new();
    for item in split_list(list)? {
        match parse_one(&item) {
            Ok(setting) => settings.extend(setting),
            Err(OptionError::Unknown { .. } | OptionError::Foreign { .. }) => left_out.push(item),
            Err(error) => return Err(error),
        }
    }
    Ok((settings, left_out))
}

fn parse_one(item: &str) -> Result<Option<Setting>, OptionError> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (item, None),
    };
    if let Some(option) = find(name) {
        if option.form == Form::Flag {
            return Err(OptionError::FlagOnly { name: option.name });
        }
        return setting(option, value).map(Some);
    }
    if NEEDLESS.iter().any(|(needless, _)| *needless == name) {
        return Ok(None);
    }
    if let Some((_, note)) = FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
        let name = name.to_owned();
        return Err(OptionError::Foreign { name, note });
    }
    let names = OPTIONS
        .iter()
        .filter(|o| o.form != Form::Flag && !o.name.ends_with('*'));
    let nearest = nearest(name, names.map(|o| o.name));
    Err(OptionError::Unknown {
        name: name.to_owned(),
        nearest,
    })
}

/// Checks whether the option takes this value.
pub(crate) fn setting(
    option: &'static MountOption,
    value: Option<&str>,
) -> Result<Setting, OptionError> {
    let name = option.name;
    let setting = Setting {
        option,
        value: value.map(str::to_owned),
    };
    match (&option.value, value) {
        (Value::Any, _) => {}
        (kind, Some(value)) if kind.is_switch() => {
            return Err(OptionError::UnwantedValue {
                name,
                value: value.to_owned(),
            });
        }
        (kind, None) if !kind.is_switch() => {
            return Err(OptionError::MissingValue {
                name,
                pattern: kind.pattern(),
            });
        }
        _ => setting.apply(&mut Target::Nothing)?,
    }
    Ok(setting)
}

#[cfg(test)]
mod tests {
    use super::resolve::in_force;
    use super::*;
    use std::collections::HashSet;

    fn names(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn option_table_is_consistent() {
        let mut seen = HashSet::new();
        for option in OPTIONS.iter() {
            for name in option.aliases.iter().chain([&option.name]) {
                assert!(seen.insert(*name), "{name} stands twice");
            }
            assert!(
                !option.help.is_empty() && !option.help.ends_with('.'),
                "{}",
                option.name
            );
            assert!(
                option.long.is_empty() || option.long.ends_with('.'),
                "{}",
                option.name
            );
            for implied in option.implies {
                assert!(find(implied).is_some(), "{} implies {implied}", option.name);
            }
            for (with, _) in option.conflicts {
                let name = with.split('=').next().unwrap();
                assert!(
                    find(name).is_some(),
                    "{} conflicts with {with}",
                    option.name
                );
            }
            if let (Value::Choice(words, _), default) = (&option.value, option.default)
                && !default.is_empty()
            {
                assert!(words.contains(&default), "{}", option.name);
            }
        }
        for (name, _) in FOREIGN.iter().chain(NEEDLESS) {
            assert!(seen.insert(*name), "{name} stands twice");
        }
    }

    #[test]
    fn misspelled_options_get_a_suggestion() {
        for (given, meant) in [
            ("alow_other", "allow_other"),
            ("defaul_permissions", "default_permissions"),
            ("entry-timeout", "entry_timeout"),
            ("writback", "writeback"),
            ("nosiud", "nosuid"),
        ] {
            let error = parse(given).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("unknown option `{given}`: did you mean `{meant}`?")
            );
        }
        let error = parse("frobnicate").unwrap_err().to_string();
        assert!(error.contains("thrufs mount --help"), "{error}");
    }

    #[test]
    fn last_of_opposite_options_counts() {
        let list = parse("ro,suid,noatime,rw,nosuid,relatime,cache=never,cache=always").unwrap();
        let kept = in_force(&list).unwrap();
        assert_eq!(names(&kept), ["rw", "nosuid", "relatime", "cache=always"]);
    }

    #[test]
    fn user_implies_noexec_nosuid_nodev_unless_overridden() {
        let kept = |list| names(&in_force(&parse(list).unwrap()).unwrap());
        assert_eq!(kept("exec,user"), ["noexec", "nosuid", "nodev", "user"]);
        assert_eq!(kept("user,exec"), ["nosuid", "nodev", "user", "exec"]);
    }

    #[test]
    fn ranges_accumulate() {
        let list = parse("uidmap=0:100000:10,uidmap=10:5:1").unwrap();
        assert_eq!(in_force(&list).unwrap().len(), 2);
    }

    #[test]
    fn contradictions_name_both() {
        for (list, first, second) in [
            ("writeback,cache=never", "writeback", "cache=never"),
            ("uidmap=0:1:1,uid=3", "uid=3", "uidmap=0:1:1"),
            ("noxattr,acl", "acl", "noxattr"),
            (
                "no_default_permissions,acl",
                "acl",
                "no_default_permissions",
            ),
        ] {
            let error = in_force(&parse(list).unwrap()).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{first}` contradicts `{second}`: ")),
                "{error}"
            );
        }
        assert!(in_force(&parse("writeback,nowriteback,cache=never").unwrap()).is_ok());
    }

    #[test]
    fn values_are_checked_by_the_parser() {
        for (list, part) in [
            ("cache", "needs a value: cache=never|metadata|auto|always"),
            ("ro=1", "takes no value"),
            ("cache=some", "never, metadata, auto or always"),
            ("attr_timeout=-1", "seconds"),
            ("attr_timeout=nan", "seconds"),
            ("max_write=12Q", "bytes"),
            ("threads=0", "between 1 and"),
            ("uidmap=0:1", "CLIENT:HOST:COUNT"),
            ("uidmap=4294967295:0:2", "beyond"),
            ("uid=nobody-of-this-name", "no user"),
            ("kernel_cache", "cache=always"),
            ("allow_root", "allow_other"),
            ("remount", "unmount"),
            ("io_uring_q_depth=32", "use ring_depth="),
            ("foreground", "--foreground"),
        ] {
            let error = parse(list).unwrap_err().to_string();
            assert!(error.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn options_of_mount_and_other_servers_are_accepted() {
        let list = "rw,defaults,_netdev,nofail,noauto,x-systemd.automount,x-gvfs-show,X-mount.mkdir,\
                    comment=a fine one,big_writes,clone_fd,io_uring,max_read=131072,users,nouser";
        assert!(parse(list).is_ok(), "{:?}", parse(list));
    }

    #[test]
    fn sloppy_parsing_ignores_only_unknown_options() {
        let (settings, left_out) = parse_sloppily("ro,whatever=3,kernel_cache").unwrap();
        assert_eq!(names(&settings), ["ro"]);
        assert_eq!(left_out, ["whatever=3", "kernel_cache"]);
        assert!(parse_sloppily("cache=some").is_err());
    }
}
