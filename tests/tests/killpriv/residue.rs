//! Bits set beneath while the kernel above has cached that there are none: how long they outlive writes by
//! a caller without CAP_FSETID, on each data path.

use crate::privileges::{Bits, Left};
use thrufs_tests::prelude::*;

/// Validity of attributes where a test waits for its end.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Longer than that.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// A file of root that all may write, which a user has open through a mount and has written to.
struct Victim {
    // First: an open file keeps the mount busy.
    file: File,
    beneath: PathBuf,
    mounted: Mounted,
}

impl Victim {
    fn new(options: &str) -> Victim {
        let timeout = TIMEOUT.as_secs_f32();
        // The kernel is not told either.
        let options = format!("{options},follow=no,attr_timeout={timeout},entry_timeout={timeout}");
        let mounted = Mounted::start_on(Lower::Tmpfs, &options).unwrap();
        let (path, beneath) = (mounted.mnt().join("file"), mounted.source().join("file"));
        fs::write(&beneath, b"content").unwrap();
        fs::set_permissions(&beneath, fs::Permissions::from_mode(0o777)).unwrap();
        let file = ALICE.run(|| OpenOptions::new().read(true).write(true).open(&path));
        let victim = Victim {
            file: file.unwrap(),
            beneath,
            mounted,
        };
        victim.write();
        victim
    }

    fn write(&self) {
        ALICE.run(|| self.file.write_all_at(b"x", 0)).unwrap();
    }

    fn mode(&self) -> u32 {
        Left::on(&self.beneath).mode
    }

    fn end(self) {
        let Victim {
            file, mut mounted, ..
        } = self;
        drop(file);
        mounted.stop().unwrap();
    }
}

#[test]
fn with_passthrough_they_stay_until_the_next_getattr() {
    skip_if!(must_skip());
    let victim = Victim::new("passthrough");
    Bits::Both.set(&victim.beneath);
    victim.write();
    assert_eq!(victim.mode(), 0o6777, "the kernel does not know");
    thread::sleep(AFTERWARDS);
    victim.write();
    assert_eq!(victim.mode(), 0o6777, "and a write does not make it ask");
    assert_eq!(
        victim.file.metadata().unwrap().permissions().mode() & 0o7777,
        0o6777
    );
    victim.write();
    assert_eq!(victim.mode(), 0o777, "once it knows, they fall");
    victim.end();
}

#[test]
fn written_back_they_stay_for_the_timeout() {
    skip_if!(must_skip());
    let victim = Victim::new("writeback");
    Bits::Both.set(&victim.beneath);
    thread::sleep(AFTERWARDS);
    victim.write();
    victim.file.sync_all().unwrap();
    assert_eq!(
        victim.mode(),
        0o777,
        "a write asks for the mode once it is old"
    );
    victim.end();
}
