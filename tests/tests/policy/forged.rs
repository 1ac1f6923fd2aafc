//! Redaction against a client without a kernel: any request at any time, with any node and handle
//! that it has ever had. `THRUFS_HOLD_SEED` and `THRUFS_HOLD_STEPS` are as in `holds`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use thrufs::{Errno, NodeId};
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, SetattrIn};
use thrufs_client::{Caller, Client, InProcess};
use thrufs_hostdir::policy::{Accounts, Policy};
use thrufs_hostdir::{Config, HostDir};

use crate::holds::{BY_NAME, MARKS, Random, printed, seed_and_steps};
use crate::samples;
use crate::served::{REDACT, put};

type Session = Client<InProcess<HostDir>>;

fn serve(source: &Path, policy: &str) -> Session {
    let policy = Policy::parse(policy.as_bytes(), &Accounts::default()).unwrap();
    let config = Config {
        policy: Some(Arc::new(policy)),
        callers_are_local: false,
        ..Config::default()
    };
    Client::connect(Arc::new(HostDir::open(source, config).unwrap())).unwrap()
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

const NAMES: [&[u8]; 6] = [b"a.jpg", b"b.jpg", b"A.JPG", b"c", b"d", b"other"];

struct Forger<'a> {
    root: Caller<'a, InProcess<HostDir>>,
    random: Random,
    nodes: Vec<NodeId>,
    /// With the nodes that they were opened for.
    handles: Vec<(NodeId, u64)>,
}

impl Forger<'_> {
    fn node(&mut self) -> NodeId {
        *self.random.of(&self.nodes)
    }

    fn name(&mut self) -> &'static [u8] {
        self.random.of::<&[u8]>(&NAMES)
    }

    fn handle(&mut self) -> (NodeId, u64) {
        let (node, handle) = *self.random.of(&self.handles);
        // At times with a node of which it is not.
        match self.random.below(4) {
            0 => (self.node(), handle),
            _ => (node, handle),
        }
    }

    fn offset(&mut self) -> u64 {
        self.random.offset()
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
        let flags = *self.random.of(&flags);
        let (node, name) = (self.node(), self.name());
        match self.random.below(18) {
            0..=2 => {
                let entry = self.root.lookup(node, name)?;
                self.knows(entry.nodeid);
            }
            3 | 4 => {
                let opened = self.root.open(node, flags)?;
                self.opens(node, opened.fh);
            }
            5 => {
                let (entry, opened) = self.root.create(node, name, flags, 0o600)?;
                let node = self.knows(entry.nodeid);
                self.opens(node, opened.fh);
            }
            6 => {
                let (entry, opened) = self.root.tmpfile(node, libc::O_RDWR, 0o600)?;
                let node = self.knows(entry.nodeid);
                self.opens(node, opened.fh);
            }
            7 | 16 | 17 => {
                let (node, handle) = self.handle();
                let (at, mark) = (self.offset(), *self.random.of(&MARKS));
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
                    mode: *self.random.of(&modes) as u32,
                    padding: 0,
                };
                self.root.fallocate(node, &arg)?;
            }
            10 => {
                let ((from, fh_in), (to, fh_out)) = (self.handle(), self.handle());
                let arg = CopyFileRangeIn {
                    fh_in,
                    off_in: self.offset(),
                    nodeid_out: to.0,
                    fh_out,
                    off_out: self.offset(),
                    len: 50_000,
                    flags: 0,
                };
                self.root.copy_file_range(from, &arg)?;
            }
            11 | 12 => {
                let (to, new) = (self.node(), self.name());
                let flags = [0, libc::RENAME_EXCHANGE, libc::RENAME_NOREPLACE];
                let flags = *self.random.of(&flags);
                self.root.rename((node, name), (to, new), flags)?;
            }
            13 => {
                let parent = self.node();
                let entry = self.root.link(node, parent, name)?;
                self.knows(entry.nodeid);
            }
            14 => match self.random.below(3) {
                0 => {
                    let entry = self.root.mkdir(node, name, 0o700)?;
                    self.knows(entry.nodeid);
                }
                1 => self.root.unlink(node, name)?,
                _ => self.root.forget(node, 1),
            },
            _ => {
                let (node, handle) = self.handle();
                self.root.release(node, handle)?;
            }
        }
        Ok(())
    }

    fn search(&self, what: &str) {
        for (node, handle) in &self.handles {
            let read = self.root.read(*node, *handle, 0, 1 << 17);
            let is_clean = read.is_err() || samples::is_clean(&read.unwrap());
            assert!(is_clean, "{what}: node {}, handle {handle}", node.0);
        }
    }
}

fn photographs(source: &Path) {
    put(source, "photos/a.jpg", &samples::photograph());
    put(source, "photos/d/b.jpg", &samples::photograph());
    put(source, "photos/linked.jpg", &samples::photograph());
    put(source, "other/c", b"words");
    if !source.join("other/d").exists() {
        fs::hard_link(source.join("photos/linked.jpg"), source.join("other/d")).unwrap();
    }
}

#[test]
fn no_request_shows_what_is_taken_out() {
    let (mut seed, steps) = seed_and_steps(3000);
    for policy in [printed(), BY_NAME.to_owned()] {
        let place = tempfile::tempdir().unwrap();
        photographs(place.path());
        let session = serve(place.path(), &policy);
        let root = session.root();
        let photos = root.walk("photos").unwrap();
        let photo = root.walk("photos/a.jpg").unwrap();
        let handle = root.open(photo, libc::O_RDONLY).unwrap().fh;
        seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut forger = Forger {
            root,
            random: Random::new(seed),
            nodes: vec![NodeId::ROOT, NodeId::ROOT, photos, photo],
            handles: vec![(photo, handle)],
        };
        let mut done = 0;
        for step in 0..steps {
            done += u64::from(forger.step().is_ok());
            if forger.handles.len() > 12 {
                let at = forger.random.below(12) as usize;
                let (node, handle) = forger.handles.swap_remove(at);
                let _ = forger.root.release(node, handle);
            }
            if forger.nodes.len() > 40 {
                let at = forger.random.below(40) as usize;
                forger.nodes.swap_remove(at);
            }
            if step % 16 == 0 {
                forger.search(&format!("step {step}"));
            }
            if forger.random.below(60) == 0 {
                // A photograph more beneath, in the way that leaves what is there.
                let new = place.path().join("new");
                fs::create_dir_all(place.path().join("photos")).unwrap();
                let name = place.path().join("photos/a.jpg");
                if !name.is_symlink() && !name.exists() {
                    fs::write(&new, samples::photograph()).unwrap();
                    fs::rename(&new, name).unwrap();
                }
            }
        }
        assert!(done > steps / 20, "{done} of {steps} did anything");
    }
}

/// The size of one file through a handle of another.
#[test]
fn a_handle_of_another_file_does_not_change_a_redacted_one() {
    let place = tempfile::tempdir().unwrap();
    photographs(place.path());
    let session = serve(place.path(), REDACT);
    let root = session.root();
    let [photo, other] = ["photos/a.jpg", "other/c"].map(|path| root.walk(path).unwrap());
    let free = root.open(other, libc::O_RDWR).unwrap().fh;
    for handle in [Some(free), None] {
        let changed = root.setattr(photo, &size_through(handle, 100));
        assert_eq!(changed.unwrap_err(), Errno::EACCES, "{handle:?}");
    }
    assert_eq!(fs::read(place.path().join("other/c")).unwrap(), b"words");
    let length = samples::photograph().len() as u64;
    assert_eq!(root.getattr(photo).unwrap().attr.size, length);
}
