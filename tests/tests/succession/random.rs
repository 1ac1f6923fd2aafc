//! Random operations on a tree and on a native twin, while servers replace each other.
//!
//! `THRUFS_PROPERTY_CASES` is the number of sequences, `THRUFS_SEED` the seed of the first.

use crate::ground::{Server, WAYS, Way, config, mounted};
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thrufs::Errno;
use thrufs_abi::NodeId;
use thrufs_hostdir::MigrationMode;
use thrufs_testing::{Caller, Random};
use thrufs_tests::compare::{differences, snapshot};
use thrufs_tests::lower::{Ground, Lower};

const CASES_DEFAULT: u64 = 12;
const STEPS: usize = 400;
const PATHS: [&str; 9] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a"];

type Outcome = Result<Vec<u8>, i32>;

fn native(result: std::io::Result<Vec<u8>>) -> Outcome {
    result.map_err(|error| error.raw_os_error().unwrap())
}

fn ours(result: Result<Vec<u8>, Errno>) -> Outcome {
    result.map_err(Errno::raw)
}

struct Open {
    node: NodeId,
    fh: u64,
    twin: File,
}

struct Twins<'a> {
    caller: Caller<'a, &'a Server>,
    twin: PathBuf,
    opens: Vec<Open>,
    /// What FORGET takes back.
    lookups: HashMap<NodeId, u64>,
}

