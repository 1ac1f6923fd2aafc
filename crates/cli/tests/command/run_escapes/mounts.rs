//! Mounts and namespaces: what is beneath the tree stays covered.

use super::{Expected, assert_inside, assert_outside, grounds, inside, outside};
use crate::ground::prelude::*;
use crate::run_ground::{EVERYONE, PYTHON, USER, Who};
use serde_json::json;

const ATTEMPTS: &str = include_str!("mounts.py");

const EXPECTED: &[Expected<'_>] = &[
    ("umount_as_the_user", "EPERM", "done"),
    ("umount_tree", "EINVAL", "SECRET"),
    ("umount_tree_lazily", "EINVAL", "SECRET"),
    ("umount_tree_by_force", "EINVAL", "SECRET"),
    ("umount_tree_when_unused", "EINVAL", "*"),
    ("umount_others", "EINVAL", "*"),
    ("bind_around", "EINVAL", "SECRET"),
    ("bind_around_with_its_mounts", "EINVAL", "SECRET"),
    ("detach_around_and_look_by_a_descriptor", "ENOENT", "SECRET"),
    ("clone_around", "EINVAL", "SECRET"),
    ("clone_around_with_its_mounts", "EINVAL", "SECRET"),
    ("move_tree", "EINVAL", "SECRET"),
    ("move_tree_by_move_mount", "EINVAL", "SECRET"),
    ("mount_beneath_the_tree", "EINVAL", "done"),
    ("pivot_root_and_look_by_a_descriptor", "ENOENT", "SECRET"),
    ("overlay_of_around", "EINVAL", "SECRET"),
    // In a draft of root's, file systems are stacked too high for another.
    ("overlay_of_tree", "ENOENT|EINVAL", "*"),
    ("change_root_and_leave", "ENOENT", "*"),
    ("write_to_read_only", "EROFS", "EROFS"),
    ("remount_read_only_writable", "EPERM", "done"),
    ("remount_read_only_by_mount_setattr", "EPERM", "done"),
    ("let_the_tree_have_set_user_id_programs", "EPERM", "done"),
    ("reconfigure_the_tree", "EPERM", "done"),
    ("open_a_disk_file_system", "EPERM", "*"),
    ("mount_fuse", "ENOENT", "done"),
    ("mount_proc", "done", "*"),
    ("mount_proc_shows", "1 process", "*"),
    ("mount_sys_writable", "EPERM", "done"),
    ("make_a_device", "EPERM", "*"),
    ("open_by_handle_as_the_user", "EPERM", "*"),
    ("open_by_handle", "EPERM", "*"),
    // Outside, before Linux 6.11, EPERM.
    ("open_directory_by_handle", "EPERM", "SECRET|EPERM"),
    (
        "open_directory_by_handle_in_a_copy_of_around",
        "EINVAL",
        "SECRET|EPERM",
    ),
    (
        "open_directory_by_handle_in_a_copy_of_another",
        "ESTALE|EPERM",
        "*",
    ),
    ("guess_handles_of_the_tree", "none|ENOTSUP", "*"),
    ("namespaces_of_process_1", "EACCES", "*"),
    ("namespaces_around", "EPERM", "*"),
    ("rename_the_directory_around", "ENOENT|EACCES", "*"),
    (
        "remove_the_tree_from_a_namespace_without_it",
        "ENOTEMPTY|EACCES",
        "*",
    ),
    (
        "exchange_the_tree_from_a_namespace_without_it",
        "ENOENT",
        "*",
    ),
];

/// A handle of a file beneath: type and bytes.
pub(super) fn handle(file: &Path) -> Value {
    let script = "\
import ctypes, json, os, sys
class Handle(ctypes.Structure):
    _fields_ = [('size', ctypes.c_uint), ('kind', ctypes.c_int), ('bytes', ctypes.c_ubyte * 128)]
handle, mount = Handle(128), ctypes.c_int()
name = os.fsencode(sys.argv[1])
call = ctypes.CDLL(None).name_to_handle_at
assert call(-100, name, ctypes.byref(handle), ctypes.byref(mount), 0) == 0
print(json.dumps([handle.kind, bytes(handle.bytes[:handle.size]).hex()]))";
    let mut python = Command::new(PYTHON);
    let output = run(python.args(["-c", script]).arg(file));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn mounts_of_the_sandbox_cannot_be_removed_or_looked_beneath() {
    for ground in grounds(EVERYONE) {
        let also = ground.home.join("also");
        ground.make_directory(&also);
        ground.write(&also.join("file"), "");
        let show = format!("--also={}", also.display());
        // The user has no home of its own.
        let (options, read_only) = match ground.who {
            Who::RootOnTreeOfUser => (&[][..], "/sys".into()),
            _ => (&["--only", &show][..], also),
        };
        let more = [
            ("read_only", json!(read_only)),
            ("handle", handle(&ground.tree.join(".env"))),
            ("tree_handle", handle(&ground.tree)),
            ("uid", json!(USER)),
        ];
        let output = run(&mut inside(&ground, options, ATTEMPTS, &more));
        assert_inside(ground.who, &output, EXPECTED);
        let (drafts, _) = ground.drafts();
        let options = [options, &["--draft", &drafts]].concat();
        let output = run(&mut inside(&ground, &options, ATTEMPTS, &more));
        assert_inside(ground.who, &output, EXPECTED);
        if ground.who == Who::User {
            assert_outside(&run(&mut outside(&ground, ATTEMPTS, &more)), EXPECTED);
        }
    }
}
