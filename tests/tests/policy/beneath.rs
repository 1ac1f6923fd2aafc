//! Changes beneath, and by other servers of the same tree, while a rule redacts or hides.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::process::Process;
use thrufs_tests::programs;

use crate::samples;
use crate::served::{REDACT, errno, put, with_policy, with_policy_and_shared};

/// Longer than the required age of a version.
const SETTLED: Duration = Duration::from_millis(100);

const HIDE: &str = "[[rule]]\npath = 'secret/**'\naction = 'hide'\n";

/// Two photographs of one length, with the place elsewhere. What lies behind the end of one means nothing.
fn two_versions() -> (Vec<u8>, Vec<u8>) {
    let (mut one, mut other) = (samples::small_photograph(0), samples::small_photograph(700));
    let length = one.len().max(other.len());
    one.resize(length, 0);
    other.resize(length, 0);
    (one, other)
}

fn whole(mut file: &File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file system sets the time of change before it copies: a reader in between sees old data under the new
/// time. The write goes on when a page of its buffer is there.
#[test]
fn no_view_is_made_of_a_file_that_a_write_beneath_is_changing() {
    let (old, new) = two_versions();
    let fill = |source: &Path| put(source, "photos/a.jpg", &old);
    for options in ["cache=never", "cache=auto"] {
        with_policy_and_shared(options, REDACT, fill, |served| {
            let base = served.ground().base();
            let (slow, gate) = (base.join("slow"), base.join("gate"));
            fs::create_dir(&slow).unwrap();
            let [at, until] = [&slow, &gate].map(|path| path.to_str().unwrap());
            let pages = Process::start(&programs::slow_files(), &[at, until, "auto_unmount"]);
            assert_eq!(pages.line(), "ok");
            let page = File::open(slow.join("page-0")).unwrap();
            let path = served.at("photos/a.jpg");
            let reader = File::open(&path).unwrap();
            assert!(samples::is_clean(&whole(&reader).unwrap()));
            let beneath = OpenOptions::new()
                .write(true)
                .open(served.beneath("photos/a.jpg"))
                .unwrap();
            thread::scope(|scope| {
                assert_eq!(new[0], 0xff, "as the page");
                let rest = &new[1..];
                let (page, beneath) = (&page, &beneath);
                let writer = scope.spawn(move || {
                    let page = Mapping::new(page, 1, Sharing::SharedRead)?;
                    page.write_with(rest, beneath)
                });
                assert_eq!(pages.line(), "slow", "the write waits for its first byte");
                thread::sleep(SETTLED);
                let seen = File::open(&path).and_then(|file| whole(&file));
                let seen_open = whole(&reader);
                fs::write(&gate, b"").unwrap();
                assert_eq!(writer.join().unwrap().unwrap(), new.len());
                for seen in [seen, seen_open] {
                    assert!(seen.is_err() || samples::is_clean(&seen.unwrap()));
                }
            });
            drop(beneath);
            thread::sleep(SETTLED);
            for seen in [fs::read(&path), whole(&reader)] {
                assert!(samples::is_clean(&seen.unwrap()), "{options}");
            }
            assert!(fs::read(served.beneath("photos/a.jpg")).unwrap() == new);
            drop(reader);
            rustix::mount::unmount(&slow, UnmountFlags::DETACH).unwrap();
        });
    }
}

/// Two servers of a tree: what one has judged is not moved by the other before it is done.
#[test]
fn names_change_in_one_server_of_a_tree_at_a_time() {
    let fill = |source: &Path| {
        put(source, "a/file", b"");
        put(source, "b/file", b"");
    };
    for policy in [REDACT, HIDE] {
        with_policy_and_shared("", policy, fill, |served| {
            // As another server does.
            let root = File::open(served.ground().source()).unwrap();
            rustix::fs::flock(&root, FlockOperation::LockExclusive).unwrap();
            let (old, new) = (served.at("a/file"), served.at("a/new"));
            assert_eq!(errno(fs::rename(&old, &new)), libc::EBUSY);
            assert_eq!(errno(fs::hard_link(&old, &new)), libc::EBUSY);
            assert_eq!(errno(fs::remove_file(&old)), libc::EBUSY);
            assert!(served.beneath("a/file").exists() && !served.beneath("a/new").exists());
            thread::scope(|scope| {
                let waits = scope.spawn(|| fs::rename(&old, &new));
                thread::sleep(SETTLED);
                assert!(served.beneath("a/file").exists(), "it waits");
                rustix::fs::flock(&root, FlockOperation::Unlock).unwrap();
                waits.join().unwrap().unwrap();
            });
            fs::hard_link(&new, served.at("a/link")).unwrap();
            fs::remove_file(&new).unwrap();
            rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive)
                .expect("nothing is left locked");
        });
    }
    with_policy("", "", fill, |served| {
        let root = File::open(served.ground().source()).unwrap();
        rustix::fs::flock(&root, FlockOperation::LockExclusive).unwrap();
        fs::rename(served.at("b/file"), served.at("b/new")).unwrap();
    });
}

/// Two hard links are two names in a directory that tells case.
#[test]
fn links_whose_names_differ_in_case_are_two_names() {
    let fill = |source: &Path| {
        put(source, "report", b"words");
        fs::hard_link(source.join("report"), source.join("Report")).unwrap();
    };
    with_policy("", HIDE, fill, |served| {
        for name in ["report", "Report"] {
            assert_eq!(fs::read(served.at(name)).unwrap(), b"words");
        }
        for name in ["report", "Report"] {
            fs::remove_file(served.at(name)).unwrap();
        }
        assert!(!served.log_text().contains("ignores case"));
    });
}
