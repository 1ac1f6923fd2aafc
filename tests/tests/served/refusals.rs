//! `audit-refused`: one record of each request that a rule refuses, and none of any other.

use super::cases::{self, RULES};
use super::rules::{policy, with};
use super::{ROOT, Served, beneath, serve};
use rustix::fs::IFlags;
use serde_json::Value;
use thrufs::{Outcome, Result};
use thrufs_hostdir::{AuditLog, Resources};
use thrufs_tests::prelude::*;

struct Audited<'a> {
    served: &'a Served,
    log: &'a tempfile::NamedTempFile,
}

/// Serves a tree under these rules.
fn audited(rules: &str, test: impl Fn(&Audited<'_>)) {
    audited_by(rules, test, |resources, test| test(&serve(resources)));
}

fn audited_by(
    rules: &str,
    test: impl Fn(&Audited<'_>),
    serve: impl FnOnce(Resources, &dyn Fn(&Served)),
) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let resources = Resources {
        audit_log: AuditLog::new(Some(log.reopen().unwrap().into())),
        ..with(&rules.replace("LOG", "/log"))
    };
    serve(resources, &|served| {
        cases::fill(served.directory.path());
        test(&Audited { served, log: &log });
    });
}

impl Audited<'_> {
    /// What a request answers, and the records that it wrote.
    fn records<T>(&self, request: impl FnOnce() -> T) -> (T, Vec<Value>) {
        let read = || fs::read_to_string(self.log).unwrap();
        let before = read().len();
        let answer = request();
        let text = read().split_off(before);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (answer, lines.collect())
    }
}

#[test]
fn each_request_is_answered_by_the_rules_and_each_refusal_has_one_record() {
    let test = |audited: &Audited<'_>| {
        let root = audited.served.root();
        cases::all_are_answered(audited.served.directory.path(), |case| {
            let (asked, records) = audited.records(|| cases::ask(&root, case));
            let errno = asked.err();
            // A directory that is renamed, in which audited files may be, is recorded as well.
            let refused = records
                .iter()
                .filter(|record| record["outcome"] != "renamed");
            let said = refused.map(|record| {
                let name = record.get("rule_name").and_then(Value::as_str);
                assert_eq!(name, (record["rule"] == 1).then_some("keys"), "{record}");
                assert_eq!((&record["uid"], &record["gid"]), (&0.into(), &0.into()));
                assert!(record.get("access").is_none() && record.get("path_hex").is_none());
                let keys = ["event", "path", "rule", "errno", "outcome"];
                keys.map(|key| record[key].to_string()).join(" ")
            });
            let number = errno.map_or(0, Errno::raw);
            let expected = case.record.iter().map(|(path, rule)| {
                format!("{:?} {path:?} {rule} {number} \"refused\"", case.event())
            });
            let (said, expected): (Vec<_>, Vec<_>) = (said.collect(), expected.collect());
            let wrong = (said != expected).then(|| format!("{said:?}"));
            (errno, wrong.unwrap_or_default())
        });
        // An audited open has its own record, other requests for such a file have none.
        let kept = root.walk("seen/kept").unwrap();
        let open = |flags| audited.records(|| root.open(kept, flags).map(drop)).1;
        let [record] = &open(libc::O_RDWR)[..] else {
            panic!("one record")
        };
        assert_eq!(
            (&record["rule"], &record["refused_by"]),
            (&4.into(), &5.into())
        );
        assert_eq!(record["access"], "read and write");
        assert_eq!(open(libc::O_RDONLY)[0].get("refused_by"), None);
    };
    audited(RULES, test);
    // Without file handles.
    audited_by(RULES, test, |resources, test| {
        beneath::on_overlay(resources, test);
    });
}

/// An error of the file system beneath is no refusal, though the rule has the same.
#[test]
fn an_error_of_the_file_system_beneath_is_not_recorded() {
    audited(RULES, |audited| {
        let root = audited.served.root();
        let p = root.walk("photos/p").unwrap();
        let path = audited.served.path("photos/p");
        let set = |flags| rustix::fs::ioctl_setflags(File::open(&path).unwrap(), flags);
        if set(IFlags::IMMUTABLE).is_err() {
            skipped("the file system has no immutable files");
            return;
        }
        let (answer, records) = audited.records(|| root.open(p, libc::O_WRONLY).map(drop));
        set(IFlags::empty()).unwrap();
        assert_eq!((answer, records), (Err(Errno::EPERM), Vec::new()));
    });
}

#[test]
fn refusals_are_recorded_only_where_the_policy_says_so() {
    audited(&RULES.replace("audit-refused = true", ""), |audited| {
        let root = audited.served.root();
        let (answer, records) = audited.records(|| root.walk("a.key"));
        assert_eq!((answer, records), (Err(Errno::ENOENT), Vec::new()));
    });
}

/// In a directory that a reload hides, whatever is asked for.
#[test]
fn a_refusal_in_a_hidden_directory_is_recorded() {
    audited("[[rule]]\nowner = \"1\"\naction = \"hide\"\n", |audited| {
        let root = audited.served.root();
        let kept = root.walk("kept").unwrap();
        let rules = "audit-refused = true\n[[rule]]\npath = \"kept\"\naction = \"hide\"\n";
        let log = Some(audited.log.reopen().unwrap().into());
        let server = audited.served.client.file_system();
        server.replace_policy(policy(rules), log).unwrap();
        for (event, request) in [
            (
                "lookup",
                &(|| root.lookup(kept, b"x").map(drop)) as &dyn Fn() -> Result<()>,
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
    });
}

#[test]
fn a_request_fails_as_it_does_when_its_refusal_cannot_be_recorded() {
    let full = File::options().append(true).open("/dev/full").unwrap();
    let served = serve(Resources {
        audit_log: AuditLog::new(Some(full.into())),
        ..with(&RULES.replace("LOG", "/log"))
    });
    served.write("denied", b"1");
    served.write("a.key", b"1");
    let root = served.root();
    let denied = root.walk("denied").unwrap();
    assert_eq!(
        root.open(denied, libc::O_RDONLY).map(drop),
        Err(Errno::EBUSY)
    );
    assert_eq!(root.walk("a.key"), Err(Errno::ENOENT));
    assert_eq!(root.mkdir(ROOT, b"b.key", 0).map(drop), Err(Errno::EACCES));
}

/// A record may block, and only what a rule refuses has one.
#[test]
fn a_request_may_block_where_its_refusal_is_recorded() {
    for (key, sleeps) in [("audit-refused = true", true), ("", false)] {
        audited(&RULES.replace("audit-refused = true", key), |audited| {
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
        });
    }
}
