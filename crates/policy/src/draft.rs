//! Reads one rule from TOML: its keys and their values, and refuses what its action does not permit. A
//! fault names the place in the text. The patterns of all rules are compiled together in [`policy`](super).

use super::decision::{FILE_TYPES, Redaction, RedactionKinds};
use super::document::{Entry, entries};
use super::error::{Fault, Problem};
use super::globs::Patterns;
use super::ids::{IdKind, IdSet};
use super::mode::ModeBits;
use super::rule::data_path_named;
use super::rule::{Action, Matchers, TypeSet};
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

#[derive(Default)]
struct RuleReader<'d> {
    offset: usize,
    name: Option<Box<str>>,
    action: Option<Entry<'d>>,
    path: Option<Entry<'d>>,
    ignore_case: Option<Entry<'d>>,
    errno: Option<(Entry<'d>, Errno)>,
    kinds: Option<RedactionKinds>,
    /// The first key that is valid for `redact` only.
    redaction_key: Option<Entry<'d>>,
    on_error: Option<Entry<'d>>,
    /// Keys that are not valid for every action.
    content: Option<Entry<'d>>,
    attributes: Option<Entry<'d>>,
    caller: Option<Entry<'d>>,
    types: Option<Entry<'d>>,
    matchers: Matchers,
    executables: Option<Patterns>,
}

impl Draft {
    /// Reads a rule that begins at this byte of the text.
    pub(super) fn read(
        offset: usize,
        table: &DeTable<'_>,
        accounts: &Accounts,
    ) -> Result<Draft, Fault> {
        let mut reader = RuleReader {
            offset,
            ..RuleReader::default()
        };
        for entry in entries(table) {
            reader.take(entry, accounts)?;
        }
        reader.finish()
    }
}

