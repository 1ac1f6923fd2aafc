//! A share whose worker is killed: the next worker resumes the session, and files stay open.

mod policy;

use crate::ground::prelude::*;
use crate::ground::share::{Place, get_features, mount_at};
use std::sync::atomic::AtomicUsize;
use thrufs::layout::{FileLock, LkIn};
use thrufs_client::Caller;
use thrufs_testing::StopAll;

pub const THREADS: usize = 6;
const FILES: usize = 5;
/// Kills of a machine under load, and steps before most of them: a slow machine takes longer.
const KILLS: u64 = 24;
const STEPS_BETWEEN: usize = 15;
const READ_WRITE: i32 = libc::O_RDWR;

type Root<'a> = Caller<'a, FrontEnd>;

pub fn mount(place: &Place) -> Client<FrontEnd> {
    let config = FrontEndConfig {
        request_queues: 2,
        time_limit: Some(Duration::from_secs(60)),
        ..FrontEndConfig::default()
    };
    mount_at(&place.socket, &config)
}

/// The serving worker: older than the one on standby.
fn serving(place: &Place) -> Option<Pid> {
    let workers = place.workers().into_iter();
    workers.min_by_key(|worker| age_of(*worker))
}

/// Kills the serving worker, if any; returns whether.
pub fn kill(place: &Place) -> bool {
    let serving = serving(place);
    serving.is_some_and(|worker| kill_process(worker, Signal::KILL).is_ok())
}

/// Kills serving workers, until a machine has failed; returns the count. `steps` counts the machines' steps.
fn kill_repeatedly(place: &Place, steps: &AtomicUsize, stop: &AtomicBool) -> u64 {
    let mut kills = 0;
    let stopped = || stop.load(Ordering::SeqCst);
    while kills < KILLS && !stopped() {
        let before = steps.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50 + kills * 37 % 200));
        // Every third is killed while it resumes.
        if !kills.is_multiple_of(3) {
            wait_for("progress", || {
                stopped() || steps.load(Ordering::SeqCst) >= before + STEPS_BETWEEN
            });
        }
        kills += u64::from(kill(place));
    }
    kills
}

/// Kills the serving worker, and waits for the next.
pub fn replace(place: &Place) {
    let before = serving(place);
    wait_for("a worker to kill", || kill(place));
    wait_for("the next", || {
        serving(place).is_some_and(|now| Some(now) != before)
    });
}

/// Start time of a process in clock ticks; the maximum for an ended one.
fn start_of(process: Pid) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let stat = stat.unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = after_name.split_whitespace().nth(22 - 3);
    field.map_or(u64::MAX, |ticks| ticks.parse().unwrap())
}

/// Orders processes by age: by start time, then by process id.
fn age_of(process: Pid) -> (u64, i32) {
    (start_of(process), process.as_raw_nonzero().get())
}

/// A file that stays open across worker deaths.
struct Open {
    node: NodeId,
    handle: u64,
    content: Vec<u8>,
    name: Option<String>,
}

pub struct Machine<'a> {
    root: Root<'a>,
    directory: NodeId,
    number: usize,
    open: Vec<Open>,
    pub done: usize,
}

