//! What composed policies contain and decide.

use super::text::NO_LOG;
use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;
use thrufs_policy::{
    Access, Accounts, Caller, DataPath, FileType, POLICY_BYTES_MAX, Subject, Unknown,
};

/// Options as on the command line, composed for a tree.
fn composed_at(tree: &Path, options: &[(&str, &str)]) -> Result<String, RuleError> {
    let mut rules = RuleArguments::default();
    if options.iter().all(|(option, _)| *option != "profile") {
        rules.profiles.push(PROFILES[1]);
    }
    for (option, value) in options {
        let list = match *option {
            "hide" => &mut rules.hide,
            "deny" => &mut rules.deny,
            "read-only" => &mut rules.read_only,
            "redact" => &mut rules.redact,
            "allow" => &mut rules.allow,
            "profile" => {
                let known = PROFILES.iter().find(|known| known.name == *value);
                rules.profiles.push(*known.unwrap());
                continue;
            }
            "policy" => {
                rules.policies.push(value.into());
                continue;
            }
            other => panic!("{other}"),
        };
        list.push((*value).to_owned());
    }
    rules
        .compose(tree, &GitPlaces::default(), false, None)
        .map(|(text, _)| text)
}

fn composed(options: &[(&str, &str)]) -> Policy {
    parsed(&composed_at(Path::new("/nonexistent/tree"), options).unwrap())
}

fn parsed(text: &str) -> Policy {
    Policy::parse(text.as_bytes(), &Accounts::default()).unwrap_or_else(|error| {
        panic!("{error}\n{text}");
    })
}

/// Hidden, denied, read-only, redacted or free; and the rule. Of a directory if the path ends with `/`, of
/// a symbolic link with `@`.
fn said(policy: &Policy, path: &str) -> String {
    let (path, file_type) = match (path.strip_suffix('/'), path.strip_suffix('@')) {
        (Some(path), _) => (path, FileType::Directory),
        (_, Some(path)) => (path, FileType::Symlink),
        _ => (path, FileType::RegularFile),
    };
    let subject = Subject {
        path: path.as_bytes(),
        file_type,
        source: &Unknown,
    };
    let caller = Caller {
        uid: 1000,
        gid: 1000,
        executable: &|| None,
    };
    let decision = policy.decide(&subject, &caller);
    let changed = decision.check(Access::Change);
    let changed = changed.err().map(|refusal| refusal.rule);
    let (word, rule) = match decision {
        it if it.hidden.is_some() => ("hidden", it.hidden),
        it if it.deny.is_some() => ("denied", changed),
        _ if changed.is_some() => ("read-only", changed),
        it if it.file.redaction.is_some() => ("redacted", it.file.rule),
        it => ("free", it.file.rule),
    };
    let name = rule.and_then(|rule| policy.rule(rule)?.name.map(str::to_owned));
    format!("{word} {}", name.unwrap_or_default())
        .trim_end()
        .to_owned()
}

/// Asserts lines of `PATH: DECISION RULE`.
fn assert_said(policy: &Policy, expected: &str) {
    for line in expected.lines() {
        let (path, expected) = line.trim().split_once(": ").unwrap();
        assert_eq!(said(policy, path), expected, "{path}");
    }
}

