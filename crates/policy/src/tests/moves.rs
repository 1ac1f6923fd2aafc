//! Moved directories: which of them leave a rule.

use crate::{Accounts, Policy};

fn alike(rules: &[(&str, &str)], old: &str, new: &str) -> bool {
    let rule = |(paths, action): &(&str, &str)| {
        let redact = if *action == "redact" {
            "redact = \"gps\"\n"
        } else {
            ""
        };
        format!("[[rule]]\npath = {paths}\naction = \"{action}\"\n{redact}")
    };
    let text: String = rules.iter().map(rule).collect();
    let policy = Policy::parse(text.as_bytes(), &Accounts::default()).unwrap();
    policy
        .left_beneath(old.as_bytes(), new.as_bytes())
        .is_none()
}

#[test]
fn moved_directory_keeps_its_files_redacted() {
    for (path, old, new, expected) in [
        ("'photos/**'", "photos", "other", false),
        ("'photos/**'", "photos/a", "other/a", false),
        ("'photos/**'", "photos/a", "a", false),
        ("'photos/**'", "photos/a", "photos/b/c", true),
        ("'photos/**'", "other", "third", true),
        ("'photos/**'", "other", "photos/other", true),
        ("'photos/**'", "PHOTOS", "third", true),
        ("'photos/**'\nignore-case = true", "PHOTOS", "third", false),
        (
            "'photos/**'\nignore-case = true",
            "photos/a",
            "PHOTOS/a",
            true,
        ),
        ("'photos/**'", "photos/a", "PHOTOS/a", false),
        ("'a/b/**'", "a", "c", false),
        ("'a/b/c'", "a/b", "a/d", false),
        ("'a/b'", "a/b", "a/d", true),
        ("'*.jpg'", "a", "b", true),
        ("'*/*.jpg'", "a", "b", true),
        ("'*/*.jpg'", "a", "b/c", false),
        ("'p*/*.jpg'", "pa", "pb", true),
        ("'p*/*.jpg'", "pa", "a", false),
        ("'*/*.jpg'", "a/b", "b/b", true),
        ("'**/*.jpg'", "a", "b", true),
        ("'**/*.[jJ]pg'", "a", "b", true),
        // A class may match a slash.
        ("'**/IMG[!a]*.jpg'", "IMG", "b", false),
        ("'**/IMG[^a]*.jpg'", "IMG", "b", false),
        ("'**/IMG[ -9]*.jpg'", "IMG", "b", false),
        ("'**/IMG[0-9]*-edit.jpg'", "IMG", "b", true),
        ("'**/IMG[]!a]*.jpg'", "IMG", "b", true),
        ("'**/photos/**'", "a/photos", "b", false),
        ("'**'", "a", "b", true),
        ("'{a,c/d}/*'", "c/d", "e", false),
        ("'b/{a,c/d}/*'", "c/d", "e", true),
        ("'b/{a,c/d}/*'", "b/a", "b/c", false),
        ("'{a,b}/*'", "a", "b", true),
        ("'{a,b}/*'", "a", "c", false),
        ("'**/a/b'", "c", "d", true),
        ("'**/a/b'", "c/a", "d/a", true),
        ("'**/a/b'", "a", "c", false),
        ("'a/**/b'", "a/c", "a/d/e", true),
        ("'a/**/b'", "a/c", "c", false),
        (
            "['photos/**', 'photos/*/raw/*']",
            "photos/a",
            "photos/b",
            true,
        ),
        ("['**', '!free/**']", "a", "free/a", false),
        ("['**', '!free/**']", "free/a", "a", true),
        (
            "['photos/**', '!photos/free/**']",
            "photos/a",
            "photos/b",
            true,
        ),
    ] {
        let found = alike(&[(path, "redact")], old, new);
        assert_eq!(found, expected, "{path}: {old} to {new}");
    }
}

#[test]
fn moved_directory_does_not_enter_an_exception() {
    let rules = [("'free/**'", "passthrough"), ("'**/*.jpg'", "redact")];
    assert!(!alike(&rules, "a", "free/a"));
    assert!(alike(&rules, "free/a", "a"));
    assert!(alike(&rules, "a", "b"));
    let exception = [("'free/**'", "passthrough"), ("'photos/**'", "redact")];
    assert!(alike(&exception, "a", "free/a"));
    let behind = [("'**/*.jpg'", "redact"), ("'free/**'", "passthrough")];
    assert!(alike(&behind, "a", "free/a"));
}

#[test]
fn moved_directory_stays_hidden_denied_and_read_only() {
    for action in ["hide", "deny", "read-only"] {
        let rules = [("'node_modules/**'", "passthrough"), ("'**/*.key'", action)];
        assert!(!alike(&rules, "a", "node_modules/a"), "{action}");
        assert!(alike(&rules, "a", "b/c"), "{action}");
        assert!(alike(&rules, "node_modules/a", "a"), "{action}");
        assert!(
            alike(&rules, "node_modules/a", "node_modules/b"),
            "{action}"
        );
        let itself = [("['**/*.key', '!**/node_modules/**']", action)];
        assert!(!alike(&itself, "a", "b/node_modules/a"), "{action}");
        assert!(
            alike(&itself, "b/node_modules/.a", "b/node_modules/a"),
            "{action}"
        );
        assert!(alike(&itself, "a", "b"), "{action}");
        assert!(
            !alike(&[("'photos/**'", action)], "photos", "other"),
            "{action}"
        );
        // A denied file cannot be changed either, but its name shows.
        let denied = [("'denied/**'", "deny"), ("'**/*.key'", action)];
        assert_eq!(
            alike(&denied, "a", "denied/a"),
            action != "hide",
            "{action}"
        );
    }
    let none = [("'photos/**'", "audit"), ("'photos/**'", "cached")];
    assert!(alike(&none, "photos", "other"));
}

/// Of the policy for workspaces, and of patterns as they are common.
#[test]
fn ordinary_directories_can_be_moved() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../dist/policies/workspace.toml"
    );
    let text = std::fs::read(path).unwrap();
    let policy = Policy::parse(&text, &Accounts::default()).unwrap();
    for (old, new, expected) in [
        ("a", "b", true),
        ("a", "b/c", true),
        ("b/.c", "d", true),
        ("node_modules/.a-x", "node_modules/a", true),
        ("target/debug/a-working", "target/debug/a", true),
        ("vendor/a/.git", "vendor/b/.git", true),
        // Directories whose contents have rules.
        ("a/.docker", "b", false),
        ("a/.git", "b", false),
        (".lefthook", "b", false),
    ] {
        let left = policy.left_beneath(old.as_bytes(), new.as_bytes());
        assert_eq!(left.is_none(), expected, "{old} to {new}: {left:?}");
    }
}
