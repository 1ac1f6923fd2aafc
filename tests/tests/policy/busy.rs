//! EBUSY: only for a file that is open in a way that shows what is now redacted.

use crate::samples;
use crate::served::{NOTHING, REDACT, errno, is_redacted, put, whole, with_policy};
use thrufs_tests::prelude::*;

const NAME: &str = "photos/a.jpg";

fn fill(source: &Path) {
    put(source, NAME, &samples::photograph());
    put(source, "other.jpg", &samples::photograph());
}

/// Waits until the server has received the last RELEASE.
#[track_caller]
pub fn until_free(path: &Path) {
    wait_until("it to be free", || errno(File::open(path)) != libc::EBUSY);
    drop(File::open(path).unwrap());
}

const MODES: [&str; 5] = [
    "cache=auto",
    "cache=always",
    "cache=never",
    "cache=auto,nopassthrough",
    "cache=always,nopassthrough",
];

#[test]
fn a_file_is_busy_while_an_unredacted_descriptor_is_open() {
    for options in MODES {
        with_policy(options, NOTHING, fill, |served| {
            let path = served.at(NAME);
            let held = File::open(&path).unwrap();
            assert!(!samples::is_clean(&whole(&held).unwrap()));
            served.reload(REDACT);
            for _ in 0..3 {
                assert_eq!(errno(File::open(&path)), libc::EBUSY, "{options}");
                assert_eq!(
                    errno(OpenOptions::new().write(true).open(&path)),
                    libc::EBUSY
                );
            }
            // Other files are not busy.
            assert_eq!(errno(File::open(served.at("other.jpg"))), 0);
            // What was granted stays.
            assert_eq!(whole(&held).unwrap(), samples::photograph());
            drop(held);
            until_free(&path);
            assert!(is_redacted(&path), "{options}");
        });
    }
}

/// The other direction: a redacted descriptor stays redacted, and further ones join it.
#[test]
fn a_file_stays_filtered_until_its_last_close() {
    for options in MODES {
        with_policy(options, REDACT, fill, |served| {
            let path = served.at(NAME);
            let held = File::open(&path).unwrap();
            served.reload(NOTHING);
            let joined = File::open(&path).unwrap();
            for file in [&held, &joined] {
                assert!(samples::is_clean(&whole(file).unwrap()));
            }
            assert_eq!(served.way(NAME), "filtered");
            drop((held, joined));
            wait_until("what is not filtered", || !is_redacted(&path));
            assert_eq!(fs::read(&path).unwrap(), samples::photograph());
        });
    }
}

#[test]
fn the_same_redaction_by_another_rule_does_not_make_it_busy() {
    with_policy("", REDACT, fill, |served| {
        let path = served.at(NAME);
        let held = File::open(&path).unwrap();
        served.reload(&format!("{REDACT}name = 'renamed'\nerrno = 'EIO'\n"));
        assert_eq!(fs::read(&path).unwrap(), whole(&held).unwrap());
    });
}
