//! `conform`: named checks of a server's conformance.
//!
//! | module | checks |
//! |---|---|
//! | `offer` | features on the socket and in INIT |
//! | `answers` | lengths, ids and errors of replies; queues that are full, wrap, stop and start |
//! | `files` | reading, writing, listing, linking |
//! | `hostile` | that faulty chains and messages affect no other connection |
//!
//! The hostile checks are skipped for a server that takes only one connection, as virtiofsd does.

mod answers;
mod files;
mod hostile;
mod offer;

use super::share::Share;
use super::{Connection, Outcome, ToolError};
use crate::front_end::{FIRST_REQUEST_QUEUE, FrontEnd, QueueError, SubmitError};
use std::io::Write;
use std::time::{Duration, Instant};
use thrufs::Errno;
use thrufs_abi::{NodeId, Opcode, Reply, RequestBuilder, Unique};
use thrufs_testing::{Client, OFFERED_BY_GUESTS};

/// Arguments of `conform`.
#[derive(Clone, Debug, Default)]
pub struct Conform {
    /// Names or prefixes of checks. Empty for all.
    pub only: Vec<String>,
    /// Only lists the names.
    pub list: bool,
}

#[derive(Debug)]
enum Finding {
    Fail(String),
    Skip(String),
}

type Verdict = Result<(), Finding>;

impl From<Errno> for Finding {
    fn from(errno: Errno) -> Finding {
        Finding::Fail(format!("a request failed with {errno}"))
    }
}

impl From<QueueError> for Finding {
    fn from(error: QueueError) -> Finding {
        Finding::Fail(error.to_string())
    }
}

impl From<SubmitError> for Finding {
    fn from(error: SubmitError) -> Finding {
        Finding::Fail(error.to_string())
    }
}

fn fail<T>(why: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Fail(why.into()))
}

fn skip<T>(why: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Skip(why.into()))
}

/// Fails with a reason unless `so`.
fn ensure(so: bool, why: impl FnOnce() -> String) -> Verdict {
    if so { Ok(()) } else { fail(why()) }
}

struct Check {
    name: &'static str,
    run: fn(&Session) -> Verdict,
}

struct Session {
    share: Share,
    /// The checks change nothing outside it.
    top: Result<NodeId, Errno>,
    time_limit: Duration,
}

struct Answer {
    used: usize,
    bytes: Vec<u8>,
}

impl Answer {
    /// Checks what Linux 7.1 requires of every reply: a length equal to header and used length, the request's
    /// unique id, and no body after an error.
    fn check(&self, unique: u64) -> Result<Reply<'_>, Finding> {
        let Some(reply) = Reply::parse(&self.bytes) else {
            return fail(format!(
                "the used length is {}, which is not that of the reply's header",
                self.used
            ));
        };
        ensure(reply.unique == Unique(unique), || {
            format!("the reply to {unique} says {}", reply.unique)
        })?;
        ensure((-511..=0).contains(&reply.error), || {
            format!("{} is no error number", reply.error)
        })?;
        ensure(reply.error == 0 || reply.body.is_empty(), || {
            format!("an error reply has {} bytes", self.used)
        })?;
        Ok(reply)
    }
}

impl Session {
    fn client(&self) -> &Client<FrontEnd> {
        self.share.client()
    }

    fn top(&self) -> Result<NodeId, Finding> {
        self.top
            .or_else(|errno| skip(format!("no directory can be made: {errno}")))
    }

    fn front_end(&self) -> &FrontEnd {
        self.client().carrier()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.time_limit
    }

    fn request(&self, opcode: Opcode, node: NodeId) -> (RequestBuilder, u64) {
        let unique = self.client().next_unique();
        (RequestBuilder::new(opcode, unique, node), unique.0)
    }

    /// Sends a request on a queue and returns the raw reply.
    fn send_on(&self, queue: u16, request: &[u8]) -> Result<Answer, Finding> {
        let Some(mut queue) = self.front_end().queue(queue) else {
            return skip("there is no such queue");
        };
        let token = queue.submit_request(request)?;
        queue.notify()?;
        let deadline = self.deadline();
        while queue.wait(Some(deadline))? {
            while let Some(completion) = queue.poll()? {
                let mut bytes = Vec::new();
                queue.copy_reply(&completion, &mut bytes);
                let (used, own) = (completion.used_bytes(), completion.token() == token);
                queue.free(completion);
                if own {
                    let used = used as usize;
                    return Ok(Answer { used, bytes });
                }
            }
        }
        fail("the request was not given back")
    }

    fn send(&self, request: &[u8]) -> Result<Answer, Finding> {
        self.send_on(FIRST_REQUEST_QUEUE, request)
    }

    /// Fails unless GETATTR of the root succeeds.
    fn still_serves(&self) -> Verdict {
        match self.share.root().getattr(NodeId::ROOT) {
            Ok(_) => Ok(()),
            Err(errno) => fail(format!("afterwards, GETATTR of the root gives {errno}")),
        }
    }
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
    well_behaved.chain(hostile::names()).collect()
}

fn session_checks() -> impl Iterator<Item = &'static Check> {
    answers::CHECKS.iter().chain(files::CHECKS)
}

struct Report<'a> {
    out: &'a mut dyn Write,
    only: &'a [String],
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report<'_> {
    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    fn tell(&mut self, name: &str, verdict: Verdict) -> Result<(), ToolError> {
        match verdict {
            Ok(()) => {
                self.passed += 1;
                writeln!(self.out, "pass  {name}")?;
            }
            Err(Finding::Fail(why)) => {
                self.failed += 1;
                writeln!(self.out, "FAIL  {name}: {why}")?;
            }
            Err(Finding::Skip(why)) => {
                self.skipped += 1;
                writeln!(self.out, "skip  {name}: {why}")?;
            }
        }
        Ok(())
    }
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

fn open(
    front_end: FrontEnd,
    connection: &Connection,
) -> Result<Session, thrufs_testing::ClientError> {
    let share = Share::over(front_end)?;
    Ok(Session {
        top: files::make_top(&share),
        share,
        time_limit: connection.time_limit,
    })
}

/// The reply to INIT.
fn offered() -> thrufs_abi::InitFlags {
    OFFERED_BY_GUESTS
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

    #[test]
    fn replies_are_checked_as_linux_7_1_does() {
        let answer = |len: u32, error: i32, unique: u64, used: usize| {
            let header = thrufs_abi::layout::OutHeader { len, error, unique };
            let mut bytes = zerocopy::IntoBytes::as_bytes(&header).to_vec();
            bytes.resize(used, 0);
            Answer { used, bytes }
        };
        assert!(answer(16, -2, 8, 16).check(8).is_ok());
        assert!(answer(20, 0, 8, 20).check(8).is_ok());
        assert!(answer(20, 0, 8, 24).check(8).is_err(), "used length");
        assert!(answer(20, -2, 8, 20).check(8).is_err(), "error with a body");
        assert!(answer(16, 0, 10, 16).check(8).is_err(), "another request's");
        assert!(answer(16, 5, 8, 16).check(8).is_err(), "positive");
        assert!(answer(16, -512, 8, 16).check(8).is_err(), "out of range");
        assert!(answer(16, 0, 8, 0).check(8).is_err(), "nothing written");
    }
}
