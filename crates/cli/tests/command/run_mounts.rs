//! `thrufs run` beside what is mounted and unmounted on the host.

use crate::ground::prelude::*;
use crate::run_ground::{RunGround, Talk, Who, grounds};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

/// `thrufs unmount` fails while another mount namespace has the mount.
#[test]
fn what_the_host_unmounts_is_unmounted_in_runs_of_root() {
    for run in grounds([Who::RootOnTreeOfUser, Who::RootOnTreeOfRoot]) {
        let Some(ground) = Ground::new() else {
            return;
        };
        let elsewhere = run.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        // In /tmp, which the sandbox covers, and where the command sees it, with something mounted on it.
        succeeded(&ground.mount(&["-o", "allow_other"]));
        succeeded(&thrufs!(
            "mount",
            "-o",
            "allow_other",
            &ground.src,
            &elsewhere
        ));
        let script = format!(
            "cd {0}; cat file; echo; echo up; read go; cd /; for _ in $(seq 1000); do test -e {0}/file || break; sleep 0.01; done; \
             echo looked; read go",
            elsewhere.display()
        );
        let mut talk = Talk::start(run.thrufs_run(&[]).args(["sh", "-c", &script]));
        talk.wait_for("up");
        // While it is in use, it goes lazily.
        let both = [&ground.mnt, &elsewhere];
        for mount in both {
            unmount(mount, UnmountFlags::empty()).unwrap();
        }
        talk.say("go");
        talk.wait_for("looked");
        // Sandboxes of other tests keep them too, those of ordinary users until they end.
        wait_for("the servers to end", || {
            let mut left = both.into_iter();
            left.all(|mount| ground::processes("--worker", mount).is_empty())
        });
        talk.say("go");
        let output = talk.end();
        succeeded(&output);
        assert_eq!(stdout(&output), "content\n");
    }
}

/// Covered by another mount, the tree is not covered by the view.
#[test]
fn what_covers_the_tree_stays_when_the_host_unmounts_it() {
    let Some(run) = RunGround::new(Who::RootOnTreeOfUser) else {
        return;
    };
    let whole = run.path().join("whole");
    fs::create_dir(&whole).unwrap();
    mount_bind(run.path(), &whole).unwrap();
    let cover = whole.join("around");
    mount_tmpfs(&cover);
    let secret = cover.join("tree/.env");
    let probe = run.path().join("probe");
    fs::create_dir(&probe).unwrap();
    mount_tmpfs(&probe);
    fs::write(probe.join("file"), "").unwrap();
    let script = format!(
        "echo up; read go; for _ in $(seq 1000); do test -e {}/file || break; sleep 0.01; done; cat {}",
        probe.display(),
        secret.display()
    );
    let mut talk = Talk::start(run.thrufs_run(&[]).args(["sh", "-c", &script]));
    talk.wait_for("up");
    unmount(&cover, UnmountFlags::empty()).unwrap();
    assert!(fs::exists(&secret).unwrap());
    unmount(&probe, UnmountFlags::empty()).unwrap();
    talk.say("go");
    let output = talk.end();
    unmount(&whole, UnmountFlags::DETACH).unwrap();
    fails(&output, 1, "No such file or directory");
}
