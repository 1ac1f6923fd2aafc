//! Where the programs under test and beside it are.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use thrufs_testing::process::Process;

/// The server: `THRUFS_BIN`, else `thrufs` in the build directory of this test. A missing server is a
/// failure, not a reason to skip.
pub fn thrufs() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os("THRUFS_BIN") {
        let path = PathBuf::from(path);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!(
                "THRUFS_BIN is {}, which is no file",
                path.display()
            ))
        };
    }
    built("thrufs").ok_or_else(|| {
        "no `thrufs` binary beside this test: build it with `cargo build -p thrufs-cli`, \
         or name one in THRUFS_BIN"
            .to_owned()
    })
}

pub fn thrufs_client() -> Result<PathBuf, String> {
    built("thrufs-client").ok_or_else(|| {
        "no `thrufs-client` binary beside this test: build it with `cargo build -p thrufs-client`"
            .to_owned()
    })
}

/// Starts `thrufs-test-helper`; its documentation lists the commands.
#[track_caller]
pub fn start_helper<S: AsRef<OsStr>>(command: &[S]) -> Process {
    let helper = built("thrufs-test-helper");
    Process::start(
        &helper.expect("cargo builds thrufs-test-helper with the tests"),
        command,
    )
}

/// Runs it to its end: what it prints.
#[track_caller]
pub fn run_helper<S: AsRef<OsStr>>(command: &[S]) -> String {
    start_helper(command).output()
}

/// What `thrufs ctl` prints about the mount at `mnt`.
#[track_caller]
pub fn ctl(mnt: &Path, command: &str) -> String {
    let mut ctl = Command::new(thrufs().unwrap());
    let output = ctl.arg("ctl").arg(mnt).arg(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn slow_files() -> PathBuf {
    built("thrufs-slow-files").expect("cargo builds thrufs-slow-files with the tests")
}

/// A program of this workspace. A test runs from `target/PROFILE/deps/`, a binary from
/// `target/PROFILE/`.
fn built(name: &str) -> Option<PathBuf> {
    let test = env::current_exe().ok()?;
    test.ancestors()
        .skip(1)
        .take(3)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}
