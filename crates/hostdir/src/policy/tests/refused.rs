//! What is no policy, and what is said of it.

use super::{accounts, policy};
use crate::policy::{GLOBS_MAX, POLICY_BYTES_MAX, Policy, PolicyError, PolicyFileError, RULES_MAX};
use std::path::Path;

fn refused(text: impl AsRef<[u8]>) -> PolicyError {
    match Policy::parse(text.as_ref(), &accounts()) {
        Ok(_) => panic!("taken: {}", String::from_utf8_lossy(text.as_ref())),
        Err(error) => error,
    }
}

/// A rule's own lines begin at the second.
fn refused_rule(lines: &str) -> PolicyError {
    refused(format!("[[rule]]\n{lines}\n"))
}

#[test]
fn each_fault_has_its_place_and_the_way_out() {
    for (lines, line, column, message) in [
        ("pth = 'a'", 2, 1, "did you mean `path`?"),
        (
            "path = 'a'\ncaller_uid = 5",
            3,
            1,
            "did you mean `caller-uid`?",
        ),
        ("colour = 'a'", 2, 1, "there are name, path"),
        ("path = 'a'", 1, 1, "give it an action, one of passthrough"),
        ("action = 'audit'", 1, 1, "say so with path = \"**\""),
        (
            "path = 'a'\naction = 'deney'",
            3,
            10,
            "did you mean `deny`?",
        ),
        (
            "path = 'a'\naction = 3",
            3,
            10,
            "a text in quotes, not a number",
        ),
        (
            "path = ['a', 'b/']\naction = 'deny'",
            2,
            14,
            "`b/**` for what is in it",
        ),
        ("path = 'a['\naction = 'deny'", 2, 8, "no pattern"),
        ("path = []\naction = 'deny'", 2, 8, "lists nothing"),
        ("path = ['a', ['b']]\naction = 'deny'", 2, 14, "not a list"),
        (
            "ignore-case = true\nowner = 0\naction = 'deny'",
            2,
            1,
            "about `path`",
        ),
        (
            "path = 'a'\nignore-case = 1\naction = 'deny'",
            3,
            15,
            "true or false",
        ),
        (
            "type = 'dir'\naction = 'deny'",
            2,
            8,
            "there are file, directory",
        ),
        (
            "owner = ['ann', 'bob']\naction = 'deny'",
            2,
            17,
            "no user `bob` in /etc/passwd",
        ),
        (
            "group = 'ann'\naction = 'deny'",
            2,
            9,
            "no group `ann` in /etc/group",
        ),
        (
            "owner = 4294967295\naction = 'deny'",
            2,
            9,
            "the largest is 4294967294",
        ),
        ("owner = -1\naction = 'deny'", 2, 9, "no user `-1`"),
        ("owner = '9-5'\naction = 'deny'", 2, 9, "above its last"),
        ("mode = 644\naction = 'deny'", 2, 8, "`0o4000`"),
        (
            "mode = 'u=r'\naction = 'deny'",
            2,
            8,
            "set (+) or not set (-)",
        ),
        (
            "size = '>5,<5'\naction = 'deny'",
            2,
            8,
            "no file has a size",
        ),
        ("size = '<5 Mib'\naction = 'deny'", 2, 8, "is no unit"),
        (
            "content = 'image/jpge'\naction = 'deny'",
            2,
            11,
            "did you mean `image/jpeg`?",
        ),
        (
            "path = 'a'\ncontent = 'image/*'\naction = 'hide'",
            3,
            1,
            "without looking into",
        ),
        (
            "caller-uid = 5\naction = 'hide'",
            2,
            1,
            "kept for all callers",
        ),
        (
            "caller-gid = 5\naction = 'passthrough'",
            2,
            1,
            "kept for all callers",
        ),
        (
            "caller-exe = '/a'\naction = 'direct'",
            2,
            1,
            "kept for all callers",
        ),
        (
            "caller-uid = 5\naction = 'cached'",
            2,
            1,
            "kept for all callers",
        ),
        (
            "caller-uid = 5\naction = 'redact'\nredact = 'gps'",
            2,
            1,
            "kept for all callers",
        ),
        (
            "caller-exe = 'cat'\naction = 'deny'",
            2,
            14,
            "say `/usr/bin/cat` or `**/cat`",
        ),
        (
            "path = 'a'\naction = 'deny'\nerrno = 'EACES'",
            4,
            9,
            "did you mean `EACCES`?",
        ),
        (
            "path = 'a'\naction = 'deny'\nerrno = 'ENOSYS'",
            4,
            9,
            "unknown error `ENOSYS`",
        ),
        (
            "path = 'a'\naction = 'hide'\nerrno = 'EPERM'",
            4,
            1,
            "hide gives none",
        ),
        ("path = 'a'\naction = 'redact'", 3, 10, "redact = [\"gps\"]"),
        (
            "path = 'a'\naction = 'redact'\nredact = 'gsp'",
            4,
            10,
            "did you mean `gps`?",
        ),
        (
            "path = 'a'\naction = 'deny'\nredact = 'gps'",
            4,
            1,
            "goes with action = \"redact\"",
        ),
        (
            "path = 'a'\naction = 'deny'\non-error = 'pass'",
            4,
            1,
            "goes with action = \"redact\"",
        ),
        (
            "path = 'a'\naction = 'redact'\nredact = 'gps'\non-error = 'hide'",
            5,
            12,
            "`on-error` is deny",
        ),
        (
            "path = 'a'\naction = 'redact'\nredact = 'gps'\non-error = 'pass'",
            5,
            12,
            "except files by their path",
        ),
        (
            "path = 'a'\nsize = '>4'\naction = 'redact'\nredact = 'gps'",
            3,
            1,
            "`size` does not go with redact",
        ),
        (
            "content = 'image/*'\naction = 'redact'\nredact = 'gps'",
            2,
            1,
            "say which by `path`",
        ),
        (
            "type = 'directory'\naction = 'redact'\nredact = 'gps'",
            2,
            8,
            "redact is of regular files",
        ),
        (
            "type = '!file'\nsize = '>5'\naction = 'deny'",
            2,
            8,
            "`size` is of regular files",
        ),
        (
            "name = ''\npath = 'a'\naction = 'deny'",
            2,
            8,
            "1 to 64 characters",
        ),
        (
            "name = \"a\\nb\"\npath = 'a'\naction = 'deny'",
            2,
            8,
            "in one line",
        ),
        (
            "path = 'a'\npath = 'b'\naction = 'deny'",
            3,
            1,
            "duplicate key",
        ),
        ("path = \naction = 'deny'", 2, 8, ""),
    ] {
        let error = refused_rule(lines);
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{error}\n{lines}"
        );
        assert!(error.message.contains(message), "{error}\n{lines}");
    }
}

