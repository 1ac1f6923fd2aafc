//! A share under a policy whose worker is killed: the rules hold before and after.

use super::{Root, THREADS, kill_repeatedly, mount, replace};
use crate::ground::share::{Place, Stop};
use crate::ground::wait_for;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use thrufs::{Errno, NodeId};

const RULES: &str = r#"audit-log = "LOG"

[[rule]]
path = "audited/**"
action = "audit"

[[rule]]
path = "**/hidden*"
action = "hide"

[[rule]]
path = "denied/**"
action = "deny"

[[rule]]
path = "kept/**"
action = "read-only"

[[rule]]
path = "photos/**"
action = "redact"
redact = "gps"
"#;

/// Degrees, minutes and seconds, as fractions.
const LATITUDE: [u32; 6] = [47, 1, 11, 1, 815, 100];

fn secret() -> Vec<u8> {
    LATITUDE.iter().flat_map(|it| it.to_le_bytes()).collect()
}

/// A minimal photograph with GPS coordinates.
fn photograph() -> Vec<u8> {
    let entry = |tag: u16, kind: u16, count: u32, value: u32| {
        let (tag, kind) = (tag.to_le_bytes(), kind.to_le_bytes());
        [&tag[..], &kind, &count.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    let none = 0u32.to_le_bytes();
    let tiff = [
        b"II*\0\x08\0\0\0\x01\0",
        &entry(0x8825, 4, 1, 26)[..],
        &none,
        &2u16.to_le_bytes(),
        &entry(1, 2, 2, u32::from(b'N')),
        &entry(2, 5, 3, 56),
        &none,
        &secret(),
    ]
    .concat();
    let length = (2 + 6 + tiff.len()) as u16;
    let begin = [&b"\xff\xd8\xff\xe1"[..], &length.to_be_bytes(), b"Exif\0\0"].concat();
    let end = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0pixels\xff\xd9";
    [&begin, &tiff, &end[..]].concat()
}

fn names_place(bytes: &[u8]) -> bool {
    bytes.windows(24).any(|window| window == secret())
}

fn write_rules(place: &Place, rules: &str) -> PathBuf {
    let path = place.path("policy.toml");
    let log = place.path("audit.log");
    fs::write(&path, rules.replace("LOG", log.to_str().unwrap())).unwrap();
    path
}

fn lines(place: &Place) -> Vec<String> {
    let log = fs::read_to_string(place.path("audit.log"));
    log.unwrap_or_default().lines().map(str::to_owned).collect()
}

fn fill(place: &Place) {
    for directory in ["audited", "denied", "kept", "photos"] {
        fs::create_dir(place.dir.join(directory)).unwrap();
    }
    for name in [
        "audited/x",
        "hidden",
        "kept/hidden-too",
        "denied/x",
        "kept/x",
    ] {
        fs::write(place.dir.join(name), "content").unwrap();
    }
    fs::write(place.dir.join("photos/a.jpg"), photograph()).unwrap();
}

/// Nodes that were looked up before all deaths.
struct Known {
    denied: NodeId,
    kept: NodeId,
    audited: NodeId,
    photo: NodeId,
    /// Stays open.
    shown: u64,
}

impl Known {
    fn new(root: &Root<'_>) -> Known {
        let [denied, kept, audited, photo] = ["denied/x", "kept/x", "audited/x", "photos/a.jpg"]
            .map(|path| root.walk(path).unwrap());
        let shown = root.open(photo, libc::O_RDONLY).unwrap().fh;
        Known {
            denied,
            kept,
            audited,
            photo,
            shown,
        }
    }

    /// Accesses every file once. One of the opens is audited.
    fn ask(&self, root: &Root<'_>, round: u64) {
        let read = libc::O_RDONLY;
        let whole = |node, handle| root.read(node, handle, 0, 1 << 16).unwrap();
        let shown = whole(self.photo, self.shown);
        assert!(!names_place(&shown), "open all the time");
        let opened = root.open(self.photo, read).unwrap().fh;
        assert!(!names_place(&whole(self.photo, opened)), "opened now");
        root.release(self.photo, opened).unwrap();
        let refused = |node, flags| root.open(node, flags).map(|open| open.fh);
        assert_eq!(refused(self.denied, read), Err(Errno::EACCES));
        assert_eq!(refused(self.kept, libc::O_RDWR), Err(Errno::EROFS));
        for path in ["hidden", "kept/hidden-too"] {
            assert_eq!(root.walk(path), Err(Errno::ENOENT));
        }
        let kept = root.walk("kept").unwrap();
        let listed = root.list(kept, round.is_multiple_of(2)).unwrap();
        assert!(listed.iter().all(|entry| !entry.name.starts_with(b"hid")));
        let audited = root.open(self.audited, read).unwrap().fh;
        assert_eq!(whole(self.audited, audited), b"content");
        root.release(self.audited, audited).unwrap();
    }
}

/// Renames a file into a rule and out again.
fn wander(root: &Root<'_>, number: usize, stop: &AtomicBool) -> usize {
    let directory = NodeId::ROOT;
    let plain = format!("plain{number}");
    let made = root.create(directory, plain.as_bytes(), libc::O_RDWR, 0o600);
    let node = NodeId(made.unwrap().0.nodeid);
    let mut rounds = 0;
    while !stop.load(Ordering::SeqCst) {
        let next = format!("name{number}-{rounds}");
        let (one, other) = (plain.as_bytes(), next.as_bytes());
        let renamed = root.rename((directory, one), (directory, other), 0);
        renamed.expect("rename");
        let handle = root.open(node, libc::O_RDWR).expect("open").fh;
        root.release(node, handle).expect("release");
        let renamed = root.rename((directory, other), (directory, one), 0);
        renamed.expect("rename back");
        rounds += 1;
    }
    rounds
}

#[test]
fn policy_holds_across_worker_deaths_under_load() {
    let place = Place::new();
    fill(&place);
    let policy = write_rules(&place, RULES);
    let options = "control=none,resume=100000,seccomp=kill";
    let options = format!("{options},policy={}", policy.display());
    let server = place.share_with_log(&options);
    let client = mount(&place);
    let known = Known::new(&client.root());
    let stop = AtomicBool::new(false);
    let steps = AtomicUsize::new(0);
    let (mut kills, mut audited, mut rounds) = (0, 0, 0);
    thread::scope(|scope| {
        let all = Stop(&stop);
        let (known, client, stop, steps) = (&known, &client, &stop, &steps);
        let askers: Vec<_> = (0..THREADS as u64 / 2)
            .map(|number| {
                scope.spawn(move || {
                    let _others = Stop(stop);
                    let (mut audited, mut round) = (0, number);
                    while !stop.load(Ordering::SeqCst) {
                        known.ask(&client.root(), round);
                        (audited, round) = (audited + 1, round + 1);
                        steps.fetch_add(1, Ordering::SeqCst);
                    }
                    audited
                })
            })
            .collect();
        let wanderers: Vec<_> = (0..2)
            .map(|number| {
                scope.spawn(move || {
                    let _others = Stop(stop);
                    wander(&client.root(), number, stop)
                })
            })
            .collect();
        kills += kill_repeatedly(&place, steps, stop);
        drop(all);
        let sum = |threads: Vec<ScopedJoinHandle<'_, usize>>| -> usize {
            let threads = threads.into_iter();
            threads.map(|it| it.join().unwrap()).sum()
        };
        (audited, rounds) = (sum(askers), sum(wanderers));
    });
    eprintln!("{kills} workers were killed in the midst of {audited} rounds, {rounds} renames");
    assert!(audited > 20 && rounds > 0);
    known.ask(&client.root(), 0);
    // Each open has an audit record, and only one, unless marked as repeated.
    let lines = lines(&place);
    let again = lines.iter().filter(|line| line.contains("\"again\":true"));
    let (all, again) = (lines.len(), again.count());
    let (opens, once) = (audited + 1, all - again);
    assert!(once <= opens && opens <= all, "{once} of {all} for {opens}");
    drop(client.unmount());
    server.ends_by(Signal::TERM);
}

/// The active policy is the one that was loaded, not the current content of the file.
#[test]
fn next_worker_applies_the_active_policy() {
    let place = Place::new();
    fill(&place);
    let policy = write_rules(&place, RULES);
    let options = format!("control=none,policy={}", policy.display());
    let server = place.share_with_log(&options);
    let client = mount(&place);
    let root = client.root();
    let known = Known::new(&root);
    // No reload was requested, so neither text takes effect.
    for text in ["", "nonsense"] {
        fs::write(&policy, text).unwrap();
        replace(&place);
        known.ask(&root, 0);
    }
    // A reload reaches the serving worker and the one on standby.
    let stricter = format!("{RULES}\n[[rule]]\npath = \"kept/**\"\naction = \"deny\"\n");
    let kept = root.open(known.kept, libc::O_RDONLY).unwrap().fh;
    write_rules(&place, &stricter);
    server.signal(Signal::HUP);
    wait_for("the reload", || {
        root.open(known.kept, libc::O_RDONLY).is_err()
    });
    for _ in 0..2 {
        let opened = root.open(known.kept, libc::O_RDONLY).map(|open| open.fh);
        assert_eq!(opened, Err(Errno::EACCES), "by what is in force");
        let read = root.read(known.kept, kept, 0, 100);
        assert_eq!(read.unwrap(), b"content", "what was granted");
        replace(&place);
    }
}
