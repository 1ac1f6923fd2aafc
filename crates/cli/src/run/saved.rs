//! The options that are saved for trees, in `run.toml` of whoever calls `thrufs run`. A file in the tree is the
//! command's to write.
//!
//! The keys of an entry are the names of the options: an entry becomes arguments, which stand before those of the
//! command line.

use super::arguments::command;
use super::error::RunError;
use super::rules::quoted;
use crate::arguments::Purpose;
use crate::lookup;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::any::TypeId;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Options that say what is done once.
const NEVER: [&str; 5] = ["help", "show", "save", "no-saved", "no-draft"];

const IN_TREE: &str = "it is in the tree, where the command could change it";

const HEADER: &str = "[[tree]]";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    tree: PathBuf,
    pub(super) line: usize,
    arguments: Vec<OsString>,
}

pub(super) struct Saved {
    pub(super) file: PathBuf,
    text: String,
    entries: Vec<Entry>,
}

/// `$XDG_CONFIG_HOME/thrufs`, or `~/.config/thrufs`.
pub(super) fn directory() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|it| it.is_absolute())
    };
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(config?.join("thrufs"))
}

/// The directory, and where the file is, if it is a symbolic link.
pub(super) fn places() -> Vec<PathBuf> {
    let directory = directory();
    let file = directory.iter().map(|it| it.join("run.toml"));
    let all = directory.iter().cloned().chain(file);
    all.filter_map(|it| it.canonicalize().ok()).collect()
}

/// What differs once the file was written, replaced or made.
pub(super) fn state() -> Option<[i64; 4]> {
    let it = fs::metadata(directory()?.join("run.toml")).ok()?;
    let (device, inode) = (it.dev().cast_signed(), it.ino().cast_signed());
    Some([device, inode, it.ctime(), it.ctime_nsec()])
}

impl Saved {
    /// # Errors
    ///
    /// A file that another user, or the command in `tree`, can write; what is no option of `thrufs run`.
    pub(super) fn read(tree: &Path) -> Result<Saved, RunError> {
        let file = directory()
            .ok_or(RunError::NoConfiguration)?
            .join("run.toml");
        let file = file.canonicalize().unwrap_or(file);
        let unusable = |problem: String| RunError::Saved(file.clone(), problem);
        if file.starts_with(tree) && file.exists() {
            return Err(unusable(IN_TREE.to_owned()));
        }
        let text = text_of(&file).map_err(unusable)?;
        let entries = entries(&text)
            .map_err(|(line, problem)| unusable(format!("line {line}: {problem}")))?;
        Ok(Saved {
            file,
            text,
            entries,
        })
    }

    /// The entry with the deepest path that is `tree` or above it.
    pub(super) fn entry(&self, tree: &Path) -> Option<&Entry> {
        let above = self.entries.iter().filter(|it| tree.starts_with(&it.tree));
        above.max_by_key(|it| it.tree.components().count())
    }

    /// Writes what is given on the command line as the entry of `tree`; all else stays as it is.
    pub(super) fn save(&self, tree: &Path, given: &ArgMatches) -> Result<(), RunError> {
        let unusable = |problem: String| RunError::Saved(self.file.clone(), problem);
        if self.file.starts_with(tree) {
            return Err(unusable(IN_TREE.to_owned()));
        }
        let text = self.with(tree, given).map_err(unusable)?;
        write(&self.file, &text).map_err(|error| unusable(error.to_string()))
    }

