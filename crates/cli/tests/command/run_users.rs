//! Users and groups in `thrufs run`.

use crate::ground::{stdout, succeeded};
use crate::run_ground::{RunGround, Who};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

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
