//! Reads one rule from TOML: its keys and their values, and refuses what its action does not permit. A
//! fault names the place in the text. The patterns of all rules are compiled together in [`policy`](super).

use super::content::{self, ContentSet};
use super::decision::{FILE_TYPES, Redaction};
use super::document::{Entry, entries};
use super::error::{Fault, Problem};
use super::globs::Patterns;
use super::ids::{IdKind, IdSet};
use super::mode::ModeBits;
use super::rule::{Action, Matchers, data_path_named, type_bit};
use super::{Accounts, nearest, size};
use rustix::fs::FileType;
use thrufs::Errno;
use toml::de::DeTable;

pub(super) const RULE_KEYS: &[&str] = &[
    "name",
    "path",
    "ignore-case",
    "type",
    "owner",
    "group",
    "mode",
    "size",
    "content",
    "caller-uid",
    "caller-gid",
    "caller-exe",
    "action",
    "errno",
    "redact",
    "on-error",
];

macro_rules! errnos {
    ($($name:ident)*) => {
        &[$((stringify!($name), Errno::$name),)*]
    };
}

/// The errors that open(2) may return. Not those with a meaning for the kernel: ENOSYS (never ask again),
/// EINTR and EAGAIN (retry), ESTALE (look up again).
pub(super) const ERRNOS: &[(&str, Errno)] = errnos! {
    EACCES EPERM ENOENT EROFS EIO EBUSY ENXIO ENODEV ENODATA EINVAL ELOOP ETXTBSY EFBIG
    EOVERFLOW ENOSPC EDQUOT ENOMEM EMFILE ENFILE EOPNOTSUPP ETIMEDOUT
};

/// A rule before its patterns are in the table.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) offset: usize,
    pub(super) name: Option<Box<str>>,
    pub(super) action: Action,
    pub(super) matchers: Matchers,
    pub(super) paths: Option<Patterns>,
    pub(super) executables: Option<Patterns>,
}

/// A rule's keys, and what their values say.
struct RuleReader<'d> {
    offset: usize,
    entries: Vec<Entry<'d>>,
    name: Option<Box<str>>,
    errno: Errno,
    matchers: Matchers,
    executables: Option<Patterns>,
}

const CALLER_KEYS: &[&str] = &["caller-uid", "caller-gid", "caller-exe"];
const ATTRIBUTE_KEYS: &[&str] = &["owner", "group", "mode", "size"];

impl Draft {
    /// Reads a rule that begins at this byte of the text.
    pub(super) fn read(
        offset: usize,
        table: &DeTable<'_>,
        accounts: &Accounts,
    ) -> Result<Draft, Fault> {
        let entries = entries(table);
        let mut reader = RuleReader {
            offset,
            entries: Vec::new(),
            name: None,
            errno: Errno::EACCES,
            matchers: Matchers::default(),
            executables: None,
        };
        for entry in &entries {
            reader.take(entry, accounts)?;
        }
        reader.entries = entries;
        reader.finish()
    }
}

impl<'d> RuleReader<'d> {
    fn take(&mut self, entry: &Entry<'d>, accounts: &Accounts) -> Result<(), Fault> {
        let ids = |kind| ids(entry, kind, accounts);
        let matchers = &mut self.matchers;
        match entry.key {
            // These depend on others.
            "action" | "path" | "ignore-case" | "on-error" => {}
            "name" => self.name = Some(name(entry)?),
            "type" => {
                let bit = |word: &str| nearest::named("type", word, FILE_TYPES, "there are ");
                let bits = bits(entry, |word| bit(word).map(type_bit))?;
                matchers.types = Some(bits);
            }
            "owner" => matchers.owner = Some(ids(IdKind::User)?),
            "group" => matchers.group = Some(ids(IdKind::Group)?),
            "mode" => matchers.mode = Some(each(entry, ModeBits::parse)?),
            "size" => {
                let range = size::parse(entry.text()?).map_err(|problem| entry.fault(problem))?;
                matchers.size = Some(range);
            }
            "content" => matchers.content = Some(ContentSet(bits(entry, content::types)?)),
            "caller-uid" => matchers.caller_uid = Some(ids(IdKind::User)?),
            "caller-gid" => matchers.caller_gid = Some(ids(IdKind::Group)?),
            "caller-exe" => self.executables = Some(executables(entry)?),
            "errno" => self.errno = errno(entry)?,
            "redact" => {
                let redaction =
                    |word: &str| nearest::named("redaction", word, &[("gps", ())], "there is ");
                each(entry, redaction)?;
            }
            _ => return Err(entry.unknown(RULE_KEYS)),
        }
        Ok(())
    }

