//! Limits, scheduling and filters of a server's threads.

use super::finding::Finding;
use crate::{confinement, mounting};
use rustix::process::{Resource, getrlimit};
use thrufs_sys::sched;

/// Fewer are short for a server.
const DESCRIPTORS_MIN: u64 = 1024;

/// RLIMIT_NOFILE, before it is raised.
pub(super) fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let detail = format!(
        "RLIMIT_NOFILE is {}; a server raises it to the hard limit, {}",
        show(limit.current),
        show(limit.maximum)
    );
    if limit.maximum.is_some_and(|most| most < DESCRIPTORS_MIN) {
        let remedy =
            "raise the hard limit: LimitNOFILE= of a unit, nofile in /etc/security/limits.conf";
        return Finding::bad(detail, remedy);
    }
    Finding::good(detail)
}

/// Whether pairing works.
pub(super) fn pairing() -> Finding {
    let count = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count());
    if count == 1 {
        return Finding::note("not applicable: there is one processor");
    }
    if mounting::is_privileged() {
        // As a server does before it drops capabilities.
        let _ = sched::allow_leaving_idle();
    }
    if sched::may_leave_idle() {
        return Finding::good(format!(
            "a lone caller is served from its own processor, of {count}"
        ));
    }
    Finding::bad(
        "threads of this user cannot leave SCHED_IDLE",
        "grant an RLIMIT_NICE of 20: LimitNICE=20 of a unit, `USER - nice 0` in \
         /etc/security/limits.conf",
    )
}

/// Whether seccomp works.
pub(super) fn system_calls() -> Finding {
    match confinement::try_filter() {
        Ok(()) => Finding::good("the system calls of a server are filtered"),
        Err(problem) => Finding::bad(
            format!("the system calls of a server are not filtered: {problem}"),
            "use a kernel built with CONFIG_SECCOMP_FILTER",
        ),
    }
}
