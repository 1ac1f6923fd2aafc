//! Drafts: what `thrufs run --draft` leaves, and `thrufs draft`.

use crate::ground::{detach, fails, mount_tmpfs, run, skipped, stderr, stdout, succeeded};
use crate::run_ground::{EVERYONE, RunGround, SECRET, Talk, USER, Who, grounds, of_both};
use rustix::fs::XattrFlags;
use rustix::process::{Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WORK: &str = include_str!("draft.sh");

/// All of the tree that can change, times too.
fn state(tree: &Path) -> String {
    let script =
        "find . -printf '%P %m %s %T@ %C@ %n %U\n' | sort; find . -type f | sort | xargs cat";
    let mut shell = Command::new("sh");
    let output = run(shell.args(["-c", script]).current_dir(tree));
    succeeded(&output);
    stdout(&output)
}

/// What [`WORK`] expects.
fn add_files(ground: &RunGround, tree: &Path) {
    for directory in ["old", "old/inner", "again"] {
        ground.make_directory(&tree.join(directory));
    }
    for (name, content) in [
        ("old/inner/deep", "deep"),
        ("again/before", ""),
        ("mapped", "mapped"),
        ("file", "content"),
    ] {
        ground.write(&tree.join(name), content);
    }
}

fn thrufs_draft(ground: &RunGround, arguments: &[&str]) -> Output {
    let mut command = ground.starter(&ground.program);
    let drafts = ground.drafts().0;
    let named = ["draft", arguments[0], &drafts].into_iter();
    run(command.args(named.chain(arguments[1..].iter().copied())))
}

fn lists(ground: &RunGround, expected: &str) {
    let output = thrufs_draft(ground, &["list"]);
    succeeded(&output);
    let said = stdout(&output);
    let names: Vec<_> = said
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(names.join(" "), expected, "{}", stderr(&output));
}

#[test]
fn draft_has_what_programs_write_and_the_tree_stays_as_it_was() {
    for ground in grounds(EVERYONE) {
        add_files(&ground, &ground.tree);
        let before = state(&ground.tree);
        let drafts = ground.drafts().0;
        let output = ground.shell(&["--draft", &drafts], WORK);
        succeeded(&output);
        assert!(
            stderr(&output).contains("draft tree"),
            "{}",
            stderr(&output)
        );
        assert_eq!(state(&ground.tree), before);
        lists(&ground, "tree");
        let again = ground.shell(
            &["--draft=tree", &drafts],
            "cat file moved/inner/deep; ls again old",
        );
        assert_eq!(stdout(&again), "saved\ndeepold:\n", "{}", stderr(&again));
        let other = ground.shell(&["--draft", &drafts], "cat file; chmod 600 file");
        assert_eq!(stdout(&other), "content");
        lists(&ground, "tree tree-2");
        succeeded(&thrufs_draft(&ground, &["discard", "tree", "tree-2"]));
        lists(&ground, "");
        assert_eq!(fs::read_dir(ground.drafts().1).unwrap().count(), 0);
        let nothing = ground.shell(&["--draft", &drafts], "true");
        fails(&nothing, 0, "nothing was changed");
        lists(&ground, "");
        assert_eq!(state(&ground.tree), before);
    }
}

/// A file system for a test, unmounted on drop.
struct Mounted(PathBuf);

impl Mounted {
    fn new(ground: &RunGround, kind: &str) -> Option<Mounted> {
        let point = ground.path().join(kind);
        fs::create_dir(&point).unwrap();
        if kind == "tmpfs" {
            mount_tmpfs(&point);
            return Some(Mounted(point));
        }
        let image = point.with_extension("image");
        // XFS needs 300 MiB.
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        let made = Command::new(format!("mkfs.{kind}"))
            .arg("-q")
            .arg(&image)
            .output();
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).args([&image, &point]);
        match made.is_ok_and(|it| it.status.success()) && run(&mut mount).status.success() {
            true => Some(Mounted(point)),
            false => {
                skipped(&format!("no {kind} on a loop device"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

#[test]
fn draft_works_on_each_file_system() {
    for ground in of_both() {
        for kind in ["tmpfs", "ext4", "btrfs", "xfs"] {
            let Some(mounted) = Mounted::new(&ground, kind) else {
                continue;
            };
            let [tree, drafts] = ["tree", "drafts"].map(|name| mounted.0.join(name));
            for directory in [&tree, &drafts] {
                ground.make_directory(directory);
            }
            add_files(&ground, &tree);
            let before = state(&tree);
            let (elsewhere, option) = (
                ground.drafts().0,
                format!("--draft-dir={}", drafts.display()),
            );
            // The layer on the tree's file system, and the layer on that of the fixture.
            for option in [&option, &elsewhere] {
                let mut command = ground.on_the_host("sh");
                let script = format!("$THRUFS run --draft={kind} {option} . -- sh -c \"$0\"");
                let output = run(command.args(["-c", &script, WORK]).current_dir(&tree));
                assert!(output.status.success(), "{kind}: {output:?}");
            }
            assert_eq!(state(&tree), before);
        }
    }
}

#[test]
fn hidden_names_stay_hidden_in_a_draft_when_they_appear_later() {
    for ground in of_both() {
        let drafts = ground.drafts().0;
        let known = ground.tree.join("known");
        ground.write(&known, "known\n");
        ground.make_directory(&ground.tree.join("directory"));
        let script =
            "mkdir made; ls -a directory made >/dev/null; cat .env.late 2>/dev/null && exit 1
            cat known >/dev/null; echo up; read x
            for _ in $(seq 200); do [ -e known ] || break; sleep 0.1; done
            cat known 2>/dev/null && exit 4
            for name in .env .env.late directory/.env made/.env; do
                ls -a \"$(dirname $name)\" | grep -Fx \"$(basename $name)\" && exit 2
                cat $name 2>/dev/null && exit 3
                echo mine >$name && cat $name
            done";
        let mut command = ground.thrufs_run(&["--draft", &drafts]);
        command
            .args(["bash", "-c", script])
            .current_dir(&ground.tree);
        let mut talk = Talk::start(&mut command);
        talk.wait_for("up");
        ground.make_directory(&ground.tree.join("made"));
        // What the overlay knows by a name that was not hidden.
        fs::rename(&known, ground.tree.join(".env.known")).unwrap();
        for name in [".env.known", ".env.late", "directory/.env", "made/.env"] {
            ground.write(&ground.tree.join(name), SECRET);
        }
        talk.say("go");
        let output = talk.end();
        assert_eq!(stdout(&output), "mine\n".repeat(4), "{}", stderr(&output));
        for name in [".env", ".env.late", "directory/.env", "made/.env"] {
            assert_eq!(fs::read_to_string(ground.tree.join(name)).unwrap(), SECRET);
        }
    }
}

/// What the file system beneath refuses the user stays refused: overlayfs acts as the command's user.
#[test]
fn files_of_others_are_read_in_a_draft_as_without_one() {
    for ground in grounds(EVERYONE) {
        let drafts = ground.drafts().0;
        for (name, mode) in [("shown", 0o644), ("private", 0o600), ("denied", 0o644)] {
            let file = ground.tree.join(name);
            fs::write(&file, name).unwrap();
            chown(&file, Some(1), Some(1)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        if ground.who != Who::RootOnTreeOfRoot {
            // `linux/posix_acl_xattr.h`: tag, permissions and id of the owner, the user, the group, the mask and others.
            let entries = [
                (1, 6, u32::MAX),
                (2, 0, USER),
                (4, 4, u32::MAX),
                (16, 4, u32::MAX),
                (32, 4, u32::MAX),
            ];
            let entries = entries.map(|(tag, bits, id)| u64::from(id) << 32 | bits << 16 | tag);
            let list: Vec<u8> = entries.iter().flat_map(|it| it.to_le_bytes()).collect();
            let list = [&2_u32.to_le_bytes()[..], &list].concat();
            let (file, name) = (ground.tree.join("denied"), "system.posix_acl_access");
            rustix::fs::setxattr(&file, name, &list, XattrFlags::empty()).unwrap();
        }
        let script = "cat shown private denied 2>/dev/null || true; echo x 2>/dev/null >>denied || true; mv shown renamed; cat renamed";
        let options: [&[&str]; 2] = [&["--draft", &drafts], &[]];
        let [draft, plain] = options.map(|options| stdout(&ground.shell(options, script)));
        assert_eq!(draft, plain);
        assert!(
            draft.starts_with("shown") && !draft.contains("private"),
            "{draft}"
        );
        assert_eq!(
            draft.contains("denied"),
            ground.who == Who::RootOnTreeOfRoot
        );
    }
}

#[test]
fn what_takes_the_place_of_a_directory_is_shown_and_protected_files_get_no_further_name() {
    for ground in of_both() {
        let drafts = ground.drafts().0;
        ground.make_directory(&ground.tree.join("d"));
        ground.write(&ground.tree.join("d/x"), "x");
        let hook = ground.tree.join(".git/hooks/pre-commit");
        let script = "rm -r d; ln -s /etc d; ln .git/hooks/pre-commit name
            mkdir open usual; chmod 777 open; touch open/x usual/x";
        succeeded(&ground.shell(&["--draft", &drafts], script));
        let shown = stdout(&thrufs_draft(&ground, &["diff", "--name-status"]));
        let expected = "T d,D d/x,A name,A open,A open/x,A usual/x,";
        assert_eq!(shown.replace('\t', " ").replace('\n', ","), expected);
        succeeded(&thrufs_draft(&ground, &["apply"]));
        assert!(ground.tree.join("d").is_symlink());
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        assert_ne!(inode(&ground.tree.join("name")), inode(&hook));
    }
}

/// Whose the tree is may put a directory of root's in the place of its own.
#[test]
fn root_applies_to_the_tree_of_a_user_with_the_rights_of_that_user() {
    let Some(ground) = RunGround::new(Who::RootOnTreeOfUser) else {
        return;
    };
    let drafts = ground.drafts().0;
    let place = ground.tree.join("d");
    ground.make_directory(&place);
    succeeded(&ground.shell(&["--draft", &drafts], "touch d/new new; mkfifo d/pipe"));
    chown(&place, Some(0), Some(0)).unwrap();
    let output = thrufs_draft(&ground, &["apply"]);
    fails(&output, 1, "d/new: not applied: Permission denied");
    assert!(!place.join("new").exists() && !place.join("pipe").exists());
    assert!(ground.tree.join("new").exists());
}

#[test]
fn what_the_host_changes_shows_in_a_draft() {
    for ground in of_both() {
        let drafts = ground.drafts().0;
        let (file, tree) = (ground.tree.join("file"), &ground.tree);
        let script = "cat file absent 2>/dev/null; echo; echo up; read x
            for _ in $(seq 200); do
                [ \"$(cat file absent 2>/dev/null)\" = replacedpresent ] && break; sleep 0.1
            done
            cat file absent; echo mine >file; cat file";
        let mut command = ground.thrufs_run(&["--draft", &drafts]);
        let mut talk = Talk::start(command.args(["bash", "-c", script]).current_dir(tree));
        talk.wait_for("up");
        // As an editor saves it.
        ground.write(&tree.join("file.new"), "replaced");
        fs::rename(tree.join("file.new"), &file).unwrap();
        ground.write(&tree.join("absent"), "present");
        talk.say("go");
        let output = talk.end();
        assert_eq!(
            stdout(&output),
            "content\nreplacedpresentmine\n",
            "{}",
            stderr(&output)
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "replaced");
    }
}

/// Overlayfs opens a file of the view several times while it copies it, of which one attempt more may fail at most.
#[test]
fn file_that_the_host_writes_in_place_opens_for_writing_at_once() {
    const FILES: usize = 8;
    for ground in of_both() {
        let (drafts, tree) = (ground.drafts().0, &ground.tree);
        for number in 0..FILES {
            ground.write(&tree.join(format!("f{number}")), "old\n");
        }
        // Every second one for reading and writing.
        let script = "cat f?; echo up; for number in 0 2 4 6; do
            read x; echo mine >>f$number; echo written
            read x; exec 3<>f$((number + 1)); echo written
        done";
        let mut command = ground.thrufs_run(&["--draft", &drafts]);
        let mut talk = Talk::start(command.args(["bash", "-c", script]).current_dir(tree));
        talk.wait_for("up");
        for number in 0..FILES {
            let file = fs::OpenOptions::new()
                .append(true)
                .open(tree.join(format!("f{number}")));
            file.unwrap().write_all(b"host\n").unwrap();
            talk.say("go");
            talk.wait_for("written");
        }
        let said = stderr(&talk.end());
        assert!(!said.contains("Stale"), "{said}");
    }
}

#[test]
fn draft_of_a_run_that_was_killed_is_listed_used_and_discarded() {
    for ground in of_both() {
        let (drafts, place) = ground.drafts();
        let script =
            "echo kept >kept; mkdir -p locked/in; chmod 0 locked/in locked; echo up; read x";
        let mut command = ground.thrufs_run(&["--draft", &drafts]);
        let mut talk = Talk::start(
            command
                .args(["bash", "-c", script])
                .current_dir(&ground.tree),
        );
        talk.wait_for("up");
        let in_use = ground.shell(&["--draft=tree", &drafts], "true");
        fails(&in_use, 125, "the draft tree is in use");
        fails(&thrufs_draft(&ground, &["discard"]), 1, "in use");
        kill_process(talk.pid(), Signal::KILL).unwrap();
        talk.end();
        lists(&ground, "tree");
        // The sandbox ends a moment later.
        let mut again = ground.shell(&["--draft=tree", &drafts], "cat kept");
        while stderr(&again).contains("in use") {
            again = ground.shell(&["--draft=tree", &drafts], "cat kept");
        }
        assert_eq!(stdout(&again), "kept\n", "{}", stderr(&again));
        // As where it was killed before it was complete, and while it was removed.
        fs::remove_file(place.join("tree/draft.json")).unwrap();
        let output = thrufs_draft(&ground, &["list"]);
        assert!(stdout(&output).contains("not complete"), "{output:?}");
        succeeded(&thrufs_draft(&ground, &["discard", "tree"]));
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
    }
}

#[test]
fn drafts_are_refused_where_they_cannot_be() {
    for ground in of_both() {
        let (drafts, place) = ground.drafts();
        let refused = |options: &[&str], why| fails(&ground.shell(options, "echo x >x"), 125, why);
        refused(&["--draft=../x", &drafts], "bad name");
        let inside = format!("--draft-dir={}", ground.tree.join("drafts").display());
        refused(&["--draft", &inside], "is in the tree");
        assert!(!ground.tree.join("drafts").exists());
        let home = ground.home.join("policy.toml");
        ground.write(
            &home,
            "[[rule]]\naction = \"hide\"\npath = \"x\"\ncaller-uid = [1]\n",
        );
        let policy = format!("--policy={}", home.display());
        refused(&["--draft", &drafts, &policy], "match on callers");
        let foreign = place.join("foreign");
        fs::create_dir(&foreign).unwrap();
        chown(&foreign, Some(1), None).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
        let foreign = format!("--draft-dir={}", foreign.display());
        refused(&["--draft", &foreign], "belongs to another user");
        succeeded(&ground.shell(&["--draft=one", &drafts], "echo x >x"));
        let mut other = ground.on_the_host("sh");
        let script = format!("$THRUFS run --draft=one {drafts} .. -- true");
        let other = run(other.args(["-c", &script]));
        fails(&other, 125, "the draft one is of");
        // The tree is another directory.
        let moved = ground.tree.with_extension("moved");
        fs::rename(&ground.tree, &moved).unwrap();
        ground.make_directory(&ground.tree);
        refused(&["--draft=one", &drafts], "was replaced");
        let overlay = ground.path().join("overlay");
        let layers = ["lower", "upper", "work"].map(|name| ground.path().join(name));
        for directory in layers.iter().chain([&overlay]) {
            ground.make_directory(directory);
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            layers[0].display(),
            layers[1].display(),
            layers[2].display()
        );
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "overlay", "-o", &options, "overlay"])
            .arg(&overlay);
        succeeded(&run(&mut mount));
        let mounted = Mounted(overlay.clone());
        let overlay = format!("--draft-dir={}", overlay.join("drafts").display());
        if ground.who == Who::User {
            refused(&["--draft", &overlay], "on another, with --draft-dir DIR");
        }
        drop(mounted);
    }
}

/// Rules of a later run hide what the tree has, not what the layer has.
#[test]
fn draft_is_not_resumed_under_rules_that_withhold_what_it_has() {
    for ground in of_both() {
        let drafts = ground.drafts().0;
        let run = |options: &[&str], script| {
            ground.shell(&[&["--draft=t", &drafts], options].concat(), script)
        };
        succeeded(&run(&[], "echo new >new; echo own >.env; echo more >>file"));
        for (options, name) in [(["--hide", "new"], "new"), (["--deny", "file"], "file")] {
            let why = format!("the draft t has {name}, which the rules of this run hide");
            fails(&run(&options, "true"), 125, &why);
        }
        let again = run(&["--hide", "other"], "cat new .env file");
        assert_eq!(
            stdout(&again),
            "new\nown\ncontentmore\n",
            "{}",
            stderr(&again)
        );
    }
}

/// Another draft's rules would be the command's to write.
#[test]
fn each_directory_that_had_drafts_is_covered_later() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let (drafts, place) = ground.drafts();
    succeeded(&ground.shell(&["--draft=t", &drafts], "echo x >x"));
    let around = ground.path().to_str().unwrap();
    let script = format!("ls {0}; echo forged >{0}/t/draft.json", place.display());
    let output = ground.shell(&["--also-write", around], &script);
    assert_eq!(stdout(&output), "", "{}", stderr(&output));
    let record = fs::read_to_string(place.join("t/draft.json")).unwrap();
    assert_ne!(record, "forged\n");
    succeeded(&thrufs_draft(&ground, &["discard", "--draft=t"]));
    succeeded(&ground.shell(&["--draft=one", &drafts], "echo x >x"));
    succeeded(&ground.shell(&["--draft=two", &drafts], "echo x >x"));
    succeeded(&thrufs_draft(&ground, &["discard", "--all"]));
    lists(&ground, "");
}

#[test]
fn json_has_what_a_draft_changes_and_no_draft_overrides_a_saved_one() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let drafts = ground.drafts().0;
    let output = ground.shell(&["--draft=t", &drafts, "--json"], "echo x >x; rm file");
    let draft = "{\"draft\":{\"name\":\"t\",\"created\":1,\"changed\":0,\"removed\":1,\"bytes\":2,\
        \"refused\":0,\"conflicts\":0}}";
    let said = stderr(&output);
    assert!(said.lines().any(|line| line == draft), "{said}");
    succeeded(&ground.shell(&["--draft=t", &drafts, "--save"], "true"));
    succeeded(&ground.shell(&["--no-draft"], "echo y >y"));
    assert!(ground.tree.join("y").exists());
    succeeded(&ground.shell(&[], "echo z >z"));
    assert!(!ground.tree.join("z").exists());
}

/// As a command without `--only` may, which writes to the home directory.
#[test]
fn drafts_that_were_moved_are_reported() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let script = format!(
        "echo x >x; mv {0}/.local/state {0}/state",
        ground.home.display()
    );
    let output = ground.shell(&["--draft"], &script);
    fails(&output, 125, "the draft was moved");
    assert!(
        ground
            .home
            .join("state/thrufs/drafts/tree/upper/x")
            .exists()
    );
    assert!(!ground.tree.join("x").exists());
    // Without a draft of its own, too.
    fs::rename(ground.home.join("state"), ground.home.join(".local/state")).unwrap();
    assert!(!stderr(&ground.shell(&[], "true")).contains("directory of drafts"));
    let said = stderr(&ground.shell(&[], &script));
    assert!(
        said.contains("a directory of drafts, or one above, was made, moved"),
        "{said}"
    );
}
