//! The options of mounts and shares: one table for the parser of `-o`, the long flags, the help, the
//! manual pages and the completions.
//!
//! What an option *means* is decided in `config`. Nothing else knows an option by name.

mod foreign;
mod nearest;
mod syntax;
mod table;

pub(crate) use foreign::{FOREIGN, NEEDLESS};
pub(crate) use nearest::nearest;
pub(crate) use syntax::{parse_bytes, parse_group, parse_range, parse_seconds, parse_user};
pub(crate) use table::OPTIONS;

use rustix::mount::MountAttrFlags;
use std::fmt;
use syntax::{parse_count, split_list, value_problem};

/// Which option; with which of two opposites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionId {
    ReadOnly(bool),
    Suid(bool),
    Dev(bool),
    Exec(bool),
    SymFollow(bool),
    Atime(MountAttrFlags),
    DirAtime(bool),
    Sync(bool),
    AllowOther,
    DefaultPermissions(bool),
    Uid,
    Gid,
    UidMap,
    GidMap,
    FsName,
    Subtype,
    Cache,
    EntryTimeout,
    AttrTimeout,
    NegativeTimeout,
    Writeback(bool),
    Passthrough(bool),
    Xattr(bool),
    Acl(bool),
    Locks,
    Export(bool),
    Transport,
    QueuesPerThread,
    RingDepth,
    Threads,
    Pairing(bool),
    MaxWrite,
    MaxBackground,
    MaxReadahead,
    Descriptors,
    Foreground,
    AutoUnmount,
    StopTimeout,
    Log,
    LogFile,
    Syslog,
    Policy,
    Control,
    Tag,
    Queues,
    QueueSize,
    QueueThreads,
    Machines,
    Resume,
    AllowMmap(bool),
    AllowDirectIo(bool),
    Readdirplus(bool),
    Submounts(bool),
    Killpriv(bool),
    XattrMap,
    SecurityLabel(bool),
    TranslateUid,
    TranslateGid,
    NamespaceUids,
    NamespaceGids,
    Sandbox,
    Seccomp,
    Capabilities,
    DescriptorLimit,
    FileHandles,
    MigrationMode,
    MigrationOnError,
    MigrationVerifyHandles,
    MigrationConfirmPaths,
    MigrationRefuseHandles,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// No value.
    None,
    /// Anything or nothing, ignored.
    Any,
    Choice(&'static [&'static str]),
    /// With a fraction.
    Seconds,
    /// With K, M or G.
    Bytes,
    /// Minimum and maximum.
    Count(u64, u64),
    /// Number or name.
    User,
    /// Number or name.
    Group,
    /// `CLIENT:HOST:COUNT`.
    Range,
    Text,
    Path,
}

