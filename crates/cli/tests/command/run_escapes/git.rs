//! What git executes on the host later, in repositories of many layouts.

use crate::ground::prelude::*;
use crate::run_ground::{ON_TREE_OF_USER, PYTHON, RunGround, Who, grounds};
use std::io;
use std::os::fd::OwnedFd;

/// Layouts, each made by a script in a new repository; and behind `> ` attempts, each of which works outside.
const INSIDE: &str = include_str!("git_inside.txt");

/// Layouts, each made by a line around a repository `tree`; behind `> ` options; what is said, with the place for `$`,
/// or nothing.
const OUTSIDE: &str = include_str!("git_outside.txt");

/// In a repository with one commit.
const PRELUDE: &str = "
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
    export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
    rm -rf ~/.gitconfig ~/unused ~/.git ~/tree
    git init -q -b main tree && git -C tree commit -q --allow-empty -m one";

/// What git does every day, in the sandbox; in the further working tree, if there is one.
const WORK: &str = "
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
    cd next 2>/dev/null || true
    branch=$(git branch --show-current)
    git checkout -qb side && echo 1 >one && git add one && git commit -qm one && git checkout -q $branch
    echo 2 >two && git add two && git commit -qm two && git rebase -q side
    echo 3 >>two && git stash -q && git stash pop -q && git fetch -q . side:third && git gc -q";

/// Runs a script in a new directory, which is then around the tree.
pub(super) fn made(ground: &mut RunGround, number: usize, script: &str) {
    let around = ground.around.join(number.to_string());
    ground.make_directory(&around);
    ground.tree = around.join("tree");
    let mut shell = ground.outside("sh");
    shell.args(["-ec", &format!("{PRELUDE}\n{script}")]);
    succeeded(&run(shell.current_dir(&around)));
}

/// All layouts as a user; the first as root.
fn grounds_of(layouts: &str) -> impl Iterator<Item = (RunGround, Vec<&str>)> {
    let both = [(Who::User, usize::MAX), (Who::RootOnTreeOfUser, 3)];
    both.into_iter().filter_map(move |(who, most)| {
        let layouts = layouts.trim_end().split("\n\n").take(most);
        Some((RunGround::new(who)?, layouts.collect()))
    })
}

#[test]
fn what_git_executes_later_cannot_be_changed_in_the_tree() {
    for (mut ground, layouts) in grounds_of(INSIDE) {
        for (number, layout) in layouts.into_iter().enumerate() {
            let (layout, lines) = layout.split_once('\n').unwrap();
            let (attempts, make): (Vec<&str>, Vec<&str>) =
                lines.lines().partition(|line| line.starts_with("> "));
            made(
                &mut ground,
                number,
                &format!("cd tree\n{}", make.join("\n")),
            );
            let tried = |line: &&str| {
                let line = &line[2..];
                format!("if (set -e; {line}) 2>/dev/null; then echo {line:?}; fi\n")
            };
            let script: String = attempts.iter().map(tried).collect();
            // Where git finds its directory in another way than usually, and once as usual.
            let works = number == 0 || make.iter().any(|line| line.contains(".git"));
            let output = ground.shell(&[], &[&*script, if works { WORK } else { "" }].concat());
            succeeded(&output);
            let said = (stdout(&output), stderr(&output));
            assert_eq!(said, Default::default(), "{layout}");
            let mut outside = ground.outside("sh");
            let output = run(outside.args(["-ec", &script]).current_dir(&ground.tree));
            let done = stdout(&output).lines().count();
            assert_eq!(done, attempts.len(), "{layout}: {output:?}");
        }
    }
}

#[test]
fn what_git_executes_later_outside_of_the_tree_is_reported() {
    for (mut ground, layouts) in grounds_of(OUTSIDE) {
        for (number, layout) in layouts.into_iter().enumerate() {
            let (make, rest) = layout.split_once("\n> ").unwrap();
            let (options, expected) = rest.split_once('\n').unwrap_or((rest, ""));
            made(&mut ground, number, make);
            let place = fs::canonicalize(ground.tree.parent().unwrap()).unwrap();
            let text = |text: &str| {
                let text = text.replace("DIR", ground.tree.to_str().unwrap());
                let text = text.replace('~', ground.home.to_str().unwrap());
                text.replace('$', place.to_str().unwrap())
                    .replace("\\n", "\n")
            };
            let mut command = ground.starter(&ground.program);
            command.arg("run").args(text(options).split_whitespace());
            let output = run(command.args(["--", "true"]));
            succeeded(&output);
            let said = stderr(&output);
            let is_said = match expected {
                "" => said.is_empty(),
                expected => said.contains(&text(expected)) && said.lines().count() == 1,
            };
            assert!(is_said, "{make}: {said}");
        }
    }
}

