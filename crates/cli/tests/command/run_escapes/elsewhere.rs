//! Other mounts of the tree, of directories around it and in it, and of what is mounted in it.

use super::{Expected, Talk, assert_inside, ground, grounds, inside};
use crate::ground::prelude::*;
use crate::run_ground::{ON_TREE_OF_USER, RunGround, SECRET, Who};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ATTEMPTS: &str = include_str!("elsewhere.py");

const EXPECTED: &[Expected<'_>] = &[
    ("secrets", "5 ENOENT", ""),
    ("files", "content", ""),
    ("unmount_them", "EINVAL", ""),
    ("another_proc", "EACCES", ""),
    ("mounted_later", "ENOENT", ""),
    ("mounted_later_in_the_tree", "ENOENT", ""),
];

/// Mounts of a test, unmounted on drop.
#[derive(Default)]
pub(super) struct Mounts(pub(super) Vec<PathBuf>);

impl Mounts {
    pub(super) fn bind(&mut self, source: &Path, target: &Path) {
        if !target.exists() {
            fs::create_dir(target).unwrap();
        }
        mount_bind(source, target).unwrap();
        self.0.push(target.into());
    }

    fn mount(&mut self, kind: &str, target: &Path) {
        fs::create_dir(target).unwrap();
        mount(kind, target, kind, MountFlags::empty(), None).unwrap();
        self.0.push(target.into());
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let _ = unmount(path, UnmountFlags::DETACH);
        }
    }
}

fn assert_shown_elsewhere(ground: &RunGround) {
    let at = |directory: &Path| json!([directory.join(".env"), directory.join("file")]);
    let (tree, place) = (&ground.tree, ground.path());
    let mut mounts = Mounts(Vec::new());
    // As systemd makes all mounts.
    mounts.bind(place, place);
    mount_change(place, MountPropagationFlags::SHARED).unwrap();
    ground.make_directory(&tree.join("a"));
    mounts.mount("tmpfs", &tree.join("data"));
    for directory in ["a", "data"] {
        ground.write(&tree.join(directory).join(".env"), SECRET);
        ground.write(&tree.join(directory).join("file"), "content");
    }
    for (source, name) in [
        (tree.clone(), "of-tree"),
        (ground.around.clone(), "of-around"),
        (tree.join("a"), "of-a"),
        (tree.join("data"), "of-data"),
    ] {
        mounts.bind(&source, &place.join(name));
    }
    let bound = mounts.0[2..].to_vec();
    mounts.mount("proc", &place.join("proc"));
    let places = json!({
        "tree": at(&place.join("of-tree")),
        "around": at(&place.join("of-around/tree")),
        "directory": at(&place.join("of-a")),
        "mount": at(&place.join("of-data")),
        "mount in tree": at(&tree.join("data")),
    });
    let later = place.join("later");
    fs::create_dir(&later).unwrap();
    ground.make_directory(&tree.join("later"));
    let more: [(&str, Value); 5] = [
        ("places", places),
        ("mounts", json!(bound)),
        ("proc", json!(place.join("proc"))),
        ("outside", json!(std::process::id())),
        ("later", json!(later)),
    ];
    let mut talk = Talk::start(&mut inside(ground, &[], ATTEMPTS, &more));
    talk.wait_for("ready");
    mounts.bind(tree, &later);
    mounts.bind(tree, &tree.join("later"));
    assert_eq!(fs::read_to_string(later.join(".env")).unwrap(), SECRET);
    talk.say("go");
    assert_inside(ground.who, &talk.end(), EXPECTED);
}

/// Sockets, terminals and cgroups are reached by another mount as well, in the root directories of containers.
#[test]
fn other_mounts_of_what_is_empty_are_empty() {
    for ground in grounds(ON_TREE_OF_USER) {
        let mut mounts = Mounts(Vec::new());
        let marked = tempfile::tempdir_in("/tmp").unwrap();
        let name = marked.path().file_name().unwrap().to_str().unwrap();
        let places: Vec<PathBuf> = ["/tmp", "/run", "/dev", "/dev/pts", "/sys"]
            .iter()
            .map(|source| {
                let place = ground.path().join(source.replace('/', "-"));
                mounts.bind(Path::new(source), &place);
                assert_ne!(fs::read_dir(&place).unwrap().count(), 0, "{source}");
                place
            })
            .collect();
        let list: Vec<&str> = places.iter().map(|it| it.to_str().unwrap()).collect();
        let script = format!("for place in {}; do ls -A $place; done", list.join(" "));
        let output = ground.shell(&[], &script);
        succeeded(&output);
        assert_eq!((stdout(&output), stderr(&output)), Default::default());
        // What is named is shown.
        let also = format!("--also={}", list[0]);
        let said = stdout(&ground.shell(&[&also], &format!("ls -d {}/{name}", list[0])));
        assert_eq!(said, format!("{}/{name}\n", list[0]));
    }
}

#[test]
fn other_mounts_of_the_tree_show_what_the_policy_shows() {
    grounds(ON_TREE_OF_USER).for_each(|ground| assert_shown_elsewhere(&ground));
}

