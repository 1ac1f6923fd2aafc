//! `audit-refused`: one record of each request that a rule refuses, and none of any other.

use super::rules::{policy, set, with};
use super::{ROOT, Served, serve, serve_in};
use serde_json::Value;
use std::fs;
use thrufs::{Errno, Outcome, Result};
use thrufs_abi::{NodeId, Opcode, SetattrValid};
use thrufs_hostdir::{AuditLog, Resources};

/// Each rule answers with another error.
const RULES: &str = r#"
audit-log = "/log"
audit-refused = true

[[rule]]
name = "keys"
path = ["**/*.key", "hollow"]
action = "hide"

[[rule]]
path = "of-root"
owner = "1000"
action = "hide"

[[rule]]
path = ["denied", "shut"]
action = "deny"
errno = "EBUSY"

[[rule]]
path = "seen/**"
action = "audit"

[[rule]]
path = ["kept/**", "seen/kept"]
action = "read-only"

[[rule]]
path = "photos/**"
action = "redact"
redact = "gps"
errno = "EPERM"
"#;

struct Audited {
    served: Served,
    log: tempfile::NamedTempFile,
}

impl Audited {
    fn new(rules: &str) -> Audited {
        let log = tempfile::NamedTempFile::new().unwrap();
        let resources = Resources {
            audit_log: AuditLog::new(Some(log.reopen().unwrap().into())),
            ..with(rules)
        };
        let directory = tempfile::tempdir().unwrap();
        for name in ["kept/dir", "photos/album", "seen", "shut"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let files = [
            "a",
            "a.key",
            "of-root",
            "denied",
            "kept/x",
            "photos/p",
            "seen/kept",
        ];
        for name in files {
            fs::write(directory.path().join(name), "1").unwrap();
        }
        let owned = directory.path().join("of-root");
        std::os::unix::fs::chown(owned, Some(1000), None).unwrap();
        let served = serve_in(directory, resources);
        Audited { served, log }
    }

    /// What a request answers, and the records that it wrote.
    fn records<T>(&self, request: impl FnOnce() -> T) -> (T, Vec<Value>) {
        let read = || fs::read_to_string(&self.log).unwrap();
        let before = read().len();
        let answer = request();
        let text = read().split_off(before);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (answer, lines.collect())
    }
}

type Request<'a> = &'a dyn Fn() -> Result<()>;

#[test]
fn each_refusal_by_a_rule_has_one_record() {
    const EXCHANGE: u32 = libc::RENAME_EXCHANGE;
    let audited = Audited::new(RULES);
    let root = audited.served.client.root();
    let at = |path: &str| root.walk(path).unwrap();
    let [a, denied, kept, x, dir, photos, p, seen] = [
        "a", "denied", "kept", "kept/x", "kept/dir", "photos", "photos/p", "seen",
    ]
    .map(at);
    let rename = |from: (NodeId, &str), to: (NodeId, &str), flags| {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        root.rename(from, to, flags)
    };
    let create = |parent, name: &str| {
        let created = root.create(parent, name.as_bytes(), libc::O_RDWR, 0o600);
        created.map(drop)
    };
    let open = |node, flags| root.open(node, flags).map(drop);
    let (absent, hidden, busy) = (Errno::ENOENT, Errno::EACCES, Errno::EBUSY);
    let (rofs, moved, perm) = (Errno::EROFS, Errno::EXDEV, Errno::EPERM);
    let refused: &[(Request<'_>, &str, &str, u64, Errno)] = &[
        (
            &|| root.walk("a.key").map(drop),
            "lookup",
            "a.key",
            1,
            absent,
        ),
        (
            &|| root.unlink(ROOT, b"a.key"),
            "unlink",
            "a.key",
            1,
            absent,
        ),
        (&|| create(ROOT, "b.key"), "create", "b.key", 1, hidden),
        (&|| create(ROOT, "of-root"), "create", "of-root", 2, hidden),
        (
            &|| root.mknod(ROOT, b"of-root", libc::S_IFIFO, 0).map(drop),
            "mknod",
            "of-root",
            2,
            hidden,
        ),
        (
            &|| root.link(a, ROOT, b"of-root").map(drop),
            "link",
            "of-root",
            2,
            hidden,
        ),
        (
            &|| root.mkdir(ROOT, b"hollow", 0).map(drop),
            "mkdir",
            "hollow",
            1,
            hidden,
        ),
        (
            &|| root.symlink(ROOT, b"hollow", b"to").map(drop),
            "symlink",
            "hollow",
            1,
            hidden,
        ),
        (&|| open(denied, libc::O_RDONLY), "open", "denied", 3, busy),
        (
            &|| root.opendir(at("shut")).map(drop),
            "opendir",
            "shut",
            3,
            busy,
        ),
        (&|| open(x, libc::O_RDWR), "open", "kept/x", 5, rofs),
        (&|| open(p, libc::O_RDONLY), "open", "photos/p", 6, perm),
        (&|| open(p, libc::O_WRONLY), "open", "photos/p", 6, perm),
        (
            &|| root.tmpfile(kept, libc::O_RDWR, 0o600).map(drop),
            "tmpfile",
            "kept/(unnamed)",
            5,
            rofs,
        ),
        (&|| root.rmdir(kept, b"dir"), "rmdir", "kept/dir", 5, rofs),
        (
            &|| root.setattr(dir, &set(SetattrValid::MODE, 0)).map(drop),
            "setattr",
            "kept/dir",
            5,
            rofs,
        ),
        (
            &|| root.setattr(p, &set(SetattrValid::SIZE, 3)).map(drop),
            "setattr",
            "photos/p",
            6,
            perm,
        ),
        (
            &|| root.setxattr(x, b"user.x", b"1", 0),
            "setxattr",
            "kept/x",
            5,
            rofs,
        ),
        (
            &|| root.removexattr(x, b"user.x"),
            "removexattr",
            "kept/x",
            5,
            rofs,
        ),
        (
            &|| rename((kept, "x"), (ROOT, "b"), 0),
            "rename",
            "kept/x",
            5,
            rofs,
        ),
        (
            &|| rename((ROOT, "a"), (kept, "b"), 0),
            "rename",
            "kept/b",
            5,
            rofs,
        ),
        (
            &|| rename((ROOT, "a"), (kept, "x"), EXCHANGE),
            "rename",
            "kept/x",
            5,
            rofs,
        ),
        (
            &|| rename((photos, "p"), (ROOT, "b"), 0),
            "rename",
            "photos/p",
            6,
            moved,
        ),
        (
            &|| rename((photos, "album"), (ROOT, "b"), 0),
            "rename",
            "photos/album",
            6,
            moved,
        ),
        (
            &|| root.link(p, ROOT, b"b").map(drop),
            "link",
            "photos/p",
            6,
            moved,
        ),
        // An audited open has its own record, other requests for such a file have none.
        (
            &|| {
                root.setattr(at("seen/kept"), &set(SetattrValid::MODE, 0))
                    .map(drop)
            },
            "setattr",
            "seen/kept",
            5,
            rofs,
        ),
    ];
    for (request, event, path, rule, errno) in refused {
        let (answer, records) = audited.records(request);
        assert_eq!(answer, Err(*errno), "{event} {path}");
        let [record] = &records[..] else {
            panic!("{event} {path}: {records:?}")
        };
        assert_eq!(record["event"], *event, "{record}");
        assert_eq!(record["path"], *path, "{record}");
        assert_eq!(record["rule"], *rule, "{record}");
        assert_eq!(record["errno"], errno.raw(), "{record}");
        assert_eq!(record["outcome"], "refused", "{record}");
        assert_eq!((&record["uid"], &record["gid"]), (&0.into(), &0.into()));
        assert!(record.get("access").is_none() && record.get("path_hex").is_none());
        let name = record.get("rule_name").and_then(Value::as_str);
        assert_eq!(name, (*rule == 1).then_some("keys"), "{record}");
    }
    let (_, records) = audited.records(|| open(at("seen/kept"), libc::O_RDWR));
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(
        (&records[0]["rule"], &records[0]["access"]),
        (&4.into(), &"read and write".into())
    );
    assert_eq!(records[0]["refused_by"], 5, "{records:?}");
    let (_, records) = audited.records(|| open(at("seen/kept"), libc::O_RDONLY));
    assert_eq!(records[0].get("refused_by"), None, "{records:?}");
    let others: &[(Request<'_>, Result<()>)] = &[
        (&|| root.walk("none").map(drop), Err(absent)),
        (&|| root.list(ROOT, true).map(drop), Ok(())),
        (
            &|| root.mkdir(ROOT, b"kept", 0).map(drop),
            Err(Errno::EEXIST),
        ),
        (&|| root.rmdir(ROOT, b"kept"), Err(Errno::ENOTEMPTY)),
        (&|| open(a, libc::O_RDWR), Ok(())),
        (&|| root.mkdir(seen, b"new", 0o700).map(drop), Ok(())),
        (&|| rename((ROOT, "a"), (ROOT, "b"), 0), Ok(())),
    ];
    for (at, (request, expected)) in others.iter().enumerate() {
        let (answer, records) = audited.records(request);
        assert_eq!((&answer, &records[..]), (expected, &[][..]), "case {at}");
    }
}

/// An error of the file system beneath is no refusal, though the rule has the same.
#[test]
fn an_error_of_the_file_system_beneath_is_not_recorded() {
    let audited = Audited::new(RULES);
    let root = audited.served.client.root();
    let p = root.walk("photos/p").unwrap();
    let path = audited.served.path("photos/p");
    let immutable = |set: bool| {
        let file = fs::File::open(&path).unwrap();
        let flags = rustix::fs::IFlags::IMMUTABLE;
        let flags = if set {
            flags
        } else {
            rustix::fs::IFlags::empty()
        };
        rustix::fs::ioctl_setflags(file, flags)
    };
    if immutable(true).is_err() {
        thrufs_test_report::skipped("the file system has no immutable files");
        return;
    }
    let (answer, records) = audited.records(|| root.open(p, libc::O_WRONLY).map(drop));
    immutable(false).unwrap();
    assert_eq!((answer, records), (Err(Errno::EPERM), Vec::new()));
}

#[test]
fn refusals_are_recorded_only_where_the_policy_says_so() {
    let audited = Audited::new(&RULES.replace("audit-refused = true", ""));
    let root = audited.served.client.root();
    let (answer, records) = audited.records(|| root.walk("a.key"));
    assert_eq!((answer, records), (Err(Errno::ENOENT), Vec::new()));
}

/// In a directory that a reload hides, whatever is asked for.
#[test]
fn a_refusal_in_a_hidden_directory_is_recorded() {
    let audited = Audited::new("[[rule]]\nowner = \"1\"\naction = \"hide\"\n");
    let root = audited.served.client.root();
    let kept = root.walk("kept").unwrap();
    let rules = "audit-refused = true\n[[rule]]\npath = \"kept\"\naction = \"hide\"\n";
    let log = Some(audited.log.reopen().unwrap().into());
    let server = audited.served.client.file_system();
    server.replace_policy(policy(rules), log).unwrap();
    for (event, request) in [
        (
            "lookup",
            &(|| root.lookup(kept, b"x").map(drop)) as Request<'_>,
        ),
        ("unlink", &|| root.unlink(kept, b"x")),
        ("mkdir", &|| root.mkdir(kept, b"new", 0).map(drop)),
    ] {
        let (_, records) = audited.records(request);
        assert_eq!(records.len(), 1, "{event}: {records:?}");
        assert_eq!(
            (&records[0]["event"], &records[0]["rule"]),
            (&event.into(), &1.into())
        );
    }
}

#[test]
fn a_request_fails_as_it_does_when_its_refusal_cannot_be_recorded() {
    let full = fs::File::options().append(true).open("/dev/full").unwrap();
    let served = serve(Resources {
        audit_log: AuditLog::new(Some(full.into())),
        ..with(RULES)
    });
    served.write("denied", b"1");
    served.write("a.key", b"1");
    let root = served.client.root();
    let denied = root.walk("denied").unwrap();
    assert_eq!(
        root.open(denied, libc::O_RDONLY).map(drop),
        Err(Errno::EBUSY)
    );
    assert_eq!(root.walk("a.key"), Err(Errno::ENOENT));
    assert_eq!(root.mkdir(ROOT, b"hollow", 0).map(drop), Err(Errno::EACCES));
}

/// A record may block, and only what a rule refuses has one.
#[test]
fn a_request_may_block_where_its_refusal_is_recorded() {
    for (key, sleeps) in [("audit-refused = true", true), ("", false)] {
        let audited = Audited::new(&RULES.replace("audit-refused = true", key));
        let client = &audited.served.client;
        let inodes = || client.file_system().statistics().inodes;
        let before = inodes();
        for (name, sleeps) in [(&b"a.key"[..], sleeps), (b"none", false)] {
            let request = client
                .root()
                .request(Opcode::Lookup, ROOT)
                .name(name)
                .finish();
            let ((), records) = audited.records(|| {
                let dispatcher = client.dispatcher();
                let answer = dispatcher.dispatch(&request[..], &mut [0; 4096], false);
                assert_eq!(matches!(answer, Outcome::Defer(_)), sleeps, "{key}");
            });
            assert_eq!(records, [] as [Value; 0]);
            assert_eq!(inodes(), before, "{key}");
        }
    }
}
