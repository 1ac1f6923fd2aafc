//! `thrufs draft apply`, compared with the same changes without a draft.

use crate::ground;
use crate::run_ground::{EVERYONE, RunGround, Who, grounds};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;
use thrufs_testing::{Random, xattrs};

/// What commands do, each in a directory of its own: before the draft, and in it.
const CHANGES: &[(&str, &str)] = &[
    ("echo old >file", "echo new >file"),
    (
        "echo old >file",
        "echo more >>file; touch -d 2020-01-02T03:04:05.678 file",
    ),
    ("echo old >file", "chmod 640 file"),
    ("echo old >file", "echo new >new; mv new file"),
    ("echo old >file", "rm file"),
    ("", "echo new >file; chmod 4755 file"),
    ("echo old >a; mkdir d", "mv a d/b"),
    ("mkdir -p d/e; echo 1 >d/e/f; echo 2 >d/g", "rm -r d"),
    (
        "mkdir -p d/e; echo 1 >d/e/f; echo 2 >d/g",
        "rm -r d; mkdir d; echo 3 >d/h",
    ),
    (
        "mkdir -p d/e; echo 1 >d/e/f; echo 2 >d/g",
        "cp -a d c; rm -r d; mv c d; echo 3 >d/e/f",
    ),
    ("mkdir -p d/e; echo 1 >d/e/f", "rm -r d; echo file >d"),
    (
        "echo old >f; ln -s f l; echo x >g",
        "rm f g; mkdir f g; echo new >f/g; ln -sfn f/g l",
    ),
    ("mkdir d; echo 1 >d/f", "rm -r d; ln -s /etc d"),
    ("echo a >a", "ln a b; ln a c"),
    ("echo a >a; ln a b", "rm b"),
    ("echo a >a; cp -a a b", "ln -f a b"),
    ("", "echo a >a; mkdir d; ln a d/b; ln -s x l; ln l d/m"),
    (
        "echo old >f",
        "mkfifo p; ln -s nowhere l; ln -s /etc/passwd m",
    ),
    ("mkdir d", "chmod 2750 d"),
    (
        "mkdir d; echo f >d/f",
        "chmod 500 d; mkdir e; echo x >e/x; chmod 555 e",
    ),
    (
        "",
        "mkdir -p a/b/c/d; echo deep >a/b/c/d/e; touch -d 2020-02-02 a/b/c a/b a",
    ),
    (
        "echo old >file",
        "python3 -c 'import os; os.setxattr(\"file\", \"user.k\", b\"v\")'",
    ),
    (
        "echo x >f; python3 -c 'import os; os.setxattr(\"f\", \"user.k\", b\"v\"); os.setxattr(\"f\", \"user.l\", b\"w\")'",
        "python3 -c 'import os; os.removexattr(\"f\", \"user.k\"); os.setxattr(\"f\", \"user.overlay.opaque\", b\"y\")'",
    ),
    (
        "",
        "truncate -s 8M sparse; echo end >>sparse; echo middle | dd of=sparse conv=notrunc bs=1M seek=3 status=none",
    ),
    (
        "",
        "echo x >\"$(printf 'new\\nline\\033[31m')\"; echo y >' \"q\\\\ '",
    ),
    ("echo same >file", "cp file g; mv g file"),
    ("echo same >file", "true >>file"),
    ("mkdir d; touch -d 2020-02-02 d", "echo x >d/x; rm d/x"),
    (
        "mkdir -p a/b; echo 1 >a/b/f; echo 2 >a/g",
        "mv a c || { cp -a a c; rm -r a; }",
    ),
    (
        "git init -q -b main .; echo 1 >f; git add f",
        "git -c user.name=a -c user.email=b commit -qm x; git gc -q",
    ),
];

/// A tree, a copy beside it, and a place for drafts.
pub struct Trees {
    pub ground: RunGround,
    pub native: PathBuf,
    pub drafts: PathBuf,
}

impl Trees {
    pub fn new(ground: RunGround) -> Trees {
        let native = ground.around.join("native");
        let drafts = ground.path().join("drafts");
        fs::create_dir(&drafts).unwrap();
        chown(&drafts, Some(ground.user()), Some(ground.user())).unwrap();
        Trees {
            ground,
            native,
            drafts,
        }
    }