/// Rules by path would hold for one of the two paths, and for none if it is the tree that is covered.
/// While a sandbox is built, the host unmounts them, and renames the directories in which they are.
#[test]
fn other_mounts_of_the_tree_that_move_or_go_show_what_the_policy_shows() {
    for ground in grounds([Who::User, Who::RootOnTreeOfUser]) {
        let [from, to] = ["from", "to"].map(|it| ground.path().join(it));
        ground.write(&ground.tree.join(".env"), SECRET);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::create_dir(&from).unwrap();
                    let mut mounts = Mounts::default();
                    for number in 0..30 {
                        mounts.bind(&ground.tree, &from.join(number.to_string()));
                    }
                    for (one, other) in [(&from, &to), (&to, &from)].iter().cycle().take(40) {
                        fs::rename(one, other).unwrap();
                    }
                    drop(mounts);
                    fs::remove_dir_all(&from).unwrap();
                }
            });
            let script = format!(
                "cat {0}/*/.env {1}/*/.env || true",
                from.display(),
                to.display()
            );
            for _ in 0..5 {
                let output = ground.shell(&[], &script);
                is_over.store(!output.status.success(), Ordering::Relaxed);
                succeeded(&output);
                assert!(!stdout(&output).contains(SECRET), "{output:?}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn mount_of_the_tree_in_itself_is_refused_and_no_proc_is_entered() {
    for ground in grounds(ON_TREE_OF_USER) {
        let place = ground.tree.join("place");
        ground.make_directory(&place);
        for source in [&ground.tree, &ground.around, &ground.tree.join(".git")] {
            let mut mounts = Mounts(Vec::new());
            mounts.bind(source, &place);
            fails(
                &ground.shell(&[], "true"),
                125,
                "place shows a part of it again",
            );
        }
        let mut mounts = Mounts(Vec::new());
        mounts.bind(Path::new("/proc"), &place);
        let outside = format!(
            "ls place 2>/dev/null || cat place/{}/comm",
            std::process::id()
        );
        assert_eq!(stdout(&ground.shell(&[], &outside)), "");
    }
}

/// The command could remove the file, and with it what covers the mount.
#[test]
fn mount_of_a_single_file_elsewhere_is_refused() {
    for ground in grounds(ON_TREE_OF_USER) {
        let place = ground.path().join("of-file");
        fs::write(&place, "").unwrap();
        let mut mounts = Mounts(Vec::new());
        mounts.bind(&ground.tree.join("file"), &place);
        let mut command = ground.thrufs_run(&["--redact=file"]);
        let script = "rm \"$1\"; cat \"$2\"";
        command.args(["sh", "-c", script, "sh"]);
        let output = run(command.arg(ground.tree.join("file")).arg(&place));
        let refusal = "of-file: it is a mount of a single file of the tree";
        fails(&output, 125, refusal);
        drop(mounts);
        succeeded(&ground.shell(&["--redact=file"], "true"));
    }
}

#[test]
fn other_mounts_of_an_emptied_home_directory_are_empty_too() {
    let Some(ground) = ground(Who::User) else {
        return;
    };
    ground.write(&ground.home.join("file"), "content");
    let place = ground.path().join("of-home");
    let mut mounts = Mounts(Vec::new());
    mounts.bind(&ground.home, &place);
    let list = format!("ls -A {}", place.display());
    for (options, expected) in [(&["--only"][..], ""), (&[], "file\n")] {
        let said = stdout(&ground.shell(options, &list));
        assert_eq!(said, expected, "{options:?}");
    }
}

/// Changes a log in its directory while the command runs.
type Change = fn(&RunGround, &Path, &Path);

/// What is said, and where the log is at the end.
const CHANGES: [(&str, Change, &str, &str); 5] = [
    ("left alone", |_, _, _| {}, "", "logs/log"),
    (
        "removed",
        |_, _, log| fs::remove_file(log).unwrap(),
        "was changed or replaced",
        "logs/log",
    ),
    (
        "replaced",
        |ground, _, log| {
            fs::remove_file(log).unwrap();
            ground.write(log, "forged\n");
        },
        "was changed or replaced",
        "logs/log",
    ),
    (
        "cut",
        |_, _, log| fs::write(log, "").unwrap(),
        "was changed or replaced",
        "logs/log",
    ),
    (
        "its directory replaced",
        |ground, directory, log| {
            fs::rename(directory, directory.with_file_name("moved")).unwrap();
            ground.make_directory(directory);
            ground.write(log, "forged\n");
        },
        "moved/log",
        "moved/log",
    ),
];

#[test]
fn audit_log_that_is_removed_replaced_or_cut_is_written_again_and_reported() {
    for ground in grounds(ON_TREE_OF_USER) {
        for (what, change, message, place) in CHANGES {
            let directory = ground.home.join("logs");
            ground.make_directory(&directory);
            let log = directory.join("log");
            let option = format!("--audit={}", log.display());
            let mut command = ground.thrufs_run(&["--profile=none", &option]);
            let script = "cat file; echo; echo read; read _";
            command.current_dir(&ground.tree).args(["sh", "-c", script]);
            let mut talk = Talk::start(&mut command);
            talk.wait_for("read");
            let written = fs::read_to_string(&log).unwrap();
            assert!(written.contains("\"file\""), "{what}");
            change(&ground, &directory, &log);
            let output = talk.end();
            let errors = stderr(&output);
            assert!(errors.contains(message), "{what}: {errors}");
            let is_failed = output.status.code() == Some(125);
            assert_eq!(is_failed, !message.is_empty(), "{what}: {errors}");
            assert_eq!(errors.is_empty(), message.is_empty(), "{what}: {errors}");
            let kept = fs::read_to_string(ground.home.join(place)).unwrap();
            let is_kept = kept.contains("\"file\"") && !kept.contains("forged");
            assert!(is_kept, "{what}: {kept}");
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

#[test]
fn audit_log_cannot_be_changed_by_another_mount() {
    let Some(ground) = ground(Who::User) else {
        return;
    };
    let place = ground.path().join("of-home");
    let mut mounts = Mounts(Vec::new());
    mounts.bind(&ground.home, &place);
    let log = ground.home.join("log");
    let script = format!("! echo forged >>{}/log", place.display());
    let option = format!("--audit={}", log.display());
    succeeded(&ground.shell(&[&option], &script));
    assert!(!fs::read_to_string(log).unwrap().contains("forged"));
}