impl Value {
    /// The placeholder in help and manual; empty without a value.
    pub(crate) fn placeholder(self) -> &'static str {
        match self {
            Value::None | Value::Any => "",
            Value::Choice(_) => "WORD",
            Value::Seconds => "SECONDS",
            Value::Bytes => "BYTES",
            Value::Count(..) => "N",
            Value::User => "USER",
            Value::Group => "GROUP",
            Value::Range => "CLIENT:HOST:COUNT",
            Value::Text => "TEXT",
            Value::Path => "PATH",
        }
    }

    /// As in `locks=local|shared`.
    pub(crate) fn pattern(self) -> String {
        match self {
            Value::Choice(words) => words.join("|"),
            other => other.placeholder().to_owned(),
        }
    }
}

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
            move |option: &&MountOption| option.group == self && option.used.includes(used);
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct MountOption {
    pub(crate) id: OptionId,
    /// As after `-o`; a trailing `*` matches any suffix.
    pub(crate) name: &'static str,
    /// Accepted, not shown in help.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) value: Value,
    /// The default; empty if there is none.
    pub(crate) default: &'static str,
    pub(crate) group: Group,
    pub(crate) form: Form,
    pub(crate) used: Use,
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
        let value = match (self.id, self.value) {
            (_, Value::None | Value::Any) => return None,
            (OptionId::XattrMap, _) => ":map::user.v.:",
            (OptionId::TranslateUid | OptionId::TranslateGid, _) => "map:0:1:2",
            (OptionId::Capabilities, _) => "-mknod",
            (_, Value::Choice(words)) => words[0],
            (_, Value::Seconds | Value::Bytes | Value::User | Value::Group) => "5",
            (_, Value::Count(least, _)) => &least.to_string(),
            (_, Value::Range) => "0:1:2",
            (_, Value::Text | Value::Path) => "x",
        };
        Some(value.to_owned())
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
    pub(crate) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// Its parsed value.
    pub(crate) fn read<'a, T, E: fmt::Display>(
        &'a self,
        parse: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Result<T, OptionError> {
        parse(self.text()).map_err(|problem| self.bad(problem.to_string()))
    }

    /// Its numeric value.
    pub(crate) fn count<T: TryFrom<u64>>(&self) -> Result<T, OptionError> {
        let count = parse_count(self.text()).ok();
        let count = count.and_then(|count| T::try_from(count).ok());
        count.ok_or_else(|| self.bad("it is not a number".to_owned()))
    }

    pub(crate) fn bad(&self, problem: String) -> OptionError {
        OptionError::BadValue {
            name: self.option.name,
            value: self.value.clone().unwrap_or_default(),
            problem,
        }
    }

    pub(crate) fn not_for(&self, what: &'static str) -> OptionError {
        let instead = match self.option {
            option if option.used == Use::Share => "",
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

pub(crate) fn setting(
    option: &'static MountOption,
    value: Option<&str>,
) -> Result<Setting, OptionError> {
    let name = option.name;
    match (option.value, value) {
        (Value::None, Some(value)) => {
            return Err(OptionError::UnwantedValue {
                name,
                value: value.to_owned(),
            });
        }
        (Value::None | Value::Any, _) => {}
        (kind, None) => {
            return Err(OptionError::MissingValue {
                name,
                pattern: kind.pattern(),
            });
        }
        (kind, Some(value)) => {
            if let Some(problem) = value_problem(kind, value) {
                return Err(OptionError::BadValue {
                    name,
                    value: value.to_owned(),
                    problem,
                });
            }
        }
    }
    Ok(Setting {
        option,
        value: value.map(str::to_owned),
    })
}

/// The effective settings: implied ones added, overridden ones dropped.
pub(crate) fn in_force(settings: &[Setting]) -> Result<Vec<Setting>, OptionError> {
    let mut all = Vec::new();
    for setting in settings {
        for implied in setting.option.implies {
            let option = find(implied).expect("the table names its own options");
            all.push(Setting {
                option,
                value: None,
            });
        }
        all.push(setting.clone());
    }
    let is_same = |one: &Setting, other: &Setting| {
        std::mem::discriminant(&one.option.id) == std::mem::discriminant(&other.option.id)
    };
    let counts = |index: usize| {
        let mut later = all[index + 1..].iter();
        all[index].option.adds_up || !later.any(|later| is_same(later, &all[index]))
    };
    let kept: Vec<Setting> = (0..all.len())
        .filter(|index| counts(*index))
        .map(|index| all[index].clone())
        .collect();
    match contradiction(&kept) {
        Some(error) => Err(error),
        None => Ok(kept),
    }
}

fn contradiction(settings: &[Setting]) -> Option<OptionError> {
    for setting in settings {
        for (with, fix) in setting.option.conflicts {
            let is_it = |other: &&Setting| other.option.name == *with || other.to_string() == *with;
            let other = settings.iter().find(is_it);
            if let Some(other) = other {
                return Some(OptionError::Contradiction {
                    first: setting.to_string(),
                    second: other.to_string(),
                    fix: (*fix).to_owned(),
                });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
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
            if let (Value::Choice(words), default) = (option.value, option.default)
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
