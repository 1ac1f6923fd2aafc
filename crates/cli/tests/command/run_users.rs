//! Users and groups in `thrufs run`.

use crate::ground::prelude::*;
use crate::run_ground::{RunGround, USER, Who};
use std::fs::Permissions;

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

/// Started by these words, `thrufs run -- true` fails, and says this.
const CONTAINERS: [(Who, &str, &str); 4] = [
    (Who::User, "$THRUFS run --", "`--also-write /dev/fuse`"),
    (Who::RootOnTreeOfRoot, "$THRUFS run --", "has no user"),
    (
        Who::RootOnTreeOfRoot,
        "setpriv --bounding-set -sys_admin --inh-caps -sys_admin",
        "root needs CAP_SYS_ADMIN",
    ),
    (Who::User, "unshare --user --map-root-user", "has no user"),
];

#[test]
fn in_containers_run_says_what_is_missing() {
    for (who, container, expected) in CONTAINERS {
        let Some(ground) = RunGround::new(who) else {
            return;
        };
        let script = format!("{container} $THRUFS run -- true");
        let output = run(ground.on_the_host("sh").args(["-c", &script]));
        fails(&output, 125, expected);
        if expected.contains("--also-write") {
            let script = "$THRUFS run --also-write /dev/fuse -- $THRUFS run -- true";
            succeeded(&run(ground.on_the_host("sh").args(["-c", script])));
        }
    }
}

/// A container that hides a place of /proc, and one without any.
#[test]
fn where_no_proc_can_be_mounted_run_says_so() {
    let Some(ground) = RunGround::new(Who::User) else {
        return;
    };
    let script = "mount -t tmpfs none /proc/fs && exec setpriv --reuid=$0 --regid=$0 --clear-groups \
                  $THRUFS run -- true";
    let mut command = ground.on_the_host("unshare");
    command.uid(0).gid(0).args(["--mount", "sh", "-c", script]);
    let output = run(command.arg(USER.to_string()));
    fails(&output, 125, "unmask=ALL");
}
