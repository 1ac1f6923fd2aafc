//! The options of mounts and shares: one table for the parser of `-o`, the long flags, the help, the
//! manual pages and the completions.
//!
//! A row has all of an option: its name, its value, what it sets in the configuration, and its texts.
//!
//! | module | content |
//! |---|---|
//! | `table`, `row` | the rows, and what each has |
//! | `value` | the kinds of values, and what they set |
//! | `syntax` | the parsers of lists and values |
//! | `resolve` | from settings to a configuration |
//! | `error` | what is wrong with an option |
//! | `foreign` | options of other FUSE servers |

mod error;
mod foreign;
mod resolve;
mod row;
mod syntax;
mod table;
mod value;

pub(crate) use error::OptionError;
pub(crate) use foreign::{needless, unsupported};
pub(crate) use resolve::{asked_of_server, resolve_mount, resolve_share};
pub(crate) use row::{Form, Group, MountOption};
pub(crate) use syntax::{parse_group, parse_user};
pub(crate) use table::OPTIONS;
pub(crate) use value::{Use, Value};

use std::fmt;
use syntax::split_list;
use value::Target;

impl Group {
    /// Its options for this use, in the order of the manual.
    pub(crate) fn options(self, used: Use) -> impl Iterator<Item = &'static MountOption> {
        let is_one =
            move |option: &&MountOption| option.group == self && option.used().includes(used);
        OPTIONS.iter().filter(is_one)
    }
}

impl MountOption {
    pub(crate) fn used(&self) -> Use {
        self.acting().0.used()
    }

    /// The value that decides what it sets, and whether a switch is on.
    fn acting(&self) -> (&Value, bool) {
        match self.value {
            Value::Off(opposite) => {
                let opposite = find(opposite).expect("the table has the opposite");
                (&opposite.value, false)
            }
            _ => (&self.value, true),
        }
    }
}

/// A given option.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) option: &'static MountOption,
    pub(crate) value: Option<String>,
}

impl Setting {
    fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// Sets its value.
    fn apply(&self, target: &mut Target<'_>) -> Result<(), OptionError> {
        let (value, on) = self.option.acting();
        let applied = value.apply(self.text(), on, target);
        applied.map_err(|problem| self.bad(problem))
    }

    fn bad(&self, problem: impl Into<String>) -> OptionError {
        OptionError::BadValue {
            name: self.option.name,
            value: self.value.clone().unwrap_or_default(),
            problem: problem.into(),
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
    if needless().any(|(needless, _)| needless == name) {
        return Ok(None);
    }
    if let Some((_, note)) = unsupported().find(|(foreign, _)| *foreign == name) {
        let name = name.to_owned();
        return Err(OptionError::Foreign { name, note });
    }
    let names = OPTIONS
        .iter()
        .filter(|o| o.form != Form::Flag && !o.name.ends_with('*'));
    let nearest = thrufs_policy::nearest(name, names.map(|o| o.name));
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
            let (name, help, long) = (option.name, option.help, option.long);
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}");
            assert!(long.is_empty() || long.ends_with('.'), "{name}");
            for implied in option.implies {
                assert!(find(implied).is_some(), "{name} implies {implied}");
            }
            for (with, _) in option.conflicts {
                let other = with.split('=').next().unwrap();
                assert!(find(other).is_some(), "{name} conflicts with {with}");
            }
            if let (Value::Choice(words, _), default) = (&option.value, option.default)
                && !default.is_empty()
            {
                assert!(words.contains(&default), "{}", option.name);
            }
        }
        for (name, _) in unsupported().chain(needless()) {
            assert!(seen.insert(name), "{name} stands twice");
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
            let expected = format!("unknown option `{given}`: did you mean `{meant}`?");
            assert_eq!(error, expected);
        }
        let error = parse("frobnicate").unwrap_err().to_string();
        assert!(error.contains("thrufs mount --help"), "{error}");
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
