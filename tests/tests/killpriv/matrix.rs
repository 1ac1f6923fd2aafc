//! Every operation by every caller on every file, through the mount and beneath.

use crate::callers::{Caller, GROUP, OWNER};
use crate::differences::{self, Named};
use crate::operations::{BLOCK, CONTENT, Operation, Target, write_aligned};
use crate::privileges::{Bits, Left};
use crate::ways::Way;
use rustix::io::Errno;
use std::collections::BTreeMap;
use thrufs_tests::prelude::*;

/// When the bits were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Before the file was opened, and before the kernel above had looked it up.
    Before,
    /// Through the mount, after the file was opened and written to.
    After,
    /// Beneath, after the file was opened and written to.
    Beneath,
}

impl Order {
    pub const ALL: &[Order] = &[Order::Before, Order::After, Order::Beneath];

    /// Whether files with these bits are tried. A mark is no privilege: whether an unknown one stays does
    /// not matter.
    pub fn takes(self, bits: Bits) -> bool {
        self != Order::Beneath || !bits.has_mark()
    }
}

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ground {
    pub way: Way,
    pub order: Order,
}

/// One thing done by one caller to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub operation: Operation,
    pub bits: Bits,
    pub caller: Caller,
}

/// How the served file differs from the one beneath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It has kept what the other has lost.
    Kept,
    /// It has lost what the other has kept.
    Lost,
    /// Clients of the mount see another mode than the file has.
    Shown,
    /// Something else.
    Other,
}

/// A served file and a like one beneath, and what became of them.
struct Pair {
    cell: Cell,
    native: Side,
    served: Side,
    /// The served file as it is beneath.
    beneath: PathBuf,
}

struct Side {
    path: PathBuf,
    file: Option<File>,
    outcome: Result<(), Errno>,
}

impl Side {
    fn new(path: PathBuf) -> Side {
        Side {
            path,
            file: None,
            outcome: Ok(()),
        }
    }

    fn open(&mut self, operation: Operation) {
        let file = rustix::fs::open(&self.path, operation.flags(), Mode::empty());
        self.file = Some(File::from(file.unwrap()));
    }

    /// The kernel has then asked for privileges, knows that there are none, and has no request on its way
    /// when the bits are set.
    fn write_first(&self, operation: Operation) {
        let file = self.file.as_ref().unwrap();
        match operation {
            Operation::DirectWrite => write_aligned(file).unwrap(),
            _ => drop(rustix::io::pwrite(file, b"first", 0).unwrap()),
        }
    }

    fn run(&self, operation: Operation, caller: Caller, source: &File) -> Result<(), Errno> {
        operation.run(&Target {
            path: &self.path,
            file: self.file.as_ref().unwrap(),
            source,
            caller,
        })
    }
}

/// The difference with its description.
fn compare(pair: &Pair, order: Order) -> Option<(Kind, String)> {
    let (native, served) = (Left::on(&pair.native.path), Left::on(&pair.beneath));
    let shown = rustix::fs::lstat(&pair.served.path).unwrap().st_mode & 0o7777;
    let kind = if native == served && pair.native.outcome == pair.served.outcome {
        if shown == served.mode || order == Order::Beneath {
            return None;
        }
        Kind::Shown
    } else if pair.native.outcome != pair.served.outcome {
        Kind::Other
    } else {
        direction(native, served)
    };
    let (before, after) = (pair.native.outcome, pair.served.outcome);
    let text =
        format!("beneath {before:?} {native:?}, through {after:?} {served:?}, shown {shown:04o}");
    Some((kind, text))
}

fn direction(native: Left, served: Left) -> Kind {
    let kept = served.mode & !native.mode != 0 || served.capability && !native.capability;
    let lost = native.mode & !served.mode != 0 || native.capability && !served.capability;
    match (kept, lost) {
        (true, false) => Kind::Kept,
        (false, true) => Kind::Lost,
        _ => Kind::Other,
    }
}

fn make_pair(mounted: &Mounted, order: Order, cell: Cell) -> Pair {
    let Cell {
        operation,
        bits,
        caller,
    } = cell;
    let name = format!("{order:?}.{operation:?}.{bits:?}.{caller:?}");
    let at = |directory: &Path| directory.join("native").join(&name);
    let native = at(mounted.source());
    let beneath = mounted.source().join("served").join(&name);
    for path in [&native, &beneath] {
        fs::write(path, CONTENT).unwrap();
        chown(path, Some(OWNER), Some(GROUP)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(bits.mode() & 0o777)).unwrap();
    }
    Pair {
        cell,
        native: Side::new(native),
        served: Side::new(mounted.mnt().join("served").join(&name)),
        beneath,
    }
}