    /// The first of these keys in the text.
    fn first(&self, keys: &[&str]) -> Option<&Entry<'d>> {
        self.entries.iter().find(|entry| keys.contains(&entry.key))
    }

    fn finish(mut self) -> Result<Draft, Fault> {
        let paths = self.paths()?;
        let action = self.action()?;
        self.check_pairing(action)?;
        let others = [&["type", "content"], CALLER_KEYS, ATTRIBUTE_KEYS].concat();
        if paths.is_none() && self.first(&others).is_none() {
            let message = "this rule matches everything: say so with path = \"**\"";
            return Err(Fault::new(self.offset, message));
        }
        if action.redacts() {
            if let (None, None, Some(content)) =
                (&paths, self.matchers.types, self.first(&["content"]))
            {
                let message = "`content` does not say which files are redacted, but what they are to be; \
                               say which by `path`";
                return Err(Fault::new(content.offset, message));
            }
            // It says what such a file has to be, and does not decide whether it is redacted.
            self.matchers.content = None;
        }
        Ok(Draft {
            offset: self.offset,
            name: self.name,
            action,
            matchers: self.matchers,
            paths,
            executables: self.executables,
        })
    }

    fn paths(&self) -> Result<Option<Patterns>, Fault> {
        let (path, ignore) = (self.first(&["path"]), self.first(&["ignore-case"]));
        let ignore_case = ignore.map(Entry::boolean).transpose()?;
        match (path, ignore) {
            (None, Some(entry)) => {
                let message = "`ignore-case` is about `path`, which this rule has not";
                Err(Fault::new(entry.offset, message))
            }
            (None, None) => Ok(None),
            (Some(path), _) => {
                let mut patterns = Patterns::default();
                each(path, |item| patterns.add(item, ignore_case == Some(true)))?;
                Ok(Some(patterns))
            }
        }
    }

    fn action(&self) -> Result<Action, Fault> {
        let Some(entry) = self.first(&["action"]) else {
            let message = format!(
                "this rule does nothing: give it an action, one of {}",
                Action::NAMES.join(", ")
            );
            return Err(Fault::new(self.offset, message));
        };
        let word = entry.text()?;
        if let Some(path) = data_path_named(word) {
            return Ok(Action::Data(path));
        }
        Ok(match word {
            "read-only" => Action::ReadOnly,
            "hide" => Action::Hide,
            "deny" => Action::Deny(self.errno),
            "audit" => Action::Audit,
            "redact" => {
                let what = "say what to redact: redact = [\"gps\"]";
                self.first(&["redact"]).ok_or_else(|| entry.fault(what))?;
                self.on_error()?;
                Action::Redact(Redaction {
                    errno: self.errno,
                    content: self.matchers.content.unwrap_or_default(),
                })
            }
            _ => {
                let all = format!("there are {}", Action::NAMES.join(", "));
                let message = nearest::unknown("action", word, Action::NAMES, &all);
                return Err(entry.fault(message));
            }
        })
    }

    fn on_error(&self) -> Result<(), Fault> {
        match self.first(&["on-error"]) {
            Some(entry) if entry.text()? != "deny" => Err(entry.fault(
                "`on-error` is deny: what is in a file cannot keep it from being redacted; except \
                 files by their path, with a rule before this one",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses keys that have no meaning for this action, or could not be enforced.
    fn check_pairing(&self, action: Action) -> Result<(), Fault> {
        let name = action.name();
        let refuse = |keys, why: &str| match self.first(keys) {
            Some(entry) => Err(Fault::new(entry.offset, format!("`{}` {why}", entry.key))),
            None => Ok(()),
        };
        let (hides, redacts) = (action == Action::Hide, action.redacts());
        if hides || redacts || matches!(action, Action::Data(_)) {
            let why = format!(
                "does not go with {name}: names and data are kept for all callers alike; match on callers \
                 with deny, read-only or audit"
            );
            refuse(CALLER_KEYS, &why)?;
        }
        if hides {
            let why =
                "does not go with hide: names are listed without looking into the files; use deny";
            refuse(&["content"], why)?;
        }
        if redacts {
            let why = "does not go with redact: a user who may change it could take the file out of the \
                       rule; say it by `path`";
            refuse(ATTRIBUTE_KEYS, why)?;
        } else {
            if !matches!(action, Action::Deny(_)) {
                let why = format!("is the error of deny, and {name} gives none");
                refuse(&["errno"], &why)?;
            }
            let why = format!("goes with action = \"redact\", not {name}");
            refuse(&["redact", "on-error"], &why)?;
        }
        self.check_types(action)
    }

    fn check_types(&self, action: Action) -> Result<(), Fault> {
        let (Some(entry), Some(types)) = (self.first(&["type"]), self.matchers.types) else {
            return Ok(());
        };
        let of_files = match action {
            _ if types & type_bit(FileType::RegularFile) != 0 => return Ok(()),
            _ if self.first(&["content"]).is_some() => "`content`",
            _ if self.first(&["size"]).is_some() => "`size`",
            action if action.redacts() => "redact",
            _ => return Ok(()),
        };
        Err(entry.fault(format!(
            "{of_files} is of regular files, which these types leave out"
        )))
    }
}

/// Reads one value, or each of a list.
fn each<T>(
    entry: &Entry<'_>,
    mut read: impl FnMut(&str) -> Result<T, Problem>,
) -> Result<Vec<T>, Fault> {
    let items = entry.texts()?.into_iter();
    items
        .map(|(offset, item)| read(item).map_err(|problem| Fault::new(offset, problem)))
        .collect()
}

fn ids(entry: &Entry<'_>, kind: IdKind, accounts: &Accounts) -> Result<IdSet, Fault> {
    let mut set = IdSet::default();
    each(entry, |item| set.add(item, kind, accounts))?;
    set.settle();
    Ok(set)
}

/// The longest name of a rule, in characters.
const NAME_CHARACTERS_MAX: usize = 64;

fn name(entry: &Entry<'_>) -> Result<Box<str>, Fault> {
    let name = entry.text()?;
    let is_fit = !name.is_empty()
        && name.chars().count() <= NAME_CHARACTERS_MAX
        && !name.chars().any(char::is_control);
    if is_fit {
        Ok(name.into())
    } else {
        Err(entry.fault(format!(
            "a name has 1 to {NAME_CHARACTERS_MAX} characters in one line, for it goes to the log"
        )))
    }
}

/// A set of what a list names, each by its bits, without what it names after a `!`; if it names nothing else,
/// all but that.
fn bits(entry: &Entry<'_>, of: impl Fn(&str) -> Result<u64, Problem>) -> Result<u64, Fault> {
    let (mut wanted, mut unwanted) = (0, 0);
    each(entry, |item| {
        match item.strip_prefix('!') {
            Some(item) => unwanted |= of(item)?,
            None => wanted |= of(item)?,
        }
        Ok(())
    })?;
    let wanted = if wanted == 0 { u64::MAX } else { wanted };
    Ok(wanted & !unwanted)
}

fn executables(entry: &Entry<'_>) -> Result<Patterns, Fault> {
    let mut patterns = Patterns::default();
    each(entry, |item| {
        let path = item.strip_prefix('!').unwrap_or(item);
        if !path.starts_with('/') && !path.starts_with("**") {
            return Err(format!(
                "a program's path is absolute: say `/usr/bin/{path}` or `**/{path}`"
            ));
        }
        patterns.add(item, false)
    })?;
    Ok(patterns)
}

fn errno(entry: &Entry<'_>) -> Result<Errno, Fault> {
    let found = nearest::named("error", entry.text()?, ERRNOS, "an open can fail with ");
    found.map_err(|problem| entry.fault(problem))
}
