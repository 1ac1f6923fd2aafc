//! Several threads at once in one directory or one file.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    threads_create_in_one_directory,
    one_wins_an_exclusive_creation,
    renames_never_leave_the_name_missing,
    writes_to_separate_ranges,
    appends_do_not_overwrite,
    create_and_remove_the_same_names,
};

const THREADS: usize = 4;

/// Runs `body` in four threads that start together, with the number of the thread.
fn together(body: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (barrier, body) = (&barrier, &body);
            scope.spawn(move || {
                barrier.wait();
                body(number);
            });
        }
    });
}

fn threads_create_in_one_directory(env: &Env) {
    const EACH: usize = 50;
    env.dir("dir");
    together(|thread| {
        for number in 0..EACH {
            env.file(
                format!("dir/{thread}-{number}"),
                format!("{thread} {number}"),
            );
        }
    });
    assert_eq!(env.names("dir").len(), THREADS * EACH);
    for thread in 0..THREADS {
        for number in 0..EACH {
            let content = fs::read(env.beneath(format!("dir/{thread}-{number}"))).unwrap();
            assert_eq!(content, format!("{thread} {number}").into_bytes());
        }
    }
}

fn one_wins_an_exclusive_creation(env: &Env) {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    for round in 0..30 {
        let wins = AtomicUsize::new(0);
        together(|_| match env.try_open(format!("{round}"), flags) {
            Ok(_) => drop(wins.fetch_add(1, Ordering::Relaxed)),
            Err(error) => assert_eq!(error, Errno::EXIST),
        });
        assert_eq!(wins.load(Ordering::Relaxed), 1, "round {round}");
    }
    assert_eq!(env.names("").len(), 30);
}

fn renames_never_leave_the_name_missing(env: &Env) {
    // As programs replace a configuration file: readers see the old or the new one, whole.
    env.file("target", vec![0; 5000]);
    together(|thread| {
        for round in 0..=100u8 {
            if thread == 0 {
                env.file("next", vec![round; 5000]);
                rustix::fs::rename(env.path("next"), env.path("target")).unwrap();
            } else {
                let content = env.read("target");
                assert_eq!(content.len(), 5000);
                assert!(content == [content[0]; 5000], "a mixture");
            }
        }
    });
    assert!(env.read("target") == [100; 5000]);
    env.agree("target");
}

fn writes_to_separate_ranges(env: &Env) {
    // Neighbouring ranges share pages.
    const EACH: usize = 100;
    const LEN: usize = 1000;
    env.file("file", "");
    together(|thread| {
        let file = env.open("file", OFlags::RDWR);
        for block in 0..EACH {
            let at = (block * THREADS + thread) * LEN;
            file.write_all_at(&[thread as u8 + 1; LEN], at as u64)
                .unwrap();
        }
    });
    let content = env.read("file");
    assert_eq!(content.len(), THREADS * EACH * LEN);
    for (number, block) in content.chunks(LEN).enumerate() {
        assert!(
            block
                .iter()
                .all(|byte| usize::from(*byte) == number % THREADS + 1),
            "{number}"
        );
    }
    env.agree("file");
}

fn appends_do_not_overwrite(env: &Env) {
    const EACH: usize = 100;
    env.file("file", "");
    together(|thread| {
        let mut file = env.open("file", OFlags::WRONLY | OFlags::APPEND);
        for number in 0..EACH {
            file.write_all(format!("{thread}:{number:05}\n").as_bytes())
                .unwrap();
        }
    });
    let text = String::from_utf8(env.read("file")).unwrap();
    assert_eq!(text.lines().count(), THREADS * EACH);
    for thread in 0..THREADS {
        let prefix = format!("{thread}:");
        let own: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&prefix))
            .collect();
        assert_eq!(own.len(), EACH);
        assert!(own.is_sorted(), "each thread's lines stay in order");
    }
    env.agree("file");
}

/// Through a mount, a file can disappear between the kernel's LOOKUP and its OPEN. The kernel then retries only
/// once, which must succeed.
fn create_and_remove_the_same_names(env: &Env) {
    const EACH: usize = 100;
    env.dir("dir");
    together(|_| {
        for round in 0..EACH {
            let path = env.path(format!("dir/{}", round % 5));
            drop(open(&path, OFlags::CREATE | OFlags::WRONLY).unwrap());
            let removed = rustix::fs::unlink(&path);
            assert!(matches!(removed, Ok(()) | Err(Errno::NOENT)), "{removed:?}");
        }
    });
    assert!(env.names("dir").is_empty());
    assert_eq!(fs::read_dir(env.beneath("dir")).unwrap().count(), 0);
}
