//! The plan which thread serves which queues.
//!
//! The kernel has a queue for each *possible* CPU and puts a request on the queue of its caller's CPU.
//! Each CPU of the session has a thread of its own, unless there are too many. The queues of other CPUs
//! (offline, or not allowed) are spread over these threads: they get few requests, but a connection needs
//! an entry in every queue to start.

use rustix::thread::CpuSet;
use std::num::NonZeroUsize;
use thrufs_sys::fuse_ring::QueueIndex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) queues: Vec<QueueIndex>,
    /// The CPU to bind the thread to, if it serves a single one.
    pub(super) cpu: Option<usize>,
}

/// Spreads the queues of `possible` CPUs over threads, at most `threads_max`.
pub(super) fn groups(
    possible: usize,
    allowed: &CpuSet,
    queues_per_thread: Option<NonZeroUsize>,
    threads_max: usize,
) -> Vec<Group> {
    let is_allowed = |cpu: &usize| *cpu < CpuSet::MAX_CPU && allowed.is_set(*cpu);
    let (mut own, mut others): (Vec<usize>, Vec<usize>) = (0..possible).partition(is_allowed);
    if own.is_empty() {
        std::mem::swap(&mut own, &mut others);
    }
    let least = own.len().div_ceil(threads_max.max(1)).max(1);
    let each = queues_per_thread.map_or(least, |each| each.get().max(least));
    let mut groups: Vec<Group> = own
        .chunks(each)
        .map(|cpus| Group {
            queues: cpus.iter().map(|cpu| queue(*cpu)).collect(),
            cpu: match cpus {
                [one] => Some(*one),
                _ => None,
            },
        })
        .collect();
    let count = groups.len();
    for (number, cpu) in others.into_iter().enumerate() {
        groups[number % count].queues.push(queue(cpu));
    }
    groups
}

fn queue(cpu: usize) -> QueueIndex {
    // Linux supports fewer than 65,536 CPUs.
    QueueIndex(u16::try_from(cpu).unwrap_or(u16::MAX))
}

/// The number of CPUs in a list such as `0-3,8`.
pub(super) fn count_cpus(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0_usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    fn shape(groups: &[Group]) -> Vec<(Vec<u16>, Option<usize>)> {
        groups
            .iter()
            .map(|group| (group.queues.iter().map(|q| q.0).collect(), group.cpu))
            .collect()
    }

    #[test]
    fn each_cpu_has_its_thread_and_all_queues_have_one() {
        let found = groups(3, &set(&[0, 1, 2]), None, 64);
        assert_eq!(
            shape(&found),
            [(vec![0], Some(0)), (vec![1], Some(1)), (vec![2], Some(2))]
        );
        let found = groups(5, &set(&[1, 3]), None, 64);
        assert_eq!(
            shape(&found),
            [(vec![1, 0, 4], Some(1)), (vec![3, 2], Some(3))],
            "CPUs that are not ours are served by those that are"
        );
        let found = groups(2, &set(&[70]), None, 64);
        assert_eq!(shape(&found), [(vec![0], Some(0)), (vec![1], Some(1))]);
    }

    #[test]
    fn fewer_threads_serve_more_queues() {
        let all = set(&[0, 1, 2, 3, 4]);
        let found = groups(5, &all, NonZeroUsize::new(2), 64);
        assert_eq!(
            shape(&found),
            [(vec![0, 1], None), (vec![2, 3], None), (vec![4], Some(4))]
        );
        assert_eq!(groups(5, &all, None, 2).len(), 2);
        assert_eq!(groups(5, &all, NonZeroUsize::new(99), 64).len(), 1);
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(count_cpus("0-1\n"), Some(2));
        assert_eq!(count_cpus("0\n"), Some(1));
        assert_eq!(count_cpus("0-3,8,10-11"), Some(7));
        assert_eq!(count_cpus(""), None);
        assert_eq!(count_cpus("3-1"), None);
    }
}