impl Twins<'_> {
    fn walk(&mut self, path: &str) -> Result<NodeId, Errno> {
        let mut at = NodeId::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = NodeId(self.caller.lookup(at, name.as_bytes())?.nodeid);
            if at == NodeId(0) {
                return Err(Errno::ENOENT);
            }
            *self.lookups.entry(at).or_default() += 1;
        }
        Ok(at)
    }

    fn parent<'p>(&mut self, path: &'p str) -> Result<(NodeId, &'p [u8]), Errno> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.walk(parent)?;
        // As a kernel checks directories on its way.
        let mode = self.caller.getattr(parent)?.attr.mode;
        if mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        Ok((parent, name.as_bytes()))
    }

    fn create(&mut self, path: &str, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let (parent, name) = self.parent(path)?;
        match self.caller.create(parent, name, libc::O_WRONLY, 0o644) {
            Ok((entry, open)) => {
                let node = NodeId(entry.nodeid);
                *self.lookups.entry(node).or_default() += 1;
                self.caller.write(node, open.fh, 0, data, 0)?;
                self.caller.release(node, open.fh)?;
                Ok(Vec::new())
            }
            // It is there: opened as a kernel would.
            Err(Errno::ESTALE) => {
                let node = self.walk(path)?;
                let fh = self.caller.open(node, libc::O_WRONLY | libc::O_TRUNC)?.fh;
                self.caller.write(node, fh, 0, data, 0)?;
                self.caller.release(node, fh)?;
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    fn open(&mut self, path: &str) -> (Outcome, Outcome) {
        let twin = File::options()
            .read(true)
            .write(true)
            .open(self.twin.join(path));
        let opened = self.walk(path).and_then(|node| {
            let fh = self.caller.open(node, libc::O_RDWR)?.fh;
            Ok((node, fh))
        });
        match (opened, twin) {
            (Ok((node, fh)), Ok(twin)) => {
                self.opens.push(Open { node, fh, twin });
                (Ok(Vec::new()), Ok(Vec::new()))
            }
            (one, other) => (
                ours(one.map(|_| Vec::new())),
                native(other.map(|_| Vec::new())),
            ),
        }
    }

    fn forget(&mut self, random: &mut Random) {
        let nodes: Vec<NodeId> = self.lookups.keys().copied().collect();
        if nodes.is_empty() {
            return;
        }
        let node = nodes[random.below(nodes.len())];
        if self.opens.iter().any(|open| open.node == node) {
            return;
        }
        // A kernel knows the parents of what it knows.
        let attributes = self.caller.getattr(node);
        if attributes.is_ok_and(|it| it.attr.mode & libc::S_IFMT == libc::S_IFDIR) {
            return;
        }
        let count = self.lookups.remove(&node).unwrap();
        self.caller.forget(node, count);
    }

    fn step(&mut self, random: &mut Random) -> (String, Outcome, Outcome) {
        let (path, other) = (random.pick(&PATHS), random.pick(&PATHS));
        let beneath = self.twin.join(path);
        let none = |()| Vec::new();
        let data = vec![random.below(256) as u8; random.below(9000)];
        let kind = random.below(12);
        let (one, two) = match kind {
            0 | 1 => (
                ours(self.create(path, &data)),
                native(fs::write(&beneath, &data).map(none)),
            ),
            2 => {
                let made = self.parent(path).and_then(|(parent, name)| {
                    let entry = self.caller.mkdir(parent, name, 0o755)?;
                    *self.lookups.entry(NodeId(entry.nodeid)).or_default() += 1;
                    Ok(Vec::new())
                });
                (ours(made), native(fs::create_dir(&beneath).map(none)))
            }
            3 => {
                let gone = self.parent(path);
                let gone = gone.and_then(|(parent, name)| self.caller.unlink(parent, name));
                (
                    ours(gone.map(none)),
                    native(fs::remove_file(&beneath).map(none)),
                )
            }
            4 => {
                let gone = self.parent(path);
                let gone = gone.and_then(|(parent, name)| self.caller.rmdir(parent, name));
                (
                    ours(gone.map(none)),
                    native(fs::remove_dir(&beneath).map(none)),
                )
            }
            5 | 6 => {
                let moved = self.parent(path).and_then(|from| {
                    let to = self.parent(other)?;
                    self.caller.rename(from, to, 0)
                });
                let twin = fs::rename(&beneath, self.twin.join(other));
                (ours(moved.map(none)), native(twin.map(none)))
            }
            7 if self.opens.len() < 6 => self.open(path),
            8 if !self.opens.is_empty() => {
                let at = random.below(self.opens.len());
                let Open { node, fh, twin } = self.opens.swap_remove(at);
                drop(twin);
                let released = self.caller.release(node, fh);
                (ours(released.map(none)), Ok(Vec::new()))
            }
            9 | 10 if !self.opens.is_empty() => {
                let open = &self.opens[random.below(self.opens.len())];
                let offset = random.below(20_000) as u64;
                let written = self.caller.write(open.node, open.fh, offset, &data, 0);
                let native_result = open.twin.write_all_at(&data, offset);
                let mut twin = vec![0; 40_000];
                let there = open.twin.read_at(&mut twin, 0).unwrap();
                twin.truncate(there);
                let read = written.and_then(|_| self.caller.read(open.node, open.fh, 0, 40_000));
                (ours(read), native(native_result.map(|()| twin)))
            }
            _ => {
                self.forget(random);
                let read = self.walk(path).and_then(|node| {
                    let fh = self.caller.open(node, libc::O_RDONLY)?.fh;
                    let read = self.caller.read(node, fh, 0, 40_000);
                    self.caller.release(node, fh)?;
                    read
                });
                (ours(read), native(fs::read(&beneath)))
            }
        };
        (format!("{kind} {path} {other}"), one, two)
    }

    /// Whether an open file has no name.
    fn has_orphans(&self) -> bool {
        self.opens.iter().any(|open| {
            let attributes = self.caller.getattr(open.node).unwrap();
            attributes.attr.nlink == 0
        })
    }
}

fn run(lower: Lower, seed: u64) {
    let ground = Ground::prepare(lower).unwrap();
    let source: &Path = ground.source();
    let server = Server::new(source, config(MigrationMode::FindPaths));
    let client = mounted(&server);
    let mut random = Random(seed);
    let mut twins = Twins {
        caller: client.root(),
        twin: ground.outside().to_owned(),
        opens: Vec::new(),
        lookups: HashMap::new(),
    };
    for step in 0..STEPS {
        let (what, one, other) = twins.step(&mut random);
        assert!(
            one == other,
            "seed {seed} on {}, step {step}, {what}: {:?} and natively {:?}",
            lower.name(),
            one.as_ref().map(Vec::len),
            other.as_ref().map(Vec::len)
        );
        if random.below(8) == 0 {
            let way = WAYS[random.below(WAYS.len())];
            // A file without a name has no path.
            let way = if twins.has_orphans() { Way::Death } else { way };
            server.passed_on(way);
        }
    }
    let (one, other) = (snapshot(source).unwrap(), snapshot(&twins.twin).unwrap());
    assert_eq!(
        differences(("served", &one), ("native", &other)),
        Vec::<String>::new(),
        "seed {seed}"
    );
    for open in std::mem::take(&mut twins.opens) {
        twins.caller.release(open.node, open.fh).unwrap();
    }
    for (node, count) in std::mem::take(&mut twins.lookups) {
        twins.caller.forget(node, count);
    }
    let left = server.statistics();
    assert_eq!((left.inodes, left.open_files), (1, 0), "seed {seed}");
    server.wait_for_kept(0);
}

#[test]
fn operations_are_the_same_across_servers() {
    let seed = thrufs_test_report::seed();
    for case in 0..thrufs_test_report::number("THRUFS_PROPERTY_CASES", CASES_DEFAULT) {
        let lower = [Lower::Default, Lower::Tmpfs, Lower::Overlay][(seed + case + 2) as usize % 3];
        run(lower, seed + case);
    }
}
