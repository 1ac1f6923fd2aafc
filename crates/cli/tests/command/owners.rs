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

/// Even a user that a map makes the owner of root's file.
#[test]
fn no_id_map_lets_another_user_create_a_set_id_program_of_root() {
    const STRANGER: u32 = 65_534;
    let Some(ground) = Ground::new() else { return };
    let squashed = format!("allow_other,uid={STRANGER},gid={STRANGER}");
    for options in [
        squashed.as_str(),
        MAPPED,
        "allow_other,uidmap=65534:100000:1",
    ] {
        fs::set_permissions(&ground.src, fs::Permissions::from_mode(0o777)).unwrap();
        // A mapped owner: in a directory of an unmapped one, no user can create files.
        chown(&ground.src, Some(100_000), Some(100_000)).unwrap();
        fs::copy("/bin/true", ground.src.join("program")).unwrap();
        succeeded(&ground.mount(&["-o", options]));
        let script = "cp /bin/true made; chmod 4755 made; chmod 2755 made; chmod 4755 program; \
                      chmod 2755 program; install -m 6755 /bin/true installed; umask 0; \
                      perl -e 'use Fcntl; sysopen(F, \"opened\", O_CREAT|O_WRONLY, 06755)' || true";
        let _ = run(Command::new("sh")
            .args(["-c", script])
            .current_dir(&ground.mnt)
            .uid(STRANGER)
            .gid(STRANGER));
        ground::unmount_by_command(&ground.mnt);
        let mut seen = 0;
        for entry in fs::read_dir(&ground.src).unwrap() {
            let metadata = entry.as_ref().unwrap().metadata().unwrap();
            let (uid, gid, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
            let set = (uid == 0 && mode & 0o4000 != 0) || (gid == 0 && mode & 0o2010 == 0o2010);
            assert!(!set, "{options}: {entry:?} is {mode:o} of {uid}:{gid}");
            seen += 1;
        }
        assert!(seen > 1, "{options}");
    }
}
