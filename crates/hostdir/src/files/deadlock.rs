//! Detects deadlocks of POSIX locks through one server (`locks=shared`).
//!
//! A kernel that keeps the locks itself refuses a wait that closes a cycle with EDEADLK. Here locks are OFD
//! locks, for which it detects none. So the server records each wait, and before it adds one, follows from
//! its request the owners that hold the range and wait themselves. What they hold is asked of the lower
//! kernel (Linux 6.5), so nothing is out of date. A wait is recorded before the search, which looks at those
//! recorded before it: of two requests that would wait for each other, the second sees the first, and no
//! search holds up another.
//!
//! **Limits.** Waits and locks on the host or through another server are not seen. The wire does not say
//! whether an owner is a process or an open file (OFD), which natively may deadlock: it is refused like a
//! process. As natively, threads of one process that could release each other's locks are refused too.

use super::lock_owners::own_locks;
use parking_lot::Mutex;
use std::cell::Cell;
use std::os::fd::AsFd;
use thrufs::{Errno, Result};
use thrufs_abi::{LockOwner, NodeId};
use thrufs_sys::lock::{LockKind, RangeLock};

/// Most waits that are followed for a new one. A longer cycle is not found.
const WAITS_MAX: usize = 256;

/// Most locks of one owner that are looked at within the range.
const RANGES_MAX: usize = 256;

/// Most questions to the lower kernel for one wait. A cycle that takes more is not found.
pub(crate) const QUESTIONS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) node: NodeId,
    pub(crate) owner: LockOwner,
    pub(crate) range: RangeLock,
}

#[derive(Default)]
pub(crate) struct Waits {
    list: Mutex<Vec<Wait>>,
}

/// A registered wait, until it is dropped.
pub(crate) struct Waiting<'a> {
    waits: &'a Waits,
    wait: Wait,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut list = self.waits.list.lock();
        if let Some(at) = list.iter().position(|wait| *wait == self.wait) {
            list.swap_remove(at);
        }
    }
}

impl Waits {
    /// Registers a wait. `holds` says whether an owner holds a lock that conflicts with a range of a node.
    /// Fails with `EDEADLK` when it would close a cycle.
    pub(crate) fn enter(
        &self,
        wait: Wait,
        holds: impl Fn(NodeId, LockOwner, &RangeLock) -> bool,
    ) -> Result<Waiting<'_>> {
        let mut list = self.list.lock();
        let before = list.clone();
        list.push(wait);
        drop(list);
        let waiting = Waiting { waits: self, wait };
        match closes_cycle(&before, &wait, holds) {
            true => Err(Errno::EDEADLK),
            false => Ok(waiting),
        }
    }
}

/// Whether an owner that `new` would wait for, directly or not, waits for the owner of `new`.
fn closes_cycle(
    list: &[Wait],
    new: &Wait,
    holds: impl Fn(NodeId, LockOwner, &RangeLock) -> bool,
) -> bool {
    let mut unseen: Vec<&Wait> = list.iter().filter(|wait| wait.owner != new.owner).collect();
    let mut reached = vec![new];
    for _ in 0..WAITS_MAX {
        let Some(at) = reached.pop() else {
            return false;
        };
        if at.owner != new.owner && holds(at.node, new.owner, &at.range) {
            return true;
        }
        unseen.retain(|wait| {
            let is_next = wait.owner != at.owner && holds(at.node, wait.owner, &at.range);
            if is_next {
                reached.push(wait);
            }
            !is_next
        });
    }
    false
}

