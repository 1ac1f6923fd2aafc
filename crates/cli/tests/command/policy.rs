//! `thrufs policy check`.

use crate::ground::prelude::*;

const POLICY: &str = r#"audit-log = "/var/log/opens"
[[rule]]
name = "opens"
path = "photos/**"
action = "audit"

[[rule]]
path = ["secret", "**/.*"]
action = "hide"

[[rule]]
path = "private/**"
caller-uid = "!4000000000"
action = "deny"
errno = "EPERM"

[[rule]]
path = "private/**"
caller-exe = "!/usr/bin/backup"
action = "read-only"

[[rule]]
content = "image/jpeg"
path = "photos/**"
action = "redact"
redact = "gps"

[[rule]]
path = "logs/**"
action = "direct"
"#;

struct Site {
    place: TempDir,
    policy: PathBuf,
    root: PathBuf,
}

impl Site {
    fn new(policy: &str) -> Site {
        let place = TempDir::with_prefix("thrufs-policy-").unwrap();
        let site = Site {
            policy: place.path().join("policy.toml"),
            root: place.path().join("root"),
            place,
        };
        fs::write(&site.policy, policy).unwrap();
        for directory in ["photos", "secret/deep", "private", "logs"] {
            fs::create_dir_all(site.root.join(directory)).unwrap();
        }
        for (name, content) in [
            ("photos/a.jpg", &b"\xff\xd8\xff\xe0"[..]),
            ("photos/new.jpg", b""),
            ("secret/deep/x", b"x"),
            ("private/p", b"p"),
            ("logs/l", b"l"),
            (".profile", b"x"),
            ("plain", b"x"),
        ] {
            fs::write(site.root.join(name), content).unwrap();
        }
        site
    }

    fn check(&self, arguments: &str) -> Output {
        let mut command = Command::new(THRUFS);
        command.args(["policy", "check"]).arg(&self.policy);
        command.args(arguments.split_whitespace());
        run(command.current_dir(&self.root))
    }

    fn said(&self, arguments: &str) -> String {
        let output = self.check(arguments);
        fails(&output, 0, "");
        stdout(&output)
    }
}

#[test]
fn policy_check_prints_decision_and_rule_of_each_file() {
    let site = Site::new(POLICY);
    let said = site.said(
        "--as=4000000000:5 --exe=/usr/bin/backup photos/a.jpg photos/new.jpg secret secret/deep/x \
         private/p logs/../logs/l .profile plain logs .",
    );
    let expected = "\
photos/a.jpg (image/jpeg): audited by rule 1 `opens` (line 2); redact gps (or else EACCES) by rule 5 (line 22)
photos/new.jpg (inode/x-empty): audited by rule 1 `opens` (line 2); redact gps (or else EACCES) by rule 5 (line 22)
secret: hidden by rule 2 (line 7)
secret/deep/x (text/plain): hidden with secret by rule 2 (line 7)
private/p (text/plain): passthrough by default
logs/../logs/l (text/plain): direct by rule 6 (line 28)
.profile (text/plain): hidden by rule 2 (line 7)
plain (text/plain): passthrough by default
logs: allowed
.: allowed
";
    assert_eq!(said, expected);
}

#[test]
fn decision_depends_on_user_and_program() {
    let site = Site::new(POLICY);
    let denied = "denied (EPERM) by rule 3 (line 11)";
    let read_only = "read-only (EROFS) by rule 4 (line 17); passthrough by default";
    for (arguments, expected) in [
        ("--exe=/usr/bin/backup", denied),
        ("--as=4000000000:5 --exe=/usr/bin/vi", read_only),
        ("--as=4000000000:5", read_only),
    ] {
        let said = site.said(&format!("{arguments} private/p"));
        assert_eq!(said, format!("private/p (text/plain): {expected}\n"));
    }
    fails(&site.check("private/p"), 0, "--exe");
    let unknown = site.check("--as=nobody-of-that-name private/p");
    fails(&unknown, 2, "give the number");
}

#[test]
fn a_policy_alone_is_validated() {
    let site = Site::new(POLICY);
    let policy = site.policy.to_str().unwrap();
    assert_eq!(site.said(""), format!("{policy}: 6 rules, no fault\n"));
    fs::write(&site.policy, "[[rule]]\npath = 'a'\naction = 'hide'\n").unwrap();
    assert_eq!(site.said(""), format!("{policy}: 1 rule, no fault\n"));

    fs::write(&site.policy, "[[rule]]\npath = 'a'\n  acton = 'hide'\n").unwrap();
    for paths in ["", "plain"] {
        let output = site.check(paths);
        let fault = "unknown key `acton`: did you mean `action`?";
        let said = fails(&output, 1, fault);
        assert_eq!(said, format!("thrufs: {policy}:3:3: {fault}\n"));
        assert!(output.stdout.is_empty());
    }
    fs::remove_file(&site.policy).unwrap();
    fails(&site.check(""), 1, "cannot read the policy");
}

#[test]
fn unreadable_path_does_not_stop_the_check_of_others() {
    let site = Site::new(POLICY);
    let outside = site.place.path().join("policy.toml");
    let outside = outside.display();
    let output = site.check(&format!("--exe=/x nothing {outside} plain"));
    let plain = "plain (text/plain): passthrough by default\n";
    assert_eq!(stdout(&output), plain);
    let said = fails(&output, 1, "cannot stat nothing: No such file");
    assert!(said.contains("set it with --root"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");

    let root = site.place.path().to_str().unwrap();
    let said = site.said(&format!("--exe=/x --root {root} {outside}"));
    assert!(said.ends_with("passthrough by default\n"), "{said}");
    fails(&site.check("--root=/nonexistent/thrufs plain"), 1, "");
}

#[test]
fn symlinks_are_followed_before_the_last_component_only() {
    let site = Site::new(
        "[[rule]]\ntype = 'symlink'\naction = 'hide'\n[[rule]]\npath = 'logs/l'\naction = 'direct'",
    );
    symlink("logs", site.root.join("way")).unwrap();
    symlink("logs/l", site.root.join("link")).unwrap();
    assert_eq!(
        site.said("link way way/l"),
        "link: hidden by rule 1 (line 1)\nway: hidden by rule 1 (line 1)\nway/l: direct by rule 2 (line 4)\n"
    );
}

#[test]
fn unreadable_content_matches_redact_rules() {
    let site = Site::new(POLICY);
    let path = site.root.join("photos/a.jpg");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // Root can read it. Another user needs a program that it can execute.
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.place.path(), executable).unwrap();
    let thrufs = ground::copied_program(site.place.path());
    let mut command = Command::new(&thrufs);
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.args(["policy", "check", "--exe=/x", "--root"]);
    let output = run(command.args([&site.root, &site.policy, &path]));
    fails(&output, 0, "");
    let said = stdout(&output);
    assert!(said.contains("(content unreadable)"), "{said}");
    assert!(said.contains("redact gps"), "{said}");
}
