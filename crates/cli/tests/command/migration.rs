//! A guest that migrates between two `thrufs share` repeatedly under load.

use crate::ground::prelude::*;
use crate::ground::share::{Place, mount_at};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use thrufs_client::{GuestMemory, MigrateError};
use thrufs_test_report::is_full;
use thrufs_testing::StopAll;

const ROOT: NodeId = NodeId::ROOT;
const READ_WRITE: i32 = 2;
const ENTRIES: usize = 300;

/// Two servers of one tree.
struct Servers {
    _servers: [Foreground; 2],
    places: [Place; 2],
}

impl Servers {
    fn of(first: Place, options: [&str; 2]) -> Servers {
        let second = first.beside();
        let places = [first, second];
        let serve = |at: usize| {
            let options = format!("control=none,queues=3,{}", options[at]);
            places[at].share_with_log(&options)
        };
        let _servers = [serve(0), serve(1)];
        Servers { _servers, places }
    }

    fn new(options: [&str; 2]) -> Servers {
        Servers::of(Place::new(), options)
    }

    fn socket(&self, number: usize) -> &Path {
        &self.places[number].socket
    }

    fn mount(&self, queues: u16) -> Client<FrontEnd> {
        let config = FrontEndConfig {
            request_queues: queues,
            requests_max: 32,
            data_bytes_max: 128 << 10,
            ..FrontEndConfig::default()
        };
        mount_at(self.socket(0), &config)
    }
}

fn user(client: &Client<FrontEnd>) -> thrufs_client::Caller<'_, FrontEnd> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    client.user(uid.as_raw(), gid.as_raw())
}

/// The load of a guest until `stop`; each part in its own directory or file.
struct Work<'a> {
    client: &'a Client<FrontEnd>,
    stop: &'a AtomicBool,
    rounds: &'a AtomicUsize,
}

impl Work<'_> {
    fn each_round(&self, mut round: impl FnMut(usize)) -> usize {
        let mut count = 0;
        while !self.stop.load(Ordering::SeqCst) {
            round(count);
            count += 1;
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        count
    }

    /// Writes at varying offsets to an open file, and reads back.
    fn write(&self) -> Vec<u8> {
        let caller = user(self.client);
        let (entry, open) = caller.create(ROOT, b"written", READ_WRITE, 0o644).unwrap();
        let node = NodeId(entry.nodeid);
        let mut expected = vec![0; 1 << 20];
        caller
            .write(node, open.fh, 0, &expected[..1 << 16], 0)
            .unwrap();
        let mut end = 1 << 16;
        self.each_round(|round| {
            let at = round * 7919 % (900 << 10);
            let length = 1 + round * 104_729 % (100 << 10);
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + round) as u8).collect();
            let written = caller.write(node, open.fh, at as u64, &bytes, 0);
            assert_eq!(written, Ok(length as u32), "round {round}");
            expected[at..at + length].copy_from_slice(&bytes);
            end = end.max(at + length);
            let from = round * 65_537 % end;
            let count = (end - from).min(90 << 10);
            let read = caller
                .read(node, open.fh, from as u64, count as u32)
                .unwrap();
            assert!(read == expected[from..from + count], "round {round}");
        });
        caller.release(node, open.fh).unwrap();
        expected.truncate(end);
        expected
    }

    fn name(&self) -> BTreeSet<String> {
        let caller = user(self.client);
        let top = NodeId(caller.mkdir(ROOT, b"names", 0o755).unwrap().nodeid);
        let mut left = BTreeSet::new();
        self.each_round(|round| {
            let (made, moved) = (format!("made-{round}"), format!("moved-{round}"));
            let (entry, open) = caller
                .create(top, made.as_bytes(), READ_WRITE, 0o644)
                .unwrap();
            let node = NodeId(entry.nodeid);
            caller.write(node, open.fh, 0, moved.as_bytes(), 0).unwrap();
            let [from, to] = [&made, &moved].map(|name| (top, name.as_bytes()));
            caller.rename(from, to, 0).unwrap();
            caller.release(node, open.fh).unwrap();
            if round % 3 == 0 {
                left.insert(moved);
            } else {
                caller.unlink(top, moved.as_bytes()).unwrap();
            }
            caller.forget(node, 1);
            let sub = format!("sub-{round}");
            let entry = caller.mkdir(top, sub.as_bytes(), 0o755).unwrap();
            caller.rmdir(top, sub.as_bytes()).unwrap();
            caller.forget(NodeId(entry.nodeid), 1);
        });
        left
    }

    /// Lists a directory in small parts, mostly across a migration.
    fn list(&self) -> usize {
        let caller = user(self.client);
        let top = NodeId(caller.lookup(ROOT, b"listed").unwrap().nodeid);
        self.each_round(|round| {
            let fh = caller.opendir(top).unwrap().fh;
            let (mut names, mut offset) = (BTreeSet::new(), 0);
            loop {
                let some = caller.readdir(top, fh, offset, 512, false).unwrap();
                let Some(last) = some.last() else { break };
                offset = last.offset;
                for listed in &some {
                    assert!(names.insert(listed.name.clone()), "round {round}: twice");
                }
            }
            assert_eq!(names.len(), ENTRIES + 2, "round {round}");
            caller.releasedir(top, fh).unwrap();
        })
    }
}