/// What the command does in `.git`, as programs of the host find it: and what is said of it, in one line.
const LEFT: &[(&str, &[&str])] = &[
    ("touch new && git add new", &[]),
    (
        "mkdir .git/rr-cache && touch new && git add new && git -c user.name=A -c user.email=a@b commit -qm new",
        &[],
    ),
    (
        "mkdir .git/rebase-merge && echo 'exec ./x' >.git/rebase-merge/git-rebase-todo",
        &["tree/.git/rebase-merge/git-rebase-todo"],
    ),
    (
        "mkdir .git/sequencer && echo x >.git/sequencer/opts",
        &["tree/.git/sequencer/opts"],
    ),
    ("echo topic >.git/BISECT_START", &["tree/.git/BISECT_START"]),
    (
        "mkdir -p .git/rr-cache/1 && echo x >.git/rr-cache/1/postimage",
        &["rr-cache/1/postimage"],
    ),
    (
        "STAGE.kube/config && STAGEsecrets/x",
        &["git's index", "tree/.kube/config", "tree/secrets/x"],
    ),
    (
        "git update-index --assume-unchanged .envrc",
        &["overlook", "tree/.envrc"],
    ),
    (
        "git update-index --skip-worktree .envrc",
        &["overlook", "tree/.envrc"],
    ),
    ("git rm -q --cached sub", &["submodules", "tree/sub"]),
];

