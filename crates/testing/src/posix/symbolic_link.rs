//! symlink and readlink.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    target_is_kept_byte_for_byte,
    size_is_the_length_of_the_target: "symlink twelve-bytes link; is link size 12",
    long_targets [NotXfs],
    is_followed:
        "file file content; symlink file link; is link text content; file link written through;
         is file text written through; open @f link r; is @f ino file; chmod link 600;
         is file mode 600",
    mode_is_all: "umask 77; symlink x link; is link mode 777",
    replaced_target_is_seen:
        "symlink first link; is link target first; symlink second-target new; rename new link;
         is link target second-target; unlink link; symlink third link; is link target third",
};

fn symlink(env: &Env, target: impl AsRef<OsStr>, name: &str) {
    rustix::fs::symlink(target.as_ref(), env.path(name)).unwrap();
}

fn target_is_kept_byte_for_byte(env: &Env) {
    let odd = OsStr::from_bytes(b"a//b/../\xff\x01 ./");
    symlink(env, odd, "odd");
    assert_eq!(fs::read_link(env.path("odd")).unwrap().as_os_str(), odd);
    env.agree("odd");
}

fn long_targets(env: &Env) {
    // 59 and 60 are where ext4 moves a target out of the inode; 4095 is the longest.
    for len in [1, 59, 60, 255, 256, 1023, 4095] {
        let target = "t".repeat(len);
        let name = format!("link{len}");
        symlink(env, &target, &name);
        assert_eq!(fs::read_link(env.path(&name)).unwrap(), Path::new(&target));
        env.agree(&name);
    }
    let path = env.path("too_long");
    fails(
        rustix::fs::symlink("t".repeat(4096), path),
        Errno::NAMETOOLONG,
    );
}
