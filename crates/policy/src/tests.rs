//! Policies, and what they decide about files.

mod documentation;
mod moves;
mod properties;
mod refused;

use super::*;
use rustix::fs::FileType;
use std::cell::Cell;
use thrufs::Errno;

pub(super) const JPEG: &[u8] = b"\xff\xd8\xff\xe0";

pub(super) fn accounts() -> Accounts {
    Accounts::parse(
        b"root:x:0:0::/:\nann:x:1000:1000::/:\n",
        b"staff:x:50:ann\n",
    )
}

pub(super) fn policy(text: &str) -> Policy {
    match Policy::parse(text.as_bytes(), &accounts()) {
        Ok(policy) => policy,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// A policy of these rules, perhaps after a default; `; ` ends a line.
fn rules(items: &[&str]) -> Policy {
    let text = items.iter().map(|item| match item.replace("; ", "\n") {
        default if default.starts_with("default") => default + "\n",
        rule => format!("[[rule]]\n{rule}\n"),
    });
    policy(&text.collect::<String>())
}

/// A file that counts how often it is read.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) attributes: Option<Attributes>,
    pub(super) head: Option<Vec<u8>>,
    attributes_asked: Cell<u32>,
    head_asked: Cell<u32>,
}

impl Sample {
    pub(super) fn new(uid: u32, mode: u32, size: u64, head: &[u8]) -> Sample {
        let gid = uid;
        Sample {
            attributes: Some(Attributes {
                uid,
                gid,
                mode,
                size,
            }),
            head: Some(head.to_vec()),
            ..Sample::default()
        }
    }

    fn asked(&self) -> (u32, u32) {
        (self.attributes_asked.get(), self.head_asked.get())
    }
}

impl AttributeSource for Sample {
    fn attributes(&self) -> Option<Attributes> {
        self.attributes_asked.set(self.attributes_asked.get() + 1);
        self.attributes
    }

    fn head(&self, buffer: &mut [u8; HEAD_BYTES]) -> Option<usize> {
        self.head_asked.set(self.head_asked.get() + 1);
        let head = self.head.as_ref()?;
        let length = head.len().min(HEAD_BYTES);
        buffer[..length].copy_from_slice(&head[..length]);
        Some(length)
    }
}

pub(super) fn file<'a>(path: &'a str, sample: &'a Sample) -> Subject<'a> {
    Subject {
        path: path.as_bytes(),
        file_type: FileType::RegularFile,
        source: sample,
    }
}

const ANN: Caller<'static> = Caller {
    uid: 1000,
    gid: 50,
    executable: &|| Some(b"/usr/bin/cat".to_vec()),
};

const STRANGER: Caller<'static> = Caller {
    uid: 7,
    gid: 7,
    executable: &|| None,
};

fn said(policy: &Policy, path: &str, head: &[u8]) -> Decision {
    let sample = Sample::new(1000, 0o644, head.len() as u64, head);
    policy.decide(&file(path, &sample), &ANN)
}

fn numbers(decision: Decision) -> [usize; 5] {
    let number = |rule: Option<RuleId>| rule.map_or(0, RuleId::number);
    [
        number(decision.hidden),
        number(decision.deny.map(|refusal| refusal.rule)),
        number(decision.read_only),
        number(decision.audit),
        number(decision.file.rule),
    ]
}

#[test]
fn first_ending_rule_counts_and_marks_accumulate() {
    let policy = rules(&[
        "default = 'cached'",
        "path = 'logs/**'; action = 'audit'",
        "path = ['logs/**', 'etc/**']; action = 'read-only'",
        "path = 'logs/open/**'; action = 'direct'",
        "path = 'logs/**'; action = 'deny'; errno = 'EPERM'",
        "path = '**'; action = 'audit'",
    ]);
    assert_eq!(numbers(said(&policy, "logs/open/a", b"")), [0, 0, 2, 1, 3]);
    assert_eq!(numbers(said(&policy, "logs/a", b"")), [0, 4, 2, 1, 0]);
    assert_eq!(numbers(said(&policy, "etc/a", b"")), [0, 0, 2, 5, 0]);
    assert_eq!(said(&policy, "etc/a", b"").file.data, DataPath::Cached);
    let error = |path, access| said(&policy, path, b"").check(access).unwrap_err().errno;
    assert_eq!(error("logs/a", Access::Read), Errno::EPERM);
    assert_eq!(error("etc/a", Access::Change), Errno::EROFS);
    assert_eq!(said(&policy, "etc/a", b"").check(Access::Read), Ok(()));
}

