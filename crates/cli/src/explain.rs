//! `thrufs explain`: how files are served.

use crate::control::client::{ShareSocket, ask, ask_share, share_at};
use crate::control::finding::locate;
use crate::control::protocol::{Command as Query, escape};
use crate::control::query_error::QueryError;
use crate::error::system_at;
use crate::output::{print, print_json, report};
use clap::Parser;
use serde::Serialize;
use serde_json::Value;
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use thrufs_hostdir::{CacheState, Explanation, FileKind, NodeState, WindowUse, printable};
use thrufs_policy::DataPath;

/// Show how files on a live mount or share are served, and why
#[derive(Parser)]
#[command(name = "explain")]
pub(crate) struct ExplainArguments {
    /// Print an array of objects
    #[arg(long)]
    json: bool,
    /// The control socket, where the mount or share was given control=PATH
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The socket of a share; each PATH is then one of its guests', without their mount point
    #[arg(long, value_name = "SOCKET")]
    share: Option<PathBuf>,
    /// What to explain; a symbolic link at its end is not followed
    #[arg(id = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Explained {
    path: String,
    #[serde(flatten)]
    server: Server,
    #[serde(flatten)]
    explanation: Explanation,
}

/// What serves a file.
#[derive(Serialize)]
#[serde(untagged)]
enum Server {
    Mount {
        mountpoint: String,
    },
    /// The worker of one machine.
    Share {
        share: String,
        process: u64,
    },
}

/// Explains each path that can be; fails with the last error, after printing the earlier ones.
pub(crate) fn explain(arguments: ExplainArguments) -> Result<ExitCode, QueryError> {
    let ExplainArguments { share, control, .. } = &arguments;
    let share = share
        .as_deref()
        .map(|socket| share_at(socket).ok_or_else(|| QueryError::NotShare(socket.into())));
    let share = share.transpose()?;
    let mut failed = None;
    let mut explained = Vec::new();
    for path in &arguments.paths {
        let of_path = match &share {
            Some(share) => explain_on_share(path, share, control.as_deref()),
            None => explain_on_mount(path, control.as_deref()).map(|one| vec![one]),
        };
        match of_path {
            Ok(all) if arguments.json => explained.extend(all),
            Ok(all) => all.iter().for_each(|one| print(as_text(path, one))),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    report(format_args!("thrufs: {earlier}"));
                }
            }
        }
    }
    if arguments.json {
        print_json(&explained);
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn explain_on_mount(path: &Path, control: Option<&Path>) -> Result<Explained, QueryError> {
    let located = locate(path)?;
    let components = located.components.clone();
    let answer = ask(path, &located, control, &Query::Explain { components })?;
    let explanation = serde_json::from_value(answer).map_err(QueryError::query(path))?;
    Ok(Explained {
        path: escape(path.as_os_str().as_bytes()),
        server: Server::Mount {
            mountpoint: escape(located.mount.path.as_os_str().as_bytes()),
        },
        explanation,
    })
}

/// One explanation for each machine.
fn explain_on_share(
    path: &Path,
    share: &ShareSocket<'_>,
    control: Option<&Path>,
) -> Result<Vec<Explained>, QueryError> {
    let components = components_on_share(path).map_err(system_at("explain", path))?;
    let mut answer = ask_share(path, share, control, &Query::Explain { components })?;
    let malformed = || QueryError::query(path)(io::Error::from(ErrorKind::InvalidData));
    let machines = answer.get_mut("machines").map(Value::take);
    let Some(Value::Array(machines)) = machines else {
        return Err(malformed());
    };
    let of_machine = |machine: Value| {
        Ok(Explained {
            path: escape(path.as_os_str().as_bytes()),
            server: Server::Share {
                share: escape(share.path.as_os_str().as_bytes()),
                process: machine["process"].as_u64().ok_or_else(malformed)?,
            },
            explanation: serde_json::from_value(machine).map_err(QueryError::query(path))?,
        })
    };
    machines.into_iter().map(of_machine).collect()
}

/// The names of a path on a share, of which `/` is the root.
fn components_on_share(path: &Path) -> io::Result<Vec<CString>> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(CString::new(name.as_bytes()).map_err(io::Error::from)),
        Component::ParentDir => Some(Err(io::Error::other("`..` leads out of what is explained"))),
        _ => None,
    });
    names.collect()
}

fn as_text(path: &Path, explained: &Explained) -> String {
    let explanation = &explained.explanation;
    let mut text = printable(&path.to_string_lossy()) + "\n";
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<11} {}\n", printable(&value)));
    };
    let kind = match explanation.kind {
        FileKind::Regular => "regular file".to_owned(),
        other => word(other),
    };
    line("what", format!("{kind}, inode {}", explanation.ino));
    let data_path = explanation.data_path.map_or("none", DataPath::name);
    line("data path", format!("{data_path}: {}", explanation.reason));
    if let Some(rule) = &explanation.rule {
        line("rule", rule.clone());
    }
    if let Some(backing) = explanation.backing {
        line("backing id", backing.to_string());
    }
    let (total, writable) = (explanation.opens.total, explanation.opens.writable);
    line(
        "open",
        match total {
            0 if explanation.opens.by_kernel => "not counted".to_owned(),
            0 => "no".to_owned(),
            1 => format!("once{}", if writable > 0 { ", for writing" } else { "" }),
            _ => format!("{total} times, {writable} of them for writing"),
        },
    );
    if explanation.locked_by_mount {
        let why = "as a whole by the mount, until programs above have unlocked their ranges of it";
        line("locked", why.to_owned());
    }
    for restriction in &explanation.restrictions {
        line("policy", restriction.clone());
    }
    if explanation.maps_refused {
        let why = "refused (ENODEV) to what opens it for reading and writing now, since a program on the host \
                   has it open for writing";
        line("shared maps", why.to_owned());
    }
    if let Some(used) = &explanation.window {
        line("window", window(used));
    }
    let once = match explanation.node {
        Some(_) => "",
        None => "once looked up: ",
    };
    line("cache", format!("{once}{}", cache(&explanation.cache)));
    let known = explanation.node.as_ref().map(node);
    line("kernel", known.unwrap_or("not looked up".to_owned()));
    let lower = &explanation.lower;
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
    match &explained.server {
        Server::Mount { mountpoint } => line("mount", mountpoint.clone()),
        Server::Share { share, process } => {
            line("machine", format!("process {process}"));
            line("share", share.clone());
        }
    }
    text
}

fn window(used: &WindowUse) -> String {
    match (used.mapped, used.ranges) {
        (true, 1) => format!("mapped, 1 range: {}", used.reason),
        (true, ranges) => format!("mapped, {ranges} ranges: {}", used.reason),
        (false, _) => format!("not mapped: {}", used.reason),
    }
}

/// As in JSON, with spaces.
fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

fn cache(cache: &CacheState) -> String {
    let mode = word(cache.mode);
    format!(
        "cache={mode}{}{}; names {} s, absent names {} s, attributes {} s; data version: {}",
        if cache.followed { ", followed" } else { "" },
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