fn moved_under_load(options: &str, queues: u16, memory: GuestMemory) {
    let place = Place::new();
    // An unlinked file is known until the guest forgets it, and is then not found.
    let options = &format!("{options},migration_on_error=guest-error");
    let listed = place.dir.join("listed");
    fs::create_dir(&listed).unwrap();
    for number in 0..ENTRIES {
        fs::write(listed.join(format!("entry-{number}")), "").unwrap();
    }
    let servers = Servers::of(place, [options; 2]);
    let (client, dir) = (servers.mount(queues), &servers.places[0].dir);
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let work = Work {
        client: &client,
        stop: &stop,
        rounds: &rounds,
    };
    let (written, names, longest) = std::thread::scope(|scope| {
        let _stops = StopAll(&stop);
        let writes = scope.spawn(|| work.write());
        let namings = scope.spawn(|| work.name());
        let listings = scope.spawn(|| work.list());
        let mut longest = Duration::ZERO;
        for number in 1..=if is_full() { 24 } else { 8 } {
            // Some work is done between two migrations, even on a slow machine.
            let before = rounds.load(Ordering::Relaxed);
            wait_for("work between two moves", || {
                rounds.load(Ordering::Relaxed) > before + 20 || writes.is_finished()
            });
            let next = servers.socket(number % 2);
            let moved = client.carrier().migrate_to(next, memory).unwrap();
            longest = longest.max(moved.pause);
        }
        stop.store(true, Ordering::SeqCst);
        assert!(listings.join().unwrap() > 0);
        (writes.join().unwrap(), namings.join().unwrap(), longest)
    });
    println!("{options}, {queues} queues, {memory:?}: the longest pause was {longest:?}");
    assert!(fs::read(dir.join("written")).unwrap() == written);
    let found = fs::read_dir(dir.join("names")).unwrap();
    let found = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(found.collect::<BTreeSet<_>>(), names);
    for name in &names {
        let bytes = fs::read_to_string(dir.join("names").join(name)).unwrap();
        assert_eq!(&bytes, name);
    }
    client.unmount();
}

/// By paths, by handles, and under rules, which match on paths.
#[test]
fn a_guest_moves_under_load() {
    let place = tempfile::tempdir().unwrap();
    let policy = place.path().join("policy.toml");
    let rules = "[[rule]]\npath = \"names/**\"\naction = \"direct\"\n\
                 [[rule]]\npath = \"never/**\"\naction = \"hide\"\n\
                 [[rule]]\npath = \"written\"\naction = \"cached\"\n";
    fs::write(&policy, rules).unwrap();
    let policy = format!("policy={}", policy.display());
    let handles = "migration_mode=file-handles,migration_verify_handles";
    let copied = GuestMemory::Copied { rounds: 2 };
    for (options, queues, memory) in [
        ("migration_confirm_paths", 3, copied),
        (handles, 1, GuestMemory::Shared),
        (&policy, 3, copied),
    ] {
        if options.contains("handles") && !rustix::process::geteuid().is_root() {
            skipped("opening by file handles needs root");
            continue;
        }
        moved_under_load(options, queues, memory);
    }
}

/// An unlinked file cannot be found by path: the migration fails, or the guest gets errors.
#[test]
fn migration_of_a_file_unlinked_while_open() {
    for (from, to, moves) in [
        ("find-paths", "abort", false),
        ("find-paths", "guest-error", true),
        ("file-handles", "abort", false),
        ("file-handles", "abort,inode_file_handles=prefer", true),
    ] {
        let from = &format!("migration_mode={from}");
        let to = &format!("migration_on_error={to}");
        if from.contains("handles") && !rustix::process::geteuid().is_root() {
            skipped("opening by file handles needs root");
            continue;
        }
        let servers = Servers::new([from, to]);
        let client = servers.mount(1);
        let caller = user(&client);
        let (entry, open) = caller.create(ROOT, b"gone", READ_WRITE, 0o644).unwrap();
        let node = NodeId(entry.nodeid);
        caller.write(node, open.fh, 0, b"bytes", 0).unwrap();
        caller.unlink(ROOT, b"gone").unwrap();
        let (next, memory) = (servers.socket(1), GuestMemory::Shared);
        let moved = client.carrier().migrate_to(next, memory);
        assert_eq!(moved.is_ok(), moves, "{from}, {to}: {moved:?}");
        let read = caller.read(node, open.fh, 0, 5);
        if to.contains("guest-error") {
            assert!(read.is_err());
        } else {
            assert_eq!(read.unwrap(), b"bytes", "{from}, {to}");
        }
        caller.create(ROOT, b"next", READ_WRITE, 0o644).unwrap();
        assert!(servers.places[0].dir.join("next").exists());
    }
}

/// Handles open any file of the file system, which `migration_refuse_handles` prevents.
#[test]
fn migration_refuse_handles_refuses_handles() {
    if !rustix::process::geteuid().is_root() {
        return skipped("opening by file handles needs root");
    }
    let servers = Servers::new(["migration_mode=file-handles", "migration_refuse_handles"]);
    let client = servers.mount(1);
    let caller = user(&client);
    caller.create(ROOT, b"made", READ_WRITE, 0o644).unwrap();
    let (next, memory) = (servers.socket(1), GuestMemory::Shared);
    let moved = client.carrier().migrate_to(next, memory);
    assert!(matches!(moved, Err(MigrateError::Load(_))), "{moved:?}");
    caller.create(ROOT, b"next", READ_WRITE, 0o644).unwrap();
}