#[test]
fn callers_differ_in_access_but_not_in_data_path() {
    let policy = rules(&[
        "path = 'private/**'; caller-uid = ['!root', '!ann']; action = 'deny'",
        "caller-gid = 'staff'; action = 'audit'",
        "caller-exe = ['/usr/bin/*', '!/usr/bin/cat']; action = 'read-only'",
        "path = 'private/**'; action = 'direct'",
    ]);
    let sample = Sample::new(0, 0, 0, b"");
    let subject = file("private/a", &sample);
    assert_eq!(numbers(policy.decide(&subject, &ANN)), [0, 0, 0, 2, 4]);
    assert_eq!(numbers(policy.decide(&subject, &STRANGER)), [0, 1, 0, 0, 4]);
    assert_eq!(
        numbers(policy.decide(&file("a", &sample), &STRANGER)),
        [0, 0, 3, 0, 0],
        "a program that cannot be found out is one that the rule means"
    );
    assert_eq!(policy.file_path(&subject).data, DataPath::Direct);
}

#[test]
fn rules_match_attributes_and_content() {
    let policy = rules(&[
        "owner = 'ann'; group = '1000-1999'; mode = ['o+r,u-x', 0o4000]; size = '>=2, <4'; \
         content = '!image/*'; action = 'deny'",
    ]);
    for (uid, mode, head, denied) in [
        (1000, 0o644, &b"abc"[..], true),
        (1001, 0o644, b"abc", false),
        (1000, 0o640, b"abc", false),
        (1000, 0o744, b"abc", false),
        (1000, 0o4740, b"abc", true),
        (1000, 0o644, b"a", false),
        (1000, 0o644, b"abcd", false),
        (1000, 0o644, b"\xff\xd8\xff", false),
    ] {
        let sample = Sample::new(uid, mode, head.len() as u64, head);
        let decision = policy.decide(&file("a", &sample), &ANN);
        assert_eq!(decision.deny.is_some(), denied, "{uid} {mode:o} {head:?}");
    }
    let group = Attributes {
        uid: 1000,
        gid: 2000,
        mode: 0o644,
        size: 3,
    };
    let sample = Sample {
        attributes: Some(group),
        ..Sample::new(0, 0, 0, b"abc")
    };
    assert_eq!(policy.decide(&file("a", &sample), &ANN).deny, None);
    let sample = Sample::new(1000, 0o644, 3, b"");
    let directory = Subject {
        file_type: FileType::Directory,
        ..file("a", &sample)
    };
    let denied = policy.decide(&directory, &ANN).deny;
    assert_eq!(denied, None, "sizes are of files");
}

#[test]
fn lists_of_types_have_exceptions() {
    let policy = rules(&[
        "content = ['image/*', '!image/png']; action = 'deny'",
        "content = ['!text/*', '!image/*']; action = 'audit'",
    ]);
    for (head, expected) in [
        (JPEG, [0, 1, 0, 0, 0]),
        (b"\x89PNG\r\n\x1a\n", [0; 5]),
        (b"text", [0; 5]),
        (b"%PDF-", [0, 0, 0, 2, 0]),
    ] {
        assert_eq!(numbers(said(&policy, "a", head)), expected, "{head:?}");
    }
}

#[test]
fn attributes_are_read_once_per_decision() {
    let rule = "[[rule]]\nowner = 1\ncontent = 'image/*'\naction = 'audit'\n";
    let hidden = "[[rule]]\nmode = 'u+s'\naction = 'hide'\n";
    let policy = policy(&(rule.repeat(3) + hidden));
    let sample = Sample::new(1, 0, 0, b"x");
    assert_eq!(numbers(policy.decide(&file("a", &sample), &ANN)), [0; 5]);
    assert_eq!(sample.asked(), (1, 1));
    let of_another = Sample::new(2, 0, 0, b"x");
    let decision = policy.decide(&file("a", &of_another), &ANN);
    assert_eq!(numbers(decision), [0; 5]);
    assert_eq!(of_another.asked(), (1, 0), "its owner says enough");
}

