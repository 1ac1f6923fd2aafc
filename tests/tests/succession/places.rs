//! Files without a file handle, which are found again by their names, after their names have changed in every
//! order. No lookup comes in between: it would tell the server where the file is.

use crate::ground::{Server, Way, config_for, mounted};
use std::collections::BTreeMap;
use thrufs_hostdir::{Config, FileHandles};
use thrufs_tests::prelude::*;

const NAMES: [&str; 3] = ["p", "q", "r"];
const EXCHANGE: u32 = 2;

/// So many at once, in a directory each.
const BATCH: usize = 60;

/// A change of names.
#[derive(Clone, Copy, Debug)]
enum Step {
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
}

/// Which of two files each name is of.
type Named = BTreeMap<&'static str, usize>;

/// Each possible step, and the names after it.
fn steps(named: &Named) -> Vec<(Step, Named)> {
    let mut steps = Vec::new();
    for (&from, &file) in named {
        let mut without = named.clone();
        without.remove(from);
        steps.push((Step::Unlink(from), without.clone()));
        for to in NAMES.into_iter().filter(|to| *to != from) {
            let there = named.get(to).copied();
            let mut moved = without.clone();
            moved.insert(to, file);
            // rename(2) of a name to another one of the same file does nothing.
            let renamed = if there == Some(file) { named } else { &moved };
            steps.push((Step::Rename(from, to), renamed.clone()));
            match there {
                None => {
                    let mut linked = moved;
                    linked.insert(from, file);
                    steps.push((Step::Link(from, to), linked));
                }
                Some(other) if from < to => {
                    moved.insert(from, other);
                    steps.push((Step::Exchange(from, to), moved));
                }
                Some(_) => {}
            }
        }
    }
    steps
}

/// All sequences of so many steps.
fn sequences(length: usize) -> Vec<(Vec<Step>, Named)> {
    let mut all = vec![(Vec::new(), Named::from([("p", 0), ("r", 1)]))];
    for _ in 0..length {
        let longer = all.iter().flat_map(|(before, named)| {
            let longer = |step| [&before[..], &[step]].concat();
            let next = steps(named).into_iter();
            next.map(move |(step, named)| (longer(step), named))
        });
        all = longer.collect();
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    Never,
    /// Before the names change.
    Before,
    After,
}

#[test]
fn files_are_found_after_their_names_changed_in_every_order() {
    let length = if is_full() { 4 } else { 3 };
    let sequences = sequences(length);
    for opened in [Opened::Never, Opened::Before, Opened::After] {
        for batch in sequences.chunks(BATCH) {
            check(batch, opened);
        }
    }
}

fn check(batch: &[(Vec<Step>, Named)], opened: Opened) {
    let ground = Ground::prepare(Lower::Default).unwrap();
    let source = ground.source();
    let server = Server::new(
        source,
        Config {
            file_handles: FileHandles::Never,
            ..config_for(Way::Death)
        },
    );
    let client = mounted(&server);
    let root = client.root();
    let mut cases = Vec::new();
    for (number, (steps, named)) in batch.iter().enumerate() {
        let made = root.mkdir(NodeId::ROOT, format!("{number}").as_bytes(), 0o755);
        let directory = NodeId(made.unwrap().nodeid);
        let mut files = [("p", b"first!"), ("r", b"second")].map(|(name, content)| {
            let made = root.create(directory, name.as_bytes(), libc::O_RDWR, 0o644);
            let (entry, opened) = made.unwrap();
            let node = NodeId(entry.nodeid);
            root.write(node, opened.fh, 0, content, 0).unwrap();
            (node, opened.fh, content)
        });
        let nodes = files.map(|(node, ..)| node);
        if opened != Opened::Before {
            for (node, handle, _) in files {
                root.release(node, handle).unwrap();
            }
        }
        let mut now = Named::from([("p", 0), ("r", 1)]);
        for step in steps {
            let at = |name: &'static str| (directory, name.as_bytes());
            match *step {
                Step::Link(from, to) => {
                    root.link(nodes[now[from]], directory, to.as_bytes())
                        .unwrap();
                }
                Step::Unlink(name) => root.unlink(directory, name.as_bytes()).unwrap(),
                Step::Rename(from, to) => root.rename(at(from), at(to), 0).unwrap(),
                Step::Exchange(from, to) => root.rename(at(from), at(to), EXCHANGE).unwrap(),
            }
            let after = self::steps(&now).into_iter();
            let mut after = after.filter(|(other, _)| format!("{other:?}") == format!("{step:?}"));
            now = after.next().unwrap().1;
        }
        if opened == Opened::After {
            for (file, (node, handle, _)) in files.iter_mut().enumerate() {
                if named.values().any(|other| *other == file) {
                    *handle = root.open(*node, libc::O_RDONLY).unwrap().fh;
                }
            }
        }
        cases.push((steps, named, files));
    }
    for _ in 0..2 {
        server.died();
        for (steps, named, files) in &cases {
            for (file, (node, handle, content)) in files.iter().enumerate() {
                let case = format!("{opened:?} {steps:?}: file {file}");
                let names = named.values().filter(|other| **other == file).count();
                if names > 0 || opened == Opened::Before {
                    let shown = root.getattr(*node);
                    let shown = shown.unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(shown.attr.nlink, names as u32, "{case}");
                    let again = root.open(*node, libc::O_RDONLY);
                    let again = again.unwrap_or_else(|error| panic!("{case}: {error}"));
                    root.release(*node, again.fh).unwrap();
                }
                if opened == Opened::Before || opened == Opened::After && names > 0 {
                    let read = root.read(*node, *handle, 0, 99);
                    assert_eq!(read.as_deref(), Ok(&content[..]), "{case}");
                }
            }
        }
    }
}
