//! Linked working trees and submodules, whose git directory is outside of the tree.

use super::elsewhere::Mounts;
use super::git::made;
use crate::ground::prelude::*;
use crate::run_ground::{EVERYONE, RunGround, Who, grounds};

/// Layouts, made by a script around a repository `tree`; the tree that is served, and its git directory.
const LAYOUTS: &[(&str, &str, &str, &str)] = &[
    (
        "beside the main one",
        "mv tree main && git -C main worktree add -q ../tree && git -C main worktree add -q ../other",
        "tree",
        "main/.git",
    ),
    (
        "by relative paths",
        "mv tree main && git -C main worktree add -q ../tree && git -C main worktree add -q ../other
         echo gitdir: ../main/.git/worktrees/tree >tree/.git
         echo ../../../../tree/.git >main/.git/worktrees/tree/gitdir",
        "tree",
        "main/.git",
    ),
    (
        "in the main one",
        "mv tree main && git -C main worktree add -q .claude/worktrees/tree
         git -C main worktree add -q .claude/worktrees/other",
        "main/.claude/worktrees/tree",
        "main/.git",
    ),
    (
        "of a bare repository",
        "git clone -q --bare tree bare && rm -r tree && git -C bare worktree add -q ../tree
         git -C bare worktree add -q ../other",
        "tree",
        "bare",
    ),
    (
        "submodule",
        "git init -qb main library && git -C library commit -q --allow-empty -m one
         git -C tree -c protocol.file.allow=always submodule --quiet add ../library part 2>/dev/null
         git -C tree worktree add -q ../other",
        "tree/part",
        "tree/.git/modules/part",
    ),
];

/// What git does every day, and what comes of it.
const WORK: &str = "
    git config own.key
    branch=$(git branch --show-current)
    git checkout -qb side && echo 1 >one && git add one && git commit -qm one && git checkout -q $branch
    echo 2 >two && git add two && git commit -qm two && git rebase -q side
    echo 3 >>two && git stash -q && git stash pop -q && git fetch -q . side:third && git checkout -q -- two
    git checkout -q third && echo 4 >four && git add four && git commit -qm four && git checkout -q $branch
    git merge -q --no-edit third && git tag one && git branch -d third && git gc -q && git fsck
    echo 5 >five && git add five && git commit -qm five && git commit -q --amend -m 5 && git reset -q --hard HEAD~
    git for-each-ref && git reflog && git status --short && git branch -a && ls";

/// What must not be possible in the git directory.
const ATTEMPTS: &str = "
    for name in config config.worktree commondir hooks/x info/exclude info/attributes info/grafts \\
                remotes/x branches/x modules/a/config objects/info/alternates worktrees/new/HEAD; do
        attempt 'test -d ./${name%/*} || case $name in */*) mkdir -p ${name%/*};; esac; echo x >>$name'
    done
    attempt 'ln config objects/config'
    attempt 'ln -s ../config logs/x'
    attempt 'ln -s config packed-refs.new'
    attempt 'mkdir -p refs/made && echo x >refs/made/x && mv hooks old && mv refs/made hooks'
    attempt 'mv objects old-objects && mkdir objects'
    attempt 'rm -r info/*'";

/// In that of a linked working tree, besides.
const ATTEMPTS_OF_LINKED: &str = "
    for name in HEAD index ORIG_HEAD MERGE_HEAD new worktrees/other/HEAD worktrees/other/commondir \\
                worktrees/tree/gitdir worktrees/tree/commondir worktrees/tree/config.worktree \\
                worktrees/tree/locked worktrees/tree/modules/a/config; do
        attempt 'test -d ./${name%/*} || case $name in */*) mkdir -p ${name%/*};; esac; echo x >>$name'
    done
    attempt 'rm worktrees/other/index'
    attempt 'ln -sf ../../config worktrees/tree/FETCH_HEAD'
    attempt 'mv worktrees/tree worktrees/moved'";

