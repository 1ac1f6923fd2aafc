//! Hidden and read-only names, and programs of other users.

use super::{Expected, assert_inside, assert_outside, grounds, inside, outside};
use crate::ground::prelude::*;
use crate::run_ground::{EVERYONE, RunGround, Who};
use serde_json::json;

const ATTEMPTS: &str = include_str!("names.py");

const EXPECTED: &[Expected<'_>] = &[
    ("look_at_hidden", "ENOENT", "*"),
    ("list_hidden", "none", ".env"),
    ("hidden_by_a_symbolic_link_in_the_tree", "ENOENT", "SECRET"),
    ("hidden_by_a_symbolic_link_from_outside", "ENOENT", "SECRET"),
    ("link_file_out", "EXDEV", "done"),
    ("link_file_in", "EXDEV", "done"),
    ("rename_file_out", "EXDEV", "done"),
    ("rename_file_in", "EXDEV", "done"),
    ("write_hidden", "EACCES", "done"),
    ("make_hidden_directory", "EACCES", "done"),
    ("make_hidden_fifo", "EACCES", "done"),
    ("bind_hidden_socket", "EACCES", "done"),
    ("make_hidden_symbolic_link", "EACCES", "done"),
    ("link_hidden", "EACCES", "done"),
    ("link_unnamed_as_hidden", "EACCES", "done"),
    ("rename_to_hidden", "EACCES", "done"),
    ("rename_directory_to_hidden", "EACCES", "done"),
    ("exchange_with_hidden", "ENOENT", "done"),
    ("write_git_config", "EROFS", "done"),
    ("write_git_hooks", "EROFS", "done"),
    ("replace_git_hooks", "EROFS", "done"),
    ("change_git_by_a_map", "EACCES", "*"),
    ("change_git_as_root", "EROFS", "*"),
    ("write_settings_of_the_kernel", "EACCES", "*"),
    ("write_settings_of_the_kernel_as_root", "EACCES", "*"),
    ("replace_the_tree", "EBUSY|EACCES", "done"),
    ("program_of_another_user", "as before", "other user"),
    (
        "program_of_another_user_in_the_tree",
        "as before",
        "other user",
    ),
    ("make_program_of_root", "EPERM|none of root", "*"),
    ("write_to_program_of_another_user", "no bits", "*"),
    ("give_capabilities", "EPERM|done", "*"),
];

/// Names, modes, sizes and times of a directory and all beneath.
fn state(directory: &Path) -> Vec<(PathBuf, u32, u64, i64)> {
    let mut state = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        if stat.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
        state.push((path, stat.mode(), stat.len(), stat.ctime_nsec()));
    }
    state.sort();
    state
}

/// Two copies of id(1) that run as root, or, on a tree of root, as any other user than root.
fn programs(ground: &RunGround) -> [(&'static str, Value); 2] {
    let paths = [ground.path().join("id"), ground.tree.join("id")];
    let owner = match ground.who {
        Who::RootOnTreeOfRoot => "1",
        _ => "0",
    };
    for path in &paths {
        let mut install = Command::new("install");
        install.args(["-o", owner, "-m", "4755", "/usr/bin/id"]);
        succeeded(&run(install.arg(path)));
    }
    [
        ("program", json!(paths[0])),
        ("program_in_tree", json!(paths[1])),
    ]
}

/// No file of the tree has set-id bits of root, or capabilities of the initial user namespace.
fn assert_no_program_of_root(tree: &Path, given: &Path) {
    for entry in fs::read_dir(tree).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        let is_of_root = stat.mode() & 0o4000 != 0 && stat.uid() == 0;
        assert!(path == given || !is_of_root || !stat.is_file(), "{path:?}");
        let mut value = [0; 64];
        let capability = rustix::fs::lgetxattr(&path, "security.capability", &mut value);
        if let Ok(length) = capability {
            // `struct vfs_ns_cap_data`: revision 3 has the user that is root where they count.
            assert_eq!((length, value[3]), (24, 3), "{path:?}");
            assert_ne!(value[20..24], [0; 4], "{path:?}");
        }
    }
}

#[test]
fn hidden_and_read_only_names_hold() {
    for ground in grounds(EVERYONE) {
        let programs = programs(&ground);
        let git = ground.tree.join(".git");
        let before = state(&git);
        let output = run(&mut inside(&ground, &[], ATTEMPTS, &programs));
        assert_inside(ground.who, &output, EXPECTED);
        assert_eq!(state(&git), before);
        assert_no_program_of_root(&ground.tree, &ground.tree.join("id"));
        if ground.who == Who::User {
            let output = run(&mut outside(&ground, ATTEMPTS, &programs));
            assert_outside(&output, EXPECTED);
            assert_ne!(state(&git), before);
        }
    }
}
