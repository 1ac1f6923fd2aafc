//! Whether a mount or share works, for probes of service managers and clusters.
//!
//! A process of its own looks: a server that is stuck, and the source of one, can leave it in the kernel for as long as
//! they like, also after its end. The process that was called says so, and ends in time.

use super::Query;
use crate::control::client::{ask, ask_share, share_at};
use crate::control::finding::locate;
use crate::control::protocol::escape;
use crate::control::query_error::QueryError;
use crate::error::{system, system_at};
use crate::mounting::{DeadMount, has_ended};
use crate::output::{print, print_json, report};
use crate::waiting;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// For the whole way: path, control socket, mount, source.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Has another process [`check`].
pub(super) fn check_in_time(path: &Path, json: bool) -> Result<ExitCode, QueryError> {
    let mut looking = Command::new("/proc/self/exe");
    looking.arg0("thrufs").args(["ctl", "--bounded"]);
    let step = |what| system::<std::io::Error>(what);
    // It may outlast this process, and must not keep whoever reads what this one prints.
    looking
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let looking = looking.args(std::env::args_os().skip(2)).spawn();
    let mut looking = looking.map_err(step("start a process"))?;
    let ended = pidfd_open(Pid::from_child(&looking), PidfdFlags::empty());
    let ended = ended.map_err(|errno| step("wait for a process")(errno.into()))?;
    let deadline = Some(Instant::now() + TIMEOUT);
    if waiting::readable([Some(ended.as_fd())], deadline)[0] {
        // A line, which fits into a pipe.
        let said = looking
            .wait_with_output()
            .map_err(step("wait for a process"))?;
        print(String::from_utf8_lossy(&said.stdout));
        let reason = String::from_utf8_lossy(&said.stderr);
        if !reason.is_empty() {
            report(reason.trim_end());
        }
        return Ok(ExitCode::from(u8::from(!said.status.success())));
    }
    let _ = looking.kill();
    let why = "no answer within 2 s: its server is stopped or stuck, or its source does not answer";
    conclude(path, Err(unhealthy(path, why)), json)
}

/// Waits for the server and its source.
pub(super) fn check(
    path: &Path,
    control: Option<&Path>,
    json: bool,
) -> Result<ExitCode, QueryError> {
    let found = match share_at(path) {
        Some(share) => {
            let answer = ask_share(path, &share, control, &Query::Statistics);
            answer.and_then(
                |answer| match answer["silent"].as_array().map(Vec::as_slice) {
                    None | Some([]) => Ok(()),
                    Some([process, ..]) => {
                        let why = format!(
                            "the server of a virtual machine, process {process}, does not answer"
                        );
                        Err(unhealthy(path, &why))
                    }
                },
            )
        }
        None => check_mount(path, control),
    };
    conclude(path, found, json)
}

/// By the control socket, if there is one, and by the mount.
fn check_mount(path: &Path, control: Option<&Path>) -> Result<(), QueryError> {
    let located = locate(path)?;
    let mount = &located.mount;
    let bound = mount.root.iter().skip(1).count();
    match ask(path, &located, control, &Query::Statistics) {
        // The mount itself answers the question.
        Ok(_) | Err(QueryError::NoSocket(..) | QueryError::OtherUser(..)) => {}
        // None listens, or there is none: the kernel knows whether a mount is dead.
        Err(QueryError::NoServer(..)) if has_ended(&mount.path, mount.id).unwrap_or(false) => {
            return Err(DeadMount(mount.path.clone()).into());
        }
        Err(error) => return Err(error),
    }
    if located.components.len() != bound {
        return Err(unhealthy(
            path,
            "it is not mounted: it is a file on another mount",
        ));
    }
    match has_ended(&mount.path, mount.id).map_err(system_at("ask the mount on", &mount.path))? {
        true => Err(DeadMount(mount.path.clone()).into()),
        false => Ok(()),
    }
}

fn unhealthy(path: &Path, why: &str) -> QueryError {
    QueryError::Unhealthy {
        path: path.into(),
        why: why.to_owned(),
    }
}

/// Prints what was found, but for an error that is printed anyway.
fn conclude(
    path: &Path,
    found: Result<(), QueryError>,
    json: bool,
) -> Result<ExitCode, QueryError> {
    if json {
        let reason = found.as_ref().err().map(ToString::to_string);
        let path = escape(path.as_os_str().as_bytes());
        print_json(&json!({ "path": path, "healthy": found.is_ok(), "reason": reason }));
        return Ok(ExitCode::from(u8::from(found.is_err())));
    }
    found?;
    print(format!("{}: healthy\n", path.display()));
    Ok(ExitCode::SUCCESS)
}
