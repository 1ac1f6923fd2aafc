//! One audit record for each open.

use crate::samples;
use crate::served::{REDACT, Served, audited_in, errno, open, put, with_policy};
use rustix::fs::renameat_with;
use rustix::mount::MountFlags;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use tempfile::TempDir;
use thrufs_tests::prelude::*;

const POLICY: &str = "audit-log = 'LOG'\n\
    [[rule]]\nname = 'eyes'\npath = ['audited', 'audited/**']\naction = 'audit'\n\
    [[rule]]\npath = 'audited/denied'\naction = 'deny'\n\
    [[rule]]\npath = 'audited/kept'\naction = 'read-only'\n";

fn fill(source: &Path) {
    for name in ["file", "denied", "kept"] {
        put(source, format!("audited/{name}"), b"content");
    }
    put(source, "other", b"content");
    let all = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(source.join("audited/file"), all(0o666)).unwrap();
}

/// The records of one call.
fn records(served: &Served, count: usize, call: impl FnOnce()) -> Vec<Value> {
    let before = served.audited().len();
    call();
    let lines = served.audited().split_off(before);
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

#[test]
fn each_open_has_one_audit_record() {
    for options in ["cache=always", "cache=auto,nopassthrough", "cache=never"] {
        with_policy(options, POLICY, fill, |served| {
            let read = |name: &str| drop(File::open(served.at(name)));
            let by = |name: &str, flags| drop(open(&served.at(name), flags));
            let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let program = std::env::current_exe().unwrap();
            // What is null is not there.
            let calls: [(&dyn Fn(), Value); 8] = [
                (
                    &|| read("audited/file"),
                    json!({
                        "event": "open", "path": "audited/file", "access": "read",
                        "outcome": "opened", "rule": 1, "rule_name": "eyes", "uid": 0,
                        "created": false, "truncated": false, "error": null, "path_hex": null,
                        "executable": program.to_str().unwrap(),
                    }),
                ),
                (
                    &|| ALICE.run(|| by("audited/file", libc::O_RDWR)),
                    json!({"uid": 4001, "gid": 4001, "access": "read and write"}),
                ),
                (
                    &|| by("audited/file", libc::O_WRONLY | libc::O_TRUNC),
                    json!({"access": "write", "truncated": true}),
                ),
                (
                    &|| read("audited/denied"),
                    json!({"outcome": "refused", "data_path": null, "errno": libc::EACCES}),
                ),
                (
                    &|| by("audited/kept", libc::O_RDWR),
                    json!({"outcome": "refused", "errno": libc::EROFS}),
                ),
                (
                    &|| by("audited/new", libc::O_RDWR | libc::O_CREAT),
                    json!({"created": true, "path": "audited/new"}),
                ),
                (
                    &|| drop(rustix::fs::open(served.at("audited"), unnamed, Mode::RWXU)),
                    json!({"outcome": "opened", "path": "audited/(unnamed)"}),
                ),
                (
                    &|| drop(fs::read_dir(served.at("audited"))),
                    json!({"path": "audited", "access": "list", "data_path": null}),
                ),
            ];
            for (call, expected) in calls {
                let line = &records(served, 1, call)[0];
                for (key, value) in expected.as_object().unwrap() {
                    assert_eq!(&line[key], value, "{key} of {line}");
                }
                assert!(line["time"].as_str().unwrap().parse::<f64>().unwrap() > 1e9);
            }
            records(served, 0, || read("other"));
            records(served, 0, || drop(fs::metadata(served.at("audited/file"))));
        });
    }
}

/// Concurrent opens: no line is lost or mixed with another.
#[test]
fn no_line_is_lost_among_many() {
    const THREADS: usize = 8;
    const OPENS: usize = 100;
    with_policy("", POLICY, fill, |served| {
        let lines = records(served, THREADS * OPENS, || {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for _ in 0..OPENS {
                            drop(File::open(served.at("audited/file")).unwrap());
                        }
                    });
                }
            });
        });
        assert!(lines.iter().all(|line| line["outcome"] == "opened"));
    });
}

#[test]
fn names_of_any_bytes_are_audited() {
    let name = OsStr::from_bytes(b"audited/\xff\"\\\n\x01\xc2\x9b\xe2\x80\xae");
    let fill = |source: &Path| put(source, name, b"content");
    with_policy("", POLICY, fill, |served| {
        let line = &records(served, 1, || drop(File::open(served.at(name)).unwrap()))[0];
        assert_eq!(line["path_hex"], "617564697465642fff225c0a01c29be280ae");
        assert_eq!(line["path"], "audited/\u{fffd}\"\\\n\u{1}\u{9b}\u{202e}");
        let log = fs::read_to_string(served.ground().base().join("audit.log")).unwrap();
        let controls = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
        assert!(
            !log.contains(controls),
            "a terminal that shows it is not controlled: {log:?}"
        );
    });
}

