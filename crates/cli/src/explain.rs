//! `thrufs explain` and `thrufs ctl`: asking the servers of mounts.

use crate::control::client::{ask, ask_share, printable, share_at};
use crate::control::finding::{Located, locate};
use crate::control::protocol::{Command, escape};
use crate::error::CommandError;
use crate::output::{print, print_json};
use serde::Serialize;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_hostdir::{CacheState, Explanation, FileKind, NodeState};

/// What `thrufs explain` was asked.
#[derive(Debug)]
pub(crate) struct ExplainArguments {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) json: bool,
    /// The socket, where it is not in its usual place.
    pub(crate) control: Option<PathBuf>,
}

/// What `thrufs ctl` was asked.
#[derive(Debug)]
pub(crate) struct CtlArguments {
    pub(crate) path: PathBuf,
    pub(crate) command: String,
    pub(crate) json: bool,
    pub(crate) control: Option<PathBuf>,
}

/// One path in JSON.
#[derive(Serialize)]
struct Explained {
    path: String,
    mountpoint: String,
    #[serde(flatten)]
    explanation: Explanation,
}

/// Prints how each of the paths is served; those of which it can be told, if not all.
///
/// # Errors
///
/// Why one of them cannot be explained; what happened to those before it is printed.
pub(crate) fn explain(arguments: &ExplainArguments) -> Result<ExitCode, CommandError> {
    let mut failed = None;
    let mut all = Vec::new();
    for path in &arguments.paths {
        match explain_one(path, arguments.control.as_deref()) {
            Ok(explained) if arguments.json => all.push(explained),
            Ok(explained) => print(as_text(path, &explained)),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    eprintln!("thrufs: {earlier}");
                }
            }
        }
    }
    if arguments.json {
        print_json(&all);
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn explain_one(path: &Path, control: Option<&Path>) -> Result<Explained, CommandError> {
    let located = locate(path)?;
    let components = located.components.clone();
    let answer = ask(path, &located, control, &Command::Explain { components })?;
    let explanation =
        serde_json::from_value(answer).map_err(|error| not_understood(path, error))?;
    Ok(Explained {
        path: escape(path.as_os_str().as_bytes()),
        mountpoint: escape(located.mount.path.as_os_str().as_bytes()),
        explanation,
    })
}

fn not_understood(path: &Path, error: serde_json::Error) -> CommandError {
    CommandError::Control {
        path: path.into(),
        source: error.into(),
    }
}

/// Asks the server of the mount that the path lies on, or of the share whose socket it is, for one
/// thing.
///
/// # Errors
///
/// As [`explain`].
pub(crate) fn ctl(arguments: &CtlArguments) -> Result<ExitCode, CommandError> {
    let CtlArguments { path, control, .. } = arguments;
    let command = match arguments.command.as_str() {
        "statistics" => Command::Statistics,
        other => unreachable!("clap knows no command {other}"),
    };
    let mut answer = match share_at(path) {
        Some(share) => ask_share(path, &share, control.as_deref(), &command)?,
        None => {
            let located: Located = locate(path)?;
            ask(path, &located, control.as_deref(), &command)?
        }
    };
    if arguments.json {
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("text");
        }
        print_json(&answer);
    } else {
        let text = answer.get("text").and_then(Value::as_str);
        for line in text.unwrap_or_default().lines() {
            print(printable(line) + "\n");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_text(path: &Path, explained: &Explained) -> String {
    let told = &explained.explanation;
    let mut text = printable(&path.to_string_lossy()) + "\n";
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<11} {}\n", printable(&value)));
    };
    let kind = match told.kind {
        FileKind::Regular => "regular file".to_owned(),
        other => word(other),
    };
    line("what", format!("{kind}, inode {}", told.ino));
    line(
        "data path",
        format!("{}: {}", word(told.data_path), told.reason),
    );
    if let Some(rule) = &told.rule {
        line("rule", rule.clone());
    }
    if let Some(backing) = told.backing {
        line("backing id", backing.to_string());
    }
    let (total, writable) = (told.opens.total, told.opens.writable);
    line(
        "open",
        match total {
            0 => "no".to_owned(),
            1 => format!("once{}", if writable > 0 { ", for writing" } else { "" }),
            _ => format!("{total} times, {writable} of them for writing"),
        },
    );
    line("cache", cache(&told.cache));
    line(
        "kernel",
        told.node
            .as_ref()
            .map_or_else(|| "not looked up".to_owned(), node),
    );
    let lower = &told.lower;
    let mut beneath = match &lower.file_system {
        Some(name) => name.clone(),
        None => format!("file system {:#x}", lower.magic),
    };
    for (is_so, word) in [
        (lower.memory, ", in memory"),
        (lower.remote, ", served by another machine or process"),
        (lower.handles, ", by file handle"),
        (!lower.handles, ", by name"),
    ] {
        beneath.push_str(if is_so { word } else { "" });
    }
    line("beneath", beneath);
    line("mount", explained.mountpoint.clone());
    text
}

/// As JSON has it, in words.
fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

fn cache(cache: &CacheState) -> String {
    let mode = word(cache.mode);
    format!(
        "cache={mode}{}; names {} s, absent names {} s, attributes {} s; data version: {}",
        if cache.writeback { ", writeback" } else { "" },
        cache.entry_timeout_s,
        cache.negative_timeout_s,
        cache.attr_timeout_s,
        if cache.data_version_remembered {
            "cached"
        } else {
            "not cached"
        },
    )
}

fn node(node: &NodeState) -> String {
    let descriptor = if node.descriptor_held {
        "descriptor held"
    } else {
        "no descriptor held"
    };
    if node.dormant {
        return format!(
            "node {}, forgotten, valid for export; {descriptor}",
            node.id
        );
    }
    let lookups = match node.lookups {
        1 => "1 lookup".to_owned(),
        count => format!("{count} lookups"),
    };
    format!("node {}, {lookups}; {descriptor}", node.id)
}

#[cfg(test)]
mod tests;
