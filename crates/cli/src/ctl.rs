//! `thrufs ctl`: queries of the server of a mount or share.

mod health;

use crate::control::client::{ask, ask_share, share_at};
use crate::control::finding::locate;
use crate::control::protocol::{Command as Query, escape};
use crate::control::query_error::QueryError;
use crate::metrics;
use crate::mount_table;
use crate::output::{print, print_json};
use clap::{Parser, ValueEnum};
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Query the server of a mount or share
#[derive(Parser)]
#[command(name = "ctl")]
pub(crate) struct CtlArguments {
    /// Print an object
    #[arg(long)]
    json: bool,
    /// The control socket, where the mount or share was given control=PATH
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// By the process that bounds the time of another
    #[arg(long, hide = true)]
    bounded: bool,
    /// The mount point, or anything on the mount; the socket of a share
    #[arg(id = "PATH")]
    path: PathBuf,
    /// What to do
    #[arg(id = "COMMAND")]
    query: CtlQuery,
    /// What to log, for log-level
    #[arg(id = "LEVEL", required_if_eq("COMMAND", "log-level"))]
    level: Option<Level>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CtlQuery {
    /// Counters, as logged on SIGUSR1
    Statistics,
    /// The same as OpenMetrics text, for Prometheus
    Metrics,
    /// Fail unless the mount point or share answers within two seconds
    Health,
    /// Wait until the mount shows all changes in the source
    Settle,
    /// Open the log file and read the policy again, as on SIGHUP
    Reload,
    /// Have the kernel drop what it caches of the mount
    DropCaches,
    /// Change what is logged until the server ends
    LogLevel,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Sends one query to the server of the mount that the path is on, or of the share whose socket it is.
pub(crate) fn ctl(arguments: CtlArguments) -> Result<ExitCode, QueryError> {
    let CtlArguments {
        json,
        control,
        bounded,
        path,
        query,
        level,
    } = arguments;
    if level.is_some() && query != CtlQuery::LogLevel {
        return Err(QueryError::NoLevel);
    }
    match query {
        CtlQuery::Health if bounded => return health::check(&path, control.as_deref(), json),
        CtlQuery::Health => return health::check_in_time(&path, json),
        _ => {}
    }
    let command = match query {
        CtlQuery::Settle => Query::Settle,
        CtlQuery::Reload => Query::Reload,
        CtlQuery::DropCaches => Query::DropCaches {
            keeps_names: has_mounts_within(&path),
        },
        CtlQuery::LogLevel => {
            let level = level.and_then(|it| it.to_possible_value());
            let level = level.expect("clap requires it").get_name().to_owned();
            Query::LogLevel { level }
        }
        CtlQuery::Statistics | CtlQuery::Metrics | CtlQuery::Health => Query::Statistics,
    };
    let (place, mut answer) = asked(&path, control.as_deref(), &command)?;
    match query {
        CtlQuery::Metrics if !json => print(metrics::of(&place, &answer)),
        _ if json => {
            if let Some(fields) = answer.as_object_mut() {
                fields.remove("text");
            }
            print_json(&answer);
        }
        _ => {
            let text = answer.get("text").and_then(Value::as_str);
            for line in text.unwrap_or_default().lines() {
                print(format!("{line}\n"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether something is mounted on a directory of the mount that a path is on: it would be detached if the name of that
/// were dropped.
fn has_mounts_within(path: &Path) -> bool {
    locate(path).is_ok_and(|located| mount_table::is_mounted_on(located.mount.device))
}

/// The mount point or socket, and the answer.
fn asked(
    path: &Path,
    control: Option<&Path>,
    command: &Query,
) -> Result<(String, Value), QueryError> {
    let name = |path: &Path| escape(path.as_os_str().as_bytes());
    if let Some(share) = share_at(path) {
        return Ok((name(path), ask_share(path, &share, control, command)?));
    }
    let located = locate(path)?;
    let answer = ask(path, &located, control, command)?;
    Ok((name(&located.mount.path), answer))
}
