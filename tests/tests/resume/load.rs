//! Requests to a worker that is killed.

use super::Ground;
use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thrufs::{Errno, NodeId};
use thrufs_client::{Caller, Client, FrontEnd};
use thrufs_testing::Random;
use thrufs_tests::guard::StopAll;

pub const QUEUES: u16 = 2;
const THREADS: usize = 8;
const NAMES: u64 = 12;
/// How long workers are killed.
const LOAD: Duration = Duration::from_secs(8);
/// The least number of deaths, and of requests before most of them.
const KILLS_MIN: u64 = 11;
const STEPS_BETWEEN: u64 = 6;
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const XATTR_CREATE: u32 = 1;

type Root<'a> = Caller<'a, FrontEnd>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Made {
    File(Vec<u8>),
    Directory,
    Link(String),
}

/// One thread with names of its own, and what each must be.
struct Worker<'a> {
    root: Root<'a>,
    number: usize,
    made: BTreeMap<u64, Made>,
    random: Random,
    done: u64,
}

impl Worker<'_> {
    fn random(&mut self, below: u64) -> u64 {
        self.random.number() % below
    }

    fn name(&self, name: u64) -> String {
        format!("t{}-{name}", self.number)
    }

    /// The node of a name; the caller forgets it.
    fn node(&self, name: u64) -> NodeId {
        let found = self.root.lookup(NodeId::ROOT, self.name(name).as_bytes());
        let node = NodeId(found.expect("a file that was made").nodeid);
        self.root.forget(node, 1);
        node
    }

    fn step(&mut self) {
        let name = self.random(NAMES);
        let text = self.name(name);
        let bytes = text.as_bytes();
        let at = (NodeId::ROOT, bytes);
        match self.made.get(&name).cloned() {
            None => self.make(name),
            Some(Made::Directory) => {
                if self.random(2) == 0 {
                    self.root.rmdir(at.0, at.1).expect("rmdir");
                    self.made.remove(&name);
                } else {
                    self.rename(name, Made::Directory);
                }
            }
            Some(Made::Link(target)) => {
                let found = self.root.readlink(self.node(name)).expect("readlink");
                assert_eq!(found, target.as_bytes());
                self.root.unlink(at.0, at.1).expect("unlink");
                self.made.remove(&name);
            }
            Some(Made::File(content)) => self.change(name, content),
        }
        self.done += 1;
    }

    fn make(&mut self, name: u64) {
        let text = self.name(name);
        let bytes = text.as_bytes();
        let made = match self.random(4) {
            0 => {
                self.root.mkdir(NodeId::ROOT, bytes, 0o700).expect("mkdir");
                Made::Directory
            }
            1 => {
                let target = format!("to {}", self.done);
                let made = self.root.symlink(NodeId::ROOT, bytes, target.as_bytes());
                made.expect("symlink");
                Made::Link(target)
            }
            _ => {
                let flags = libc::O_RDWR | libc::O_EXCL | libc::O_CREAT;
                let made = self.root.create(NodeId::ROOT, bytes, flags, 0o600);
                let (entry, open) = made.expect("create");
                let node = NodeId(entry.nodeid);
                self.root.release(node, open.fh).expect("release");
                Made::File(Vec::new())
            }
        };
        self.made.insert(name, made);
    }

    fn rename(&mut self, from: u64, what: Made) {
        let to = self.random(NAMES);
        let (old, new) = (self.name(from), self.name(to));
        let (old, new) = (
            (NodeId::ROOT, old.as_bytes()),
            (NodeId::ROOT, new.as_bytes()),
        );
        match self.made.get(&to).cloned() {
            _ if to == from => {}
            None => {
                let renamed = self.root.rename(old, new, RENAME_NOREPLACE);
                renamed.expect("rename to nothing");
                self.made.remove(&from);
                self.made.insert(to, what);
            }
            Some(Made::File(_)) if matches!(what, Made::File(_)) && self.random(2) == 0 => {
                self.root.rename(old, new, 0).expect("rename over");
                self.made.remove(&from);
                self.made.insert(to, what);
            }
            Some(other) => {
                let exchanged = self.root.rename(old, new, RENAME_EXCHANGE);
                exchanged.expect("exchange");
                self.made.insert(from, other);
                self.made.insert(to, what);
            }
        }
    }

    fn change(&mut self, name: u64, mut content: Vec<u8>) {
        let text = self.name(name);
        match self.random(8) {
            0 => {
                self.root
                    .unlink(NodeId::ROOT, text.as_bytes())
                    .expect("unlink");
                self.made.remove(&name);
            }
            1 => self.rename(name, Made::File(content)),
            2 => {
                let again = self.root.create(NodeId::ROOT, b"old", libc::O_EXCL, 0o600);
                assert_eq!(again.err(), Some(Errno::EEXIST), "what was there before");
                let again = self.root.mkdir(NodeId::ROOT, b"old", 0o700);
                assert_eq!(again.err(), Some(Errno::EEXIST), "what was there before");
            }
            3 => {
                let node = self.node(name);
                let second = format!("second-{}", self.number);
                let linked = self.root.link(node, NodeId::ROOT, second.as_bytes());
                assert_eq!(linked.expect("link").attr.nlink, 2);
                let gone = self.root.unlink(NodeId::ROOT, second.as_bytes());
                gone.expect("unlink of a second name");
            }
            4 => {
                let node = self.node(name);
                let key = format!("user.k{}", self.done);
                let value = format!("v{}", self.random(1000));
                let set = self
                    .root
                    .setxattr(node, key.as_bytes(), value.as_bytes(), XATTR_CREATE);
                set.expect("setxattr");
                assert_eq!(
                    self.root.getxattr(node, key.as_bytes()).unwrap(),
                    value.as_bytes()
                );
            }
            5 | 6 => {
                // At the end, as a guest appends.
                let node = self.node(name);
                let piece = format!("<{}:{}>", self.number, self.done);
                let written =
                    self.root
                        .write(node, node.0, content.len() as u64, piece.as_bytes(), 0);
                assert_eq!(written.expect("write"), piece.len() as u32);
                content.extend_from_slice(piece.as_bytes());
                self.made.insert(name, Made::File(content));
            }
            _ => {
                let node = self.node(name);
                let read = self.root.read(node, node.0, 0, 100_000).expect("read");
                assert_eq!(
                    String::from_utf8_lossy(&read),
                    String::from_utf8_lossy(&content)
                );
            }
        }
    }
}

