//! Invalid policies, and their messages.

use super::{accounts, policy};
use crate::{GLOBS_MAX, POLICY_BYTES_MAX, Policy, PolicyError, PolicyFileError, RULES_MAX};
use std::path::Path;

fn refused(text: impl AsRef<[u8]>) -> PolicyError {
    match Policy::parse(text.as_ref(), &accounts()) {
        Ok(_) => panic!("taken: {}", String::from_utf8_lossy(text.as_ref())),
        Err(error) => error,
    }
}

/// A case is the lines of a rule, the place of its fault, and the message.
#[test]
fn faults_have_place_and_advice() {
    for case in include_str!("refused.txt").trim_end().split("\n\n") {
        let (lines, fault) = case.split_once("\n> ").unwrap();
        let (place, message) = fault.split_once(' ').unwrap_or((fault, ""));
        // A rule's own lines begin at the second.
        let error = refused(format!("[[rule]]\n{lines}\n"));
        let found = format!("{}:{}", error.line, error.column);
        assert_eq!(found, place, "{error}\n{lines}");
        assert!(error.message.contains(message), "{error}\n{lines}");
    }
}

#[test]
fn faults_outside_of_rules() {
    for (text, line, column, message) in [
        (&b"defualt = 'cached'"[..], 1, 1, "did you mean `default`?"),
        (b"\ndefault = 'deny'", 2, 11, "make a last rule"),
        (b"audit-log = 'opens'", 1, 13, "absolute"),
        (b"audit-refused = 'all'", 1, 17, "`audit-refused` is true or false"),
        (b"audit-refusals = true", 1, 1, "did you mean `audit-refused`?"),
        (b"rule = 'a'", 1, 1, "[[rule]]"),
        (b"[rule]\npath = 'a'", 1, 2, "[[rule]]"),
        (b"rule = [1]", 1, 1, "[[rule]]"),
        (b"# \xc3\xa9\xc3\xa9\n\xc3\xa9 = 'x'", 2, 1, ""),
        (b"default = '\xc3\xa9\xff'", 1, 13, "UTF-8"),
        (b"default = '\xc3\xa9', x", 1, 14, ""),
        (b"[[rule]]\npath = \naction = 'deny'", 2, 8, ""),
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
fn toml_numbers_are_accepted() {
    policy("[[rule]]\nowner = [1_000, '5', '10-20']\nmode = 0o4000\naction = 'deny'");
}

#[test]
fn policy_bounds_hold() {
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
fn policy_file_errors_name_the_file() {
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

#[test]
fn records_need_a_log() {
    let rule = "[[rule]]\npath = 'a'\naction = 'audit'\n";
    let (refused, log) = ("\naudit-refused = true\n", "audit-log = '/log'\n");
    for (text, expected) in [
        (rule.to_owned(), Some((1, "`audit` needs a file"))),
        (
            refused.to_owned(),
            Some((2, "`audit-refused` needs a file")),
        ),
        (
            format!("{refused}{rule}"),
            Some((2, "`audit-refused` needs a file")),
        ),
        (format!("{refused}{log}"), None),
        ("audit-refused = false\n".to_owned(), None),
    ] {
        let found = Policy::of_file(Path::new("policy"), text.as_bytes());
        let fault = match found {
            Ok(policy) => {
                assert_eq!(policy.uses().audit_refused, text.contains("true"), "{text}");
                None
            }
            Err(PolicyFileError::Bad { error, .. }) => Some(error),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(
            fault.as_ref().map(|it| it.line),
            expected.map(|it| it.0),
            "{text}"
        );
        let message = fault.map_or(String::new(), |it| it.message);
        assert!(
            message.contains(expected.map_or("", |it| it.1)),
            "{message}"
        );
    }
}