fn problem(option: &str, pattern: &str) -> String {
    let composed = composed_at(Path::new("/nonexistent/tree"), &[(option, pattern)]);
    match composed {
        Ok(text) => panic!("{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_option_covers_what_is_beneath_and_keeps_the_directories_above_in_place() {
    let policy = composed(&[
        ("read-only", ".git/hooks"),
        ("deny", "private"),
        ("hide", "data/customers"),
        ("redact", "photos/2026"),
    ]);
    assert_said(
        &policy,
        ".git/: read-only option-parents
        .git@: read-only option-parents
        .git: read-only option-parents
        .git/HEAD: free
        .git/hooks/: read-only option-read-only
        .git/hooks/pre-commit: read-only option-read-only
        .git/hooks/a/b/c: read-only option-read-only
        .git/hooks.d/a: free
        private/: denied option-deny
        private/a/b: denied option-deny
        data/: read-only option-parents
        data/a: free
        data/customers/: hidden option-hide
        data/customers/a: hidden option-hide
        nested/data/customers/a: free
        photos/: read-only option-parents
        photos/a.jpg: free
        photos/2026/a.jpg: redacted option-redact
        photos/2026/trip/a.jpg: redacted option-redact
        a: free
        .env: free",
    );
    assert_eq!(said(&policy, ""), "free", "the tree itself");
}

#[test]
fn directories_above_patterns_with_wildcards_are_kept_in_place_and_files_there_are_free() {
    let policy = composed(&[
        ("hide", "a/*/b"),
        ("hide", "**/x/y"),
        ("hide", "m/**/n"),
        ("hide", "{p,q}/r"),
        ("read-only", "w/**"),
        ("hide", "**/*.pem"),
    ]);
    assert_said(
        &policy,
        "a/: read-only option-parents
        a/any/: read-only option-parents-matched
        a/any@: read-only option-parents-matched
        a/any: free
        a/any/c: free
        a/any/b/: hidden option-hide
        a/any/b/c: hidden option-hide
        x/: read-only option-parents
        deep/down/x/: read-only option-parents
        deep/down/: free
        deep/down/x/y: hidden option-hide
        m/: read-only option-parents
        m/any/deep/: read-only option-parents-matched
        m/any/deep/file: free
        m/any/deep/n: hidden option-hide
        m/n: hidden option-hide
        q/: read-only option-parents
        q/r: hidden option-hide
        w/: read-only option-parents
        w/a/b: read-only option-read-only
        any/: free
        any/key.pem: hidden option-hide",
    );
}

#[test]
fn allow_stands_before_the_profile_and_before_other_options() {
    let place = TempDir::new().unwrap();
    fs::create_dir_all(place.path().join("keys/public")).unwrap();
    fs::write(place.path().join("secrets"), "").unwrap();
    let text = composed_at(
        place.path(),
        &[
            ("profile", "workspace"),
            ("hide", "keys/*"),
            ("deny", "plans"),
            ("allow", ".env.test"),
            ("allow", "keys/public"),
            ("allow", "secrets"),
            ("allow", "plans/**"),
            ("allow", "certificates"),
        ],
    )
    .unwrap();
    assert_said(
        &parsed(&text),
        ".env.test: free option-allow
        a/.env.test: hidden environment
        .env: hidden environment
        .env.example: free
        keys/: read-only option-parents
        keys/private: hidden option-hide
        keys/public/: free
        keys/public/server.pem: free option-allow
        plans/: denied option-deny
        plans/a: free option-allow
        .git/: read-only git
        .git/hooks/pre-commit: read-only git",
    );
    // Neither is a directory: the command could make one of that name, and move others there.
    assert_said(
        &parsed(&text),
        "secrets: free option-allow
        certificates/: free
        secrets/a/.env: hidden environment
        certificates/a.pem: hidden keys",
    );
}

#[test]
fn names_with_every_kind_of_character_are_matched() {
    for name in [
        "a\"b", "a'b", "a\\\\b", "a\nb", "a\tb", "a\u{7f}b", "a\u{1}b", "größe", "鍵", "a b",
        "a#b", "'''", "\\!a", "\\*", "\\{a\\,b",
    ] {
        let policy = composed(&[("hide", name)]);
        let plain = name
            .replace("\\\\", "/")
            .replace('\\', "")
            .replace('/', "\\");
        assert_eq!(said(&policy, &plain), "hidden option-hide", "{name:?}");
        assert_eq!(said(&policy, &format!("{plain}/c")), "hidden option-hide");
    }
}

#[test]
fn patterns_may_be_absolute_and_untidy() {
    let place = TempDir::new().unwrap();
    let tree = place.path().canonicalize().unwrap().join("tree[1]");
    fs::create_dir(&tree).unwrap();
    let link = place.path().join("link");
    symlink(&tree, &link).unwrap();
    for (base, pattern) in [
        (&tree, tree.join("a/b")),
        (&link, tree.join("a/b")),
        (&link, link.join("a/b/")),
        (&tree, "./a//b".into()),
        (&tree, "a/./b/".into()),
    ] {
        let pattern = pattern.to_str().unwrap();
        let text = composed_at(base, &[("hide", pattern)]).unwrap();
        assert_said(&parsed(&text), "a/b/c: hidden option-hide");
        assert_said(&parsed(&text), "a/: read-only option-parents");
    }
    let text = composed_at(&tree, &[("hide", tree.join("!a").to_str().unwrap())]).unwrap();
    assert_said(&parsed(&text), "!a: hidden option-hide\nb: free");
    let sibling = place.path().canonicalize().unwrap().join("tree[1]2/a");
    let refused = composed_at(&tree, &[("hide", sibling.to_str().unwrap())]);
    assert!(refused.unwrap_err().to_string().contains("is outside of"));
}

#[test]
fn patterns_that_no_rule_can_enforce_are_refused() {
    for (pattern, expected) in [
        ("", "it is empty"),
        (".", "it is the whole directory"),
        ("./", "it is the whole directory"),
        ("/nonexistent/tree", "it is the whole directory"),
        ("/etc/passwd", "it is outside of /nonexistent/tree"),
        ("/nonexistent/tree/../a", "it contains `..`"),
        ("a/../b", "it contains `..`"),
        ("!a", "exempt names with --allow"),
        ("{a/b,c}", "contains a `/`: give the option once for each"),
        ("{a,{b,c/d}}", "contains a `/`"),
        ("{a,**}/b", "`{…}` contains `**`"),
        ("a[!b]c", "may match a `/`"),
        ("a[^b]c", "may match a `/`"),
        ("a[b/]c", "may match a `/`"),
        ("a[.-9]c", "may match a `/`"),
        ("a[]+-0]c", "may match a `/`"),
        ("a[", "has no `]`"),
        ("a[]", "has no `]`"),
        ("a\\/b", "no name contains the `/`"),
        ("{a", "is no pattern"),
        ("a\\", "is no pattern"),
        ("a\0", "NUL"),
    ] {
        for option in ["hide", "allow"] {
            let said = problem(option, pattern);
            let begin = format!("bad value `{pattern}` for --{option}: ");
            assert!(
                said.starts_with(&begin) && said.contains(expected),
                "{said}"
            );
        }
    }
    for option in ["deny", "read-only", "redact"] {
        assert!(problem(option, "..").contains(&format!("for --{option}: ")));
    }
    let policy = composed(&[("hide", "[a-c.][]x]")]);
    assert_said(
        &policy,
        "b]: hidden option-hide\nbx: hidden option-hide\nb/x: free",
    );
}

#[test]
fn rules_of_files_are_merged_as_written() {
    let place = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let first = file(
        "first.toml",
        "default = 'cached'   # slow\n\n[[rule]]\nname = 'environment'\n'path' = [\n    'logs', # \"all\"\n    \
         '''\nodd'''\n]\naction = 'direct'\n\n[[rule]]\npath = 'm'\nmode = 0o4000\nowner = 0\ntype = 'file'\naction = 'deny'\n",
    );
    let second = file(
        "second.toml",
        "rule = [\n  { name = 'environment', path = 'b', action = 'deny', errno = 'EPERM' }, # b\n  \
         { path = \"\"\"c\"\"\", action = 'read-only' },\n]\ndefault = 'direct'\n",
    );
    let text = composed_at(
        place.path(),
        &[
            ("policy", &first),
            ("profile", "workspace"),
            ("policy", &second),
            ("hide", "h"),
        ],
    )
    .unwrap();
    let policy = parsed(&text);
    assert_eq!(policy.default_path(), DataPath::Cached);
    let names = policy.rules().map(|rule| rule.name.unwrap_or("-"));
    let names = names.take(6).collect::<Vec<_>>().join(", ");
    let expected = "option-hide, environment 2, -, environment 3, -, environment";
    assert_eq!(names, expected);
    // Of unknown attributes, rules that restrict match.
    assert_said(
        &policy,
        "h: hidden option-hide
        logs: free environment 2
        odd: free environment 2
        b/: denied environment 3
        c/: read-only
        m: denied
        .env: hidden environment",
    );
    assert!(text.contains("mode = 0o4000\nowner = 0\n"), "{text}");
    assert!(text.contains("'logs', # \"all\"\n"), "{text}");
}

#[test]
fn faults_of_files_have_their_place() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("policy.toml");
    let name = path.to_str().unwrap();
    let error = || {
        composed_at(place.path(), &[("policy", name)])
            .unwrap_err()
            .to_string()
    };
    assert!(error().contains("cannot read the policy"), "{}", error());
    fs::write(&path, "[[rule]]\npath = 'a'\nacton = 'hide'\n").unwrap();
    let unknown = format!("{name}:3:1: unknown key");
    assert!(error().starts_with(&unknown), "{}", error());
    fs::write(&path, b"#\n\xff").unwrap();
    assert!(error().starts_with(&format!("{name}:2:1: ")), "{}", error());
    fs::write(&path, "#".repeat(POLICY_BYTES_MAX + 1)).unwrap();
    assert!(error().contains("at most"), "{}", error());
}

#[test]
fn an_audit_log_is_that_of_the_option_or_of_all_files() {
    let place = TempDir::new().unwrap();
    let file = |name: &str, log: &str| {
        let path = place.path().join(name);
        let text = format!("audit-log = '{log}'\n[[rule]]\npath = 'a'\naction = 'audit'\n");
        fs::write(&path, text).unwrap();
        path
    };
    let logs = [("1", "/log/a"), ("2", "/log/a"), ("3", "/log/b")];
    let policies = logs.map(|(name, log)| file(name, log));
    let composed = |count: usize, records: bool, log: Option<&str>| {
        let rules = RuleArguments {
            policies: policies[..count].to_vec(),
            hide: vec!["h".to_owned()],
            ..RuleArguments::default()
        };
        let (git, log) = (GitPlaces::default(), log.map(Path::new));
        let composed = rules.compose(place.path(), &git, records, log);
        composed.map(|(text, _)| text)
    };
    let compose = |count, log: Option<&str>| composed(count, false, log);
    let log = |text: &str| parsed(text).audit_log().map(Path::to_owned);
    assert_eq!(log(&compose(0, None).unwrap()), None);
    assert_eq!(log(&compose(2, None).unwrap()), Some("/log/a".into()));
    let refused = compose(3, None).unwrap_err().to_string();
    assert!(refused.contains("/3 records in /log/b"), "{refused}");
    let audited = compose(3, Some("/log/\"c\"")).unwrap();
    assert_eq!(log(&audited), Some("/log/\"c\"".into()));
    let first = parsed(&audited);
    let first = first.rules().next().unwrap();
    let first = (first.name, first.action.name());
    assert_eq!(first, (Some("option-audit"), "audit"));
    fs::create_dir(place.path().join("sub")).unwrap();
    let link = TempDir::new().unwrap();
    symlink(place.path().join("sub"), link.path().join("link")).unwrap();
    symlink(place.path().join("1"), link.path().join("file")).unwrap();
    for path in [
        place.path().join("new"),
        link.path().join("link/new"),
        link.path().join("file"),
    ] {
        let refused = compose(0, path.to_str()).unwrap_err().to_string();
        assert!(refused.contains("is in the tree"), "{refused}");
    }
    let relative = log(&compose(0, Some("log")).unwrap());
    assert_eq!(relative, std::path::absolute("log").ok());
    assert!(audited.contains("\naudit-refused = true\n"), "{audited}");
    // For a report alone.
    let recorded = |count| composed(count, true, None);
    assert_eq!(log(&recorded(0).unwrap()), Some(NO_LOG.into()));
    assert_eq!(log(&recorded(2).unwrap()), Some("/log/a".into()));
    recorded(3).unwrap_err();
}
