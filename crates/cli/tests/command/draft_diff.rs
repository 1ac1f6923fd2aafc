//! `thrufs draft diff`.

use crate::draft_apply::{Seen, Trees, snapshot};
use crate::ground;
use crate::run_ground::{PYTHON, RunGround, Who};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Text, links and modes, which a patch has.
const PATCHED: &str = "seq 40 >numbers; sed -i 's/^7$/seven/; s/^9$/nine/; s/^30$/x/; $d' numbers; printf 'no end' >end; \
    printf 'a\\n' >end2; rm gone; echo new >'a name'; mkdir d; printf '\\303\\244\\n' >\"d/$(printf 'q\"\\303\\244\\ttab')\"; \
    ln -sfn elsewhere link; chmod 755 mode; echo more >>mode; : >empty; rm typed; ln -s numbers typed; printf 'x\\r\\n' >crlf";

#[test]
fn diff_is_a_patch_for_git_and_patch() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let trees = Trees::new(ground);
    let tree = trees.ground.tree.clone();
    trees.outside(&tree, "seq 40 >numbers; echo gone >gone; ln -s old link; echo m >mode; printf 'a\nb' >end2; echo t >typed; rm -r .git .env");
    trees.copy();
    let git = trees.ground.around.join("git");
    ground::succeeded(&ground::run(
        Command::new("cp").arg("-aT").args([&tree, &git]),
    ));
    trees.draft(&["--profile", "none"], PATCHED);
    let diff = trees.run("diff", &[]);
    ground::succeeded(&diff);
    let patch = trees.ground.path().join("patch");
    fs::write(&patch, &diff.stdout).unwrap();
    for (tree, program, arguments) in [
        (&git, "git", &["apply"][..]),
        (&trees.native, "patch", &["-sp1", "-i"]),
    ] {
        let mut command = Command::new(program);
        command.args(arguments).arg(&patch).current_dir(tree);
        // Not in a repository around.
        let output = ground::run(command.env("GIT_CEILING_DIRECTORIES", &trees.ground.around));
        ground::succeeded(&output);
    }
    let names = trees.run("diff", &["--name-only", "-z"]);
    assert_eq!(
        ground::stdout(&names).matches('\0').count(),
        11,
        "{names:?}"
    );
    let stat = ground::stdout(&trees.run("diff", &["--stat", "numbers", "gone"]));
    assert!(
        stat.contains(" numbers | 7 +++----\n") && stat.contains(" gone    | 1 -\n"),
        "{stat}"
    );
    assert!(
        stat.ends_with(" 2 files changed, 3 insertions(+), 5 deletions(-)\n"),
        "{stat}"
    );
    trees.apply(&[]);
    for other in [&git, &trees.native] {
        ground::succeeded(&ground::run(
            Command::new("chown")
                .args(["-hR", "--reference"])
                .args([&tree, other]),
        ));
        let is_shown = |(path, seen): (PathBuf, Seen)| {
            let target = seen.attributes.split(" to ").nth(1).map(str::to_owned);
            let mode: String = seen.attributes.chars().take(6).collect();
            seen.bytes
                .is_some()
                .then(|| mode.clone())
                .or(target.clone())
                .map(|what| (path, (what, seen.bytes)))
        };
        let shown = |tree: &Path| {
            snapshot(tree)
                .into_iter()
                .filter_map(is_shown)
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(shown(&tree), shown(other), "{other:?}");
    }
}

/// On a terminal, with and without a pager.
#[test]
fn diff_escapes_contents_on_a_terminal() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let trees = Trees::new(ground);
    trees.draft(&[], "printf 'a\\033]0;title\\007b\\tc\\302\\233\\n' >file; echo >\"$(printf 'x\\033c')\"; echo >.env");
    let script = "import os, pty, sys\nstatus = pty.spawn(sys.argv[1:], lambda fd: os.read(fd, 65536))\nsys.exit(status >> 8)";
    for pager in ["cat", "sed s/^/paged:/"] {
        let diff = trees.thrufs_draft("diff");
        let mut python = trees.ground.starter(PYTHON.as_ref());
        python
            .args(["-c", script])
            .arg(diff.get_program())
            .args(diff.get_args());
        let shown = ground::stdout(&ground::run(python.env("PAGER", pager)));
        assert!(
            shown.contains("+a\\u{1b}]0;title\\u{7}b\tc\\u{9b}"),
            "{shown:?}"
        );
        assert!(
            shown.contains("x\\033c") && !shown.contains("\x1bc") && !shown.contains("\x1b]"),
            "{shown:?}"
        );
        assert!(shown.contains("\x1b[32m+"), "in colours: {shown:?}");
        assert!(
            shown.contains(".env: will not be applied: hidden by"),
            "{shown:?}"
        );
        assert_eq!(shown.contains("paged:"), pager != "cat", "{shown:?}");
    }
}
