//! Owners of files on mounts with mapped ids.

#![forbid(unsafe_code)]

use crate::ground::prelude::*;

const MAPPED: &str = "allow_other,uidmap=0:100000:65536,gidmap=0:100000:65536";

/// The overflow id, which stands for unmapped ids, does not own their files.
#[test]
fn no_user_owns_files_of_unmapped_ids() {
    const OVERFLOW: u32 = 65_534;
    let Some(ground) = Ground::new() else { return };
    let secret = ground.src.join("secret");
    fs::write(&secret, "of root").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    succeeded(&ground.mount(&["-o", MAPPED]));
    let shown = fs::metadata(ground.mnt.join("secret")).unwrap();
    assert_eq!((shown.uid(), shown.gid()), (OVERFLOW, OVERFLOW));
    for (user, script) in [
        (OVERFLOW, "cat secret"),
        (OVERFLOW, "echo x >>secret"),
        (OVERFLOW, "chmod 666 secret"),
        (0, "echo x >>secret"),
        (0, "chmod 666 secret"),
        (0, "chown 0 secret"),
    ] {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).current_dir(&ground.mnt);
        let output = run(shell.uid(user).gid(user));
        assert!(!output.status.success(), "{script} by {user}");
    }
    ground::unmount_by_command(&ground.mnt);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "of root");
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
}