/// Else the log would not tell which file was read, after it was renamed.
#[test]
fn new_names_of_audited_files_are_recorded() {
    with_policy("", POLICY, fill, |served| {
        let at = |name: &str| served.at(name);
        let names = |line: &Value| {
            let fields = ["event", "path", "new_path", "outcome", "rule_name"];
            fields.map(|field| line[field].as_str().unwrap_or_default().to_owned())
        };
        let moved = |from: &str, to: &str| {
            let lines = records(served, 1, || fs::rename(at(from), at(to)).unwrap());
            names(&lines[0])
        };
        let renamed =
            |from: &str, to: &str| ["rename", from, to, "renamed", "eyes"].map(str::to_owned);
        assert_eq!(moved("audited/file", "x"), renamed("audited/file", "x"));
        records(served, 0, || drop(fs::read(at("x")).unwrap()));
        records(served, 0, || {
            fs::rename(at("other"), at("another")).unwrap();
        });
        assert_eq!(moved("x", "audited/file"), renamed("x", "audited/file"));
        let lines = records(served, 1, || {
            fs::hard_link(at("audited/file"), at("y")).unwrap();
        });
        assert_eq!(
            names(&lines[0]),
            ["link", "audited/file", "y", "linked", "eyes"]
        );
        assert!(lines[0]["executable"].is_string() && lines[0]["uid"] == 0);
        let exchange = || {
            let (one, other) = (at("audited/file"), at("another"));
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        };
        let lines = records(served, 2, exchange);
        assert_eq!(names(&lines[0]), renamed("audited/file", "another"));
        assert_eq!(names(&lines[1]), renamed("another", "audited/file"));
        // Of a directory in which such files may be; and nothing where there was no rename.
        fs::create_dir(at("dir")).unwrap();
        assert_eq!(
            moved("dir", "elsewhere"),
            ["rename", "dir", "elsewhere", "renamed", ""]
        );
        records(served, 0, || drop(fs::rename(at("audited/none"), at("z"))));
    });
}

/// A small file system for the log, to be filled.
struct SmallDisk(Detach<TempDir>);

impl SmallDisk {
    fn new() -> Self {
        let place = TempDir::with_prefix("thrufs-test-").unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("thrufs-test", place.path(), "tmpfs", flags, c"size=64k").unwrap();
        Self(Detach(place))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.0.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.at("audit.log")
    }

    /// Leaves less room than a line takes.
    fn fill(&self) {
        let log = fs::metadata(self.log()).unwrap().len();
        // To the last bytes of a page of the log, by a line of JSON.
        let length = 4096 - 40 - log as usize % 4096;
        let line = format!("\"{}\"\n", "-".repeat(length.saturating_sub(3)));
        let mut file = File::options().append(true).open(self.log()).unwrap();
        file.write_all(line.as_bytes()).unwrap();
        let mut rest = File::create(self.at("rest")).unwrap();
        while rest.write_all(&[0; 4096]).is_ok() {}
    }
}

#[test]
fn an_open_without_an_audit_record_fails() {
    for options in ["cache=auto", "cache=auto,nopassthrough"] {
        over_each(|transport| {
            let disk = SmallDisk::new();
            let policy = POLICY.replace("LOG", disk.log().to_str().unwrap());
            let served = Served::start(Lower::Tmpfs, transport, options, &policy, fill);
            let file = served.at("audited/file");
            let flags = libc::O_RDWR | libc::O_CREAT;
            let all = || {
                [
                    errno(File::open(&file)),
                    errno(open(&file, libc::O_RDWR)),
                    errno(open(&served.at("audited/new"), flags)),
                    errno(fs::read_dir(served.at("audited"))),
                ]
            };
            drop(File::open(&file).unwrap());
            disk.fill();
            assert_eq!(all(), [libc::EIO; 4]);
            assert_eq!(errno(File::open(served.at("other"))), 0);
            assert_eq!(served.explain("audited/file")["opens"]["total"], 0);
            fs::remove_file(disk.at("rest")).unwrap();
            assert_eq!(all(), [0; 4]);
            let text = fs::read_to_string(disk.log()).unwrap();
            let parses = |line: &&str| serde_json::from_str::<Value>(line).is_ok();
            let (whole, cut): (Vec<&str>, Vec<&str>) = text.lines().partition(parses);
            assert_eq!(whole.len(), 2 + 4, "{text}");
            assert!(cut.len() <= 1, "{text}");
            served.stop();
        });
    }
}

#[test]
fn a_rotated_log_is_opened_again() {
    with_policy("", POLICY, fill, |served| {
        let file = served.at("audited/file");
        let log = served.ground().base().join("audit.log");
        let old = served.ground().base().join("audit.old");
        drop(File::open(&file).unwrap());
        fs::rename(&log, &old).unwrap();
        drop(File::open(&file).unwrap());
        served.reload(POLICY);
        drop(File::open(&file).unwrap());
        assert_eq!(audited_in(&old).len(), 2);
        assert_eq!(audited_in(&log).len(), 1);
        assert_eq!(
            fs::metadata(&log).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // A log that cannot be opened leaves everything as it is.
        let said = served.reload_refused("audit-log = '/proc/none/audit.log'\n");
        assert!(said.contains("/proc/none/audit.log"), "{said}");
        drop(File::open(&file).unwrap());
        assert_eq!(audited_in(&log).len(), 2);
    });
}

/// Audited and redacted at once, as a reader of photographs would be.
#[test]
fn the_data_path_is_audited() {
    let policy = format!("audit-log = 'LOG'\n[[rule]]\npath = '**'\naction = 'audit'\n{REDACT}");
    let fill = |source: &Path| {
        put(source, "photos/a.jpg", &samples::photograph());
        put(source, "photos/broken.jpg", &samples::broken_photograph());
        put(source, "plain", b"content");
    };
    with_policy("", &policy, fill, |served| {
        for (name, key, value) in [
            ("photos/a.jpg", "data_path", "filtered"),
            ("photos/broken.jpg", "outcome", "refused"),
            ("plain", "data_path", "passthrough"),
        ] {
            let line = &records(served, 1, || drop(File::open(served.at(name))))[0];
            assert_eq!(line[key], value, "{name}");
        }
    });
}
