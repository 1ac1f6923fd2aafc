//! Options that govern a process, a mount or a device, seen at what was started. What all options set is
//! checked in `options::resolve`.

use crate::ground::prelude::*;
use crate::ground::share::Place;
use crate::ground::{mount_line, status_set, unmount_by_command};
use rustix::mount::{MountFlags, mount};
use std::io::ErrorKind;

/// An option, what to look at, and what is seen there: something else than without the option.
type Effect<T> = (&'static str, fn(&T) -> String, &'static str);

fn assert_seen<T>(effects: &[Effect<T>], start: impl Fn(&str) -> Option<T>, end: impl Fn(T)) {
    let Some(usual) = start("") else { return };
    let all: Vec<String> = effects.iter().map(|(_, look, _)| look(&usual)).collect();
    end(usual);
    for ((option, look, expected), usual) in effects.iter().zip(all) {
        assert_ne!(*expected, usual, "without {option}");
        let Some(started) = start(option) else { return };
        // Threads, for one, get their names later.
        wait_for(&format!("{expected} with {option}"), || {
            look(&started) == *expected
        });
        end(started);
    }
}

const OF_MOUNTS: &[Effect<Ground>] = &[
    ("ro", flags, "ro,nosuid,nodev,relatime"),
    ("suid", flags, "rw,nodev,relatime"),
    ("dev", flags, "rw,nosuid,relatime"),
    ("allow_suid,allow_dev", flags, "rw,relatime"),
    ("noexec", flags, "rw,nosuid,nodev,noexec,relatime"),
    ("nosymfollow", flags, "rw,nosuid,nodev,relatime,nosymfollow"),
    ("noatime", flags, "rw,nosuid,nodev,noatime"),
    ("strictatime", flags, "rw,nosuid,nodev"),
    ("nodiratime", flags, "rw,nosuid,nodev,nodiratime,relatime"),
    (
        "sync",
        of_file_system,
        "rw,sync,user_id=0,group_id=0,default_permissions",
    ),
    (
        "no_default_permissions",
        of_file_system,
        "rw,user_id=0,group_id=0",
    ),
    // With ACLs the kernel sets default_permissions itself.
    (
        "allow_other,noacl",
        of_file_system,
        "rw,user_id=0,group_id=0,default_permissions,allow_other",
    ),
    ("subtype=x", kind, "fuse.x"),
    ("fsname=what\\,ever", source, "what,ever"),
    ("uid=7", owner, "7:0"),
    ("gid=7", owner, "0:7"),
    ("uidmap=7:0:1", owner, "7:0"),
    ("gidmap=7:0:1", owner, "0:7"),
    ("transport=dev", carrier, "/dev/fuse"),
    ("transport=dev,threads=5", readers, "5"),
    ("nopairing", may_pair, "false"),
    ("nopassthrough,max_write=4K", writes_of_64_kib, "16"),
    ("max_background=7", max_background, "7"),
    ("max_readahead=64K", read_ahead_kib, "64"),
    ("max_readahead=1M", read_ahead_kib, "1024"),
    ("descriptors=16", has_evicted, "true"),
    ("inode_file_handles=never", has_handles, "false"),
    ("log=error", logs_mounting, "false"),
    ("control=none", has_socket, "false"),
    ("auto_unmount", auto_unmounts, "1"),
];

#[test]
fn options_of_a_mount_are_seen() {
    let started = |options: &str| {
        let ground = Ground::new()?;
        let log = ground.path().join("log");
        let log = format!("log_file={}", log.display());
        succeeded(&ground.mount(&["-o", &log, "-o", options]));
        Some(ground)
    };
    assert_seen(OF_MOUNTS, started, |ground| unmount_by_command(&ground.mnt));
}

#[test]
fn options_of_the_rings_are_seen() {
    let started = |options: &str| {
        let ground = Ground::new()?;
        succeeded(&ground.mount(&["-o", "transport=uring", "-o", options]));
        Some(ground)
    };
    let Some(ground) = started("") else { return };
    let usual = carrier(&ground);
    unmount_by_command(&ground.mnt);
    if !usual.starts_with("io_uring: ") {
        return skipped(&format!("options of io_uring: {usual}"));
    }
    assert_seen(&[("ring_depth=5", depth, "5")], started, |it| {
        unmount_by_command(&it.mnt);
    });
    let number = |options| {
        started(options).map(|ground| {
            let threads = threads_of_rings(&ground);
            unmount_by_command(&ground.mnt);
            threads
        })
    };
    assert!(
        number("queues_per_thread=4096") < number(""),
        "one thread serves all queues"
    );
}

/// "io_uring: 2 queues, 4 threads, depth 1".
fn threads_of_rings(ground: &Ground) -> u32 {
    let carrier = carrier(ground);
    let mut words = carrier.split(' ');
    words.nth(3).unwrap().parse().unwrap()
}