#[test]
fn only_regular_files_have_a_data_path() {
    let policy = rules(&[
        "default = 'direct'",
        "path = 'a'; action = 'redact'; redact = 'gps'",
    ]);
    let sample = Sample::new(0, 0, 0, b"");
    for path in ["a", "b"] {
        let directory = Subject {
            file_type: FileType::Directory,
            ..file(path, &sample)
        };
        let expected = FilePath::new(DataPath::Passthrough, None);
        assert_eq!(policy.file_path(&directory), expected);
    }
}

#[test]
fn rules_match_file_types() {
    let policy = rules(&[
        "type = ['fifo', 'socket']; action = 'hide'",
        "type = '!file'; action = 'deny'",
    ]);
    let sample = Sample::new(0, 0, 0, b"");
    let said = |file_type| {
        numbers(policy.decide(
            &Subject {
                file_type,
                ..file("a", &sample)
            },
            &ANN,
        ))
    };
    assert_eq!(said(FileType::Fifo), [1, 0, 0, 0, 0]);
    assert_eq!(said(FileType::Directory), [0, 2, 0, 0, 0]);
    assert_eq!(said(FileType::RegularFile), [0, 0, 0, 0, 0]);
}

#[test]
fn hide_rules() {
    let policy = rules(&[
        "path = 'secret/shown'; action = 'passthrough'",
        "path = 'secret/**'; caller-uid = 7; action = 'deny'",
        "path = 'secret/*'; content = 'image/*'; action = 'cached'",
        "path = 'secret/*'; action = 'hide'",
        "owner = 0; action = 'hide'",
        "path = '**'; action = 'audit'",
    ]);
    let sample = Sample::new(1000, 0o644, 4, JPEG);
    let seen = |path| policy.visibility(&file(path, &sample));
    assert_eq!(seen("secret/shown"), Visibility::Visible);
    assert_eq!(
        seen("secret/a"),
        Visibility::Hidden(RuleId(3)),
        "for all callers and contents"
    );
    assert_eq!(seen("other"), Visibility::Visible);
    assert_eq!(sample.asked().1, 0, "a name is decided without its content");
    let of_root = Sample::new(0, 0o644, 4, JPEG);
    let by_owner = Visibility::Hidden(RuleId(4));
    assert_eq!(policy.visibility(&file("other", &of_root)), by_owner);
    let root = policy.visibility(&file("", &of_root));
    assert_eq!(root, Visibility::Visible, "the root is there");
    let unknown = Sample::default();
    assert_eq!(policy.visibility(&file("other", &unknown)), by_owner);

    let hidden = policy.decide(&file("secret/a", &sample), &STRANGER);
    assert_eq!(
        numbers(hidden),
        [4, 0, 0, 0, 0],
        "nothing else is said of it"
    );
    assert_eq!(hidden.check(Access::Read).unwrap_err().errno, Errno::ENOENT);
    assert!(policy.uses().hide && policy.uses().hide_by_attributes && policy.uses().callers);
}

