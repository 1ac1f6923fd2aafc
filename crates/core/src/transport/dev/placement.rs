//! Where a lone reader runs.
//!
//! A caller that asks one thing after another and the reader that answers it never run at the same
//! time. On two CPUs, each question wakes one CPU from idle and each answer the other, which costs
//! several times what the question does, above all in a virtual machine. On one CPU they take turns.
//! The scheduler does not see that: it sends a woken thread to an idle CPU. But it leaves a caller
//! with a reader that cannot move.
//!
//! So a reader that is the only one and has much to do is bound to the CPU it is on. It is let go
//! when it has to wait for that CPU, which the scheduler counts (`/proc/self/task/*/schedstat`), and
//! when more readers are called. Threads that the session starts are never bound from birth.

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use thrufs_sys::signal::ThreadId;

/// Fewer requests than this in a second are not worth it.
const REQUESTS_PER_SECOND_MIN: u64 = 2000;
/// A bound reader that waits for its CPU more than this part of the time is let go...
const WAITING_PART_MAX: u32 = 8;
/// ... and not bound again for so long.
const REST: Duration = Duration::from_millis(500);

/// What the system knows about this process's own threads. Opened before the process gives up its
/// view of the tree; shows nothing but itself.
pub(super) fn open_tasks() -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/task", flags, Mode::empty()).ok()
}

fn read_task(tasks: BorrowedFd<'_>, thread: ThreadId, file: &str) -> Option<Vec<u8>> {
    let path = format!("{}/{file}", thread.as_raw());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(tasks, path, flags, Mode::empty()).ok()?;
    let mut bytes = vec![0; 1024];
    let length = rustix::io::read(&descriptor, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// The fields of `stat` from the state on: after the name in parentheses, which is ours and has
/// none of its own.
fn stat_fields(stat: &[u8]) -> Option<Vec<&str>> {
    let text = std::str::from_utf8(stat).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().collect())
}

/// Whether a thread runs, or would if there were a CPU for it. False where nobody can tell.
pub(super) fn wants_cpu(tasks: Option<BorrowedFd<'_>>, thread: ThreadId) -> bool {
    let stat = tasks.and_then(|tasks| read_task(tasks, thread, "stat"));
    stat.is_some_and(|stat| stat_fields(&stat).is_some_and(|fields| fields.first() == Some(&"R")))
}

fn cpu_of(tasks: BorrowedFd<'_>, thread: ThreadId) -> Option<usize> {
    // Field 39, `processor`; the state is field 3.
    stat_fields(&read_task(tasks, thread, "stat")?)?
        .get(39 - 3)?
        .parse()
        .ok()
}

/// How long a thread has waited for a CPU since it started.
fn waited_for_cpu(tasks: BorrowedFd<'_>, thread: ThreadId) -> Option<Duration> {
    let bytes = read_task(tasks, thread, "schedstat")?;
    let waited = std::str::from_utf8(&bytes)
        .ok()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    Some(Duration::from_nanos(waited))
}

/// Binds the calling thread to one of the CPUs that it may use, the same for the same number.
pub(super) fn pin_to_cpu(allowed: &CpuSet, number: usize) {
    let cpus: Vec<usize> = cpus(allowed).collect();
    let Some(cpu) = cpus.get(number % cpus.len().max(1)) else {
        return;
    };
    set_affinity(None, &only(*cpu));
}

/// Lets the calling thread run wherever the session may: it has inherited where its parent could.
pub(super) fn unpin(allowed: &CpuSet) {
    set_affinity(None, allowed);
}

pub(super) fn allowed_cpus() -> CpuSet {
    sched_getaffinity(None).unwrap_or_default()
}

fn cpus(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu))
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

fn set_affinity(thread: Option<ThreadId>, cpus: &CpuSet) {
    let thread = thread.and_then(|thread| Pid::from_raw(thread.as_raw()));
    if let Err(error) = sched_setaffinity(thread, cpus) {
        tracing::debug!(%error, "cannot say where a reader runs");
    }
}

/// The steward's knowledge of the lone reader.
#[derive(Debug)]
pub(super) struct Placement {
    allowed: CpuSet,
    several_cpus: bool,
    bound: Option<ThreadId>,
    last: Option<Sample>,
    rests_until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    thread: ThreadId,
    at: Instant,
    requests: u64,
    waited: Duration,
}

