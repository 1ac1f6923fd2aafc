//! `conform`: named checks of a server's conformance.
//!
//! | module | checks |
//! |---|---|
//! | `offer` | features on the socket and in INIT |
//! | `answers` | lengths, ids and errors of replies; queues that are full, wrap, stop and start |
//! | `files` | reading, writing, listing, linking |
//! | `window` | the DAX window, of a server that has one |
//! | `hostile` | that faulty chains and messages affect no other connection |
//!
//! `finding` has what a check finds, `session` what it has at hand, `report` the lines and their count.
//!
//! The hostile checks are skipped for a server that takes only one connection, as virtiofsd does.

mod answers;
mod files;
mod finding;
mod hostile;
mod offer;
mod report;
mod session;
mod window;

use super::connection::Connection;
use super::outcome::{Outcome, ToolError};
use super::share::Share;
use crate::front_end::FrontEnd;
use report::Report;
use session::{Check, Session};
use std::io::Write;
use thrufs_testing::ClientError;

/// Arguments of `conform`.
#[derive(Clone, Debug, Default)]
pub struct Conform {
    /// Names or prefixes of checks. Empty for all.
    pub only: Vec<String>,
    /// Only lists the names.
    pub list: bool,
}

/// The names of all checks of `conform`.
#[must_use]
pub fn check_names() -> Vec<String> {
    let offers = offer::CHECKS.iter().map(|check| check.name.to_owned());
    let sessions = session_checks().map(|check| check.name.to_owned());
    let again = [files::AGAIN, files::END_REPLY].map(str::to_owned);
    let last = answers::LAST_CHECKS.iter();
    let last = last.map(|check| check.name.to_owned());
    let well_behaved = offers.chain(sessions).chain(again).chain(last);
    well_behaved
        .chain(window::names())
        .chain(hostile::names())
        .collect()
}

fn session_checks() -> impl Iterator<Item = &'static Check> {
    answers::CHECKS.iter().chain(files::CHECKS)
}

pub(crate) fn run(
    connection: &Connection,
    conform: &Conform,
    out: &mut dyn Write,
) -> Result<Outcome, ToolError> {
    let names = check_names();
    if conform.list {
        for name in names {
            writeln!(out, "{name}")?;
        }
        return Ok(Outcome::Done);
    }
    let is_known = |only: &&String| !names.iter().any(|name| name.starts_with(only.as_str()));
    if let Some(unknown) = conform.only.iter().find(is_known) {
        return Err(ToolError::Usage(format!("there is no check `{unknown}`")));
    }
    let mut report = Report {
        out,
        only: &conform.only,
        passed: 0,
        failed: 0,
        skipped: 0,
    };
    well_behaved(connection, &mut report)?;
    window::run(connection, &mut report)?;
    hostile::run(connection, &mut report)?;
    writeln!(
        report.out,
        "{} passed, {} failed, {} skipped",
        report.passed, report.failed, report.skipped
    )?;
    Ok(if report.failed == 0 {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

fn well_behaved(connection: &Connection, report: &mut Report<'_>) -> Result<(), ToolError> {
    let front_end = connection.connect()?;
    let mounted = |source| ToolError::Mount {
        socket: connection.socket.clone(),
        source,
    };
    let session = open(front_end, connection).map_err(mounted)?;
    for check in offer::CHECKS {
        if report.is_wanted(check.name) {
            report.tell(check.name, (check.run)(session.client()))?;
        }
    }
    for check in session_checks() {
        if report.is_wanted(check.name) {
            report.tell(check.name, (check.run)(&session))?;
        }
    }
    files::remove_top(&session);
    if report.is_wanted(files::AGAIN) {
        report.tell(files::AGAIN, files::again(&session))?;
    }
    if report.is_wanted(files::END_REPLY) {
        report.tell(files::END_REPLY, files::end_reply(&session))?;
    }
    for check in answers::LAST_CHECKS {
        if report.is_wanted(check.name) {
            report.tell(check.name, (check.run)(&session))?;
        }
    }
    Ok(())
}

fn open(front_end: FrontEnd, connection: &Connection) -> Result<Session, ClientError> {
    let share = Share::over(front_end)?;
    Ok(Session {
        top: files::make_top(&share),
        share,
        time_limit: connection.time_limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checks_are_unique() {
        let mut names = check_names();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