impl<'a> Machine<'a> {
    pub fn new(client: &'a Client<FrontEnd>, number: usize) -> Machine<'a> {
        let root = client.root();
        let name = format!("dir{number}");
        let made = root.mkdir(NodeId::ROOT, name.as_bytes(), 0o755).unwrap();
        Machine {
            root,
            directory: NodeId(made.nodeid),
            number,
            open: Vec::new(),
            done: 0,
        }
    }

    pub fn step(&mut self) {
        self.done += 1;
        if self.open.len() < FILES {
            self.make();
        }
        let count = self.open.len();
        let which = self.done % count;
        match self.done % 10 {
            // Each in turn, so that none outgrows a READ.
            0 => self.close(self.done / 10 % count),
            1 => self.rename(which),
            2 => self.unlink(which),
            3 => self.list(),
            4 => self.directories(),
            5 => self.relink(which),
            6 => self.exchange(which),
            7 => self.attributes(which),
            _ => self.append(which),
        }
        self.read(self.done % self.open.len());
    }

    fn make(&mut self) {
        let name = format!("file{}", self.done);
        let flags = READ_WRITE | libc::O_CREAT | libc::O_EXCL;
        let (root, directory) = (&self.root, self.directory);
        let made = root.create(directory, name.as_bytes(), flags, 0o644);
        let (entry, open) = made.expect("create");
        self.open.push(Open {
            node: NodeId(entry.nodeid),
            handle: open.fh,
            content: Vec::new(),
            name: Some(name),
        });
    }

    fn append(&mut self, which: usize) {
        let open = &mut self.open[which];
        let piece = vec![self.done as u8; 1 + self.done * 37 % 9000];
        let at = open.content.len() as u64;
        let written = self.root.write(open.node, open.handle, at, &piece, 0);
        assert_eq!(written.expect("write"), piece.len() as u32);
        open.content.extend(piece);
    }

    fn read(&self, which: usize) {
        let open = &self.open[which];
        let read = self.root.read(open.node, open.handle, 0, 1 << 20);
        let read = read.expect("read");
        let lengths = (read.len(), open.content.len());
        assert!(read == open.content, "what was written: {lengths:?}");
        let attributes = self.root.getattr(open.node).expect("getattr").attr;
        assert_eq!(attributes.size, open.content.len() as u64);
        assert_eq!(attributes.nlink, u32::from(open.name.is_some()));
    }

    fn close(&mut self, which: usize) {
        let Open {
            node,
            handle,
            content,
            name,
        } = self.open.swap_remove(which);
        self.root.release(node, handle).expect("release");
        if let Some(name) = name {
            let found = self.root.lookup(self.directory, name.as_bytes());
            let found = found.expect("lookup");
            let found = (found.nodeid, found.attr.size);
            assert_eq!(found, (node.0, content.len() as u64));
            self.root.forget(node, 1);
            let gone = self.root.unlink(self.directory, name.as_bytes());
            gone.expect("unlink");
        }
        self.root.forget(node, 1);
        self.make();
    }

    fn rename(&mut self, which: usize) {
        let open = &mut self.open[which];
        if let Some(name) = &mut open.name {
            let next = format!("renamed{}", self.done);
            let from = (self.directory, name.as_bytes());
            let to = (self.directory, next.as_bytes());
            let renamed = self.root.rename(from, to, libc::RENAME_NOREPLACE);
            renamed.expect("rename");
            *name = next;
        }
    }

    /// Exchanges its name with that of a new symbolic link.
    fn exchange(&mut self, which: usize) {
        let open = &mut self.open[which];
        if let Some(name) = &mut open.name {
            let (next, target) = (format!("link{}", self.done), format!("to {}", self.done));
            let (old, new) = (name.as_bytes(), next.as_bytes());
            let made = self.root.symlink(self.directory, new, target.as_bytes());
            let link = NodeId(made.expect("symlink").nodeid);
            let (from, to) = ((self.directory, old), (self.directory, new));
            let exchanged = self.root.rename(from, to, libc::RENAME_EXCHANGE);
            exchanged.expect("exchange");
            let read = self.root.readlink(link).expect("readlink");
            assert_eq!(read, target.as_bytes());
            self.root.unlink(self.directory, old).expect("unlink");
            self.root.forget(link, 1);
            *name = next;
        }
    }

    /// Each name of an attribute is new.
    fn attributes(&self, which: usize) {
        let node = self.open[which].node;
        let (name, value) = (format!("user.k{}", self.done), self.done.to_string());
        let (name, value) = (name.as_bytes(), value.as_bytes());
        let set = self
            .root
            .setxattr(node, name, value, libc::XATTR_CREATE.cast_unsigned());
        set.expect("setxattr");
        assert_eq!(self.root.getxattr(node, name).expect("getxattr"), value);
        self.root.removexattr(node, name).expect("removexattr");
    }

    /// Gives it another name, as git and Maildir do.
    fn relink(&mut self, which: usize) {
        let open = &mut self.open[which];
        if let Some(name) = &mut open.name {
            let next = format!("linked{}", self.done);
            let linked = self.root.link(open.node, self.directory, next.as_bytes());
            assert_eq!(linked.expect("link").nodeid, open.node.0);
            let gone = self.root.unlink(self.directory, name.as_bytes());
            gone.expect("unlink of one of two names");
            self.root.forget(open.node, 1);
            *name = next;
        }
    }

    fn unlink(&mut self, which: usize) {
        if let Some(name) = self.open[which].name.take() {
            let gone = self.root.unlink(self.directory, name.as_bytes());
            gone.expect("unlink of what is open");
        }
    }

    fn list(&self) {
        let listed = self.root.list(self.directory, self.done.is_multiple_of(2));
        let mut names: Vec<_> = listed
            .expect("listing")
            .into_iter()
            .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort();
        let open = self.open.iter();
        let mut expected: Vec<_> = open.filter_map(|open| open.name.clone()).collect();
        expected.sort();
        assert_eq!(names, expected);
    }

    fn directories(&self) {
        let made = self.root.mkdir(self.directory, b"sub", 0o755);
        let node = NodeId(made.expect("mkdir").nodeid);
        let again = self.root.mkdir(NodeId::ROOT, b"dir0", 0o755);
        assert_eq!(again.err(), Some(Errno::EEXIST));
        let gone = self.root.rmdir(self.directory, b"sub");
        gone.expect("rmdir");
        self.root.forget(node, 1);
    }

    /// Compares with the files on the host.
    pub fn compare(&self, place: &Place) {
        let mut found = 0;
        for entry in fs::read_dir(place.dir.join(format!("dir{}", self.number))).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_it = |open: &&Open| open.name.as_deref() == Some(name);
            let open = self.open.iter().find(is_it);
            let open = open.unwrap_or_else(|| panic!("{name} should not be"));
            assert!(fs::read(&path).unwrap() == open.content, "{name}");
            found += 1;
        }
        let named = self.open.iter().filter(|open| open.name.is_some());
        assert_eq!(found, named.count());
    }
}