impl Placement {
    pub(super) fn new(allowed: CpuSet) -> Placement {
        let several_cpus = cpus(&allowed).nth(1).is_some();
        let (bound, last, rests_until) = (None, None, Instant::now());
        Placement {
            allowed,
            several_cpus,
            bound,
            last,
            rests_until,
        }
    }

    /// Looks at the only reader, which has read `requests` requests so far; `None` when there are
    /// several, or none.
    pub(super) fn look(
        &mut self,
        tasks: Option<BorrowedFd<'_>>,
        lone: Option<(ThreadId, u64)>,
        now: Instant,
    ) {
        let Some(tasks) = tasks.filter(|_| self.several_cpus) else {
            return;
        };
        let sample = lone.and_then(|(thread, requests)| {
            let waited = waited_for_cpu(tasks, thread)?;
            Some(Sample {
                thread,
                at: now,
                requests,
                waited,
            })
        });
        let before = std::mem::replace(&mut self.last, sample);
        let (Some(sample), Some(before)) = (sample, before) else {
            return self.let_go();
        };
        if sample.thread != before.thread {
            return self.let_go();
        }
        let elapsed = now.duration_since(before.at);
        if self.bound.is_some() {
            let waited = sample.waited.saturating_sub(before.waited);
            if waited > elapsed / WAITING_PART_MAX {
                self.let_go();
                self.rests_until = now + REST;
            }
        } else if now >= self.rests_until {
            let requests = sample.requests.saturating_sub(before.requests);
            let enough = elapsed.as_micros() as u64 * REQUESTS_PER_SECOND_MIN / 1_000_000;
            if requests > enough
                && let Some(cpu) = cpu_of(tasks, sample.thread)
            {
                set_affinity(Some(sample.thread), &only(cpu));
                self.bound = Some(sample.thread);
            }
        }
    }

    fn let_go(&mut self) {
        if let Some(thread) = self.bound.take() {
            set_affinity(Some(thread), &self.allowed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use thrufs_sys::signal::current_thread_id;

    #[test]
    fn a_busy_lone_reader_is_bound_and_let_go_when_it_is_not_alone() {
        let allowed = allowed_cpus();
        let count = || cpus(&allowed_cpus()).count();
        if count() < 2 {
            return eprintln!("SKIPPED: one CPU");
        }
        let tasks = open_tasks().unwrap();
        let tasks = Some(tasks.as_fd());
        let me = current_thread_id();
        let mut placement = Placement::new(allowed);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        placement.look(tasks, Some((me, 0)), at(0));
        placement.look(tasks, Some((me, 15)), at(10));
        assert!(count() > 1, "too little to do");
        placement.look(tasks, Some((me, 200)), at(20));
        assert_eq!(count(), 1);
        placement.look(tasks, None, at(30));
        assert!(count() > 1);
    }

    #[test]
    fn a_bound_reader_that_waits_for_its_cpu_is_let_go_for_a_while() {
        let allowed = allowed_cpus();
        if cpus(&allowed).count() < 2 {
            return eprintln!("SKIPPED: one CPU");
        }
        let directory = open_tasks().unwrap();
        let tasks = Some(directory.as_fd());
        let me = current_thread_id();
        let mut placement = Placement::new(allowed);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        placement.look(tasks, Some((me, 0)), at(0));
        placement.look(tasks, Some((me, 1000)), at(10));
        assert_eq!(placement.bound, Some(me));
        // As if it had waited all the time.
        let last = placement.last.as_mut().unwrap();
        last.waited = Duration::ZERO;
        let waited = waited_for_cpu(directory.as_fd(), me).unwrap();
        let soon = at(10) + waited / 2;
        placement.look(tasks, Some((me, 2000)), soon);
        if waited.is_zero() {
            return eprintln!("SKIPPED the rest: this thread never waited, or nobody counts");
        }
        assert_eq!(placement.bound, None);
        placement.look(tasks, Some((me, 9000)), soon + Duration::from_millis(10));
        assert_eq!(placement.bound, None, "it rests");
        placement.look(tasks, Some((me, 99_000)), soon + REST);
        assert_eq!(placement.bound, Some(me));
        placement.let_go();
    }

    #[test]
    fn a_thread_that_asks_wants_its_cpu() {
        let tasks = open_tasks().unwrap();
        assert!(wants_cpu(Some(tasks.as_fd()), current_thread_id()));
        assert!(!wants_cpu(None, current_thread_id()));
        assert!(cpu_of(tasks.as_fd(), current_thread_id()).is_some());
    }
}