    fn with(&self, tree: &Path, given: &ArgMatches) -> Result<String, String> {
        let entry = entry_of(tree, given)?;
        let lines: Vec<&str> = self.text.split_inclusive('\n').collect();
        let starts = |line: &&str| line.trim_end() == HEADER;
        let mut headers: Vec<usize> = (0..lines.len()).filter(|it| starts(&lines[*it])).collect();
        headers.push(lines.len());
        let old = self.entries.iter().position(|it| it.tree == tree);
        let (start, end) = match old {
            Some(old) if headers.len() == self.entries.len() + 1 => {
                (headers[old], headers[old + 1])
            }
            Some(_) => return Err(format!("each entry must begin with the line {HEADER}")),
            None => (lines.len(), lines.len()),
        };
        // Comments in front of the next entry are about that.
        let is_about_next = |line: &&&str| line.trim().is_empty() || line.starts_with('#');
        let after = lines[start..end]
            .iter()
            .rev()
            .take_while(is_about_next)
            .count();
        let (mut before, after) = (lines[..start].concat(), lines[end - after..].concat());
        if start == lines.len() && !before.is_empty() {
            before.push_str(if before.ends_with('\n') { "\n" } else { "\n\n" });
        }
        let text = before + &entry + &after;
        // A text in several lines may look like a header.
        let changed = entries(&text).map_err(|(_, problem)| problem)?;
        let others = |all: &[Entry]| -> Vec<Entry> {
            let others = all.iter().filter(|it| it.tree != tree);
            others
                .map(|it| Entry {
                    line: 0,
                    ..it.clone()
                })
                .collect()
        };
        match others(&changed) == others(&self.entries) {
            true => Ok(text),
            false => Err("it cannot be changed by a program".to_owned()),
        }
    }
}

impl Entry {
    /// The command line with what is saved before what is given: lists are longer, the last of other values counts.
    pub(super) fn apply(&self) -> Result<ArgMatches, clap::Error> {
        let given = std::env::args_os().skip(2);
        let all = self.arguments.iter().cloned().chain(given);
        options().try_get_matches_from([OsString::from("thrufs run")].into_iter().chain(all))
    }

    pub(super) fn words(&self) -> String {
        let words = self.arguments.iter().map(|it| it.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }
}

fn options() -> Command {
    command(Purpose::Parsing).args_override_self(true)
}

/// Of an option that may be saved.
fn key(option: &Arg) -> Option<&str> {
    let list = (option.get_id() == "options").then_some("options");
    let key = option.get_long().or(list);
    key.filter(|key| !NEVER.contains(key))
}

fn is_path(option: &Arg) -> bool {
    option.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

fn text_of(file: &Path) -> Result<String, String> {
    let opened = match lookup::open_regular(file).map(File::from) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(String::new());
        }
        opened => opened.map_err(|error| error.to_string()),
    };
    let mut opened = opened?;
    let stat = opened.metadata().map_err(|error| error.to_string())?;
    if stat.uid() != rustix::process::geteuid().as_raw() || stat.mode() & 0o022 != 0 {
        return Err(
            "it must belong to the user who runs thrufs, and others must not write to it".into(),
        );
    }
    let mut text = String::new();
    let read = opened.read_to_string(&mut text);
    read.map(|_| text).map_err(|error| error.to_string())
}

/// The entries, or a line and what is wrong there.
fn entries(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let line = |start: usize| text[..start].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |it| it.start);
        (line(start), error.message().to_owned())
    })?;
    let mut found = Vec::new();
    for (name, value) in table.get_ref() {
        let trees = value
            .get_ref()
            .as_array()
            .filter(|_| name.get_ref() == "tree");
        let unknown = || {
            (
                line(name.span().start),
                format!("only {HEADER} is known here"),
            )
        };
        for tree in trees.ok_or_else(unknown)? {
            let entry = tree.get_ref().as_table().ok_or_else(unknown)?;
            let mut arguments = Vec::new();
            for (key, value) in entry.iter().filter(|(key, _)| key.get_ref() != "path") {
                let added = arguments_of(key.get_ref(), value.get_ref());
                arguments.extend(added.map_err(|problem| (line(key.span().start), problem))?);
            }
            let start = line(tree.span().start);
            let path = entry.get("path").and_then(|it| it.get_ref().as_str());
            let path = path.ok_or_else(|| (start, "`path` is missing".to_owned()))?;
            let path = absolute(path).map_err(|problem| (start, problem))?;
            found.push(Entry {
                tree: path.canonicalize().unwrap_or(path),
                line: start,
                arguments,
            });
        }
    }
    Ok(found)
}

