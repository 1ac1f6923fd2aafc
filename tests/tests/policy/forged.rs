//! Redaction against a client without a kernel: any request at any time, with any node and handle that it
//! has ever had. `THRUFS_SEED` gives the sequence, `THRUFS_HOLD_STEPS` its length.

use crate::holds::{BY_NAME, printed};
use crate::samples;
use crate::served::put;
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, SetattrIn};
use thrufs_hostdir::{Config, HostDir, Resources};
use thrufs_policy::{Accounts, Policy};
use thrufs_testing::{Caller, Client, InProcess};
use thrufs_tests::prelude::*;

type Session = Client<InProcess<HostDir>>;

fn serve(source: &Path, policy: &str) -> Session {
    let policy = Policy::parse(policy.as_bytes(), &Accounts::default()).unwrap();
    let config = Config {
        callers_are_local: false,
        ..Config::default()
    };
    let resources = Resources {
        policy: Some(Arc::new(policy)),
        ..Resources::default()
    };
    Client::connect(Arc::new(HostDir::open(source, config, resources).unwrap())).unwrap()
}

fn size_through(handle: Option<u64>, size: u64) -> SetattrIn {
    let mut valid = SetattrValid::SIZE;
    if handle.is_some() {
        valid |= SetattrValid::FH;
    }
    SetattrIn {
        valid: valid.bits(),
        fh: handle.unwrap_or(0),
        size,
        ..SetattrIn::default()
    }
}

const NAMES: [&[u8]; 8] = [
    b"a.jpg",
    b"b.jpg",
    b"linked.jpg",
    b"A.JPG",
    b"c",
    b"d",
    b"other",
    b"photos",
];
const DIRECTORIES: [&str; 4] = ["", "photos", "photos/d", "other"];
/// At the beginning: a directory, and a name in it.
const PLACES: [(usize, &[u8]); 6] = [
    (1, b"a.jpg"),
    (1, b"linked.jpg"),
    (1, b"d"),
    (2, b"b.jpg"),
    (3, b"c"),
    (3, b"d"),
];

/// What may make a parser see something else.
const MARKS: [&[u8]; 9] = [
    b"\0",
    b"\xff\xd8\xff\xe0",
    b"\xff\xda",
    b"\xff\xd9",
    b"\x89PNG\r\n\x1a\n",
    b"RIFF\xff\0\0\0WEBP",
    b"\0\0\0\x18ftypmp42",
    b"II*\0\x08\0\0\0",
    b"words",
];

/// What makes the place part of the picture, and its block another one.
const TURNS: [(u64, &[u8]); 4] = [(2, b"\xff\xda"), (3, b"\xda"), (9, b"words"), (19, b"\xda")];

/// Steps on one tree. Then it has another: photographs that were emptied show nothing.
const ROUND_STEPS: u64 = 100;

struct Forger<'a> {
    root: Caller<'a, InProcess<HostDir>>,
    random: Random,
    nodes: Vec<NodeId>,
    directories: Vec<NodeId>,
    /// With the nodes that they were opened for.
    handles: Vec<(NodeId, u64)>,
}

