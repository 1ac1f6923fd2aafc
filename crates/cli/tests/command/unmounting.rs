//! Unmounting a mount that also exists in another mount namespace. Such a namespace keeps all mounts that
//! exist at its creation.

use crate::ground::{self, Ground, fails, succeeded, thrufs, wait_for};
use std::fs;
use std::process::Command;

#[test]
fn unmount_reports_mounts_in_other_namespaces() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&[]));
    // A private namespace, to which unmounts do not propagate.
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
    let output = thrufs!("unmount", &ground.mnt);
    other.kill().unwrap();
    other.wait().unwrap();
    let said = fails(&output, 1, "another mount namespace");
    // Another process on this machine may have created one too.
    assert!(said.contains("runs until process"), "{said}");
    assert!(!ground.is_mounted());
    ground.wait_gone();
}
