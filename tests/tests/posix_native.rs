//! The POSIX case list on the native file systems: the list itself must be right. Nothing of the product
//! is in that: only in the full tier.

use std::process::ExitCode;

use thrufs_test_report::is_full;
use thrufs_tests::suite;

fn main() -> ExitCode {
    let skip = (!rustix::process::geteuid().is_root())
        .then(|| "not root: making file systems and acting as other users need it".to_owned());
    if is_full() {
        suite::run(&suite::native_settings(), skip)
    } else {
        suite::run(&[], None)
    }
}