impl<'d> RuleReader<'d> {
    fn take(&mut self, entry: Entry<'d>, accounts: &Accounts) -> Result<(), Fault> {
        if matches!(entry.key, "owner" | "group" | "mode" | "size") {
            self.attributes.get_or_insert(entry);
        }
        match entry.key {
            "name" => self.name = Some(name(&entry)?),
            "action" => self.action = Some(entry),
            "path" => self.path = Some(entry),
            "ignore-case" => self.ignore_case = Some(entry),
            "type" => {
                self.matchers.types = Some(types(&entry)?);
                self.types = Some(entry);
            }
            "owner" => self.matchers.owner = Some(ids(&entry, IdKind::User, accounts)?),
            "group" => self.matchers.group = Some(ids(&entry, IdKind::Group, accounts)?),
            "mode" => {
                let modes = each(&entry, ModeBits::parse)?;
                self.matchers.mode = Some(modes);
            }
            "size" => {
                let range = size::parse(entry.text()?).map_err(|problem| entry.fault(problem))?;
                self.matchers.size = Some(range);
            }
            "content" => {
                let set = self.matchers.content.insert(Default::default());
                each(&entry, |item| set.add(item))?;
                self.content = Some(entry);
            }
            "caller-uid" => {
                self.matchers.caller_uid = Some(ids(&entry, IdKind::User, accounts)?);
                self.caller.get_or_insert(entry);
            }
            "caller-gid" => {
                self.matchers.caller_gid = Some(ids(&entry, IdKind::Group, accounts)?);
                self.caller.get_or_insert(entry);
            }
            "caller-exe" => {
                self.executables = Some(executables(&entry)?);
                self.caller.get_or_insert(entry);
            }
            "errno" => self.errno = Some((entry, errno(&entry)?)),
            "redact" => {
                self.kinds = Some(kinds(&entry)?);
                self.redaction_key.get_or_insert(entry);
            }
            "on-error" => {
                self.on_error = Some(entry);
                self.redaction_key.get_or_insert(entry);
            }
            _ => return Err(entry.unknown(RULE_KEYS)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Draft, Fault> {
        let paths = self.paths()?;
        let action = self.action()?;
        self.check_pairing(action)?;
        let is_of_caller_or_file = self.caller.is_some()
            || self.content.is_some()
            || self.matchers.types.is_some()
            || self.matchers.ask_attributes();
        if paths.is_none() && !is_of_caller_or_file {
            let message = "this rule matches everything: say so with path = \"**\"";
            return Err(Fault::new(self.offset, message));
        }
        if action.redacts() {
            if let (None, None, Some(content)) = (&paths, self.types, self.content) {
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
        let ignore_case = self.ignore_case.map(|entry| entry.boolean()).transpose()?;
        match (self.path, self.ignore_case) {
            (None, Some(entry)) => {
                let message = "`ignore-case` is about `path`, which this rule has not";
                Err(Fault::new(entry.offset, message))
            }
            (None, None) => Ok(None),
            (Some(path), _) => {
                let mut patterns = Patterns::default();
                each(&path, |item| patterns.add(item, ignore_case == Some(true)))?;
                Ok(Some(patterns))
            }
        }
    }

    fn action(&self) -> Result<Action, Fault> {
        let Some(entry) = self.action else {
            let message = format!(
                "this rule does nothing: give it an action, one of {}",
                Action::NAMES.join(", ")
            );
            return Err(Fault::new(self.offset, message));
        };
        let word = entry.text()?;
        let errno = self.errno.map_or(Errno::EACCES, |(_, errno)| errno);
        if let Some(path) = data_path_named(word) {
            return Ok(Action::Data(path));
        }
        Ok(match word {
            "read-only" => Action::ReadOnly,
            "hide" => Action::Hide,
            "deny" => Action::Deny(errno),
            "audit" => Action::Audit,
            "redact" => {
                let what = "say what to redact: redact = [\"gps\"]";
                let kinds = self.kinds.ok_or_else(|| entry.fault(what))?;
                self.on_error()?;
                Action::Redact(Redaction {
                    kinds,
                    errno,
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
        let Some(entry) = self.on_error else {
            return Ok(());
        };
        match entry.text()? {
            "deny" => Ok(()),
            _ => Err(entry.fault(
                "`on-error` is deny: what is in a file cannot keep it from being redacted; except \
                 files by their path, with a rule before this one",
            )),
        }
    }

    /// Refuses keys that have no meaning for this action, or could not be enforced.
    fn check_pairing(&self, action: Action) -> Result<(), Fault> {
        let name = action.name();
        if let (Some(caller), Action::Data(_) | Action::Redact(_) | Action::Hide) =
            (self.caller, action)
        {
            let why = "names and data are kept for all callers alike";
            let message = format!(
                "`{}` does not go with {name}: {why}; match on callers with deny, read-only or audit",
                caller.key
            );
            return Err(Fault::new(caller.offset, message));
        }
        if let (Some(content), Action::Hide) = (self.content, action) {
            let message = "`content` does not go with hide: names are listed without looking into the files; use deny";
            return Err(Fault::new(content.offset, message));
        }
        if let (Some(attribute), true) = (self.attributes, action.redacts()) {
            let message = format!(
                "`{}` does not go with redact: a user who may change it could take the file out of the \
                 rule; say it by `path`",
                attribute.key
            );
            return Err(Fault::new(attribute.offset, message));
        }
        if let Some((errno, _)) = self.errno
            && !matches!(action, Action::Deny(_))
            && !action.redacts()
        {
            let message = format!("`errno` is the error of deny, and {name} gives none");
            return Err(Fault::new(errno.offset, message));
        }
        if let Some(entry) = self.redaction_key
            && !action.redacts()
        {
            let message = format!("`{}` goes with action = \"redact\", not {name}", entry.key);
            return Err(Fault::new(entry.offset, message));
        }
        self.check_types(action)
    }

    fn check_types(&self, action: Action) -> Result<(), Fault> {
        let (Some(entry), Some(types)) = (self.types, self.matchers.types) else {
            return Ok(());
        };
        let has_files = types.contains(FileType::RegularFile);
        let of_files = if self.content.is_some() {
            "`content`"
        } else if self.matchers.size.is_some() {
            "`size`"
        } else if action.redacts() {
            "redact"
        } else {
            return Ok(());
        };
        if has_files {
            return Ok(());
        }
        Err(entry.fault(format!(
            "{of_files} is of regular files, which these types leave out"
        )))
    }
}

/// Runs `add` for one value or each of a list.
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

fn types(entry: &Entry<'_>) -> Result<TypeSet, Fault> {
    let mut set = TypeSet::default();
    each(entry, |item| {
        let (side, word) = match item.strip_prefix('!') {
            Some(word) => (&mut set.unwanted, word),
            None => (&mut set.wanted, item),
        };
        *side |= TypeSet::bit(nearest::named("type", word, FILE_TYPES, "there are ")?);
        Ok(())
    })?;
    Ok(set)
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

fn kinds(entry: &Entry<'_>) -> Result<RedactionKinds, Fault> {
    let kind = |item: &str| nearest::named("redaction", item, RedactionKinds::NAMES, "there is ");
    let found = each(entry, kind)?;
    let found = found.into_iter().reduce(RedactionKinds::union);
    Ok(found.expect("an empty list is refused"))
}