/// A path that does not depend on where the command is called.
fn absolute(path: &str) -> Result<PathBuf, String> {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let found = match path.strip_prefix('~').map(|rest| rest.strip_prefix('/')) {
        Some(Some(rest)) => home().map(|it| it.join(rest)),
        Some(None) if path == "~" => home(),
        _ => Some(PathBuf::from(path)),
    };
    let found = found.filter(|it| it.is_absolute());
    found.ok_or_else(|| format!("`{path}` must begin with / or ~/"))
}

fn arguments_of(name: &str, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let known = options();
    let option = known.get_arguments().find(|it| key(it) == Some(name));
    let option = option.ok_or_else(|| format!("`{name}` is no option that can be saved"))?;
    let is_switch = matches!(option.get_action(), ArgAction::SetTrue);
    let argument = |value: Option<&str>| -> Result<OsString, String> {
        let mut argument = match option.get_long() {
            Some(long) => OsString::from(format!("--{long}")),
            None => OsString::from("-o"),
        };
        if let Some(value) = value {
            if option.get_long().is_some() {
                argument.push("=");
            }
            match is_path(option) {
                true => argument.push(absolute(value)?),
                false => argument.push(value),
            }
        }
        Ok(argument)
    };
    let wrong = || match is_switch {
        true => format!("`{name}` is true or false"),
        false => format!("`{name}` is a text, or a list of texts"),
    };
    let arguments: Vec<OsString> = match value {
        DeValue::Boolean(false) if is_switch => Vec::new(),
        DeValue::Boolean(true) => vec![argument(None)?],
        DeValue::String(text) => vec![argument(Some(text))?],
        DeValue::Array(all) => all
            .iter()
            .map(|it| argument(Some(it.get_ref().as_str().ok_or_else(wrong)?)))
            .collect::<Result<_, _>>()?,
        _ => return Err(wrong()),
    };
    let alone = ["thrufs run".into(), "--show".into()]
        .into_iter()
        .chain(arguments.clone());
    match options().try_get_matches_from(alone) {
        Ok(_) => Ok(arguments),
        Err(error) => {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            Err(first.trim_start_matches("error: ").to_owned())
        }
    }
}

/// The entry in TOML.
fn entry_of(tree: &Path, given: &ArgMatches) -> Result<String, String> {
    let text = |value: &Path| {
        let text = value.to_str().map(quoted);
        text.ok_or_else(|| format!("{} is not UTF-8, as TOML is", value.display()))
    };
    let mut entry = format!("{HEADER}\npath = {}\n", text(tree)?);
    for option in options().get_arguments() {
        let id = option.get_id().as_str();
        let Some(name) = key(option) else { continue };
        if given.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let mut values = Vec::new();
        for value in given.get_raw(id).into_iter().flatten() {
            values.push(match is_path(option) {
                true => text(&std::path::absolute(value).map_err(|error| error.to_string())?)?,
                false => text(Path::new(value))?,
            });
        }
        let value = match option.get_action() {
            ArgAction::SetTrue => "true".to_owned(),
            ArgAction::Append => format!("[{}]", values.join(", ")),
            // An option whose value may be missing.
            _ => values.pop().unwrap_or_else(|| "true".to_owned()),
        };
        entry.push_str(&format!("{name} = {value}\n"));
    }
    Ok(entry)
}

/// Replaces the file at once.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let new = file.with_extension(format!("toml.{}", std::process::id()));
    let mut options = OpenOptions::new();
    let mut opened = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.sync_all());
    let replaced = written.and_then(|()| fs::rename(&new, file));
    replaced.inspect_err(|_| drop(fs::remove_file(&new)))
}