/// One caller's operations on files whose bits are set in one order.
struct Round<'a> {
    mounted: &'a Mounted,
    ground: Ground,
    caller: Caller,
    pairs: Vec<Pair>,
}

impl Round<'_> {
    fn make_pairs(&mut self) {
        let order = self.ground.order;
        for &operation in Operation::ALL {
            for &bits in Bits::ALL.iter().filter(|bits| order.takes(**bits)) {
                let caller = self.caller;
                let cell = Cell {
                    operation,
                    bits,
                    caller,
                };
                self.pairs.push(make_pair(self.mounted, order, cell));
            }
        }
    }

    fn set_bits(&self) {
        for pair in &self.pairs {
            pair.cell.bits.set(&pair.native.path);
            let through = self.ground.order == Order::After;
            let served = if through {
                &pair.served.path
            } else {
                &pair.beneath
            };
            pair.cell.bits.set(served);
        }
    }

    fn open(&mut self, first: bool) {
        let (caller, pairs) = (self.caller, &mut self.pairs);
        caller.run(|| {
            for pair in pairs {
                for side in [&mut pair.native, &mut pair.served] {
                    side.open(pair.cell.operation);
                    if !first {
                        side.write_first(pair.cell.operation);
                    }
                }
            }
        });
    }

    /// Sends what was written under writeback to the server.
    fn flush(&self) {
        let root = File::open(self.mounted.mnt()).unwrap();
        rustix::fs::syncfs(root).unwrap();
    }

    fn operate(&mut self) {
        let source = |root: &Path| File::open(root.join("source")).unwrap();
        let native = source(self.mounted.source());
        let served = source(self.mounted.mnt());
        let (caller, pairs) = (self.caller, &mut self.pairs);
        caller.run(|| {
            for pair in pairs {
                let operation = pair.cell.operation;
                pair.native.outcome = pair.native.run(operation, caller, &native);
                pair.served.outcome = pair.served.run(operation, caller, &served);
            }
        });
    }

    fn compare(self, found: &mut Found) {
        for pair in self.pairs {
            if let Some(difference) = compare(&pair, self.ground.order) {
                found.insert((self.ground, pair.cell), difference);
            }
        }
    }

    fn run(mut self, found: &mut Found) {
        self.make_pairs();
        if self.ground.order == Order::Before {
            self.set_bits();
            self.open(true);
        } else {
            self.open(false);
            self.flush();
            self.set_bits();
        }
        self.operate();
        self.flush();
        self.compare(found);
    }
}

type Found = BTreeMap<(Ground, Cell), (Kind, String)>;

fn run_way(way: Way, lower: Lower) -> Found {
    // What is set beneath is to be unknown above.
    let options = format!("{},follow=no", way.options());
    let mut mounted = Mounted::start_on(lower, &options).unwrap();
    fs::write(mounted.source().join("source"), BLOCK).unwrap();
    for name in ["native", "served"] {
        fs::create_dir(mounted.source().join(name)).unwrap();
    }
    let mut found = Found::new();
    for &order in Order::ALL {
        for &caller in Caller::ALL {
            let round = Round {
                mounted: &mounted,
                ground: Ground { way, order },
                caller,
                pairs: Vec::new(),
            };
            round.run(&mut found);
        }
    }
    mounted.stop().unwrap();
    found
}

/// Differences without an entry, and entries without a difference.
fn faults(way: Way, found: &Found) -> Vec<String> {
    let mut faults = Vec::new();
    for (&(ground, cell), (kind, text)) in found {
        if !differences::is_named(ground, cell, *kind) {
            faults.push(format!("{ground:?} {cell:?} {kind:?}: {text}"));
        }
    }
    for named in differences::named(way) {
        let Named {
            ground,
            cell,
            kind,
            why,
        } = named;
        if found.get(&(ground, cell)).is_none_or(|is| is.0 != kind) {
            faults.push(format!("{ground:?} {cell:?}: no longer {kind:?} ({why})"));
        }
    }
    faults
}

fn check(lower: Lower) {
    skip_if!(must_skip());
    for &way in Way::ALL {
        let started = Instant::now();
        let faults = faults(way, &run_way(way, lower));
        eprintln!("{way:?}: {:?}", started.elapsed());
        let first: String = faults
            .iter()
            .take(40)
            .map(|fault| format!("{fault}\n"))
            .collect();
        assert!(
            faults.is_empty(),
            "{way:?}: {} cells\n{first}",
            faults.len()
        );
    }
}

#[test]
fn on_tmpfs() {
    check(Lower::Tmpfs);
}

#[test]
fn on_ext4() {
    check(Lower::Ext4);
}
