//! Snapshots of the file system beneath, which owners of a subvolume of btrfs may make.

use super::ground;
use crate::ground::prelude::*;
use crate::run_ground::{RunGround, SECRET, USER, Who, make_tree};

/// A mounted file system with the subvolume `home`, which belongs to the user.
struct Btrfs(PathBuf);

impl Btrfs {
    fn new(ground: &RunGround) -> Option<Btrfs> {
        let image = ground.path().join("image");
        File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            skipped("no mkfs.btrfs (package btrfs-progs)");
            return None;
        }
        let point = ground.path().join("btrfs");
        fs::create_dir(&point).unwrap();
        let mut mount = Command::new("mount");
        let output = run(mount.args(["-o", "loop"]).args([&image, &point]));
        if !output.status.success() {
            skipped(&format!("btrfs on a loop device: {output:?}"));
            return None;
        }
        Some(Btrfs(point))
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

fn btrfs(action: &str, paths: &[&Path]) -> Command {
    let mut command = Command::new("btrfs");
    command.args(["subvolume", action]).args(paths);
    command
}

#[test]
fn snapshots_that_contain_the_tree_cannot_be_made() {
    let Some(ground) = ground(Who::User) else {
        return;
    };
    let Some(mounted) = Btrfs::new(&ground) else {
        return;
    };
    let home = mounted.0.join("home");
    succeeded(&run(&mut btrfs("create", &[&home])));
    let (tree, snapshot) = (home.join("tree"), home.join("snapshot"));
    make_tree(&tree);
    let mut owner = Command::new("chown");
    succeeded(&run(owner.args(["-R", &USER.to_string()]).arg(&home)));
    let make = btrfs("snapshot", &[&home, &snapshot]);
    let mut command = ground.starter(&ground.program);
    command
        .arg("run")
        .arg(&tree)
        .arg("--")
        .arg("btrfs")
        .args(make.get_args());
    fails(&run(&mut command), 1, "Operation not permitted");
    assert!(!snapshot.exists());
    let mut command = ground.outside("btrfs");
    succeeded(&run(command.args(make.get_args())));
    assert_eq!(
        fs::read_to_string(snapshot.join("tree/.env")).unwrap(),
        SECRET
    );
}
