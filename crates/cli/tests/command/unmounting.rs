//! Unmounting what another mount namespace has as well. Such a namespace would keep every mount that there
//! is when it is made.

use crate::ground::{self, Ground, THRUFS, run, stderr, succeeded, wait_for};
use std::fs;
use std::process::Command;

#[test]
fn unmount_tells_who_else_has_it_mounted() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    // A namespace into which unmounting does not go.
    let script = format!("{}; exec sleep 600", ground::WITHOUT_OTHERS);
    let mut other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg("sh")
        .arg(&ground.mnt)
        .spawn()
        .unwrap();
    let name = format!("/proc/{}/comm", other.id());
    wait_for("a namespace", || {
        fs::read_to_string(&name).unwrap() == "sleep\n"
    });
    let output = run(Command::new(THRUFS).arg("unmount").arg(&ground.mnt));
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("another mount namespace"), "{said}");
    // Somebody else on this machine may have made one too.
    assert!(said.contains("goes on until process"), "{said}");
    assert!(!ground.is_mounted());
    ground.wait_gone();
}