/// It could not change the files themselves.
#[test]
fn what_the_command_leaves_for_git_is_reported() {
    let stage = "git update-index --add --cacheinfo 100755,$(echo x | git hash-object -w --stdin),";
    for mut ground in grounds(ON_TREE_OF_USER) {
        let make = "mkdir tree/.config && touch tree/.envrc && cd tree && git add .envrc && git commit -qm envrc";
        made(&mut ground, 0, make);
        let plain = format!("touch new && git add new {WORK}");
        let output = ground.shell(&[], &plain);
        succeeded(&output);
        assert_eq!(stderr(&output), "");
        // The same length, and as git sorts it.
        let names =
            ".git/hooks/pre-commit .husky/pre-commit .envrc sub/.Git/hooks/x .config git/../x";
        let script = names
            .split(' ')
            .map(|name| format!("{stage}{}", name.replace("it/", "it_")));
        let script: Vec<String> = script.collect();
        let rename = "sed -i 's,\\([Gg]\\)it_,\\1it/,g' .git/index";
        let output = ground.shell(&[], &format!("{}\n{rename}", script.join("\n")));
        let said = stderr(&output);
        let named = names.split(' ').all(|name| said.contains(name));
        assert!(named && said.contains("git's index"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        // Of a draft, it is said when it comes to the tree.
        let drafts = ground.drafts().0;
        let stage = format!("{stage}.husky/pre-push");
        let said = stderr(&ground.shell(&["--draft=left", &drafts], &stage));
        assert!(!said.contains("git's index"), "{said}");
        let mut apply = ground.starter(&ground.program);
        let said = stderr(&run(apply.args(["draft", "apply", &drafts])));
        assert!(
            said.contains("git's index") && said.contains(".husky/pre-push"),
            "{said}"
        );
    }
    let Some(mut ground) = RunGround::new(Who::User) else {
        return;
    };
    for (number, (script, expected)) in LEFT.iter().enumerate() {
        let make = "cd tree && touch .envrc && git init -q sub && git -C sub commit -q --allow-empty -m one
                    git add .envrc sub 2>/dev/null && git commit -qm two";
        made(&mut ground, number, make);
        let output = ground.shell(&[], &script.replace("STAGE", stage));
        succeeded(&output);
        let said = stderr(&output);
        let is_said = expected.iter().all(|part| said.contains(part));
        assert!(is_said, "{script}: {said}");
        assert_eq!(said.lines().count(), expected.len().min(1), "{said}");
    }
}

/// The command has standard error, and may have left it so that it takes nothing.
#[test]
fn what_is_said_at_the_end_arrives_or_is_an_error() {
    let Some(mut ground) = RunGround::new(Who::User) else {
        return;
    };
    made(&mut ground, 0, "true");
    let left = "import os, socket
open('.git/BISECT_START', 'w')
";
    let full = "os.set_blocking(2, False)
try:
    while True: os.write(2, b'x' * 4096)
except BlockingIOError: pass
";
    let shut = "socket.socket(fileno=os.dup(2)).shutdown(socket.SHUT_WR)";
    let start = |ground: &RunGround, script: &str, stderr: OwnedFd| {
        let mut command = ground.thrufs_run(&[]);
        command.args([PYTHON, "-c", &format!("{left}{script}")]);
        command
            .current_dir(&ground.tree)
            .stderr(stderr)
            .spawn()
            .unwrap()
    };
    let (mut out, pipe) = io::pipe().unwrap();
    let mut child = start(&ground, full, pipe.into());
    let mut said = Vec::new();
    out.read_to_end(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(String::from_utf8_lossy(&said).contains("tree/.git/BISECT_START"));
    made(&mut ground, 1, "true");
    let (_ours, socket) = UnixStream::pair().unwrap();
    let mut child = start(&ground, shut, socket.into());
    assert_eq!(child.wait().unwrap().code(), Some(125));
}

/// Where the environment leads.
#[test]
fn what_the_environment_of_git_names_cannot_be_changed() {
    let Some(mut ground) = RunGround::new(Who::User) else {
        return;
    };
    let make = "cd tree && touch editor included monitor && printf '[core]\nfsmonitor = ./monitor\n' >global";
    made(&mut ground, 0, make);
    let included = ground.tree.join("included");
    let attempts = "hooks/pre-commit included global monitor editor template/hooks/x";
    let script: String = attempts
        .split(' ')
        .map(|path| format!("if (mkdir -p $(dirname {path}) && echo x >{path}) 2>/dev/null; then echo {path}; fi\n"))
        .collect();
    let mut command = ground.thrufs_run(&[]);
    for (name, value) in [
        ("GIT_CONFIG_COUNT", "3"),
        ("GIT_CONFIG_KEY_0", "core.HooksPath"),
        ("GIT_CONFIG_VALUE_0", "hooks"),
        ("GIT_CONFIG_KEY_1", "Include.path"),
        ("GIT_CONFIG_VALUE_1", included.to_str().unwrap()),
        ("GIT_CONFIG_KEY_2", "init.templateDir"),
        ("GIT_CONFIG_VALUE_2", ":(optional)template"),
        ("GIT_CONFIG_GLOBAL", "global"),
        ("GIT_EDITOR", "sh ./editor"),
    ] {
        command.env(name, value);
    }
    let output = run(command
        .args(["sh", "-c", &script])
        .current_dir(&ground.tree));
    assert_eq!((stdout(&output), stderr(&output)), Default::default());
    let done = stdout(&ground.shell(&[], &script)).lines().count();
    assert_eq!(done, attempts.split(' ').count());
}

/// A directory of another in one of the user's cannot be written, but replaced.
#[test]
fn directory_of_another_and_repository_of_git_dir_are_reported() {
    let Some(mut ground) = RunGround::new(Who::User) else {
        return;
    };
    let said = |command: &mut Command| stderr(&run(command.args(["sh", "-c", "true"])));
    let later = |place: &Path| format!("later: {} (", place.display());
    made(
        &mut ground,
        0,
        "git -C tree config core.hooksPath ../kept/hooks",
    );
    let hooks = ground.tree.with_file_name("kept").join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    let reported = said(&mut ground.thrufs_run(&[]));
    assert!(reported.contains(&later(&hooks)), "{reported}");
    made(&mut ground, 1, "mv tree/.git store");
    assert_eq!(said(&mut ground.thrufs_run(&[])), "");
    let store = ground.tree.with_file_name("store");
    let reported = said(ground.thrufs_run(&[]).env("GIT_DIR", &store));
    assert!(reported.contains(&later(&store)), "{reported}");
}