    pub fn outside(&self, directory: &Path, script: &str) {
        let mut shell = self.ground.outside("sh");
        shell.args(["-ec", script]).current_dir(directory);
        ground::succeeded(&ground::run(&mut shell));
    }

    /// Copies the tree as it is.
    pub fn copy(&self) {
        let mut copy = Command::new("cp");
        ground::succeeded(&ground::run(
            copy.arg("-aT").args([&self.ground.tree, &self.native]),
        ));
    }

    /// Runs a script in the draft `t`.
    pub fn draft(&self, options: &[&str], script: &str) -> Output {
        let place = self.drafts.to_str().unwrap();
        let all = [&["--draft=t", "--draft-dir", place], options].concat();
        let output = self.ground.shell(&all, script);
        ground::succeeded(&output);
        output
    }

    pub fn thrufs_draft(&self, what: &str) -> Command {
        let program = match self.ground.who {
            Who::User => self.ground.program.as_path(),
            _ => Path::new(ground::THRUFS),
        };
        let mut command = self.ground.starter(program);
        command
            .args(["draft", what, "--draft=t", "--draft-dir"])
            .arg(&self.drafts);
        command.current_dir(&self.ground.tree);
        command
    }

    pub fn run_bare(&self, arguments: &[&str]) -> Output {
        let mut command = self.ground.starter(&self.ground.program);
        command.arg("draft").args(arguments).arg("--draft-dir");
        ground::run(command.arg(&self.drafts))
    }

    pub fn run(&self, what: &str, arguments: &[&str]) -> Output {
        ground::run(self.thrufs_draft(what).args(arguments))
    }

    pub fn apply(&self, arguments: &[&str]) {
        ground::succeeded(&self.run("apply", arguments));
    }

    pub fn upper(&self) -> PathBuf {
        self.drafts.join("t/upper")
    }

    pub fn is_gone(&self) -> bool {
        !self.drafts.join("t").exists()
    }
}

/// What programs see of a file. Of times, those that were set: before 2026.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    pub attributes: String,
    /// Of a regular file.
    pub bytes: Option<Vec<u8>>,
}

pub type Snapshot = BTreeMap<PathBuf, Seen>;

pub fn snapshot(top: &Path) -> Snapshot {
    let mut found = BTreeMap::new();
    let mut links = BTreeMap::new();
    let mut rest = vec![PathBuf::new()];
    while let Some(path) = rest.pop() {
        let full = top.join(&path);
        let stat = fs::symlink_metadata(&full).unwrap_or_else(|error| panic!("{full:?}: {error}"));
        let kind = stat.file_type();
        let mut bytes = None;
        let mut seen = format!("{:o} {}:{}", stat.mode(), stat.uid(), stat.gid());
        if kind.is_file() {
            bytes = Some(fs::read(&full).unwrap());
            let is_sparse = stat.blocks() * 512 < stat.len() / 2;
            seen += &format!(" {} bytes {is_sparse}", stat.len());
            let first = links.entry(stat.ino()).or_insert_with(|| path.clone());
            seen += &format!(" {} links, as {first:?}", stat.nlink());
        }
        if kind.is_symlink() {
            seen += &format!(" to {:?}", fs::read_link(&full).unwrap());
        } else {
            if stat.mtime() < 1_767_225_600 {
                seen += &format!(" of {}.{}", stat.mtime(), stat.mtime_nsec());
            }
            seen += &format!(" {:?}", xattrs(&full).unwrap());
        }
        if kind.is_dir() {
            let names = fs::read_dir(&full).unwrap();
            let mut names: Vec<_> = names.map(|it| path.join(it.unwrap().file_name())).collect();
            names.sort();
            rest.extend(names.into_iter().rev());
        }
        let attributes = seen;
        found.insert(path, Seen { attributes, bytes });
    }
    found
}

#[track_caller]
fn assert_same(one: &Path, other: &Path, what: &str) {
    let [one, other] = [one, other].map(snapshot);
    let all = one.keys().chain(other.keys());
    let different = all.filter(|path| one.get(*path) != other.get(*path));
    let different: Vec<String> = different
        .map(|path| {
            let shown = |it: &Snapshot| {
                let seen = it.get(path)?;
                let bytes: Vec<u8> = seen.bytes.iter().flatten().take(200).copied().collect();
                Some(format!(
                    "{} {:?}",
                    seen.attributes,
                    String::from_utf8_lossy(&bytes)
                ))
            };
            format!(
                "{}:\n  {:?}\n  {:?}",
                path.display(),
                shown(&one),
                shown(&other)
            )
        })
        .collect();
    assert!(different.is_empty(), "{what}:\n{}", different.join("\n"));
}

