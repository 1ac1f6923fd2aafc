//! One audit record for each open.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::Value;
use thrufs_testing::user::ALICE;

use crate::served::{REDACT, Served, audited_in, errno, open, put, raw, with_policy};

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

/// The records of one call: path, access, created, truncated, outcome, error.
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
            let file = served.at("audited/file");
            let line = &records(served, 1, || drop(File::open(&file).unwrap()))[0];
            assert_eq!(line["event"], "open");
            assert_eq!(line["path"], "audited/file");
            assert_eq!(line["access"], "read");
            assert_eq!(line["outcome"], "opened");
            assert_eq!(line["rule"], 1);
            assert_eq!(line["rule_name"], "eyes");
            assert_eq!(line["uid"], 0);
            assert_eq!(
                (&line["created"], &line["truncated"]),
                (&false.into(), &false.into())
            );
            let program = std::env::current_exe().unwrap();
            assert_eq!(line["executable"], program.to_str().unwrap());
            assert!(line["time"].as_str().unwrap().parse::<f64>().unwrap() > 1e9);
            assert!(line.get("error").is_none() && line.get("path_hex").is_none());

            let line = &records(served, 1, || drop(ALICE.run(|| open(&file, libc::O_RDWR))))[0];
            assert_eq!((&line["uid"], &line["gid"]), (&4001.into(), &4001.into()));
            assert_eq!(line["access"], "read and write");
            let flags = libc::O_WRONLY | libc::O_TRUNC;
            let line = &records(served, 1, || drop(open(&file, flags)))[0];
            assert_eq!(
                (&line["access"], &line["truncated"]),
                (&"write".into(), &true.into())
            );

            let line = &records(served, 1, || drop(File::open(served.at("audited/denied"))))[0];
            assert_eq!(
                (&line["outcome"], line.get("data_path")),
                (&"refused".into(), None)
            );
            assert_eq!(line["errno"], libc::EACCES);
            assert!(
                line["error"]
                    .as_str()
                    .unwrap()
                    .contains("Permission denied")
            );
            let line = &records(served, 1, || {
                drop(open(&served.at("audited/kept"), libc::O_RDWR));
            })[0];
            assert_eq!(line["errno"], libc::EROFS);

            let flags = libc::O_RDWR | libc::O_CREAT;
            let line = &records(served, 1, || drop(open(&served.at("audited/new"), flags)))[0];
            assert_eq!(
                (&line["created"], &line["path"]),
                (&true.into(), &"audited/new".into())
            );
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let unnamed = || rustix::fs::open(served.at("audited"), flags, Mode::RWXU).unwrap();
            let line = &records(served, 1, || drop(unnamed()))[0];
            assert_eq!(line["path"], "audited/(unnamed)");

            let line = &records(served, 1, || {
                drop(fs::read_dir(served.at("audited")).unwrap());
            })[0];
            assert_eq!(
                (&line["path"], &line["access"]),
                (&"audited".into(), &"list".into())
            );
            assert!(line.get("data_path").is_none());
            records(served, 0, || drop(File::open(served.at("other")).unwrap()));
            records(served, 0, || assert!(file.metadata().is_ok()));
        });
    }
}

