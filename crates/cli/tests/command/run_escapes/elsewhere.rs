//! Other mounts of the tree, of directories around it and in it, and of what is mounted in it.

use super::{Expected, Talk, assert_expected, ground, known, outcomes, python};
use crate::ground::{fails, run, stderr, stdout, succeeded};
use crate::run_ground::{RunGround, SECRET, Who};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const ATTEMPTS: &str = include_str!("elsewhere.py");

const EXPECTED: &[Expected<'_>] = &[
    ("files", "content", ""),
    ("unmount_them", "EINVAL", ""),
    ("another_proc", "EACCES", ""),
    ("mounted_later", "ENOENT", ""),
    ("mounted_later_in_the_tree", "ENOENT", ""),
];

/// Mounts of a test, unmounted on drop.
struct Mounts(Vec<PathBuf>);

impl Mounts {
    fn bind(&mut self, source: &Path, target: &Path) {
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
    let at = |directory: &str| {
        let directory = place.join(directory);
        json!([directory.join(".env"), directory.join("file")])
    };
    let places = json!({
        "tree": at("of-tree"),
        "around": at("of-around/tree"),
        "directory": at("of-a"),
        "mount": at("of-data"),
        "mount in tree": at("around/tree/data"),
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
    let mut command = ground.thrufs_run(&[]);
    python(&mut command, ATTEMPTS, &known(ground, false, &more));
    let mut talk = Talk::start(&mut command);
    talk.wait_for("ready");
    mounts.bind(tree, &later);
    mounts.bind(tree, &tree.join("later"));
    assert_eq!(fs::read_to_string(later.join(".env")).unwrap(), SECRET);
    talk.say("go");
    let mut output = talk.end();
    let secrets = outcomes(&output).remove("secrets").unwrap();
    let secrets: serde_json::Map<String, Value> = serde_json::from_str(&secrets).unwrap();
    assert!(secrets.values().all(|it| it == "ENOENT"), "{secrets:?}");
    assert_eq!(secrets.len(), 5);
    output.stdout = stdout(&output)
        .lines()
        .filter(|line| !line.starts_with("secrets: "))
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect();
    let inside = EXPECTED.iter().map(|(name, inside, _)| (*name, *inside));
    assert_expected("inside", &output, inside);
}

/// Sockets, terminals and cgroups are reached by another mount as well, in the root directories of containers.
#[test]
fn other_mounts_of_what_is_empty_are_empty() {
    for who in [Who::User, Who::RootOnTreeOfUser] {
        let Some(ground) = ground(who) else { return };
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
    for who in [Who::User, Who::RootOnTreeOfUser] {
        let Some(ground) = ground(who) else { return };
        assert_shown_elsewhere(&ground);
    }
}

/// The command could remove the file, and with it what covers the mount.
#[test]
fn mount_of_a_single_file_elsewhere_is_refused() {
    for who in [Who::User, Who::RootOnTreeOfUser] {
        let Some(ground) = ground(who) else { return };
        let place = ground.path().join("of-file");
        fs::write(&place, "").unwrap();
        let mut mounts = Mounts(Vec::new());
        mounts.bind(&ground.tree.join("file"), &place);
        let mut command = ground.thrufs_run(&["--redact=file"]);
        let script = "rm \"$1\"; cat \"$2\"";
        command.args(["sh", "-c", script, "sh"]);
        let output = run(command.arg(ground.tree.join("file")).arg(&place));
        fails(
            &output,
            125,
            "of-file: it is a mount of a single file of the tree",
        );
        drop(mounts);
        let mut command = ground.thrufs_run(&["--redact=file"]);
        fails(&run(command.arg("true")), 0, "");
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
        assert_eq!(
            stdout(&ground.shell(options, &list)),
            expected,
            "{options:?}"
        );
    }
}

#[test]
fn audit_log_whose_directory_is_replaced_is_reported_with_its_place() {
    for who in [Who::User, Who::RootOnTreeOfUser] {
        let Some(ground) = ground(who) else {
            return;
        };
        let (directory, moved) = (ground.home.join("logs"), ground.home.join("moved"));
        ground.make_directory(&directory);
        let log = directory.join("log");
        let option = format!("--audit={}", log.display());
        let mut command = ground.thrufs_run(&["--profile=none", &option]);
        let script = "cat file; echo; echo read; read _";
        command.current_dir(&ground.tree).args(["sh", "-c", script]);
        let mut talk = Talk::start(&mut command);
        talk.wait_for("read");
        fs::rename(&directory, &moved).unwrap();
        ground.make_directory(&directory);
        ground.write(&log, "forged\n");
        let output = talk.end();
        let place = moved.join("log").display().to_string();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(stderr(&output).contains(&place), "{output:?}");
        let kept = fs::read_to_string(moved.join("log")).unwrap();
        assert!(kept.contains("\"file\""), "{kept}");
    }
}

#[test]
fn audit_log_that_is_removed_replaced_or_cut_is_written_again() {
    for who in [Who::User, Who::RootOnTreeOfUser] {
        let Some(ground) = ground(who) else {
            return;
        };
        let log = ground.home.join("log");
        let change: [(&str, &dyn Fn()); 4] = [
            ("left alone", &|| {}),
            ("removed", &|| fs::remove_file(&log).unwrap()),
            ("replaced", &|| {
                fs::remove_file(&log).unwrap();
                ground.write(&log, "forged\n");
            }),
            ("cut", &|| fs::write(&log, "").unwrap()),
        ];
        for (what, change) in change {
            let option = format!("--audit={}", log.display());
            let mut command = ground.thrufs_run(&["--profile=none", &option]);
            let script = "cat file; echo; echo read; read _";
            command.current_dir(&ground.tree).args(["sh", "-c", script]);
            let mut talk = Talk::start(&mut command);
            talk.wait_for("read");
            assert!(
                fs::read_to_string(&log).unwrap().contains("\"file\""),
                "{what}"
            );
            change();
            let output = talk.end();
            let (kept, errors) = (fs::read_to_string(&log).unwrap(), stderr(&output));
            let is_changed = what != "left alone";
            assert_eq!(
                errors.contains("was changed or replaced"),
                is_changed,
                "{what}: {errors}"
            );
            assert_eq!(
                output.status.code() == Some(125),
                is_changed,
                "{what}: {errors}"
            );
            assert!(
                kept.contains("\"file\"") && !kept.contains("forged"),
                "{what}: {kept}"
            );
            fs::remove_file(&log).unwrap();
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