impl Forger<'_> {
    fn node(&mut self) -> NodeId {
        self.random.pick(&self.nodes)
    }

    fn place(&mut self) -> (NodeId, &'static [u8]) {
        let name = self.random.pick(&NAMES);
        match self.random.below(8) {
            0 => (self.node(), name),
            1..=3 => (self.random.pick(&self.directories), name),
            _ => {
                let (directory, name) = self.random.pick(&PLACES);
                (self.directories[directory], name)
            }
        }
    }

    fn handle(&mut self) -> (NodeId, u64) {
        let (node, handle) = self.random.pick(&self.handles);
        // At times with a wrong node.
        match self.random.below(4) {
            0 => (self.node(), handle),
            _ => (node, handle),
        }
    }

    /// An offset in a photograph, more often near its blocks' beginnings.
    fn offset(&mut self) -> u64 {
        let length = samples::photograph().len();
        match self.random.below(4) {
            0 | 1 => self.random.pick(&[0, 2, 3, 4, 6, 12]),
            2 => self.random.below(1000) as u64,
            _ => self.random.below(length + 10) as u64,
        }
    }

    /// Bytes and where to write them: at times where they make a parser see something else.
    fn mark(&mut self) -> (u64, &'static [u8]) {
        match self.random.below(2) {
            0 => self.random.pick(&TURNS),
            _ => (self.offset(), self.random.pick(&MARKS)),
        }
    }

    fn knows(&mut self, node: u64) -> NodeId {
        self.nodes.push(NodeId(node));
        NodeId(node)
    }

    fn opens(&mut self, node: NodeId, handle: u64) {
        self.handles.push((node, handle));
    }

    fn step(&mut self) -> Result<(), Errno> {
        let flags = [
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_RDWR | libc::O_TRUNC,
            libc::O_RDONLY | libc::O_TRUNC,
            libc::O_RDWR | libc::O_APPEND,
        ];
        let flags = self.random.pick(&flags);
        let (node, (directory, name)) = (self.node(), self.place());
        match self.random.below(20) {
            0..=2 => {
                let entry = self.root.lookup(directory, name)?;
                self.knows(entry.nodeid);
            }
            3 | 4 => {
                let opened = self.root.open(node, flags)?;
                self.opens(node, opened.fh);
            }
            5 => {
                let (entry, opened) = self.root.create(directory, name, flags, 0o600)?;
                let node = self.knows(entry.nodeid);
                self.opens(node, opened.fh);
            }
            6 => {
                let (entry, opened) = self.root.tmpfile(directory, libc::O_RDWR, 0o600)?;
                let node = self.knows(entry.nodeid);
                self.opens(node, opened.fh);
            }
            7 | 16..=19 => {
                let (node, handle) = self.handle();
                let (at, mark) = self.mark();
                self.root.write(node, handle, at, mark, 0)?;
            }
            8 => {
                let (node, handle) = self.handle();
                let handle = (self.random.below(3) > 0).then_some(handle);
                let size = self.offset();
                self.root.setattr(node, &size_through(handle, size))?;
            }
            9 => {
                let (node, fh) = self.handle();
                let modes = [0, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE];
                let arg = FallocateIn {
                    fh,
                    offset: self.offset() & !4095,
                    length: 4096,
                    mode: self.random.pick(&modes) as u32,
                    padding: 0,
                };
                self.root.fallocate(node, &arg)?;
            }
            10 => {
                let ((from, fh_in), (to, fh_out)) = (self.handle(), self.handle());
                let offset = self.offset();
                let arg = CopyFileRangeIn {
                    fh_in,
                    off_in: self.random.pick(&[0, offset]),
                    nodeid_out: to.0,
                    fh_out,
                    off_out: self.offset(),
                    len: 50_000,
                    flags: 0,
                };
                self.root.copy_file_range(from, &arg)?;
            }
            11 | 12 => {
                let (to, new) = self.place();
                let flags = [0, libc::RENAME_EXCHANGE, libc::RENAME_NOREPLACE];
                let flags = self.random.pick(&flags);
                self.root.rename((directory, name), (to, new), flags)?;
            }
            13 => {
                let entry = self.root.link(node, directory, name)?;
                self.knows(entry.nodeid);
            }
            14 => match self.random.below(3) {
                0 => {
                    let entry = self.root.mkdir(directory, name, 0o700)?;
                    self.knows(entry.nodeid);
                }
                1 => self.root.unlink(directory, name)?,
                _ => self.root.forget(node, 1),
            },
            _ => {
                let (node, handle) = self.handle();
                self.root.release(node, handle)?;
            }
        }
        Ok(())
    }

    /// Another client makes a photograph, among other steps, and not always to the end.
    fn camera(&mut self) -> Result<(), Errno> {
        let path = self.random.pick(&["photos/a.jpg", "photos/d/b.jpg"]);
        let node = self.root.walk(path)?;
        let fh = self.root.open(node, libc::O_RDWR | libc::O_TRUNC)?.fh;
        let mut at = 0;
        for piece in samples::photograph().chunks(7001) {
            if self.random.below(3) == 0 {
                let _ = self.step();
            }
            if self.random.below(20) == 0 || self.root.write(node, fh, at, piece, 0).is_err() {
                break;
            }
            at += piece.len() as u64;
        }
        self.root.release(node, fh)
    }

    fn search(&self, what: &str) {
        for (node, handle) in &self.handles {
            self.must_be_clean(*node, *handle, what);
        }
    }

    fn must_be_clean(&self, node: NodeId, handle: u64, what: &str) {
        let read = self.root.read(node, handle, 0, 1 << 17);
        let is_clean = read.is_err() || samples::is_clean(&read.unwrap());
        assert!(is_clean, "{what}: node {}, handle {handle}", node.0);
    }

    /// Searches what can be read by name.
    fn search_names(&self, source: &Path, directory: &Path, what: &str) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                self.search_names(source, &path, what);
                continue;
            }
            let name = path.strip_prefix(source).unwrap().to_str().unwrap();
            let Ok(node) = self.root.walk(name) else {
                continue;
            };
            if let Ok(opened) = self.root.open(node, libc::O_RDONLY) {
                self.must_be_clean(node, opened.fh, &format!("{what}, {name}"));
                let _ = self.root.release(node, opened.fh);
            }
        }
    }

    /// Returns how many requests succeeded.
    fn round(&mut self, source: &Path, steps: u64) -> u64 {
        let mut done = 0;
        for step in 0..steps {
            done += u64::from(match self.random.below(12) {
                0 => self.camera().is_ok(),
                _ => self.step().is_ok(),
            });
            if self.handles.len() > 12 {
                let at = self.random.below(12);
                let (node, handle) = self.handles.swap_remove(at);
                let _ = self.root.release(node, handle);
            }
            let what = format!("step {step}");
            if step % 32 == 31 {
                self.search(&what);
            }
            if self.random.below(64) == 0 {
                self.search_names(source, source, &what);
            }
        }
        self.search("at the end");
        self.search_names(source, source, "at the end");
        done
    }
}

