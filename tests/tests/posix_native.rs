//! The POSIX case list on the native file systems: the list itself must be right.

use std::process::ExitCode;

use thrufs_tests::suite;

fn main() -> ExitCode {
    let skip = (!rustix::process::geteuid().is_root())
        .then(|| "not root: making file systems and acting as other users need it".to_owned());
    suite::run(suite::native_settings(), skip)
}