#[test]
fn machine_is_resumed_under_load() {
    let place = Place::new();
    // Nothing is cached, so that all is asked for.
    let options = "control=none,resume=100000,cache=never,seccomp=kill";
    let server = place.share_with_log(options);
    let client = mount(&place);
    let mut machines: Vec<_> = (0..THREADS)
        .map(|number| Machine::new(&client, number))
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    let (stop, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let kills = std::thread::scope(|scope| {
        let _all = StopAll(&stop);
        for machine in &mut machines {
            let (stop, steps) = (&stop, &steps);
            scope.spawn(move || {
                let _others = StopAll(stop);
                while !stop.load(Ordering::SeqCst) {
                    machine.step();
                    steps.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        kill_repeatedly(&place, &steps, &stop)
    });
    let done: usize = machines.iter().map(|machine| machine.done).sum();
    eprintln!("{kills} workers were killed in the midst of {done} steps");
    place.wait_for_log("the next worker resumes");
    machines.iter().for_each(|machine| machine.compare(&place));
    drop(machines);
    drop(client.unmount());
    server.ends_by(Signal::TERM);
    assert!(place.workers().is_empty());
}

/// Workers die while they are told what the last one had, and while a machine connects.
#[test]
fn machine_is_resumed_by_a_worker_that_dies_at_once_and_in_the_handshake() {
    let place = Place::new();
    let _server = place.share_with_log("control=none,resume=100000,cache=never");
    for pause in (0..24).step_by(3).map(Duration::from_millis) {
        let client = std::thread::scope(|scope| {
            let client = scope.spawn(|| mount(&place));
            std::thread::sleep(pause);
            kill(&place);
            client.join().expect("a client")
        });
        let mut machine = Machine::new(&client, pause.as_millis() as usize);
        machine.step();
        kill(&place);
        std::thread::sleep(pause);
        kill(&place);
        kill(&place);
        machine.step();
        machine.compare(&place);
        drop(machine);
        // The front end stays, and its next session is another, between which there is none to resume.
        let front_end = client.unmount();
        kill(&place);
        let client = Client::mount(front_end).unwrap();
        client.root().getattr(NodeId::ROOT).expect("a session");
    }
}

#[test]
fn locks_and_lock_waiters_survive_worker_deaths() {
    let place = Place::new();
    let _server = place.share_with_log("control=none,locks=shared");
    let client = mount(&place);
    let root = client.root();
    let node = root.walk("file").unwrap();
    let open = root.open(node, READ_WRITE).unwrap();
    let lock = |owner: u64, kind: i32| LkIn {
        fh: open.fh,
        owner,
        lk: FileLock {
            start: 0,
            end: i64::MAX as u64,
            kind: kind as u32,
            pid: owner as u32,
        },
        ..LkIn::default()
    };
    let (write, none) = (libc::F_WRLCK, libc::F_UNLCK);
    root.setlk(node, &lock(1, write), false).unwrap();
    let had = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waited = client.root().setlk(node, &lock(2, write), true);
            had.store(true, Ordering::SeqCst);
            waited
        });
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(100));
            replace(&place);
            let third = root.setlk(node, &lock(3, write), false);
            assert_eq!(third.err(), Some(Errno::EAGAIN), "it is held");
        }
        assert!(!had.load(Ordering::SeqCst), "it is waited for");
        root.setlk(node, &lock(1, none), false).unwrap();
        waiter.join().unwrap().expect("the lock");
    });
    let third = root.setlk(node, &lock(3, write), false);
    assert_eq!(third.err(), Some(Errno::EAGAIN), "the waiter has it");
}

