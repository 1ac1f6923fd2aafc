//! The data path that a rule chooses, and what it costs.

use crate::samples;
use crate::served::{NOTHING, REDACT_IMAGES, errno, open, put, with_policy};
use thrufs_tests::prelude::*;
use thrufs_tests::tracer::{Requests, requests};

/// Actions that choose the data path change nothing else.
#[test]
fn data_paths_are_as_rules_say() {
    let all = ["passthrough", "cached", "direct"];
    let rule = |name: &str| format!("[[rule]]\npath = '{name}'\naction = '{name}'\n");
    let policy = all.map(rule).concat();
    let fill = |source: &Path| {
        for name in ["passthrough", "cached", "direct", "other"] {
            put(source, name, b"content");
        }
    };
    for (options, ways) in [
        ("cache=auto", all),
        ("cache=always", all),
        ("cache=never", ["passthrough", "direct", "direct"]),
        ("cache=auto,nopassthrough", ["cached", "cached", "direct"]),
    ] {
        with_policy(options, &policy, fill, |served| {
            assert_eq!(served.way("other"), ways[0], "{options}");
            for (name, way) in all.into_iter().zip(ways) {
                assert_eq!(served.way(name), way, "{options}");
                let mut file = open(&served.at(name), libc::O_RDWR).unwrap();
                assert_eq!(served.way(name), way, "{options}, open");
                file.write_all(b"CON").unwrap();
                drop(file);
                assert_eq!(fs::read(served.beneath(name)).unwrap(), b"CONtent");
                assert_eq!(fs::read(served.at(name)).unwrap(), b"CONtent");
            }
            served.reload(&format!("default = 'direct'\n{policy}"));
            assert_eq!(served.way("other"), "direct", "{options}");
        });
    }
}

#[test]
fn explain_agrees_with_the_mount() {
    let fill = |source: &Path| {
        put(source, "photos/large", &samples::photograph());
        put(source, "photos/text", b"words");
        put(source, "free", b"words");
    };
    with_policy("", REDACT_IMAGES, fill, |served| {
        for (name, way) in [("photos/large", "filtered"), ("free", "passthrough")] {
            let _file = File::open(served.at(name)).unwrap();
            let explained = served.explain(name);
            assert_eq!(explained["data_path"], way, "{name}");
            assert_eq!(explained["opens"]["total"], 1);
        }
        assert_eq!(served.explain("photos/large")["rule"], "rule 1 (line 1)");
        assert!(served.explain("free")["rule"].is_null());
        assert_eq!(errno(File::open(served.at("photos/text"))), libc::EACCES);
        assert_eq!(served.way("photos/text"), "filtered");
        let _held = File::open(served.at("free")).unwrap();
        served.reload("[[rule]]\npath = 'free'\naction = 'redact'\nredact = 'gps'\n");
        assert_eq!(served.way("free"), "passthrough");
        let reason = served.explain("free")["reason"].to_string();
        assert!(reason.contains("before the policy"), "{reason}");
    });
}

#[test]
fn renaming_a_directory_changes_the_rules_of_what_is_in_it() {
    let policy = "[[rule]]\npath = 'kept/**'\naction = 'read-only'\n";
    let fill = |source: &Path| put(source, "other/sub/file", b"content");
    with_policy("cache=always", policy, fill, |served| {
        let write = |name: &str| errno(open(&served.at(name), libc::O_RDWR));
        assert_eq!(write("other/sub/file"), 0);
        fs::rename(served.at("other"), served.at("kept")).unwrap();
        assert_eq!(write("kept/sub/file"), libc::EROFS);
        served.reload(NOTHING);
        assert_eq!(write("kept/sub/file"), 0);
    });
}

/// With as many rules as a real policy.
#[test]
fn a_policy_costs_passthrough_no_request() {
    let rule = |number| format!("[[rule]]\npath = '**/*.kind-{number}'\naction = 'direct'\n");
    let rules: String = (0..200).map(rule).collect();
    let policy = rules + "[[rule]]\npath = '**/.*'\naction = 'hide'\n" + REDACT_IMAGES;
    let fill = |source: &Path| {
        put(source, "dir/file", &[b'x'; 65_536]);
        put(source, "photos/a.jpg", &samples::photograph());
    };
    let read_all = |file: &File| file.read_exact_at(&mut [0; 65_536], 0).unwrap();
    with_policy("cache=always", &policy, fill, |served| {
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
        // The control: a read is counted.
        let seen = tracer.count(|| drop(fs::read(served.at("photos/a.jpg")).unwrap()));
        assert!(seen.contains_key("READ"), "{seen:?}");
    });
}