/// Whether an open file holds an OFD lock that conflicts with `wanted`, as far as `questions` may be asked.
pub(crate) fn conflicts_with(fd: impl AsFd, wanted: &RangeLock, questions: &Cell<usize>) -> bool {
    let conflicts =
        |held: RangeLock| held.kind == LockKind::Write || wanted.kind == LockKind::Write;
    let mut own = own_locks(fd, wanted.start, wanted.end);
    let ask = || {
        questions.set(questions.get().checked_sub(1)?);
        own.next()
    };
    std::iter::from_fn(ask)
        .take(RANGES_MAX)
        // An error on older kernels: nothing is known there.
        .map_while(Result::ok)
        .any(conflicts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(kind: LockKind, start: u64, end: u64) -> RangeLock {
        RangeLock {
            kind,
            start,
            end,
            pid: 0,
        }
    }

    fn wait(owner: u64, node: u64) -> Wait {
        Wait {
            node: NodeId(node),
            owner: LockOwner(owner),
            range: range(LockKind::Write, 0, 9),
        }
    }

    /// Owner `n` holds node `n`.
    fn own(node: NodeId, owner: LockOwner, _: &RangeLock) -> bool {
        node.0 == owner.0
    }

    #[test]
    fn cycle_of_any_length_is_refused() {
        for length in [2, 3, 10, 200] {
            let waits = Waits::default();
            let chain: Vec<_> = (1..length)
                .map(|owner| waits.enter(wait(owner, owner + 1), own).ok().unwrap())
                .collect();
            let closing = waits.enter(wait(length, 1), own).map(drop);
            assert_eq!(closing, Err(Errno::EDEADLK), "{length}");
            // The refused request does not wait, and waits elsewhere close no cycle.
            assert_eq!(waits.list.lock().len(), chain.len());
            drop(waits.enter(wait(length, 999), own).ok().unwrap());
            assert_eq!(waits.list.lock().len(), chain.len());
            drop(chain);
            assert!(waits.list.lock().is_empty());
            assert!(waits.enter(wait(length, 1), own).is_ok());
        }
    }

    #[test]
    fn all_holders_of_a_range_are_followed() {
        let waits = Waits::default();
        // Only 2 waits for 1; 2, 3 and 4 hold what 5 wants; 3 and 4 wait for others.
        let holds = |node: NodeId, owner: LockOwner, _: &RangeLock| match node.0 {
            10 => [2, 3, 4].contains(&owner.0),
            node => node == owner.0,
        };
        let others = [wait(3, 77), wait(2, 1), wait(4, 78)];
        let _waiting = others.map(|wait| waits.enter(wait, holds).ok().unwrap());
        assert!(waits.enter(wait(6, 10), holds).is_ok());
        let refused = waits.enter(wait(1, 10), holds).map(drop);
        assert_eq!(refused, Err(Errno::EDEADLK));
    }

    #[test]
    fn existing_cycle_of_other_owners_ends_the_search() {
        let waits = Waits::default();
        // As after a wait was admitted because a lock could not be seen.
        *waits.list.lock() = vec![wait(1, 2), wait(2, 1)];
        assert!(waits.enter(wait(3, 1), own).is_ok());
        // It does not hide another cycle.
        waits.list.lock().insert(0, wait(4, 5));
        let holds = |node: NodeId, owner: LockOwner, range: &RangeLock| match node.0 {
            10 => [1, 4].contains(&owner.0),
            _ => own(node, owner, range),
        };
        let refused = waits.enter(wait(5, 10), holds).map(drop);
        assert_eq!(refused, Err(Errno::EDEADLK));
    }

    #[test]
    fn owner_does_not_wait_for_its_own_locks() {
        let waits = Waits::default();
        assert!(waits.enter(wait(1, 1), own).is_ok());
    }

    #[test]
    fn a_search_holds_up_no_other_wait() {
        let waits = &Waits::default();
        let _waiting = waits.enter(wait(1, 2), own).ok().unwrap();
        let holds = |_: NodeId, _: LockOwner, _: &RangeLock| {
            std::thread::scope(|scope| {
                let (entered, has_entered) = std::sync::mpsc::channel();
                scope.spawn(move || entered.send(waits.enter(wait(4, 5), own).is_ok()));
                let patience = std::time::Duration::from_secs(10);
                // Without a limit, this would hang.
                assert_eq!(has_entered.recv_timeout(patience), Ok(true));
            });
            false
        };
        assert!(waits.enter(wait(3, 1), holds).is_ok());
    }

    #[test]
    fn ofd_locks_conflict_with_other_owners_only() {
        use LockKind::{Read, Write};
        use thrufs_sys::lock;
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).open(file.path()).unwrap()
        };
        let (one, other) = (open(), open());
        lock::ofd_set(&one, &range(Read, 0, 9)).unwrap();
        lock::ofd_set(&one, &range(Write, 20, 29)).unwrap();
        for (wanted, expected) in [
            (range(Read, 0, 9), false),
            (range(Write, 0, 9), true),
            (range(Write, 9, 9), true),
            (range(Write, 10, 19), false),
            (range(Read, 0, 19), false),
            (range(Read, 0, 20), true),
            (range(Read, 29, 100), true),
            (range(Write, 30, u64::MAX), false),
        ] {
            let questions = Cell::new(QUESTIONS_MAX);
            let is_in_way = conflicts_with(&one, &wanted, &questions);
            assert_eq!(is_in_way, expected, "{wanted:?}");
            assert!(!conflicts_with(&other, &wanted, &questions));
            assert!(!conflicts_with(&one, &wanted, &Cell::new(0)));
        }
    }
}
