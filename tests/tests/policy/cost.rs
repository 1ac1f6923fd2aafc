//! A policy costs unaffected files nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use thrufs_test_report::skipped;
use thrufs_tests::tracer::{Requests, Tracer, requests};

use crate::samples;
use crate::served::{REDACT_IMAGES, put, with_policy};

fn policy() -> String {
    // As long as a real one.
    let mut policy = String::new();
    for number in 0..200 {
        policy += &format!("[[rule]]\npath = '**/*.kind-{number}'\naction = 'direct'\n");
    }
    policy + "[[rule]]\npath = '**/.*'\naction = 'hide'\n" + REDACT_IMAGES
}

fn fill(source: &Path) {
    put(source, "dir/file", &[b'x'; 65_536]);
    put(source, "photos/a.jpg", &samples::photograph());
}

fn read_all(file: &File) {
    let mut page = [0; 4096];
    for at in 0..16 {
        file.read_exact_at(&mut page, at * 4096).unwrap();
    }
}

#[test]
fn a_policy_costs_passthrough_no_request() {
    with_policy("cache=always", &policy(), fill, |served| {
        let tracer = match Tracer::start(served.ground().mnt()) {
            Ok(tracer) => tracer,
            Err(error) => return skipped(format!("no tracing here: {error}")),
        };
        let path = served.at("dir/file");
        let file = File::open(&path).unwrap();
        assert_eq!(tracer.count(|| read_all(&file)), Requests::new());
        // Kept open: an inode in use survives when another test drops the kernel's caches.
        let seen = tracer.count(|| read_all(&File::open(&path).unwrap()));
        assert_eq!(seen, requests(&[("OPEN", 1), ("RELEASE", 1)]));
        let stat = || assert_eq!(fs::metadata(&path).unwrap().len(), 65_536);
        stat();
        assert_eq!(tracer.count(stat), Requests::new());
        drop(file);
        // The control: a read is counted.
        let seen = tracer.count(|| drop(fs::read(served.at("photos/a.jpg")).unwrap()));
        assert!(seen.contains_key("READ"), "{seen:?}");
    });
}
