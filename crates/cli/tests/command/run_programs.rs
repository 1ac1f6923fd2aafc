//! Programs in `thrufs run`. `tests/real/run.sh` has more of them, on several file systems.

use crate::ground::run::Tree;
use crate::ground::{run, skipped, stderr, stdout, succeeded};
use crate::run_ground::{RunGround, Who};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

const GIT: &str = "\
    git add -A && git commit -qm first
    git checkout -qb side && echo 1 >one && git add one && git commit -qm one
    git checkout -q main && echo 2 >two && git add two && git commit -qm two
    git merge -q -m merge side && git checkout -q side
    echo 3 >three && git add three && git commit -qm three && git rebase -q main
    echo 4 >>three && git stash -q && git stash pop -q && git commit -qam four
    git gc -q && git fsck --strict --no-progress --no-dangling
    git log --format=%s";

const MAKE: &str = "\
    printf 'program: program.c\\n\\t$(CC) -o $@ $^\\n' >Makefile
    echo 'int main(void) { return 7; }' >program.c
    make -s && { ./program || echo $?; } && make --question";

const PYTHON: &str = "\
    mkdir python && echo 'VALUE = 7' >python/b.py && echo 'import b; print(b.VALUE)' >python/a.py
    python3 -m compileall -q python && python3 python/a.py";

#[test]
fn programs_work_in_run() {
    for tree in Tree::both() {
        let on_the_host = |script: &str| {
            let mut command = tree.on_the_host("sh");
            run(command.args(["-ec", script]))
        };
        succeeded(&on_the_host(
            "git init -q -b main
             git config user.name Ann
             git config user.email ann@example.com",
        ));
        for (program, script, expected) in [
            ("git", GIT, "four\nthree\nmerge\ntwo\none\nfirst\n"),
            ("make", MAKE, "7\n"),
            ("python3", PYTHON, "7\n"),
        ] {
            if Command::new(program).arg("--version").output().is_err() {
                skipped(&format!("{program} in a sandbox: not installed"));
                continue;
            }
            let output = run(tree.inside("sh").args(["-ec", script]));
            let (said, error) = (stdout(&output), stderr(&output));
            // The order of commits of one second is not that of the merge.
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&said), sorted(expected), "{program}: {error}");
            succeeded(&output);
        }
        let others = on_the_host(&format!(
            "find . ! -uid {}; git status --porcelain -uno",
            tree.user
        ));
        succeeded(&others);
        assert_eq!(stdout(&others), "");
    }
}

/// In the sandbox the user has one group. What the kernel refuses there for files of others is up to the
/// server, which has all.
#[test]
fn own_files_of_another_group_are_written() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let tree = ground.tree.as_path();
    ground.write(&tree.join("own"), "content");
    ground.make_directory(&tree.join("shared"));
    fs::write(tree.join("foreign"), "").unwrap();
    fs::set_permissions(tree.join("foreign"), Permissions::from_mode(0o666)).unwrap();
    for name in ["own", "shared", "."] {
        chown(tree.join(name), None, Some(4242)).unwrap();
    }
    let script = "echo more >>own; chmod 600 own; touch shared/new; mkdir new; rm own; \
                  echo more >foreign; ! chmod 600 foreign";
    succeeded(&ground.shell(&[], script));
    assert!(tree.join("shared/new").exists() && !tree.join("own").exists());
    assert_eq!(fs::read_to_string(tree.join("foreign")).unwrap(), "more\n");
}

/// `/etc/group` lists no members of most groups. The tree's group is not its own if it is root's.
#[test]
fn a_user_without_an_account_is_in_its_own_group_alone() {
    const UNKNOWN: u32 = 54_321;
    let Some(ground) = RunGround::new(Who::RootOnTreeOfUser) else {
        return;
    };
    chown(&ground.tree, Some(UNKNOWN), Some(0)).unwrap();
    let output = ground.shell(&[], "id -u; id -G");
    succeeded(&output);
    assert_eq!(stdout(&output), format!("{UNKNOWN}\n{UNKNOWN}\n"));
}