#[test]
fn faults_outside_of_rules() {
    for (text, line, column, message) in [
        (&b"defualt = 'cached'"[..], 1, 1, "did you mean `default`?"),
        (b"\ndefault = 'deny'", 2, 11, "make a last rule"),
        (b"audit-log = 'opens'", 1, 13, "absolute"),
        (b"rule = 'a'", 1, 1, "[[rule]]"),
        (b"[rule]\npath = 'a'", 1, 2, "[[rule]]"),
        (b"rule = [1]", 1, 1, "[[rule]]"),
        (b"# \xc3\xa9\xc3\xa9\n\xc3\xa9 = 'x'", 2, 1, ""),
        (b"default = '\xc3\xa9\xff'", 1, 13, "UTF-8"),
        (b"default = '\xc3\xa9', x", 1, 14, ""),
        (
            b"[[rule]]\nname = 'a'\npath = 'a'\naction = 'hide'\n[[rule]]\nname = 'a'\npath = 'b'\naction = 'hide'",
            5,
            1,
            "an earlier rule is named `a`",
        ),
    ] {
        let error = refused(text);
        assert_eq!((error.line, error.column), (line, column), "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn numbers_are_taken_as_toml_writes_them() {
    policy("[[rule]]\nowner = [1_000, '5', '10-20']\nmode = 0o4000\naction = 'deny'");
}

#[test]
fn every_bound_holds_and_what_lies_below_it_is_taken() {
    let rule = "[[rule]]\npath='a'\naction='deny'\n";
    policy(&rule.repeat(RULES_MAX));
    let error = refused(rule.repeat(RULES_MAX + 1));
    assert_eq!((error.line, error.column), (3 * RULES_MAX + 1, 1));
    assert!(error.message.contains("at most 4096 rules"), "{error}");

    let patterns =
        |count: usize| format!("[[rule]]\naction='deny'\npath=[{}]", "'a',".repeat(count));
    policy(&patterns(GLOBS_MAX));
    assert!(
        refused(patterns(GLOBS_MAX + 1))
            .message
            .contains("at most 16384 patterns")
    );

    let comment = "#".repeat(POLICY_BYTES_MAX);
    policy(&comment);
    assert!(
        refused(comment + "#")
            .message
            .contains("at most 1048576 bytes")
    );
    let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    refused(deep);
}

#[test]
fn files_that_give_no_policy_name_themselves() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("policy.toml");
    let error = Policy::load(&path).unwrap_err();
    assert!(matches!(error, PolicyFileError::Unreadable { .. }));
    std::fs::write(&path, "[[rule]]\npath = 'a'\naction = 'nothing'\n").unwrap();
    let error = Policy::load(&path).unwrap_err().to_string();
    let place = format!("{}:3:10: unknown action `nothing`", path.display());
    assert!(error.starts_with(&place), "{error}");
    let long = "#".repeat(POLICY_BYTES_MAX + 1);
    std::fs::write(&path, long).unwrap();
    let error = Policy::load(&path).unwrap_err().to_string();
    assert!(error.contains("at most"), "{error}");
    std::fs::write(&path, "[[rule]]\nowner = 'root'\naction = 'hide'\n").unwrap();
    assert_eq!(Policy::load(&path).unwrap().rules().len(), 1);
    assert!(Policy::load(Path::new("/")).is_err());
}
