//! Changes beneath while a rule redacts.

use crate::samples;
use crate::served::{REDACT, is_redacted, put, whole, with_policy};
use thrufs_tests::prelude::*;

/// Longer than the required age of a version.
const SETTLED: Duration = Duration::from_millis(100);

/// Two photographs of one length, with the place elsewhere. What lies behind the end of one means nothing.
fn two_versions() -> (Vec<u8>, Vec<u8>) {
    let (mut one, mut other) = (samples::small_photograph(0), samples::small_photograph(700));
    let length = one.len().max(other.len());
    one.resize(length, 0);
    other.resize(length, 0);
    (one, other)
}

/// A file system sets the time of change before it copies: a reader in between sees old data under the new
/// time. The write goes on when a page of its buffer is there.
#[test]
fn no_view_is_made_of_a_file_that_a_write_beneath_is_changing() {
    let (old, new) = two_versions();
    let fill = |source: &Path| put(source, "photos/a.jpg", &old);
    for options in ["cache=never", "cache=auto"] {
        with_policy(options, REDACT, fill, |served| {
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
            assert!(is_redacted(&path) && samples::is_clean(&whole(&reader).unwrap()));
            assert!(fs::read(served.beneath("photos/a.jpg")).unwrap() == new);
            drop(reader);
            rustix::mount::unmount(&slow, UnmountFlags::DETACH).unwrap();
        });
    }
}