#[test]
fn machine_is_disconnected_after_too_many_worker_deaths() {
    let place = Place::new();
    let _server = place.share_with_log("control=none,resume=2");
    let client = mount(&place);
    let root = client.root();
    for _ in 0..2 {
        replace(&place);
        root.getattr(NodeId::ROOT).expect("it goes on");
    }
    replace(&place);
    wait_for("the connection to end", || {
        root.getattr(NodeId::ROOT).is_err()
    });
    place.wait_for_log("died 3 times within a minute");
    // The next machine is served.
    mount(&place).root().getattr(NodeId::ROOT).unwrap();
}

/// Three deaths of standby workers in a row would stop accepting; here, a serving worker dies in between.
#[test]
fn deaths_of_standby_workers_do_not_end_the_share() {
    let place = Place::new();
    let _server = place.share_with_log("control=none,resume=100");
    let client = mount(&place);
    for _ in 0..4 {
        let mut waiting = None;
        wait_for("one to wait", || {
            let workers = place.workers();
            waiting = workers.iter().copied().max_by_key(|one| age_of(*one));
            workers.len() == 2 && waiting != serving(&place)
        });
        kill_process(waiting.unwrap(), Signal::KILL).unwrap();
        wait_for("the next to wait", || {
            let workers = place.workers();
            workers.len() == 2 && !workers.contains(&waiting.unwrap())
        });
        replace(&place);
        let attributes = client.root().getattr(NodeId::ROOT);
        attributes.expect("it goes on");
    }
    assert_eq!(place.log().matches("the standby worker").count(), 4);
}

/// For instance before they receive what to serve.
#[test]
fn deaths_of_starting_workers_do_not_end_the_share() {
    let place = Place::new();
    let _server = place.share_with_log("control=none,resume=100000");
    let client = mount(&place);
    let mut kills = 0;
    while kills < 300 {
        for worker in place.workers() {
            kills += u32::from(kill_process(worker, Signal::KILL).is_ok());
        }
    }
    let attributes = client.root().getattr(NodeId::ROOT);
    attributes.unwrap_or_else(|error| panic!("{error} after {kills}"));
}

/// A connection that has sent nothing has the standby worker, which resumes the machine instead. Then it is
/// served by the next.
#[test]
fn machine_is_resumed_while_another_connection_is_silent() {
    let place = Place::new();
    let _server = place.share_with_log("control=none,log=debug");
    let client = mount(&place);
    let accepted = || place.log().matches("a connection is accepted").count();
    let mut silent = UnixStream::connect(&place.socket).unwrap();
    wait_for("the connection to be accepted", || accepted() == 2);
    assert!(kill(&place));
    let attributes = client.root().getattr(NodeId::ROOT);
    attributes.expect("the machine goes on");
    assert!(
        !place.log().contains("sends nothing"),
        "before it was disconnected"
    );
    get_features(&mut silent);
    let mut answer = [0; 12];
    silent.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], 1, "the answer to GET_FEATURES");
}

#[test]
fn statistics_count_resumptions() {
    let place = Place::new();
    let control = place.path("control");
    let _server = place.share_with_log(&format!("control={}", control.display()));
    let client = mount(&place);
    replace(&place);
    client.root().getattr(NodeId::ROOT).expect("it goes on");
    let output = thrufs!("ctl", "--control", &control, &place.socket, "statistics");
    let said = stdout(&output);
    assert!(said.contains("1 resumptions"), "{said}{output:?}");
}

/// Whether the supervisor has a descriptor of a file: what is moved before is lost with a worker.
fn is_stored(server: Pid, end_of_path: &Path) -> bool {
    let descriptors = format!("/proc/{}/fd", server.as_raw_nonzero());
    let mut descriptors = fs::read_dir(descriptors).unwrap().flatten();
    descriptors.any(|it| fs::read_link(it.path()).is_ok_and(|to| to.ends_with(end_of_path)))
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
