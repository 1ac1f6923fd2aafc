//! Two machines whose open files the host, and each other, move, replace and remove while workers are killed.

use super::{Machine, Root, kill_until, mount, replace};
use crate::ground::share::{Place, Stop};
use crate::ground::wait_for;
use rustix::process::{Pid, Signal};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thrufs::{Errno, NodeId};

/// Threads of each machine.
const THREADS: usize = 3;
const KILLS: u64 = 300;

/// Whether the supervisor has a descriptor of a file: what is moved before is lost with a worker.
fn is_stored(server: Pid, end_of_path: &Path) -> bool {
    let descriptors = format!("/proc/{}/fd", server.as_raw_nonzero());
    let mut descriptors = fs::read_dir(descriptors).unwrap().flatten();
    descriptors.any(|it| fs::read_link(it.path()).is_ok_and(|to| to.ends_with(end_of_path)))
}

impl Machine<'_> {
    /// Waits until an open file is stored, while the workers live.
    fn is_settled(&self, which: usize, (place, server): (&Place, Pid), path: &Path) -> bool {
        let workers = || {
            let mut workers = place.workers();
            workers.sort_by_key(|worker| worker.as_raw_nonzero());
            workers
        };
        let before = workers();
        self.read(which);
        while workers() == before {
            if is_stored(server, path) {
                self.read(which);
                return workers() == before;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Has others change the name of an open file; returns whether they did.
    fn is_changed(&mut self, (place, server): (&Place, Pid), other: &Root<'_>) -> bool {
        let count = self.open.len();
        let mut named = (0..count).map(|number| (self.done / 5 + number) % count);
        let Some(which) = named.find(|&which| self.open[which].name.is_some()) else {
            return false;
        };
        let name = self.open[which].name.clone();
        let directory = format!("dir{}", self.number);
        let is_settled = |name: &String| {
            self.is_settled(which, (place, server), &Path::new(&directory).join(name))
        };
        let Some(name) = name.filter(is_settled) else {
            return false;
        };
        let path = place.dir.join(&directory);
        let next = format!("changed{}", self.done);
        let (from, to) = (path.join(&name), path.join(&next));
        let elsewhere = || other.walk(&directory).expect("the directory");
        let moved = match self.done % 6 {
            0 => fs::rename(from, to).map(|()| true).unwrap(),
            1 => fs::remove_file(from).map(|()| false).unwrap(),
            2 => {
                fs::write(&to, "of the host").unwrap();
                fs::rename(to, &from).unwrap();
                fs::remove_file(from).unwrap();
                false
            }
            3 => {
                fs::hard_link(&from, to).unwrap();
                fs::remove_file(from).unwrap();
                true
            }
            4 => {
                let node = elsewhere();
                let renamed = other.rename((node, name.as_bytes()), (node, next.as_bytes()), 0);
                renamed.expect("rename by the other machine");
                true
            }
            _ => {
                let removed = other.unlink(elsewhere(), name.as_bytes());
                removed.expect("unlink by the other machine");
                false
            }
        };
        self.open[which].name = moved.then_some(next);
        self.read(which);
        true
    }
}

/// The next worker has the descriptor of the last one, which is of its mounts: link(2) takes none of others.
#[test]
fn open_file_that_the_host_moved_is_read_and_linked_after_a_death() {
    let place = Place::new();
    let server = place.share_with_log("control=none");
    let client = mount(&place);
    let root = client.root();
    fs::write(place.dir.join("other"), "content").unwrap();
    let open = ["file", "other"].map(|name| {
        let node = root.walk(name).unwrap();
        (node, root.open(node, libc::O_RDONLY).unwrap().fh)
    });
    for name in ["file", "other"] {
        wait_for("a descriptor to be stored", || {
            is_stored(server.pid(), Path::new(name))
        });
    }
    let at = |name: &str| place.dir.join(name);
    fs::rename(at("file"), at("moved")).unwrap();
    fs::hard_link(at("other"), at("name")).unwrap();
    fs::remove_file(at("other")).unwrap();
    replace(&place);
    for ((node, handle), name) in open.into_iter().zip(["moved", "name"]) {
        assert_eq!(root.read(node, handle, 0, 99).unwrap(), b"content");
        let [linked, early] = ["linked", "early"].map(|how| format!("{name}-{how}"));
        let before = root.link(node, NodeId::ROOT, early.as_bytes());
        let before = before.map(|it| it.nodeid);
        // Nothing shows where it is; the kernel looks it up then.
        let expected = if name == "moved" {
            Ok(node.0)
        } else {
            Err(Errno::ESTALE)
        };
        assert_eq!(before, expected, "{name}");
        assert_eq!(root.walk(name).unwrap(), node);
        root.link(node, NodeId::ROOT, linked.as_bytes()).unwrap();
        assert_eq!(fs::read(at(&linked)).unwrap(), b"content");
    }
}

#[test]
#[ignore = "soak: kills at moments that are drawn"]
fn machines_are_resumed_while_others_change_their_files() {
    let place = Place::new();
    let server = place.share_with_log("control=none,resume=100000,machines=2");
    let clients = [mount(&place), mount(&place)];
    let stop = AtomicBool::new(false);
    let [steps, changes] = [const { AtomicUsize::new(0) }; 2];
    let mut machines: Vec<_> = (0..2 * THREADS)
        .map(|number| {
            (
                Machine::new(&clients[number % 2], number),
                clients[1 - number % 2].root(),
            )
        })
        .collect();
    let kills = std::thread::scope(|scope| {
        let _all = Stop(&stop);
        for (machine, other) in &mut machines {
            let (stop, steps, changes, place) = (&stop, &steps, &changes, &place);
            let server = server.pid();
            scope.spawn(move || {
                let _others = Stop(stop);
                while !stop.load(Ordering::SeqCst) {
                    machine.step();
                    if machine.done.is_multiple_of(5) && machine.is_changed((place, server), other)
                    {
                        changes.fetch_add(1, Ordering::SeqCst);
                    }
                    steps.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        kill_until(&place, &steps, &stop, KILLS)
    });
    let done: usize = machines.iter().map(|(machine, _)| machine.done).sum();
    eprintln!(
        "{kills} workers were killed in the midst of {done} steps and {changes:?} changes by others"
    );
    machines
        .iter()
        .for_each(|(machine, _)| machine.compare(&place));
    drop(machines);
    clients
        .into_iter()
        .for_each(|client| drop(client.unmount()));
    server.ends_by(Signal::TERM);
}