/// Compares the disk with what must be there.
fn compare(ground: &Ground, workers: &[Worker<'_>]) {
    let mut expected: BTreeMap<String, Made> = BTreeMap::new();
    expected.insert("old".to_owned(), Made::File(Vec::new()));
    for worker in workers {
        let named = |(name, made): (&u64, &Made)| (worker.name(*name), made.clone());
        expected.extend(worker.made.iter().map(named));
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(ground.directory()).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let made = if kind.is_dir() {
            Made::Directory
        } else if kind.is_symlink() {
            Made::Link(fs::read_link(&path).unwrap().to_string_lossy().into_owned())
        } else {
            Made::File(fs::read(&path).unwrap())
        };
        found.insert(
            path.file_name().unwrap().to_string_lossy().into_owned(),
            made,
        );
    }
    assert_eq!(found, expected);
}

fn prepared() -> (Ground, Client<FrontEnd>) {
    let (ground, stream) = Ground::new();
    fs::write(ground.directory().join("old"), "").unwrap();
    // So old that it does not count as new.
    std::thread::sleep(Duration::from_millis(50));
    (ground, Ground::mount(stream))
}

fn worker(client: &Client<FrontEnd>, number: usize) -> Worker<'_> {
    // One for all workers, so that each has another part of one sequence.
    static SEED: LazyLock<u64> = LazyLock::new(thrufs_test_report::seed);
    Worker {
        root: client.root(),
        number,
        made: BTreeMap::new(),
        random: Random(*SEED + number as u64),
        done: 0,
    }
}

pub fn killed_under_load() {
    let (ground, client) = prepared();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut kills = 0;
    let workers: Vec<Worker<'_>> = std::thread::scope(|scope| {
        let all = StopAll(&stop);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (mut worker, stop, done) = (worker(&client, number), &stop, &done);
                scope.spawn(move || {
                    let failed = StopAll(stop);
                    while !stop.load(Ordering::SeqCst) {
                        worker.step();
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                    std::mem::forget(failed);
                    worker
                })
            })
            .collect();
        let begun = Instant::now();
        while (begun.elapsed() < LOAD || kills < KILLS_MIN) && !stop.load(Ordering::SeqCst) {
            let before = done.load(Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5 + kills * 37 % 60));
            // Some die while they resume.
            let is_in_the_midst = kills.is_multiple_of(3);
            while !is_in_the_midst
                && done.load(Ordering::SeqCst) < before + STEPS_BETWEEN
                && !stop.load(Ordering::SeqCst)
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            ground.replace();
            kills += 1;
        }
        drop(all);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client"))
            .collect()
    });
    compare(&ground, &workers);
    let done = done.load(Ordering::SeqCst);
    eprintln!("{kills} workers were killed in the midst of {done} steps");
    drop(client.unmount());
}

pub fn killed_twice_in_a_row() {
    let (ground, client) = prepared();
    let mut worker = worker(&client, 1);
    for pause in [0, 1, 5, 20, 100] {
        ground.replace();
        // Perhaps before it has begun to resume.
        std::thread::sleep(Duration::from_millis(pause));
        ground.replace();
        ground.replace();
        worker.step();
    }
    compare(&ground, &[worker]);
}

pub fn killed_in_the_handshake() {
    for pause in 0..8 {
        let (ground, stream) = Ground::new();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| Ground::mount(stream));
            std::thread::sleep(Duration::from_millis(pause * 3));
            ground.replace();
            let client = client.join().expect("a client");
            let made = client.root().mkdir(NodeId::ROOT, b"made", 0o700);
            made.expect("mkdir");
        });
        assert!(ground.directory().join("made").is_dir());
    }
}

pub fn a_guest_that_begins_anew() {
    let (ground, client) = prepared();
    let mut first = worker(&client, 1);
    (0..20).for_each(|_| first.step());
    // Its numbers (an attribute of a file) continue from there.
    let (made, done) = (first.made, first.done);
    let front_end = client.unmount();
    // Between two sessions there is none to resume.
    ground.replace();
    let client = Client::mount(front_end).unwrap();
    let mut second = worker(&client, 1);
    (second.made, second.done) = (made, done);
    ground.replace();
    (0..20).for_each(|_| second.step());
    compare(&ground, &[second]);
}
