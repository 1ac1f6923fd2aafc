//! Deadlocks of locks.

use super::{Served, lock, serve, shared_locks};
use std::sync::mpsc;
use thrufs::Result;
use thrufs_abi::layout::LkIn;
use thrufs_tests::prelude::*;

const SOON: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

struct Shared {
    served: Served,
    nodes: Vec<NodeId>,
    files: Vec<u64>,
}

fn shared(files: usize) -> Shared {
    let served = serve(shared_locks());
    let (mut nodes, mut handles) = (Vec::new(), Vec::new());
    for number in 0..files {
        let name = format!("file{number}");
        served.write(&name, b"");
        let node = served.root().walk(&name).unwrap();
        handles.push(served.root().open(node, libc::O_RDWR).unwrap().fh);
        nodes.push(node);
    }
    Shared {
        served,
        nodes,
        files: handles,
    }
}

impl Shared {
    fn range(&self, file: usize, owner: u64, kind: i32, start: u64) -> LkIn {
        let mut arg = lock(self.files[file], owner, kind);
        (arg.lk.start, arg.lk.end) = (start, start + 9);
        arg
    }

    fn set(&self, file: usize, owner: u64, kind: i32, start: u64, wait: bool) -> Result<()> {
        let arg = self.range(file, owner, kind, start);
        self.served
            .client
            .root()
            .setlk(self.nodes[file], &arg, wait)
    }
}

/// Owners 0.. each hold what the one before wants: all wait but the last, which must be refused.
fn circle(length: usize) {
    let shared = &shared(length);
    let write = |file: usize, owner: usize, wait| {
        shared.set(file % length, owner as u64 + 1, libc::F_WRLCK, 0, wait)
    };
    for owner in 0..length {
        write(owner, owner, false).unwrap();
    }
    thread::scope(|scope| {
        let (sender, answers) = mpsc::channel();
        for owner in 0..length {
            let sender = sender.clone();
            scope.spawn(move || {
                let answer = write(owner + 1, owner, true);
                // The refused owner gives up its locks, then each one that got one.
                for file in [owner, owner + 1] {
                    shared
                        .set(file % length, owner as u64 + 1, libc::F_UNLCK, 0, false)
                        .unwrap();
                }
                sender.send(answer).unwrap();
            });
        }
        let answers: Vec<_> = (0..length)
            .map_while(|_| answers.recv_timeout(PATIENCE).ok())
            .collect();
        // Without a refusal all wait: this ends it.
        for (file, owner) in
            (0..length).flat_map(|file| (1..=length).map(move |owner| (file, owner)))
        {
            let freed = shared.set(file, owner as u64, libc::F_UNLCK, 0, false);
            assert_eq!(freed, Ok(()));
        }
        let refused = answers
            .iter()
            .filter(|answer| **answer == Err(Errno::EDEADLK));
        assert_eq!(refused.count(), 1, "{answers:?}");
        let good = answers.iter().filter(|answer| answer.is_ok());
        assert_eq!(good.count(), length - 1, "{answers:?}");
    });
}

#[test]
fn a_lock_that_would_deadlock_is_refused() {
    for length in [2, 3, 8] {
        circle(length);
    }
}

#[test]
fn two_readers_that_both_want_to_write() {
    let shared = &shared(1);
    for owner in [1, 2] {
        shared.set(0, owner, libc::F_RDLCK, 0, false).unwrap();
    }
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.set(0, 1, libc::F_WRLCK, 0, true));
        while shared.set(0, 2, libc::F_WRLCK, 0, false) == Ok(()) {}
        let (sender, answer) = mpsc::channel();
        // Whichever waits first: the other is refused.
        let second = scope.spawn(move || {
            let answer = shared.set(0, 2, libc::F_WRLCK, 0, true);
            shared.set(0, 2, libc::F_UNLCK, 0, false).unwrap();
            sender.send(()).unwrap();
            answer
        });
        if answer.recv_timeout(SOON).is_err() {
            // The second waits, so the first was refused. Otherwise this ends both waits.
            shared.set(0, 1, libc::F_UNLCK, 0, false).unwrap();
        }
        let answers = [first.join().unwrap(), second.join().unwrap()];
        let refused = answers
            .iter()
            .filter(|answer| **answer == Err(Errno::EDEADLK));
        assert_eq!(refused.count(), 1, "{answers:?}");
    });
}

/// No circle: other ranges, other kinds, a holder that does not wait.
#[test]
fn a_waiter_outside_a_circle_gets_its_lock() {
    let shared = &shared(2);
    let write = libc::F_WRLCK;
    shared.set(0, 1, write, 0, false).unwrap();
    shared.set(0, 1, write, 100, false).unwrap();
    shared.set(1, 2, write, 0, false).unwrap();
    shared.set(1, 3, libc::F_RDLCK, 50, false).unwrap();
    thread::scope(|scope| {
        // 1 waits for 2. What 2 then waits for is what 3 holds, and what 1 holds elsewhere is no matter.
        let one = scope.spawn(|| shared.set(1, 1, write, 0, true));
        let two = scope.spawn(|| shared.set(1, 2, write, 50, true));
        thread::sleep(SOON);
        assert!(!one.is_finished() && !two.is_finished());
        assert_eq!(shared.set(0, 2, libc::F_RDLCK, 20, true), Ok(()));
        shared.set(1, 3, libc::F_UNLCK, 50, false).unwrap();
        assert_eq!(two.join().unwrap(), Ok(()));
        shared.set(1, 2, libc::F_UNLCK, 0, false).unwrap();
        assert_eq!(one.join().unwrap(), Ok(()));
        // Nothing is left of the waits.
        shared.set(1, 1, libc::F_UNLCK, 0, false).unwrap();
        let waits = scope.spawn(|| shared.set(0, 2, write, 0, true));
        thread::sleep(SOON);
        assert!(!waits.is_finished());
        shared.set(0, 1, libc::F_UNLCK, 0, false).unwrap();
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
}