#[test]
fn each_refusal_has_one_audit_record() {
    let policy = "audit-log = 'LOG'\naudit-refused = true\n\
        [[rule]]\nname = 'keys'\npath = '**/*.key'\naction = 'hide'\n\
        [[rule]]\npath = 'kept/**'\naction = 'read-only'\n";
    let fill = |source: &Path| {
        for name in ["kept/file", "open/a.key", "open/file"] {
            put(source, name, b"content");
        }
    };
    for (options, again) in [("cache=always", 0), ("cache=never", 1)] {
        with_policy(options, policy, fill, |served| {
            let key = served.at("open/a.key");
            let look = || assert_eq!(errno(fs::metadata(&key)), libc::ENOENT);
            let line = &records(served, 1, look)[0];
            assert_eq!(line["event"], "lookup");
            assert_eq!(line["path"], "open/a.key");
            assert_eq!(line["outcome"], "refused");
            assert_eq!(line["rule_name"], "keys");
            assert_eq!(
                (&line["uid"], &line["errno"]),
                (&0.into(), &libc::ENOENT.into())
            );
            let program = std::env::current_exe().unwrap();
            assert_eq!(line["executable"], program.to_str().unwrap());
            // The kernel caches its absence, where it may.
            records(served, again, look);
            let kept = served.at("kept/file");
            let line = &records(served, 1, || drop(fs::remove_file(&kept)))[0];
            assert_eq!(
                (&line["event"], &line["rule"]),
                (&"unlink".into(), &2.into())
            );
            let line = &records(served, 1, || drop(open(&kept, libc::O_WRONLY)))[0];
            assert_eq!(
                (&line["event"], &line["errno"]),
                (&"open".into(), &libc::EROFS.into())
            );
            records(served, 0, || {
                assert_eq!(fs::read_dir(served.at("open")).unwrap().count(), 1);
            });
            records(served, 0, || {
                drop(fs::read(served.at("open/file")).unwrap());
            });
            records(served, 0, || drop(fs::metadata(served.at("open/none"))));
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
            std::thread::scope(|scope| {
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
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let place = tempfile::Builder::new()
            .prefix("thrufs-test-")
            .tempdir()
            .unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("thrufs-test", place.path(), "tmpfs", flags, c"size=64k").unwrap();
        Self(place)
    }

    fn log(&self) -> std::path::PathBuf {
        self.0.path().join("audit.log")
    }

    /// Leaves less room than a line takes.
    fn fill(&self) {
        let log = fs::metadata(self.log()).unwrap().len();
        // To the last bytes of a page of the log.
        let mut file = OpenEnd(
            fs::OpenOptions::new()
                .append(true)
                .open(self.log())
                .unwrap(),
        );
        file.pad(4096 - 40 - log as usize % 4096);
        let mut rest = File::create(self.0.path().join("rest")).unwrap();
        while rest.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.path().join("rest")).unwrap();
    }
}

struct OpenEnd(File);

impl OpenEnd {
    /// Appends one line of JSON of this length.
    fn pad(&mut self, length: usize) {
        let line = format!("\"{}\"\n", "-".repeat(length.saturating_sub(3)));
        self.0.write_all(line.as_bytes()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn an_open_without_an_audit_record_fails() {
    for options in ["cache=auto", "cache=auto,nopassthrough"] {
        thrufs_tests::transport::over_each(|transport| {
            let disk = SmallDisk::new();
            let policy = POLICY.replace("LOG", disk.log().to_str().unwrap());
            let served = Served::start(transport, options, &policy, fill);
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
            disk.make_room();
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
        put(source, "photos/a.jpg", &crate::samples::photograph());
        put(
            source,
            "photos/broken.jpg",
            &crate::samples::broken_photograph(),
        );
        put(source, "plain", b"content");
    };
    with_policy("", &policy, fill, |served| {
        let line = &records(served, 1, || {
            drop(File::open(served.at("photos/a.jpg")).unwrap());
        })[0];
        assert_eq!(line["data_path"], "filtered");
        let line = &records(served, 1, || {
            drop(File::open(served.at("photos/broken.jpg")));
        })[0];
        assert_eq!(line["outcome"], "refused");
        let line = &records(served, 1, || {
            let file = File::open(served.at("plain")).unwrap();
            file.read_exact_at(&mut [0; 3], 1).unwrap();
        })[0];
        assert_eq!(line["data_path"], "passthrough");
        assert_eq!(
            raw(rustix::fs::access(
                served.at("plain"),
                rustix::fs::Access::READ_OK
            )),
            0
        );
    });
}