fn depth(ground: &Ground) -> String {
    let carrier = carrier(ground);
    carrier.rsplit(' ').next().unwrap().to_owned()
}

/// Of mountinfo (proc(5)): those before the hyphen have a variable number.
fn field(ground: &Ground, number: usize) -> String {
    let line = mount_line(&ground.mnt);
    let (mount, file_system) = line.split_once(" - ").unwrap();
    let mut fields = mount.split(' ').take(6).chain(file_system.split(' '));
    fields.nth(number).unwrap().to_owned()
}

fn flags(ground: &Ground) -> String {
    field(ground, 5)
}

fn kind(ground: &Ground) -> String {
    field(ground, 6)
}

fn source(ground: &Ground) -> String {
    field(ground, 7)
}

fn of_file_system(ground: &Ground) -> String {
    field(ground, 8)
}

fn minor(ground: &Ground) -> u32 {
    rustix::fs::minor(rustix::fs::stat(&ground.mnt).unwrap().st_dev)
}

fn owner(ground: &Ground) -> String {
    let stat = fs::metadata(ground.mnt.join("file")).unwrap();
    format!("{}:{}", stat.uid(), stat.gid())
}

fn asked(arguments: &[&str], mnt: &Path) -> Value {
    let mut command = Command::new(THRUFS);
    let output = run(command.args(arguments).arg(mnt));
    succeeded(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn statistics(ground: &Ground) -> Value {
    let output = thrufs!("ctl", "--json", &ground.mnt, "statistics");
    succeeded(&output);
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn requests(ground: &Ground, name: &str) -> u64 {
    let statistics = statistics(ground);
    let operations = statistics["operations"].as_array().unwrap();
    let operation = operations.iter().find(|it| it["name"] == name);
    operation.map_or(0, |it| it["requests"].as_u64().unwrap())
}

fn carrier(ground: &Ground) -> String {
    let carrier = statistics(ground)["requests_come_by"].clone();
    carrier.as_str().unwrap().to_owned()
}

/// Threads that read requests; others have names, not numbers.
fn readers(ground: &Ground) -> String {
    let worker = ground.process("--worker").as_raw_nonzero();
    let tasks = fs::read_dir(format!("/proc/{worker}/task")).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    let is_reader = |name: &String| {
        let number = name.trim().strip_prefix("thrufs-");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    names.filter(is_reader).count().to_string()
}

/// The soft limit.
fn limit(process: Pid, name: &str) -> String {
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.as_raw_nonzero())).unwrap();
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

fn may_pair(ground: &Ground) -> String {
    may_leave_idle(ground.process("--worker")).to_string()
}

/// Whether threads may return from the class SCHED_IDLE: by CAP_SYS_NICE, or a limit.
fn may_leave_idle(process: Pid) -> bool {
    has_capability(process, 23) || limit(process, "Max nice priority") != "0"
}

fn has_capability(process: Pid, number: u32) -> bool {
    status_set(process, "CapEff") >> number & 1 == 1
}

fn writes_of_64_kib(ground: &Ground) -> String {
    let file = File::create(ground.mnt.join("written"));
    file.unwrap().write_all(&[1; 64 << 10]).unwrap();
    requests(ground, "WRITE").to_string()
}

fn max_background(ground: &Ground) -> String {
    let connections = ground.path().join("connections");
    fs::create_dir(&connections).unwrap();
    mount("none", &connections, "fusectl", MountFlags::empty(), None).unwrap();
    let file = connections
        .join(minor(ground).to_string())
        .join("max_background");
    let text = fs::read_to_string(file).unwrap().trim().to_owned();
    detach(&connections);
    text
}

fn read_ahead_kib(ground: &Ground) -> String {
    let path = format!("/sys/class/bdi/0:{}/read_ahead_kb", minor(ground));
    fs::read_to_string(path).unwrap().trim().to_owned()
}

fn has_evicted(ground: &Ground) -> String {
    for number in 0..64 {
        fs::write(ground.src.join(number.to_string()), "").unwrap();
        fs::metadata(ground.mnt.join(number.to_string())).unwrap();
    }
    let evicted = &statistics(ground)["tables"]["descriptors_evicted"];
    (evicted.as_u64().unwrap() > 0).to_string()
}

fn has_handles(ground: &Ground) -> String {
    asked(&["explain", "--json"], &ground.mnt)[0]["lower"]["handles"].to_string()
}

fn logs_mounting(ground: &Ground) -> String {
    let log = fs::read_to_string(ground.path().join("log")).unwrap();
    log.contains("mounted ").to_string()
}

fn has_socket(ground: &Ground) -> String {
    let device = field(ground, 2).replace(':', "-");
    let socket = format!("/run/thrufs/{device}.socket");
    Path::new(&socket).exists().to_string()
}

fn auto_unmounts(ground: &Ground) -> String {
    ground.processes("--auto-unmount").len().to_string()
}

/// Timeouts that pass at once, and the requests that a program then causes again and again.
#[test]
fn timeouts_are_those_that_were_given() {
    for (options, name, request) in [
        ("follow_timeout=0.01", "file", "LOOKUP"),
        ("follow_timeout=0.01,entry_timeout=3600", "file", "GETATTR"),
        ("follow_timeout=0.01", "missing", "LOOKUP"),
        ("entry_timeout=0.01,attr_timeout=3600", "file", "LOOKUP"),
        ("attr_timeout=0.01,entry_timeout=3600", "file", "GETATTR"),
        ("negative_timeout=0.01", "missing", "LOOKUP"),
        ("follow=no", "file", "LOOKUP"),
        (
            "follow=directories,follow_marks=1",
            "directory/file",
            "LOOKUP",
        ),
    ] {
        let Some(ground) = Ground::new() else { return };
        fs::create_dir(ground.src.join("directory")).unwrap();
        fs::write(ground.src.join("directory/file"), "").unwrap();
        // Files that the kernel writes itself are not followed.
        let options = format!("nopassthrough,{options}");
        succeeded(&ground.mount(&["-o", &options]));
        let path = ground.mnt.join(name);
        let look = || {
            let found = fs::metadata(&path).map_err(|error| error.kind());
            assert_eq!(found.is_err(), name == "missing");
            assert!(found.is_ok() || found.err() == Some(ErrorKind::NotFound));
        };
        look();
        let first = requests(&ground, request);
        // The first may be what another look at the file causes once.
        wait_for(&format!("{request} with {options}"), || {
            look();
            requests(&ground, request) > first + 1
        });
        unmount_by_command(&ground.mnt);
    }
}

struct Shared {
    place: Place,
    server: Foreground,
    guest: Client<FrontEnd>,
}

impl Shared {
    /// The one that serves: a standby worker starts after it.
    fn worker(&self) -> Pid {
        self.place.workers()[0]
    }
}

const OF_SHARES: &[Effect<Shared>] = &[
    (
        "tag=home",
        |it| {
            format!(
                "{:?}",
                it.guest.carrier().tag().map(String::from_utf8_lossy)
            )
        },
        "Some(\"home\")",
    ),
    (
        "queues=7",
        |it| it.guest.carrier().request_queues().to_string(),
        "7",
    ),
    (
        "queue_size=64",
        |it| takes_queues_of_128(it).to_string(),
        "false",
    ),
    (
        "rlimit_nofile=4096",
        |it| limit(it.worker(), "Max open files"),
        "4096",
    ),
    (
        "modcaps=-mknod",
        |it| has_capability(it.worker(), 27).to_string(),
        "false",
    ),
    (
        "modcaps=+kill",
        |it| has_capability(it.worker(), 5).to_string(),
        "true",
    ),
    ("seccomp=none", |it| status(it.worker(), "Seccomp"), "0"),
    ("ro", may_create, "Err(EROFS)"),
    ("sandbox=none", has_own_mounts, "false"),
    ("sandbox=chroot", has_own_mounts, "false"),
    (
        "nopairing",
        |it| may_leave_idle(it.worker()).to_string(),
        "false",
    ),
];

#[test]
fn options_of_a_share_are_seen() {
    if !rustix::process::geteuid().is_root() {
        return skipped("what root's worker gives up");
    }
    let started = |options: &str| {
        let place = Place::new();
        let server = place.share(&format!("control=none,{options}"));
        let front_end = FrontEndConfig {
            request_queues: 64,
            queue_size: 64,
            ..FrontEndConfig::default()
        };
        let guest = ground::share::mount_at(&place.socket, &front_end);
        Some(Shared {
            place,
            server,
            guest,
        })
    };
    assert_seen(OF_SHARES, started, |it| {
        drop(it.guest);
        it.server.ends_by(Signal::TERM);
    });
}

fn takes_queues_of_128(shared: &Shared) -> bool {
    let config = FrontEndConfig {
        queue_size: 128,
        ..FrontEndConfig::default()
    };
    FrontEnd::connect(&shared.place.socket, &config).is_ok()
}

fn may_create(shared: &Shared) -> String {
    let root = shared.guest.root();
    let created = root.create(NodeId::ROOT, b"new", libc::O_RDWR, 0o644);
    format!("{:?}", created.map(drop))
}

fn has_own_mounts(shared: &Shared) -> String {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap();
    let worker = shared.worker().as_raw_nonzero().to_string();
    (namespace(&worker) != namespace("self")).to_string()
}
