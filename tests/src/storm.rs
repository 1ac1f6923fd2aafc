//! A process that makes every call on a mount, at random and without end: right and wrong arguments, open
//! files, maps, blocking locks. It is meant to be killed.

use thrufs_testing::Random;
use thrufs_testing::steps::Steps;

/// Files that it keeps open at most.
const KEPT_MAX: usize = 100;

/// Nothing is written or allocated beyond, in bytes.
const SIZE_MAX: usize = 4 << 20;

const NAMES: usize = 12;

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

    fn name(&mut self) -> String {
        match self.random.below(40) {
            0 => "x".repeat(255),
            1 => "x".repeat(256),
            2 => "..".to_owned(),
            3 => ".".to_owned(),
            4 => "\u{ff}\u{1}\u{80}".to_owned(),
            _ => format!("n{}", self.random.below(NAMES)),
        }
    }

    /// Of up to three names.
    fn path(&mut self) -> String {
        let names: Vec<String> = (0..=self.random.below(3)).map(|_| self.name()).collect();
        names.join("/")
    }

    fn offset(&mut self) -> u64 {
        match self.random.below(20) {
            0 => i64::MAX as u64 - self.random.below(8192) as u64,
            1 => u64::MAX - self.random.below(8192) as u64,
            _ => self.random.below(SIZE_MAX) as u64,
        }
    }

    /// Does one thing; any result is right.
    pub fn step(&mut self) {
        let call = match self.random.below(10) {
            0..=2 => self.open(),
            3..=5 => self.use_a_file(),
            6 | 7 => self.change_names(),
            8 => self.change_attributes(),
            _ => self.look(),
        };
        let words: Vec<&str> = call.split(' ').collect();
        let _ = self.steps.call(&words);
        if words[0] == "map" {
            // Behind the end of the file that is SIGBUS, which ends this process.
            let _ = self.steps.call(&["store", "@map", "0", "stored"]);
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
        match self.random.below(14) {
            0 | 1 => format!("cat {file} {offset} {length}"),
            2 | 3 => format!("fill {file} {near} {length} 7"),
            4 => format!("truncate {file} {near}"),
            5 => {
                let flags = self.random.pick(&["", " keep", " punch,keep", " zero"]);
                format!("allocate {file} {near} {}{flags}", length + 1)
            }
            6 => {
                let owner = self.random.pick(&["process", "description"]);
                format!("lock {file} {owner} {kind}{waits} {near} {length}")
            }
            7 => format!("flock {file} {kind}{waits}"),
            8 => format!("copy {file} {offset} {other} {near} {length}"),
            9 => format!("fsync {file}"),
            10 => {
                let sharing = self.random.pick(&["shared", "shared", "private"]);
                format!("map @map {file} 4096 {sharing}")
            }
            11 => format!("seekdata {file} {near}"),
            12 => format!("state {file}"),
            _ => format!("close {file}"),
        }
    }

    fn change_names(&mut self) -> String {
        let (one, other) = (self.path(), self.path());
        match self.random.below(10) {
            0 | 1 => {
                let flags = [
                    "0",
                    "noreplace",
                    "exchange",
                    "whiteout",
                    "noreplace,exchange",
                ];
                format!("rename2 {} {one} {other}", self.random.pick(&flags))
            }
            2 => format!("link {one} {other}"),
            3 => format!("symlink {one} {other}"),
            4 => format!("unlink {one}"),
            5 => format!("rmdir {one}"),
            6 | 7 => format!("dir {one}"),
            8 => {
                let kind = self.random.pick(&["fifo", "socket", "char"]);
                format!("node {one} {kind} 600")
            }
            _ => format!("fdlink {} {one}", self.file()),
        }
    }

    fn change_attributes(&mut self) -> String {
        let path = self.path();
        match self.random.below(6) {
            0 => format!("chmod {path} {:o}", self.random.below(0o10000)),
            1 => format!("chown {path} {} -", self.random.below(70_000)),
            2 => format!("times {path} now {}.999999999", self.offset() as i64),
            3 => {
                let names = [
                    "user.a",
                    "user.b",
                    "trusted.c",
                    "security.capability",
                    "nothing",
                ];
                let (name, value) = (self.random.pick(&names), self.random.below(70_000));
                let flag = self.random.pick(&["", " create", " replace"]);
                format!("setxattr {path} {name} {}{flag}", "1".repeat(value))
            }
            4 => format!("rmxattr {path} user.a"),
            _ => format!("truncate {path} {}", self.random.below(SIZE_MAX)),
        }
    }

    fn look(&mut self) -> String {
        let path = self.path();
        match self.random.below(6) {
            0 => format!("stat {path}"),
            1 => format!("readlink {path}"),
            2 => format!("list {path}"),
            3 => format!("getxattr {path} user.a"),
            4 => format!("statfs {path}"),
            _ => format!("listxattr {path}"),
        }
    }
}
