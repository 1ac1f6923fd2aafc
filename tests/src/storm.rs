//! A process that makes every call on a mount, at random and without end: the operations of the property tests, and
//! odd ones: wrong arguments, maps, blocking locks. It is meant to be killed.

use crate::property::{self, PATHS};
use thrufs_testing::Random;
use thrufs_testing::steps::Steps;

/// Files that it keeps open at most.
const KEPT_MAX: usize = 100;

/// Nothing is written or allocated beyond, in bytes.
const SIZE_MAX: usize = 4 << 20;

pub struct Storm {
    random: Random,
    steps: Steps,
}

impl Storm {
    /// In the working directory.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            steps: Steps::new(".".into(), ".".into()),
        }
    }

    /// Does one thing; any result is right.
    pub fn step(&mut self) {
        let call = match self.random.below(5) {
            0 | 1 => property::call(&mut self.random),
            2 => self.open(),
            3 => self.use_a_file(),
            _ => self.use_a_name(),
        };
        let words: Vec<&str> = call.split(' ').collect();
        let _ = self.steps.call(&words);
        if words[0] == "map" {
            // Behind the end of the file that is SIGBUS, which ends this process.
            let _ = self.steps.call(&["store", "@map", "0", "stored"]);
        }
    }

    fn path(&mut self) -> String {
        let odd = ["x".repeat(256), "..".to_owned(), "\u{ff}\u{1}".to_owned()];
        let path = self.random.pick(&PATHS);
        match self.random.below(20) {
            0 => format!("{path}/{}", odd[self.random.below(3)]),
            1 => "x".repeat(255),
            _ => path.to_owned(),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.random.below(20) {
            0 => i64::MAX as u64 - self.random.below(8192) as u64,
            1 => u64::MAX - self.random.below(8192) as u64,
            _ => self.random.below(SIZE_MAX) as u64,
        }
    }

    fn file(&mut self) -> String {
        format!("@{}", self.random.below(KEPT_MAX))
    }

    fn open(&mut self) -> String {
        let (file, path, mode) = (self.file(), self.path(), self.random.below(0o10000));
        if self.random.once_in(20) {
            return format!("open {file} . rw,tmpfile {mode:o}");
        }
        let mut flags = self.random.pick(&["r", "w", "rw"]).to_owned() + ",nonblock";
        for more in [
            "creat",
            "excl",
            "trunc",
            "append",
            "direct",
            "directory",
            "nofollow",
            "sync",
            "path",
        ] {
            if self.random.once_in(6) {
                flags = format!("{flags},{more}");
            }
        }
        format!("open {file} {path} {flags} {mode:o}")
    }

    fn use_a_file(&mut self) -> String {
        let (file, other, offset) = (self.file(), self.file(), self.offset());
        let (near, length) = (self.random.below(SIZE_MAX), self.random.below(200_000));
        let kind = self.random.pick(&["read", "write", "unlock"]);
        let waits = if self.random.once_in(8) { "-wait" } else { "" };
        match self.random.below(11) {
            0 => format!("cat {file} {offset} {length}"),
            1 | 2 => format!("fill {file} {near} {length} 7"),
            3 => {
                let flags = self.random.pick(&["", " keep", " punch,keep", " zero"]);
                format!("allocate {file} {near} {}{flags}", length + 1)
            }
            4 => {
                let owner = self.random.pick(&["process", "description"]);
                format!("lock {file} {owner} {kind}{waits} {near} {length}")
            }
            5 => format!("flock {file} {kind}{waits}"),
            6 => format!("copy {file} {offset} {other} {near} {length}"),
            7 => {
                let sharing = self.random.pick(&["shared", "shared", "private"]);
                format!("map @map {file} 4096 {sharing}")
            }
            8 => format!("seekdata {file} {near}"),
            9 => format!("fdlink {file} {}", self.path()),
            _ => format!("close {file}"),
        }
    }

    fn use_a_name(&mut self) -> String {
        let (one, other) = (self.path(), self.path());
        match self.random.below(8) {
            0 => format!("rename2 whiteout {one} {other}"),
            1 => {
                let kind = self.random.pick(&["fifo", "socket", "char"]);
                format!("node {one} {kind} 600")
            }
            2 => format!("chown {one} {} -", self.random.below(70_000)),
            3 => format!("times {one} now {}.999999999", self.offset() as i64),
            4 => {
                let names = ["user.a", "trusted.c", "security.capability", "nothing"];
                let (name, value) = (self.random.pick(&names), self.random.below(70_000));
                format!("setxattr {one} {name} {} replace", "1".repeat(value))
            }
            5 => format!("statfs {one}"),
            6 => format!("listxattr {one}"),
            _ => format!("truncate {one} {}", self.random.below(SIZE_MAX)),
        }
    }
}