/// One script of many, each in a directory `c0`, `c1`, …
fn script_of(scripts: impl Iterator<Item = &'static str>) -> String {
    let each = |(number, script): (usize, &str)| {
        format!("mkdir -p c{number}; (cd c{number}; {script}\n)\n")
    };
    scripts.enumerate().map(each).collect()
}

#[test]
fn applied_draft_equals_the_same_changes_without() {
    for ground in grounds(EVERYONE) {
        let trees = Trees::new(ground);
        let tree = trees.ground.tree.clone();
        let who = format!("{:?}", trees.ground.who);
        let before = script_of(CHANGES.iter().map(|it| it.0));
        let changes = script_of(CHANGES.iter().map(|it| it.1));
        trees.outside(&tree, &before);
        trees.copy();
        trees.draft(&["--profile", "none"], &changes);
        assert_same(
            &tree,
            &trees.native,
            &format!("{who}: the tree during the draft"),
        );
        trees.outside(&trees.native, &changes);
        trees.apply(&[]);
        // Root sets no such bits on files of its own.
        if trees.ground.who == Who::RootOnTreeOfRoot {
            for top in [&tree, &trees.native] {
                let file = top.join("c5/file");
                fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        remove_git_times(&[&tree, &trees.native]);
        assert_same(&tree, &trees.native, &who);
        assert!(trees.is_gone(), "{who}: the draft is removed");
    }
}

/// Commits of two moments are two.
fn remove_git_times(tops: &[&Path]) {
    for top in tops {
        let last = format!("c{}", CHANGES.len() - 1);
        let mut check = Command::new("git");
        check
            .args(["-c", "safe.directory=*", "fsck", "--full"])
            .current_dir(top.join(&last));
        ground::succeeded(&ground::run(&mut check));
        fs::remove_dir_all(top.join(last)).unwrap();
    }
}

/// What happens on both sides: before, in the draft, on the host; and the file that conflicts.
const CONFLICTS: &[(&str, &str, &str, &str)] = &[
    ("echo old >f", "echo draft >f", "echo host >f", "f"),
    ("echo old >f", "rm f", "echo host >>f", "f"),
    ("", "echo draft >f", "echo host >f", "f"),
    ("echo old >f", "echo draft >>f", "rm f", "f"),
    (
        "mkdir d; echo old >d/f",
        "rm -r d",
        "echo host >d/new",
        "d/new",
    ),
    (
        "mkdir d; echo old >d/f",
        "rm -r d",
        "echo host >>d/f",
        "d/f",
    ),
    ("echo old >f", "chmod 600 f", "chmod 640 f", "f"),
    ("mkdir d", "chmod 700 d", "chmod 750 d", "d"),
    ("echo old >f", "echo draft >f", "rm f; mkdir f", "f"),
    (
        "mkdir d; echo old >d/f",
        "echo draft >d/f",
        "rm -r d; echo host >d",
        "d/f",
    ),
    ("echo old >f", "echo draft >t; mv t f", "echo host >f", "f"),
    (
        "mkdir d; echo old >d/f",
        "rm -r d; mkdir d; echo draft >d/n",
        "echo host >d/f",
        "d/f",
    ),
    (
        "echo old >f",
        "echo draft >f",
        "echo new >g; touch -r f g; mv g f",
        "f",
    ),
    (
        "echo old >f",
        "rm f; mkdir f; echo draft >f/x",
        "echo host >f",
        "f",
    ),
    (
        "mkdir d; echo old >d/f",
        "rm -r d; echo draft >d",
        "echo host >d/f",
        "d/f",
    ),
    ("ln -s old l", "ln -sfn draft l", "ln -sfn host l", "l"),
    (
        "echo old >f",
        "mkfifo p; echo draft >f",
        "echo host >f; touch -d 2020-01-01 f",
        "f",
    ),
    (
        "echo old >f",
        "echo same >f; touch -d 2020-01-01 f",
        "echo same >f; touch -d 2020-01-01 f",
        "",
    ),
];

/// The paths that conflict.
fn conflicting() -> impl Iterator<Item = String> {
    let named = |(number, row): (usize, &(&str, &str, &str, &str))| {
        (!row.3.is_empty()).then(|| format!("c{number}/{}", row.3))
    };
    CONFLICTS.iter().enumerate().filter_map(named)
}

/// A tree that changed while a draft of it was open.
fn in_conflict(who: Who, has_bases: bool) -> Option<Trees> {
    let trees = Trees::new(RunGround::new(who)?);
    let tree = trees.ground.tree.clone();
    trees.outside(&tree, &script_of(CONFLICTS.iter().map(|it| it.0)));
    trees.copy();
    let changes = script_of(CONFLICTS.iter().map(|it| it.1));
    trees.draft(&["--profile", "none"], &changes);
    trees.outside(&trees.native, &changes);
    trees.outside(&tree, &script_of(CONFLICTS.iter().map(|it| it.2)));
    if !has_bases {
        // As after a run that was killed.
        fs::remove_file(trees.drafts.join("t/bases")).unwrap();
    }
    Some(trees)
}

fn assert_kept(tree: &Path, before: &Snapshot, what: &str) {
    let after = snapshot(tree);
    for path in conflicting() {
        let path = Path::new(&path);
        assert_eq!(after.get(path), before.get(path), "{what}: {path:?}");
    }
}

#[test]
fn what_changed_in_the_tree_meanwhile_conflicts() {
    let cases = [
        (Who::User, true),
        (Who::User, false),
        (Who::RootOnTreeOfRoot, true),
    ];
    for (who, has_bases) in cases {
        let what = format!("{who:?}, bases {has_bases}");
        let Some(trees) = in_conflict(who, has_bases) else {
            return;
        };
        let tree = trees.ground.tree.clone();
        let before = snapshot(&tree);
        for round in ["first", "again"] {
            let output = trees.run("apply", &[]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{what}: {said}");
            for path in conflicting() {
                let is_said = said.contains(&format!("{path}: not applied: it "));
                assert!(is_said, "{what}, {round}: {path}\n{said}");
            }
            assert_kept(&tree, &before, &format!("{what}, {round}"));
        }
        let said = String::from_utf8(trees.run("diff", &[]).stderr).unwrap();
        let is_said = |path: String| said.contains(&format!("{path}: conflict: it "));
        assert!(conflicting().all(is_said), "{what}: {said}");
        let forced = trees.run("apply", &["--force"]);
        // What the command has not seen is not removed unless it is named, if that is known.
        let new = tree.join("c4/d/new");
        assert_eq!(new.exists(), has_bases, "{what}: {forced:?}");
        if has_bases {
            ground::fails(&forced, 1, "c4/d/new: not applied: it was created");
            ground::succeeded(&trees.run("apply", &["--force", "c4/d/new", "c4/d"]));
        }
        assert!(trees.is_gone(), "{what}");
        assert_same(&tree, &trees.native, &what);
    }
}

#[test]
fn conflicts_leave_the_draft_with_theirs() {
    for has_bases in [true, false] {
        let Some(trees) = in_conflict(Who::User, has_bases) else {
            return;
        };
        let before = snapshot(&trees.ground.tree);
        trees.apply(&["--theirs"]);
        assert_kept(&trees.ground.tree, &before, "theirs");
        assert!(trees.is_gone(), "the draft is removed");
        // Without bases, all that is in a directory conflicts that changed.
        let is_left = trees.ground.tree.join("c4/d/f").exists();
        assert_eq!(is_left, !has_bases, "the rest is applied");
    }
}

fn in_trees(who: Who, check: impl FnOnce(&Trees, &Path)) {
    if let Some(ground) = RunGround::new(who) {
        let trees = Trees::new(ground);
        check(&trees, &trees.ground.tree);
    }
}

/// What the command opened, and what the host touches, is none of the other's change.
#[test]
fn only_content_and_mode_that_both_sides_changed_conflict() {
    in_trees(Who::User, |trees, tree| {
        let files =
            "for name in opened gone touched mode same both timed; do echo old >$name; done";
        trees.outside(tree, files);
        let change =
            "true >>opened; true >>gone; for name in touched mode same; do echo draft >$name; done
            chmod 755 both; touch -d 2020-01-01 timed";
        trees.draft(&["--profile", "none"], change);
        let host = "echo host >opened; rm gone; touch -d 2020-01-01 touched; chmod 600 mode; echo old >o; mv o same
            chmod 640 both";
        trees.outside(tree, host);
        let output = trees.run("diff", &["--name-only"]);
        assert_eq!(ground::stdout(&output), "both\nmode\nsame\ntouched\n");
        let said = ground::stderr(&output);
        assert_eq!(
            said,
            "thrufs: both: conflict: it changed in the tree meanwhile\n"
        );
        trees.apply(&["mode", "same", "touched"]);
        ground::fails(&trees.run("apply", &[]), 1, "both: not applied: it changed");
        let read = |name: &str| fs::read_to_string(tree.join(name)).unwrap();
        assert_eq!(read("opened"), "host\n");
        for name in ["touched", "mode", "same"] {
            assert_eq!(read(name), "draft\n", "{name}");
        }
        let mode = |name: &str| fs::metadata(tree.join(name)).unwrap().mode() & 0o7777;
        assert_eq!([mode("mode"), mode("both")], [0o600, 0o640]);
        assert!(!tree.join("gone").exists());
    });
}

#[test]
fn directory_with_a_temporary_name_fails_alone() {
    in_trees(Who::User, |trees, tree| {
        trees.outside(
            tree,
            "mkdir -p d/.thrufs-apply-x; echo 1 >d/.thrufs-apply-x/f",
        );
        trees.draft(&[], "rm -r d; echo new >new");
        fs::write(tree.join("d/.thrufs-apply-x/g"), "").unwrap();
        ground::fails(
            &trees.run("apply", &[]),
            1,
            "d: not applied: Directory not empty",
        );
        assert!(tree.join("new").exists() && !tree.join("d/.thrufs-apply-x/f").exists());
    });
}

#[test]
fn directory_stays_in_which_something_is_hidden() {
    in_trees(Who::User, |trees, tree| {
        trees.outside(tree, "mkdir d; echo s >d/.env; echo x >d/x");
        trees.draft(&[], "rm -r d");
        let output = trees.run("diff", &["--name-status"]);
        assert_eq!(ground::stdout(&output), "D\td/x\n");
        let said = ground::stderr(&output);
        let why = "d: will not be applied: it has files that the policy hides";
        assert!(said.contains(why) && !said.contains(".env"), "{said}");
    });
}

#[test]
fn file_of_root_s_gets_no_set_id_bits() {
    in_trees(Who::RootOnTreeOfRoot, |trees, tree| {
        trees.draft(&[], "echo x >s; chmod 6755 s");
        trees.apply(&[]);
        let mode = fs::metadata(tree.join("s")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    });
}

#[test]
fn force_replaces_what_is_in_git_where_that_is_named() {
    in_trees(Who::User, |trees, tree| {
        let config = tree.join(".git/config");
        trees.draft(&["--profile", "none"], "echo draft >.git/config");
        trees.outside(tree, "echo host >.git/config");
        let output = trees.run("apply", &["--force"]);
        ground::fails(&output, 1, "name it, or .git, to replace it");
        assert_eq!(fs::read_to_string(&config).unwrap(), "host\n");
        trees.apply(&["--force", ".git"]);
        assert_eq!(fs::read_to_string(&config).unwrap(), "draft\n");
    });
}

#[test]
fn draft_of_another_tree_has_to_be_named() {
    in_trees(Who::User, |trees, _| {
        trees.draft(&[], "echo x >x");
        let mut command = trees.ground.starter(&trees.ground.program);
        command
            .args(["draft", "diff", "--draft-dir"])
            .arg(&trees.drafts);
        let output = ground::run(command.current_dir(&trees.ground.sibling));
        ground::fails(&output, 1, "no draft is of a tree around");
    });
}

#[test]
fn parts_of_a_draft_are_applied_without_changing_the_rest() {
    for ground in grounds([Who::User, Who::RootOnTreeOfRoot]) {
        let trees = Trees::new(ground);
        let tree = trees.ground.tree.clone();
        trees.outside(
            &tree,
            "mkdir -p o/p e; echo 1 >o/a; echo 2 >o/p/b; echo 3 >o/p/c; echo 4 >e/f",
        );
        trees.copy();
        let changes = "rm -r o; mkdir -p o/p new/deep; echo 5 >o/p/b; echo 6 >o/n; echo 7 >new/deep/x; echo 8 >new/y; \
            rm -r e; echo 9 >file; ln file new/link";
        trees.draft(&["--profile", "none"], changes);
        trees.outside(&trees.native, changes);
        for path in ["o/p/b", "new/deep", "o/a", "file", "e", ""] {
            // Absolute, and from the working directory.
            let path = if path == "e" {
                tree.join(path)
            } else {
                path.into()
            };
            let look = "find . -not -name .git; cat o/p/b o/n new/*/x new/y file";
            let output = trees.draft(&["--profile", "none"], look);
            let said = String::from_utf8(output.stdout).unwrap();
            let mut native = trees.ground.outside("sh");
            let native = ground::run(native.args(["-c", look]).current_dir(&trees.native));
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(
                sorted(&said),
                sorted(&String::from_utf8(native.stdout).unwrap()),
                "before {path:?}"
            );
            match path.as_os_str().is_empty() {
                true => trees.apply(&[]),
                false => trees.apply(&[path.to_str().unwrap()]),
            }
        }
        assert_same(&tree, &trees.native, "all parts");
        assert!(trees.is_gone());
        ground::fails(&trees.run("apply", &[]), 1, "there is no draft");
    }
}

/// What a killed apply may leave: files as before or as after, and its temporary names.
fn assert_old_or_new(tree: &Path, before: &Snapshot, after: &Snapshot) {
    let now = snapshot(tree);
    for path in now.keys().chain(before.keys()).chain(after.keys()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let [now, old, new] =
            [&now, before, after].map(|it| it.get(path).and_then(|it| it.bytes.as_ref()));
        let is_either = now == old || now == new || name.starts_with(".thrufs-apply-");
        assert!(is_either, "{path:?}: {now:?}, neither {old:?} nor {new:?}");
    }
}

/// Kills apply at moments that are drawn, until it has been killed `kills` times.
fn apply_is_killed(kills: usize) {
    let mut random = Random(thrufs_test_report::seed());
    // Commits of two moments are two.
    let changes = || CHANGES[..CHANGES.len() - 1].iter();
    let mut killed = 0;
    while killed < kills {
        let Some(ground) = RunGround::new(Who::User) else {
            return;
        };
        let trees = Trees::new(ground);
        let tree = trees.ground.tree.clone();
        let many =
            "for i in $(seq 200); do echo $i >m$i; done; mkdir d; cp m* d; ln m1 d/l1; ln m2 d/l2";
        let change = "for i in $(seq 100); do echo new >m$i; rm d/m$i; ln m$i d/l$i.new; done; mv m1 d; mkdir e; mv d/m2?? e; \
            rm -r d; mkdir d; echo x >d/m7; chmod 700 e";
        trees.outside(&tree, &(script_of(changes().map(|it| it.0)) + many));
        trees.copy();
        let script = script_of(changes().map(|it| it.1)) + change;
        trees.draft(&["--profile", "none"], &script);
        trees.outside(&trees.native, &script);
        let (before, after) = (snapshot(&tree), snapshot(&trees.native));
        loop {
            let mut apply = trees.thrufs_draft("apply").spawn().unwrap();
            thread::sleep(Duration::from_micros(random.below(150_000) as u64));
            apply.kill().unwrap();
            let status = apply.wait().unwrap();
            if status.code().is_some() {
                // All was applied when the removal of the draft was interrupted.
                let is_removed = !trees.drafts.join("t/draft.json").exists();
                assert!(status.success() || is_removed);
                if !trees.is_gone() {
                    ground::succeeded(&trees.run_bare(&["discard", "t"]));
                }
                break;
            }
            killed += 1;
            assert_old_or_new(&tree, &before, &after);
        }
        assert_same(&tree, &trees.native, "after kills");
        assert!(trees.is_gone());
    }
}

#[test]
fn killed_apply_leaves_old_or_new_files_and_goes_on() {
    apply_is_killed(8);
}

#[test]
#[ignore = "soak: at moments that are drawn"]
fn killed_apply_leaves_old_or_new_files_and_goes_on_often() {
    apply_is_killed(400);
}