/// A user who can change content, size or owner of a file cannot keep it from being redacted.
#[test]
fn redaction_depends_on_the_name_alone() {
    let policy = rules(&[
        "path = 'raw/**'; action = 'passthrough'",
        "path = 'big/**'; size = '>=1GiB'; action = 'passthrough'",
        "content = 'text/plain'; action = 'passthrough'",
        "path = '**/*.bin'; mode = 'u+x'; action = 'deny'",
        "content = ['image/jpeg', 'video/*']; path = '!**/*.txt'; action = 'redact'; \
         redact = 'gps'; errno = 'EIO'",
        "path = '**/*.png'; content = 'image/png'; action = 'redact'; redact = ['gps']; \
         on-error = 'deny'",
        "path = '**/*.jpg'; action = 'direct'",
    ]);
    assert!(policy.uses().content, "of the rule that passes texts");
    let redacted = |path, head| {
        let file = said(&policy, path, head).file;
        file.redaction.map(|redaction| {
            assert_eq!(file.rule, Some(RuleId(4)));
            assert_eq!(redaction.errno, Errno::EIO);
            redaction.content
        })
    };
    let png = b"\x89PNG\r\n\x1a\n";
    for head in [JPEG, b"", b"text", png, b"\0\xd8\xff\xe0"] {
        for path in ["a.jpg", "a", "big/a", "b/a.bin"] {
            let content = redacted(path, head).unwrap();
            assert!(content.contains(ContentType::of(JPEG)));
            assert!(!content.contains(ContentType::of(png)), "{path}");
        }
        // Two rules match, and either says what it can be.
        let content = redacted("a.png", head).unwrap();
        assert!(content.contains(ContentType::of(JPEG)) && content.contains(ContentType::of(png)));
        assert!(!content.contains(ContentType::of(b"text")));
        for path in ["a.txt", "raw/a.jpg", "raw/a"] {
            assert_eq!(redacted(path, head), None, "{path}: its name excepts it");
        }
    }
    let big = Sample::new(1000, 0o755, 1 << 30, JPEG);
    assert!(policy.file_path(&file("big/a", &big)).redaction.is_some());
    let denied = policy.decide(&file("b/a.bin", &big), &ANN);
    assert!(denied.deny.is_some() && denied.file.redaction.is_some());
    let unreadable = Sample {
        head: None,
        attributes: None,
        ..Sample::new(1000, 0o644, 4, JPEG)
    };
    let unreadable = policy.file_path(&file("a", &unreadable));
    assert!(unreadable.redaction.is_some());
    let strictest = policy.strictest_redaction().and_then(|it| it.redaction);
    assert!(!strictest.unwrap().content.contains(ContentType::of(JPEG)));
}

#[test]
fn file_denied_to_all_is_not_redacted() {
    let policy = rules(&[
        "path = 'a'; action = 'deny'",
        "path = 'b'; caller-uid = 7; action = 'deny'",
        "path = '*'; action = 'redact'; redact = 'gps'",
    ]);
    assert_eq!(said(&policy, "a", JPEG).file.redaction, None);
    assert_eq!(said(&policy, "b", JPEG).file.rule, Some(RuleId(2)));
    let sample = Sample::new(0, 0, 0, b"");
    let denied = policy.decide(&file("b", &sample), &STRANGER);
    assert_eq!(denied.deny.map(|refusal| refusal.rule), Some(RuleId(1)));
    assert_eq!(denied.file, policy.file_path(&file("b", &sample)));
}

#[test]
fn deny_on_callers_ends_the_evaluation_for_that_caller() {
    let policy = rules(&[
        "path = 'a'; caller-uid = 7; action = 'deny'; errno = 'EPERM'",
        "path = 'a'; caller-exe = '/x'; action = 'audit'",
        "path = 'a'; action = 'audit'",
        "path = 'a'; action = 'read-only'",
        "path = 'a'; action = 'read-only'",
        "path = 'a'; action = 'deny'",
    ]);
    let sample = Sample::new(0, 0, 0, b"");
    let asked = Cell::new(false);
    let executable = || {
        asked.set(true);
        None
    };
    let stranger = Caller {
        executable: &executable,
        ..STRANGER
    };
    let decision = policy.decide(&file("a", &sample), &stranger);
    assert_eq!(numbers(decision), [0, 1, 0, 0, 0]);
    assert!(!asked.get(), "the program is not needed");
    let decision = policy.decide(&file("a", &sample), &ANN);
    assert_eq!(numbers(decision), [0, 6, 4, 3, 0], "the first of a kind");
}

#[test]
fn root_is_never_hidden_but_has_rules() {
    let policy = rules(&[
        "path = '**'; action = 'hide'",
        "path = '/'; action = 'deny'",
    ]);
    assert_eq!(numbers(said(&policy, "", b"")), [0, 2, 0, 0, 0]);
    assert_eq!(numbers(said(&policy, "a", b"")), [1, 0, 0, 0, 0]);
}

#[test]
fn hidden_name_does_not_affect_a_visible_one() {
    let policy = rules(&[
        "default = 'direct'",
        "path = 'hidden'; action = 'hide'",
        "path = 'fast'; action = 'passthrough'",
    ]);
    let (hidden, fast) = (said(&policy, "hidden", b""), said(&policy, "fast", b""));
    assert_eq!(hidden.stricter(fast), fast);
}

