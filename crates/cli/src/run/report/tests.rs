use super::counts::{FILES_MAX, READ, REFUSALS_BYTES_MAX, REFUSALS_MAX};
use super::text::{path, shortened};
use super::*;
use serde_json::{Value, json};
use thrufs_policy::Accounts;

const POLICY: &str = r#"
[[rule]]
name = "option-audit"
path = "**"
action = "audit"

[[rule]]
name = "option-hide"
path = "h"
action = "hide"

[[rule]]
name = "environment"
path = "**/.env"
action = "hide"

[[rule]]
path = "kept/**"
action = "read-only"
"#;

const WIDE: Size = Size {
    lines: 24,
    columns: None,
};

fn policy() -> Policy {
    Policy::parse(POLICY.as_bytes(), &Accounts::default()).unwrap()
}

fn opened(path: &str, access: &str, created: bool) -> Value {
    json!({"event": "open", "path": path, "access": access, "created": created, "rule": 1,
        "outcome": "opened"})
}

fn refused(event: &str, path: &str, rule: usize, name: Option<&str>, program: &str) -> Value {
    let mut record = json!({"event": event, "path": path, "rule": rule, "executable": program,
        "outcome": "refused", "errno": 2});
    if let Some(name) = name {
        record["rule_name"] = name.into();
    }
    record
}

fn counts(records: impl IntoIterator<Item = Value>) -> Counts {
    let mut counts = Counts::default();
    for record in records {
        counts.add(&record.to_string(), true);
    }
    counts
}

#[test]
fn files_are_counted_once_by_access_and_directories_are_not() {
    let mut counts = counts([
        opened("a", "read", false),
        opened("a", "read", false),
        opened("a", "write", false),
        opened("b", "read and write", true),
        opened("c", "write", true),
        opened("", "list", false),
    ]);
    assert_eq!(counts.opens, 6);
    assert_eq!(
        counts.page(&policy(), WIDE),
        "thrufs: 2 files read, 3 written, 2 created; no access refused\n"
    );
    counts.no_network = true;
    let page = counts.page(&policy(), WIDE);
    assert!(page.ends_with("\n  there was no network\n"), "{page}");
}

#[test]
fn refusals_are_sorted_aligned_and_named_by_their_rule() {
    let env = || refused("lookup", "a/.env", 3, Some("environment"), "/usr/bin/node");
    let mut open = refused("open", "kept/x", 1, Some("option-audit"), "/bin/sh");
    open["access"] = "write".into();
    let by_the_file_system = open.clone();
    open["refused_by"] = 4.into();
    let counts = counts([
        refused("lookup", "h", 2, Some("option-hide"), "/bin/cat"),
        open,
        by_the_file_system,
        env(),
        env(),
    ]);
    assert_eq!(
        counts.page(&policy(), WIDE),
        "thrufs: 0 files read, 0 written, 0 created; 4 accesses refused:\n  \
         a/.env  hidden by environment  node  2 lookups\n  \
         h       hidden by --hide       cat   1 lookup\n  \
         kept/x  read-only by rule 4    sh    1 open\n"
    );
    let json: Value = serde_json::from_str(&counts.json(&policy())).unwrap();
    assert_eq!(json["refused"], 4);
    assert_eq!(
        json["refusals"][0],
        json!({"path": "a/.env", "event": "lookup", "executable": "/usr/bin/node", "rule": 3,
            "rule_name": "environment", "action": "hide", "errno": 2, "count": 2})
    );
    assert_eq!(json["refusals"][2]["action"], "read-only");
    assert_eq!(json["refusals"][2].get("rule_name"), None);
}

#[test]
fn text_is_a_page_and_says_what_it_leaves_out() {
    let lookup = |number: usize| {
        let path = format!("{number:03}{}", "x".repeat(200));
        let program = "/usr/bin/a-program-with-a-long-name";
        refused("lookup", &path, 2, None, program)
    };
    let counts = counts((0..9).map(lookup));
    let size = |lines| Size {
        lines,
        columns: Some(70),
    };
    for lines in [0, 3, 5, 10, 11] {
        let page = counts.page(&policy(), size(lines));
        assert!(page.lines().count() < lines.max(3), "{lines}: {page}");
        let fits = |line: &str| line.chars().count() <= 70;
        assert!(page.lines().all(fits), "{page}");
        let shown = page.lines().filter(|line| line.contains("lookup")).count();
        let left = 9 - shown;
        let rest = format!("  … and {left} more accesses refused: --json lists them\n");
        assert_eq!(page.ends_with(&rest), shown < 9, "{page}");
        assert_eq!(shown == 9, lines == 11, "{page}");
    }
}

#[test]
fn memory_is_bounded_and_what_is_left_out_is_counted() {
    let lookup = |number: usize| refused("lookup", &number.to_string(), 2, None, "p");
    let mut counts = counts((0..REFUSALS_MAX + 2).map(lookup));
    assert_eq!((counts.refusals.len(), counts.unlisted), (REFUSALS_MAX, 2));
    counts.add(&lookup(1).to_string(), true);
    assert_eq!(counts.unlisted, 2, "listed already");
    let mut long = Counts::default();
    for number in 0..300 {
        let path = format!("{number}{}", "x".repeat(64 << 10));
        long.add(&refused("lookup", &path, 2, None, "p").to_string(), true);
    }
    assert!(long.refusals_bytes <= REFUSALS_BYTES_MAX);
    assert_eq!(long.refusals.len() as u64 + long.unlisted, 300);
    assert!(long.unlisted > 40, "{}", long.unlisted);
    long.files = (0..FILES_MAX as u64).map(|hash| (hash, READ)).collect();
    long.add(&opened("another", "read", false).to_string(), true);
    assert_eq!((long.files.len(), long.uncounted_opens), (FILES_MAX, 1));
    let page = long.page(&policy(), WIDE);
    assert!(page.starts_with("thrufs: at least 0 files"), "{page}");
    assert!(page.contains("\n  … and "), "{page}");
}

#[test]
fn record_that_was_not_written_is_a_failed_open() {
    let mut counts = Counts::default();
    counts.add(&opened("a", "read", false).to_string(), false);
    counts.add(&refused("lookup", "h", 2, None, "p").to_string(), false);
    counts.add("no record", true);
    assert_eq!((counts.opens, counts.refused, counts.lost), (0, 1, 2));
    let page = counts.page(&policy(), WIDE);
    let lost = "\n  2 records could not be written to the audit log\n";
    assert!(page.ends_with(lost), "{page}");
}

#[test]
fn names_control_no_terminal() {
    assert_eq!(path("", None), ".");
    assert_eq!(path("ä b'\"", None), "ä b'\"");
    assert_eq!(path("\u{fffd}/a", Some("ff2f611b")), "\\xff/a\\u{1b}");
    let hostile = "\u{1b}]0;x\u{7}\n\r\u{9b}\u{202e}\u{7f}\\";
    assert_eq!(shortened("abcdef", 6), "abcdef");
    assert_eq!(shortened("abcdef", 4), "…def");
    let record = refused(hostile, hostile, 2, Some(hostile), &format!("/{hostile}"));
    let counts = counts([record]);
    let page = counts.page(&policy(), WIDE);
    assert_eq!(page.lines().count(), 2, "{page:?}");
    let is_harmless = |char: char| char == '\n' || !char.is_control();
    assert!(page.chars().all(is_harmless), "{page:?}");
    let json = counts.json(&policy());
    assert!(
        json.chars().all(|char| matches!(char, ' '..='~')),
        "{json:?}"
    );
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["refusals"][0]["path"], hostile);
}