fn photographs(source: &Path) {
    put(source, "photos/a.jpg", &samples::photograph());
    put(source, "photos/d/b.jpg", &samples::photograph());
    put(source, "photos/linked.jpg", &samples::photograph());
    put(source, "photos/broken.jpg", &samples::broken_photograph());
    put(source, "other/c", b"words");
    fs::hard_link(source.join("photos/linked.jpg"), source.join("other/d")).unwrap();
}

#[test]
fn no_request_shows_redacted_content() {
    let steps = thrufs_test_report::number("THRUFS_HOLD_STEPS", 2000);
    let mut seed = thrufs_test_report::seed();
    for policy in [printed(), BY_NAME.to_owned()] {
        let mut done = 0;
        for _ in 0..steps.div_ceil(ROUND_STEPS) {
            let place = tempfile::tempdir().unwrap();
            photographs(place.path());
            let session = serve(place.path(), &policy);
            let root = session.root();
            let directories = DIRECTORIES.map(|path| root.walk(path).unwrap());
            let [photo, free] = ["photos/a.jpg", "other/c"].map(|path| root.walk(path).unwrap());
            let open = |node| (node, root.open(node, libc::O_RDONLY).unwrap().fh);
            let handles = [photo, free].map(open).to_vec();
            seed += 1;
            let mut forger = Forger {
                root,
                random: Random(seed),
                nodes: [&directories[..], &[photo, photo, free]].concat(),
                directories: directories.to_vec(),
                handles,
            };
            done += forger.round(place.path(), ROUND_STEPS);
        }
        assert!(done > steps / 20, "{done} of {steps} did anything");
    }
}