const ATTEMPT: &str = "
    attempt() { (set -e; eval \"$1\") 2>/dev/null && echo \"done: $1 $name\" || echo \"failed: $1 $name\"; }";

const DATED: &str = "
    export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
    export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z";

/// Makes a layout in the home directory. Returns its git directory, and a bare repository to push to.
fn laid_out(ground: &mut RunGround, number: usize, layout: usize) -> [PathBuf; 2] {
    let (_, make, tree, git) = LAYOUTS[layout];
    let place = ground.around.join(number.to_string());
    let own = format!(
        "{make}
         git init -q --bare target && git -C {tree} config extensions.worktreeConfig true
         git -C {tree} config --worktree own.key value && git -C {tree} config core.bare false"
    );
    made(ground, number, &own);
    ground.tree = place.join(tree);
    ground.home = place.clone();
    [place.join(git), place.join("target")]
}

/// Works in one, natively and in the sandbox, and tries what must fail in the git directory.
fn assert_works(ground: &mut RunGround, layout: usize, options: &[&str]) {
    let (name, _, _, git) = LAYOUTS[layout];
    let what = format!("{:?} {options:?} {name}", ground.who);
    let number = layout * 10 + options.len() * 2;
    // A stranger to it may not write there.
    let pushes = ground.who != Who::RootOnTreeOfRoot;
    let work = |target: &Path| {
        let target = target.display();
        let push = format!("git push -q {target} side && git -C {target} for-each-ref");
        format!(
            "{DATED}\n{WORK}\n{}",
            if pushes { push } else { String::new() }
        )
    };
    let [_, target] = laid_out(ground, number, layout);
    let mut native = ground.outside("sh");
    native
        .args(["-ec", &work(&target)])
        .current_dir(&ground.tree);
    let native = run(&mut native);
    succeeded(&native);
    let [directory, target] = laid_out(ground, number + 1, layout);
    let also = format!("--also-write={}", target.display());
    let options = [options, &[&also]].concat();
    let output = ground.shell(&options, &work(&target));
    assert!(output.status.success(), "{what}: {output:?}");
    assert_eq!(stdout(&output), stdout(&native), "{what}");
    let more = if git.ends_with("part") {
        ""
    } else {
        ATTEMPTS_OF_LINKED
    };
    let attempts = format!("cd {}\n{ATTEMPT}\n{ATTEMPTS}\n{more}", directory.display());
    let output = ground.shell(&options, &attempts);
    succeeded(&output);
    assert!(!stdout(&output).contains("done: "), "{what}: {output:?}");
    assert_eq!(stderr(&output), "", "{what}");
    let mut outside = ground.outside("sh");
    let output = run(outside.args(["-c", &attempts]).current_dir(&ground.tree));
    assert!(!stdout(&output).contains("failed: "), "{what}: {output:?}");
}

#[test]
fn git_works_where_its_directory_is_elsewhere_and_cannot_change_what_is_executed_later() {
    for mut ground in grounds(EVERYONE) {
        // As root, one of each kind.
        let (plain, only): (&[usize], &[usize]) = match ground.who {
            Who::User => (&[0, 1, 2, 3, 4], &[2]),
            Who::RootOnTreeOfUser => (&[4], &[]),
            // The account 65534 has no home directory, and a tree of root's has none in the sandbox.
            Who::RootOnTreeOfRoot => (&[0], &[]),
        };
        for layout in plain {
            assert_works(&mut ground, *layout, &[]);
        }
        for layout in only {
            assert_works(&mut ground, *layout, &["--only"]);
        }
    }
}

#[test]
fn git_directory_outside_is_read_only_in_a_draft() {
    for mut ground in grounds(EVERYONE) {
        let [directory, _] = laid_out(&mut ground, 0, 0);
        let script = format!(
            "echo one >one; git status --short; git add one 2>&1 || touch {}/logs/x",
            directory.display()
        );
        let output = ground.shell(&["--draft", &ground.drafts().0], &script);
        let said = stdout(&output);
        assert!(said.starts_with("?? one\n"), "{output:?}");
        assert_eq!(said.matches("Read-only file system").count(), 1, "{said}");
        assert!(
            stderr(&output).contains("Read-only file system"),
            "{output:?}"
        );
        assert!(!ground.tree.join("one").exists());
        assert!(!directory.join("logs/x").exists());
    }
}

/// A tree names what it likes. Nothing is shown, and what the command can change is said, unless it was named.
#[test]
fn git_directory_that_does_not_name_the_tree_is_not_served() {
    let Some(mut ground) = RunGround::new(Who::User) else {
        return;
    };
    for (number, forged) in [
        "echo gitdir: ../main/.git",
        "echo gitdir: ../main/.git/worktrees/other",
    ]
    .iter()
    .enumerate()
    {
        let make = "mv tree main && git -C main worktree add -q ../other && mkdir tree";
        made(
            &mut ground,
            200 + number,
            &format!("{make}\n{forged} >tree/.git"),
        );
        ground.home = ground.tree.parent().unwrap().to_owned();
        let directory = ground.home.join("main/.git");
        let script = format!("! test -e {}", directory.display());
        succeeded(&ground.shell(&["--only"], &script));
        let said = stderr(&ground.shell(&[], "true"));
        assert!(
            said.contains(&format!("later: {} (", directory.display())),
            "{said}"
        );
    }
    let [directory, _] = laid_out(&mut ground, 300, 0);
    let also = format!("--also-write={}", directory.display());
    let output = ground.shell(&["--only", &also], "git config a.b c");
    succeeded(&output);
}

#[test]
fn other_mounts_of_a_git_directory_show_what_its_policy_shows() {
    for mut ground in grounds([Who::User, Who::RootOnTreeOfUser]) {
        let [directory, _] = laid_out(&mut ground, 0, 0);
        let mut mounts = Mounts(Vec::new());
        let places = [ground.path().join("of-main"), ground.path().join("of-git")];
        mounts.bind(directory.parent().unwrap(), &places[0]);
        mounts.bind(&directory, &places[1]);
        let [main, git] = places.map(|it| it.display().to_string());
        let script = format!(
            "cat {git}/HEAD {main}/.git/HEAD; touch {git}/logs/x
             for git in {git} {main}/.git; do ! touch $git/hooks/pre-commit $git/new; done"
        );
        let output = ground.shell(&[], &script);
        succeeded(&output);
        assert_eq!(stdout(&output), "ref: refs/heads/main\n".repeat(2));
        assert!(directory.join("logs/x").exists());
        // Rules by path would hold for one of the two.
        mounts.bind(&directory, &ground.tree.join("of-git"));
        fails(&ground.shell(&[], "true"), 125, "shows a part of it again");
    }
}

/// As of the tree.
#[test]
fn passwords_and_what_is_left_in_a_git_directory_are_said() {
    for mut ground in grounds([Who::User, Who::RootOnTreeOfUser]) {
        let [directory, _] = laid_out(&mut ground, 0, 0);
        let mut git = ground.outside("git");
        git.args(["remote", "add", "o", "https://ann:secret@host/x"]);
        succeeded(&run(git.current_dir(&ground.tree)));
        let left = "worktrees/tree/rebase-merge/git-rebase-todo";
        let script = "cd $(git rev-parse --git-dir) && mkdir rebase-merge && echo x >rebase-merge/git-rebase-todo";
        let output = ground.shell(&[], script);
        succeeded(&output);
        let said = stderr(&output);
        for expected in [
            "remote.o.url in ",
            &directory.join(left).display().to_string(),
        ] {
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(said.lines().count(), 2, "{said}");
    }
}