#[test]
fn decisions_of_names_are_joined() {
    let policy = rules(&[
        "path = 'hidden'; action = 'hide'",
        "path = 'ro'; action = 'read-only'",
        "path = 'no'; action = 'deny'",
        "path = 'photo'; action = 'redact'; redact = 'gps'; errno = 'EIO'",
        "path = 'image'; action = 'redact'; redact = 'gps'; errno = 'EPERM'",
    ]);
    let join = |a, b| said(&policy, a, b"x").stricter(said(&policy, b, b"x"));
    assert_eq!(join("hidden", "plain"), said(&policy, "plain", b"x"));
    assert_eq!(numbers(join("hidden", "hidden")), [1, 0, 0, 0, 0]);
    assert_eq!(numbers(join("no", "ro")), [0, 3, 2, 0, 0]);
    let (image, photo) = (said(&policy, "image", b""), said(&policy, "photo", b""));
    assert_eq!(join("photo", "image").file.data, image.file.data);
    assert_eq!(join("plain", "photo").file, photo.file);
}

#[test]
fn uses_lists_what_rules_need() {
    let uses = rules(&["path = 'a'; action = 'hide'", "owner = 0; action = 'deny'"]).uses();
    let expected = Uses {
        paths: true,
        hide: true,
        attributes: true,
        deny: true,
        ..Uses::default()
    };
    assert_eq!(uses, expected, "names are hidden by their path alone");
    let uses =
        rules(&["path = '**'; content = 'image/*'; action = 'redact'; redact = 'gps'"]).uses();
    assert_eq!(
        uses,
        Uses {
            paths: true,
            redact: true,
            ..Uses::default()
        }
    );
    let uses = rules(&["caller-exe = '/a'; action = 'audit'"]).uses();
    assert_eq!(
        uses,
        Uses {
            callers: true,
            executables: true,
            audit: true,
            ..Uses::default()
        }
    );
}

#[test]
fn access_lasts_where_no_rule_can_restrict_it() {
    let (all, read, none) = (Some(Access::Change), Some(Access::Read), None);
    for (items, expected) in [
        (&[][..], all),
        (&["path = 'other'; action = 'deny'"], all),
        (&["path = 'a'; action = 'deny'"], none),
        (&["path = 'a'; action = 'hide'"], none),
        (&["path = 'a'; action = 'direct'"], none),
        (&["path = 'a'; action = 'cached'"], none),
        (&["path = 'a'; action = 'redact'; redact = 'gps'"], none),
        (&["path = 'a'; action = 'read-only'"], read),
        (
            &[
                "path = 'a'; action = 'read-only'",
                "path = 'a'; action = 'deny'",
            ],
            none,
        ),
        // What changes may come to match.
        (&["owner = 1; action = 'deny'"], none),
        (&["owner = 1; path = 'other'; action = 'deny'"], all),
        (&["size = '>1MiB'; action = 'hide'"], none),
        (&["content = 'image/jpeg'; action = 'deny'"], none),
        (&["caller-uid = 1; action = 'deny'"], none),
        (&["caller-uid = 1; action = 'read-only'"], none),
        (&["mode = 'u+s'; action = 'read-only'"], none),
        // An exception before counts only if it stays.
        (
            &[
                "path = 'a'; action = 'passthrough'",
                "owner = 1; action = 'deny'",
            ],
            all,
        ),
        (
            &[
                "owner = 1; action = 'passthrough'",
                "path = 'a'; action = 'deny'",
            ],
            none,
        ),
        (&["default = 'cached'"], none),
        (
            &["default = 'cached'", "path = 'a'; action = 'passthrough'"],
            all,
        ),
        (
            &[
                "path = 'a'; action = 'read-only'",
                "path = 'a'; action = 'passthrough'",
            ],
            read,
        ),
    ] {
        let access = rules(items).lasting_access(b"a", FileType::RegularFile);
        assert_eq!(access, expected, "{items:?}");
    }
    let audited = policy("audit-log = '/log'\n[[rule]]\npath = 'a'\naction = 'audit'\n");
    assert_eq!(audited.lasting_access(b"a", FileType::RegularFile), none);
    assert_eq!(audited.lasting_access(b"b", FileType::RegularFile), all);
}
